// SPDX-License-Identifier: LGPL-2.1-or-later
/* Stopping threads by ptrace; see trace.h. */
#include "os/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int os_trace_permitted(pid_t pid)
{
	char path[64];
	int fd;

	/* The kernel asks here what it asks before an attach. */
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : errno == EACCES ? -EPERM : -errno;
	close(fd);
	return 0;
}

int os_trace_interrupt(pid_t tid)
{
	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0)
		return -errno;
	if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) < 0)
		return -errno;
	return 0;
}

enum os_trace_state os_trace_poll(pid_t tid, bool is_child, int *ret_signal)
{
	siginfo_t info = {.si_pid = 0};
	int status;

	*ret_signal = 0;
	/* Looked at first, since what is waited for is gone, and a child's end is its parent's. */
	if (waitid(P_PID, (id_t)tid, &info, WSTOPPED | WEXITED | WNOHANG | WNOWAIT | __WALL) < 0)
		return errno == EINTR ? OS_TRACE_RUNNING : OS_TRACE_ENDED;
	if (!info.si_pid)
		return OS_TRACE_RUNNING;
	if (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED) {
		if (!is_child)
			waitpid(tid, &status, WNOHANG | __WALL);
		return OS_TRACE_ENDED;
	}
	if (waitpid(tid, &status, WNOHANG | __WALL) != tid || !WIFSTOPPED(status))
		return OS_TRACE_RUNNING;
	if (status >> 16 != PTRACE_EVENT_STOP)
		*ret_signal = WSTOPSIG(status);
	return OS_TRACE_STOPPED;
}

void os_trace_detach(pid_t tid, bool is_child, int signal)
{
	int ignored;

	if (ptrace(PTRACE_DETACH, tid, NULL, (void *)(long)signal) == 0)
		return;
	/* It was killed while it stood still: as its tracer we owe its parent the wait. */
	os_trace_poll(tid, is_child, &ignored);
}
