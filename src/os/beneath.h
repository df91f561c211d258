/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Opening what lies in a folder, without a way out of it: openat2(2), and what stands in for it. */
#ifndef TORPOR_OS_BENEATH_H
#define TORPOR_OS_BENEATH_H

/*
 * Opens "a/b/c" below the folder `dir`, which may be O_PATH.  A symlink, as any part of it, is -ELOOP, and `..` is -EXDEV: whoever
 * can write below `dir` cannot lead outside.  A descriptor or a negative errno.
 */
int os_open_beneath(int dir, const char *path, int flags);

/* The same, folder by folder: for kernels before 5.6, and where openat2(2) is filtered. */
int os_walk_beneath(int dir, const char *path, int flags);

#endif
