// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Whether a thread is frozen; see still.h.  The kernel tells it of groups, not of threads, so
 * it is concluded:
 *
 * A thread that was told to freeze has a signal pending until it stands in the freezer.  A
 * sleep that signals interrupt (state S) does not begin with a signal pending.  So one that is
 * off the CPU in state S is in the freezer.  It may show S for an instant while it is about to
 * sleep and finds the signal; but then it is not off the CPU, and /proc/TID/syscall, which
 * looks for that, says "running".
 *
 * A sleep that signals do not reach (D) is none of that, with one exception: the parent of a
 * vfork(2), which waits for its child, and meets the freezer before its next instruction.
 */
#include "os/still.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/proc.h"

/* -1 is what the kernel says of one that sleeps outside of system calls: it came from an
 * interrupt. */
#define RUNNING LONG_MIN
#define UNKNOWN LONG_MAX

/* The system call that it sleeps in. */
static long current_syscall(pid_t tid)
{
	CLEANUP_CLOSE int fd = -1;
	char path[64], text[256];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/syscall", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return UNKNOWN;
	text[n] = '\0';
	return text[0] == 'r' ? RUNNING : strtol(text, NULL, 10);
}

static bool is_fork(long nr)
{
#ifdef SYS_vfork
	if (nr == SYS_vfork)
		return true;
#endif
	return nr == SYS_clone || nr == SYS_clone3;
}

bool os_still(pid_t tid)
{
	struct os_proc_stat stat;
	long nr;

	if (os_proc_stat(tid, tid, &stat) < 0 || stat.kernel_thread)
		return true;
	switch (stat.state) {
	case 'T':
	case 't':
	case 'Z':
	case 'X':
		return true;
	case 'D':
		return is_fork(current_syscall(tid));
	case 'S':
		nr = current_syscall(tid);
		/* Off the CPU, but in the same sleep?  Where that cannot be asked the state has
		 * to do. */
		return nr != RUNNING &&
		       (os_proc_stat(tid, tid, &stat) < 0 || stat.state == 'S');
	default:
		return false;
	}
}
