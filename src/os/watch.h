/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who changes a file other than through a mapping that there is: inotify(7) tells of write(2),
 * truncation and allocation by anybody, and of no store through a mapping, but of the file
 * being opened, which comes before a mapping.
 */
#ifndef TORPOR_OS_WATCH_H
#define TORPOR_OS_WATCH_H

/* A descriptor to be closed, or a negative errno. */
int os_watch_open(void);

/* Watches an open file.  Its number among the watched, the same for the same file, or a
 * negative errno (-ENOSPC: too many). */
int os_watch_add(int watch, int file);

/* Number of a file that was changed or opened since it was asked last; -EAGAIN no more,
 * -EOVERFLOW some were lost: any may have changed. */
int os_watch_next(int watch);

#endif
