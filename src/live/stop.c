// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Stopping processes thread by thread; see stop.h and docs/design/live.md.
 *
 * A thread of its own, the keeper, traces.  Whatever goes wrong, its end lets every thread go
 * on, also one that was asked to stop and has not stopped yet, which cannot be let go of in any
 * other way.
 *
 * The list of threads is sorted by number, and grows until it is known to be whole: threads
 * that stand still make no threads, and processes that stand still have no children, so it
 * ends.
 */
#include "live/stop.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/wait.h"
#include "live/stop-priv.h"
#include "os/proc.h"

/* A thread that does not stop within this sleeps in the kernel, and may do so for ever. */
#define STOP_TIMEOUT_NS 10000000000u

/* Between two looks at threads that are on their way to a stop. */
#define NAP_MIN_NS 5000
#define NAP_MAX_NS 1000000

int live_stop_new(const struct live_stop_spec *spec, struct live_stop **ret, struct err *e)
{
	struct live_stop *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return err_sys(e, -ENOMEM, "cannot stop anything");
	s->tree = spec->tree;
	rc = stop_list_add_named(s, spec->pids, spec->n_pids, e);
	if (!rc && spec->cgroup)
		rc = live_freeze_new(spec->cgroup, &s->freeze, e);
	if (!rc)
		rc = stop_list_pids(s, e);
	if (rc < 0) {
		live_stop_free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

static struct thread *find_thread(struct live_stop *s, pid_t tid, size_t *ret_at)
{
	size_t low = 0, high = s->n_threads;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (s->threads[mid].tid < tid)
			low = mid + 1;
		else
			high = mid;
	}
	*ret_at = low;
	return low < s->n_threads && s->threads[low].tid == tid ? &s->threads[low] : NULL;
}

/* Why a thread cannot be had; the number that comes back is what the whole stop returns. */
static int refused(pid_t pid, pid_t tid, int rc, struct err *e)
{
	struct os_proc_stat stat = {.comm = "?"}, other = {.comm = "?"};
	pid_t debugger = 0;

	os_proc_stat(pid, tid, &stat);
	os_proc_tracer(tid, &debugger);
	if (debugger && debugger != getpid() && os_proc_stat(debugger, debugger, &other) == 0)
		return err_set(e, -EPERM,
			       "cannot stop process %d (%s): process %d (%s) traces it", pid,
			       stat.comm, debugger, other.comm);
	return err_sys(e, rc, "cannot stop thread %d of process %d (%s)", tid, pid, stat.comm);
}

/* 1: a thread that was not known is on its way to a stop. */
static int interrupt_thread(struct live_stop *s, const struct process *p, pid_t tid,
			    struct err *e)
{
	struct os_proc_stat stat;
	struct thread *more;
	size_t at;
	int rc;

	if (find_thread(s, tid, &at))
		return 0;
	more = reallocarray(s->threads, s->n_threads + 1, sizeof(*more));
	if (!more)
		return err_sys(e, -ENOMEM, "cannot hold a list of threads");
	s->threads = more;
	rc = os_trace_interrupt(tid);
	if (rc == -ESRCH)
		return 0;
	if (rc < 0) {
		/* A leader that has ended before its threads stays behind as a zombie. */
		if (os_proc_stat(p->pid, tid, &stat) < 0 || stat.state == 'Z' ||
		    stat.state == 'X')
			return 0;
		return refused(p->pid, tid, rc, e);
	}
	memmove(more + at + 1, more + at, (s->n_threads - at) * sizeof(*more));
	more[at] = (struct thread){
		.tid = tid, .pid = p->pid, .is_child = p->is_child && tid == p->pid};
	s->n_threads++;
	return 1;
}

static int ended(const struct process *p, struct err *e)
{
	return err_set(e, -ESRCH, "process %d ended before it could be stopped", p->pid);
}

/* How many threads of a process were new.  One that was found, and not named, may have ended
 * meanwhile. */
static int interrupt_process(struct live_stop *s, const struct process *p, struct err *e)
{
	CLEANUP_FREE pid_t *tids = NULL;
	size_t n = 0, i;
	int rc = os_proc_tasks(p->pid, &tids, &n), new = 0;

	if (rc == -ESRCH || rc == -ENOENT)
		return p < s->processes + s->n_named ? ended(p, e) : 0;
	if (rc < 0)
		return err_sys(e, rc, "cannot list the threads of process %d", p->pid);
	for (i = 0; i < n; i++) {
		rc = interrupt_thread(s, p, tids[i], e);
		if (rc < 0)
			return rc;
		new += rc;
	}
	return new;
}

static size_t poll_threads(struct live_stop *s)
{
	size_t i, running = 0;

	for (i = 0; i < s->n_threads; i++) {
		struct thread *t = &s->threads[i];

		if (t->state == OS_TRACE_RUNNING)
			t->state = os_trace_poll(t->tid, t->is_child, &t->signal);
		running += t->state == OS_TRACE_RUNNING;
	}
	return running;
}

/* The end of a first thread is not reported as long as others live; that of any other one is to
 * be waited for. */
static void look_for_ended(struct live_stop *s)
{
	struct os_proc_stat stat;
	size_t i;

	for (i = 0; i < s->n_threads; i++) {
		struct thread *t = &s->threads[i];

		if (t->state == OS_TRACE_RUNNING && t->tid == t->pid &&
		    (os_proc_stat(t->tid, t->tid, &stat) < 0 || stat.state == 'Z' ||
		     stat.state == 'X'))
			t->state = OS_TRACE_ENDED;
	}
}

static int does_not_stop(const struct live_stop *s, struct err *e)
{
	struct os_proc_stat stat = {.comm = "?", .state = '?'};
	size_t i;

	for (i = 0; i < s->n_threads; i++) {
		const struct thread *t = &s->threads[i];

		if (t->state != OS_TRACE_RUNNING)
			continue;
		os_proc_stat(t->tid, t->tid, &stat);
		return err_set(
			e, -ETIMEDOUT,
			"thread %d (%s, in state %c) does not stop: it sleeps in the kernel",
			t->tid, stat.comm, stat.state);
	}
	return err_set(e, -ETIMEDOUT,
		       "threads of process %d come faster than they can be stopped",
		       s->processes[0].pid);
}

/* Looks up, and sleeps longer each time. */
static int nap(struct live_stop *s, long *ns, uint64_t deadline, const atomic_bool *cancel,
	       struct err *e)
{
	struct timespec time = {.tv_nsec = *ns};

	if (cancel && atomic_load(cancel))
		return err_set(e, -ECANCELED, "cancelled");
	if (clock_mono_ns() > deadline)
		return does_not_stop(s, e);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
	if (*ns < NAP_MAX_NS)
		*ns *= 2;
	else
		look_for_ended(s);
	return 0;
}

/*
 * Are all threads of a process in our list?  Where one ends while they are listed, the kernel
 * may leave out another one that lives: so what counts is their number.
 */
static bool all_known(const struct live_stop *s, const struct process *p)
{
	unsigned int stand = 0;
	struct os_proc_stat stat;
	size_t i;

	for (i = 0; i < s->n_threads; i++)
		stand += s->threads[i].pid == p->pid && s->threads[i].state == OS_TRACE_STOPPED;
	if (os_proc_stat(p->pid, p->pid, &stat) < 0)
		return true;
	/* A first thread that has ended is counted as long as others live, or nobody has waited
	 * for it. */
	return stat.threads <= stand + (stat.state == 'Z' || stat.state == 'X');
}

/* 1: some threads of the processes were not known, or some are about to be gone. */
static int interrupt_processes(struct live_stop *s, struct err *e)
{
	int rc, more = 0;
	size_t i;

	for (i = 0; i < s->n_processes; i++) {
		rc = interrupt_process(s, &s->processes[i], e);
		if (rc < 0)
			return rc;
		more |= rc > 0;
	}
	for (i = 0; i < s->n_processes && !more; i++)
		more = !all_known(s, &s->processes[i]);
	return more;
}

/* All threads of all known processes stand still. */
static int stop_processes(struct live_stop *s, uint64_t deadline, const atomic_bool *cancel,
			  struct err *e)
{
	int more, rc = 0;

	do {
		long ns = NAP_MIN_NS;

		more = interrupt_processes(s, e);
		while (more >= 0 && !rc && poll_threads(s))
			rc = nap(s, &ns, deadline, cancel, e);
		if (more > 0 && !rc)
			rc = nap(s, &ns, deadline, cancel, e);
	} while (more > 0 && !rc);
	return more < 0 ? more : rc;
}

/* A process that was named and has ended is an error; one that was found has just ended. */
static int check_alive(struct live_stop *s, struct err *e)
{
	size_t i;

	for (i = 0; i < s->n_named; i++) {
		if (stop_list_ended(&s->processes[i]))
			return ended(&s->processes[i], e);
	}
	return 0;
}

static int stop_all(struct live_stop *s, const atomic_bool *cancel, struct err *e)
{
	uint64_t deadline = clock_mono_ns() + STOP_TIMEOUT_NS;
	int rc, more = 0;

	if (s->freeze) {
		rc = live_freeze_now(s->freeze, cancel, e);
		if (rc < 0)
			return rc;
	}
	do {
		rc = stop_processes(s, deadline, cancel, e);
		if (!rc && s->tree) {
			more = stop_list_add_children(s, e);
			rc = more < 0 ? more : 0;
		}
	} while (!rc && more);
	return rc < 0 ? rc : check_alive(s, e);
}

static void let_go(struct live_stop *s)
{
	size_t i;

	for (i = 0; i < s->n_threads; i++) {
		struct thread *t = &s->threads[i];

		if (t->state == OS_TRACE_STOPPED)
			os_trace_detach(t->tid, t->is_child, t->signal);
	}
}

static void set_phase(struct live_stop *s, enum phase phase)
{
	atomic_store(&s->phase, phase);
	wait_wake(&s->phase);
}

static void *keep(void *arg)
{
	struct live_stop *s = arg;

	s->rc = stop_all(s, s->cancel, s->e);
	if (!s->rc)
		s->rc = stop_list_pids(s, s->e);
	if (!s->rc && os_proc_now(&s->stop) < 0)
		s->rc = err_set(s->e, -EIO, "cannot read /proc/loadavg");
	s->stopped = !s->rc;
	set_phase(s, s->rc < 0 ? FAILED : STOPPED);
	while (atomic_load(&s->phase) == STOPPED)
		wait_while(&s->phase, STOPPED);
	let_go(s);
	return NULL;
}

/* The keeper takes no signals: they are the caller's. */
static int start_keeper(struct live_stop *s)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&s->keeper, NULL, keep, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	s->has_keeper = rc == 0;
	return -rc;
}

int live_stop_now(struct live_stop *s, const atomic_bool *cancel, struct err *e)
{
	int rc;

	s->cancel = cancel;
	s->e = e;
	s->n_threads = 0;
	s->stopped = s->gone = false;
	stop_list_reset(s);
	atomic_store(&s->phase, STOPPING);
	rc = start_keeper(s);
	if (rc < 0)
		return err_sys(e, rc, "cannot start a thread");
	while (atomic_load(&s->phase) == STOPPING)
		wait_while(&s->phase, STOPPING);
	rc = s->rc;
	if (rc < 0)
		live_stop_go(s, NULL);
	return rc;
}

int live_stop_go(struct live_stop *s, struct err *e)
{
	int rc;

	if (s->has_keeper) {
		set_phase(s, GO);
		pthread_join(s->keeper, NULL);
		s->has_keeper = false;
	}
	rc = s->freeze ? live_freeze_thaw(s->freeze, e) : 0;
	if (s->stopped && !s->gone)
		s->gone = os_proc_now(&s->go) == 0;
	return rc;
}

void live_stop_free(struct live_stop *s)
{
	size_t i;

	if (!s)
		return;
	live_stop_go(s, NULL);
	live_freeze_free(s->freeze);
	for (i = 0; i < s->n_processes; i++)
		close(s->processes[i].pidfd);
	free(s->processes);
	free(s->threads);
	free(s->pids);
	free(s);
}

size_t live_stop_threads(const struct live_stop *s)
{
	size_t i, n = s->n_frozen;

	for (i = 0; i < s->n_threads; i++)
		n += s->threads[i].state == OS_TRACE_STOPPED;
	return n;
}
