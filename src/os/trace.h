/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One stop and one start of a thread of another process, by ptrace(2).  A thread that was stopped so
 * goes on when the stopping thread ends, in whatever way.  All calls for one `tid` come from one thread.
 *
 * Stops are learnt by wait(2): no other thread of this process may wait for just any child meanwhile.
 */
#ifndef TORPOR_OS_TRACE_H
#define TORPOR_OS_TRACE_H

#include <stdbool.h>
#include <sys/types.h>

enum os_trace_state {
	OS_TRACE_RUNNING,
	OS_TRACE_STOPPED,
	OS_TRACE_ENDED,
};

/* May this process stop that one?  0, -EPERM, -ESRCH.  Stops nothing. */
int os_trace_permitted(pid_t pid);

/*
 * Takes hold of a thread and asks it to stop.  -ESRCH it has ended; -EPERM no permission, a tracer has it
 * already, a kernel thread, or it is a zombie.
 */
int os_trace_interrupt(pid_t tid);

/*
 * Has it stopped?  Never blocks.  *ret_signal is a signal that was just being delivered, 0 for none: it
 * belongs to os_trace_detach().  A child of this process that has ended is left for its parent to reap.
 */
enum os_trace_state os_trace_poll(pid_t tid, bool is_child, int *ret_signal);

/* Lets it go on: into the stop by a signal that it was in before, if it was. */
void os_trace_detach(pid_t tid, bool is_child, int signal);

#endif
