// SPDX-License-Identifier: LGPL-2.1-or-later
/* See pagemap.h. */
#include "os/pagemap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

#define PAGE_BYTES 4096u

int os_pagemap_open(pid_t pid)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int os_pagemap_read(int fd, uint64_t address, size_t pages, uint64_t *ret_entries)
{
	size_t got, bytes = pages * sizeof(*ret_entries);
	int rc = io_pread(fd, ret_entries, bytes, address / PAGE_BYTES * sizeof(*ret_entries), &got);

	if (rc < 0)
		return rc;
	return got == bytes ? 0 : -EFAULT;
}

int os_soft_dirty_clear(pid_t pid)
{
	CLEANUP_CLOSE int fd = -1;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/clear_refs", pid);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "4", 1) != 1)
		return -errno;
	return 0;
}

/* A page that was just stored to is soft-dirty, if the kernel keeps such a bit: nothing needs to be cleared. */
bool os_soft_dirty_works(void)
{
	CLEANUP_CLOSE int fd = os_pagemap_open(getpid());
	volatile char *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t entry = 0;

	if (page == MAP_FAILED)
		return false;
	*page = 1;
	if (fd >= 0)
		os_pagemap_read(fd, (uintptr_t)page, 1, &entry);
	munmap((void *)page, PAGE_BYTES);
	return entry & OS_PAGEMAP_SOFT_DIRTY;
}
