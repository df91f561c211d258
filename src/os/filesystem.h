/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What kind of file system a descriptor lies on, and how much room there is. */
#ifndef TORPOR_OS_FILESYSTEM_H
#define TORPOR_OS_FILESYSTEM_H

#include <stdbool.h>
#include <stdint.h>

struct os_filesystem {
	bool memory;    /* tmpfs, ramfs: its files are memory */
	bool tmpfs;
	bool huge;      /* tmpfs mounted with huge=always, within_size or advise */
	uint32_t huge_page_bytes; /* hugetlbfs: of its files; else 0 */
	uint64_t free_bytes; /* that this process may take; for memory at most what the system has available */
	bool free_known;     /* a tmpfs without a limit, for one, knows of none */
};

/* 0 or a negative errno. */
int os_filesystem_of(int fd, struct os_filesystem *ret);

/* Is `name` in a folder the root of a mount?  Symlinks are not followed. */
bool os_is_mount_point(int dir, const char *name);

/* Is anything mounted below this folder, at any depth? */
bool os_mounted_below(const char *path);

#endif
