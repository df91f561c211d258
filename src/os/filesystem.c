// SPDX-License-Identifier: LGPL-2.1-or-later
/* File systems; see filesystem.h. */
#include "os/filesystem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"

/* Memory that can be had without swapping out, plus free swap; 0 when it is not told. */
static uint64_t available_bytes(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	uint64_t sum = 0;
	unsigned long long kib;
	char line[128];

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1 ||
		    sscanf(line, "SwapFree: %llu", &kib) == 1)
			sum += kib << 10;
	}
	fclose(f);
	return sum;
}

/* Is the mount of this device one with huge=always, within_size or advise? */
static bool mounted_huge(dev_t dev)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096];
	bool huge = false;

	if (!f)
		return false;
	while (!huge && fgets(line, sizeof(line), f)) {
		unsigned int major_no, minor_no;
		const char *options = strstr(line, " - ");

		if (sscanf(line, "%*u %*u %u:%u", &major_no, &minor_no) != 2 || !options ||
		    makedev(major_no, minor_no) != dev)
			continue;
		huge = strstr(options, "huge=always") || strstr(options, "huge=within_size") ||
		       strstr(options, "huge=advise");
	}
	fclose(f);
	return huge;
}

int os_filesystem_of(int fd, struct os_filesystem *ret)
{
	struct os_filesystem fs = {.memory = false};
	struct statfs sfs;
	struct stat st;
	uint64_t blocks;

	if (fstatfs(fd, &sfs) < 0 || fstat(fd, &st) < 0)
		return -errno;
	fs.tmpfs = sfs.f_type == TMPFS_MAGIC;
	fs.memory = fs.tmpfs || sfs.f_type == RAMFS_MAGIC;
	fs.huge = fs.tmpfs && mounted_huge(st.st_dev);
	if (sfs.f_type == HUGETLBFS_MAGIC)
		fs.huge_page_bytes = (uint32_t)sfs.f_bsize;
	blocks = geteuid() == 0 ? sfs.f_bfree : sfs.f_bavail;
	fs.free_known = sfs.f_blocks > 0;
	if (num_mul_overflows(blocks, (uint64_t)sfs.f_bsize, &fs.free_bytes))
		fs.free_bytes = UINT64_MAX;
	if (fs.memory) {
		uint64_t available = available_bytes();

		if (available && (!fs.free_known || available < fs.free_bytes)) {
			fs.free_bytes = available;
			fs.free_known = true;
		}
	}
	*ret = fs;
	return 0;
}

bool os_is_mount_point(int dir, const char *name)
{
	struct statx st;

	return statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &st) == 0 &&
	       (st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

/* In place: "\040" is a blank, and the like. */
static void unescape_octal(char *text)
{
	char *to = text;

	while (*text) {
		if (text[0] == '\\' && strspn(text + 1, "01234567") >= 3) {
			*to++ = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'));
			text += 4;
		} else {
			*to++ = *text++;
		}
	}
	*to = '\0';
}

bool os_mounted_below(const char *path)
{
	CLEANUP_FREE char *real = realpath(path, NULL), *line = NULL;
	FILE *f = real ? fopen("/proc/self/mountinfo", "re") : NULL;
	size_t room = 0, bytes = real ? strlen(real) : 0;
	bool below = false;

	while (f && !below && getline(&line, &room, f) > 0) {
		CLEANUP_FREE char *at = NULL;

		if (sscanf(line, "%*u %*u %*s %*s %ms", &at) != 1)
			continue;
		unescape_octal(at);
		below = !strncmp(at, real, bytes) && at[bytes] == '/';
	}
	if (f)
		fclose(f);
	return below;
}
