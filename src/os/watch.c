// SPDX-License-Identifier: LGPL-2.1-or-later
/* See watch.h. */
#include "os/watch.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>

int os_watch_open(void)
{
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int os_watch_add(int watch, int file)
{
	char path[64];
	int number;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	number = inotify_add_watch(watch, path, IN_MODIFY | IN_OPEN);
	return number < 0 ? -errno : number;
}

int os_watch_next(int watch)
{
	/* One event at a time: those of a file have no name behind them. */
	union {
		struct inotify_event event;
		char room[sizeof(struct inotify_event) + NAME_MAX + 1];
	} u;

	if (read(watch, &u, sizeof(u.event)) < 0 &&
	    (errno != EINVAL || read(watch, &u, sizeof(u)) < 0))
		return -errno;
	return u.event.mask & IN_Q_OVERFLOW ? -EOVERFLOW : u.event.wd;
}
