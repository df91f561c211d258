// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Which processes are stopped: what was named, what descends from it, what is in the control
 * group.  Stops nothing.
 *
 * What is found while processes run is good for preparing only, and is found again when they
 * stand still.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "live/stop-priv.h"
#include "os/proc.h"

static bool has_process(const struct live_stop *s, pid_t pid)
{
	size_t i;

	for (i = 0; i < s->n_processes; i++) {
		if (s->processes[i].pid == pid)
			return true;
	}
	return false;
}

/* With a descriptor that tells when it has ended: its number can then come to mean another one.
 */
static int add_process(struct live_stop *s, pid_t pid, struct err *e)
{
	struct process *more = reallocarray(s->processes, s->n_processes + 1, sizeof(*more));
	struct os_proc_stat stat;
	int fd, rc;

	if (!more)
		return err_sys(e, -ENOMEM, "cannot hold a list of processes");
	s->processes = more;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return err_sys(e, -errno, "cannot stop process %d", pid);
	rc = os_proc_stat(pid, pid, &stat);
	if (rc < 0) {
		close(fd);
		return err_sys(e, rc, "cannot stop process %d", pid);
	}
	more[s->n_processes++] = (struct process){pid, fd, stat.ppid == getpid()};
	return 0;
}

static int check_process(pid_t pid, struct err *e)
{
	struct os_proc_stat stat, tracer;
	pid_t debugger = 0, tid = pid;
	int rc;

	if (pid <= 0)
		return err_set(e, -EINVAL, "%d is not a process", pid);
	if (pid == getpid())
		return err_set(e, -EINVAL,
			       "cannot stop process %d: that is this process itself", pid);
	rc = os_proc_stat(pid, pid, &stat);
	if (rc == -ESRCH || rc == -ENOENT)
		return err_set(e, -ESRCH, "there is no process %d", pid);
	/* Its first thread may have ended before the others. */
	if (!rc)
		rc = os_proc_living(pid, &tid, &stat);
	if (rc == -ESRCH)
		return err_set(e, rc, "process %d (%s) has ended", pid, stat.comm);
	if (rc < 0)
		return err_sys(e, rc, "cannot look at process %d", pid);
	if (stat.kernel_thread)
		return err_set(e, -EPERM, "cannot stop process %d (%s): it is a kernel thread",
			       pid, stat.comm);
	if (os_proc_tracer(tid, &debugger) == 0 && debugger &&
	    os_proc_stat(debugger, debugger, &tracer) == 0)
		return err_set(e, -EPERM,
			       "cannot stop process %d (%s): process %d (%s) traces it", pid,
			       stat.comm, debugger, tracer.comm);
	rc = os_trace_permitted(tid);
	return rc < 0 ? err_sys(e, rc, "cannot stop process %d (%s)", pid, stat.comm) : 0;
}

static int refuse_own_tree(const struct live_stop *s, struct err *e)
{
	struct live_origin self = {.pid = getpid(), .ppid = getppid()};

	if (!live_descends(&self, s->pids, s->n_pids, NULL))
		return 0;
	return err_set(e, -EINVAL,
		       "cannot stop all that descend from the processes: this process does");
}

int stop_list_add_named(struct live_stop *s, const pid_t *pids, size_t n, struct err *e)
{
	int rc = 0;
	size_t i;

	for (i = 0; i < n && !rc; i++) {
		rc = check_process(pids[i], e);
		if (!rc && !has_process(s, pids[i]))
			rc = add_process(s, pids[i], e);
	}
	s->n_named = s->n_processes;
	if (rc < 0 || !s->tree)
		return rc;
	rc = stop_list_pids(s, e);
	if (!rc)
		rc = refuse_own_tree(s, e);
	while (!rc && (rc = stop_list_add_children(s, e)) > 0)
		rc = 0;
	return rc;
}

int stop_list_add_children(struct live_stop *s, struct err *e)
{
	size_t i, j, before = s->n_processes;

	for (i = 0; i < s->n_processes; i++) {
		CLEANUP_FREE pid_t *pids = NULL;
		size_t n = 0;
		int rc = os_proc_children(s->processes[i].pid, &pids, &n);

		/* It has ended: what that means is looked at when all stand still. */
		if (rc == -ESRCH || rc == -ENOENT)
			continue;
		if (rc < 0)
			return err_sys(e, rc, "cannot list the children of process %d",
				       s->processes[i].pid);
		for (j = 0; j < n; j++) {
			pid_t tid;
			struct os_proc_stat stat;

			if (pids[j] == getpid())
				return err_set(
					e, -EINVAL,
					"this process is one of those that process %d started",
					s->processes[i].pid);
			if (has_process(s, pids[j]) || os_proc_living(pids[j], &tid, &stat) < 0)
				continue;
			rc = add_process(s, pids[j], e);
			if (rc < 0 && rc != -ESRCH && rc != -ENOENT)
				return rc;
		}
	}
	return s->n_processes > before;
}

void stop_list_reset(struct live_stop *s)
{
	while (s->n_processes > s->n_named)
		close(s->processes[--s->n_processes].pidfd);
}

bool stop_list_ended(const struct process *p)
{
	struct pollfd ended = {.fd = p->pidfd, .events = POLLIN};

	return poll(&ended, 1, 0) > 0;
}

int stop_list_pids(struct live_stop *s, struct err *e)
{
	CLEANUP_FREE pid_t *group = NULL;
	size_t n = 0, i;
	int rc = s->freeze ? live_freeze_pids(s->freeze, &group, &n, e) : 0;
	pid_t *all;

	if (rc < 0)
		return rc;
	all = reallocarray(s->pids, s->n_processes + n + 1, sizeof(*all));
	if (!all)
		return err_sys(e, -ENOMEM, "cannot hold a list of processes");
	s->pids = all;
	s->n_frozen = n;
	s->n_pids = 0;
	for (i = 0; i < s->n_processes; i++) {
		if (i < s->n_named || !stop_list_ended(&s->processes[i]))
			all[s->n_pids++] = s->processes[i].pid;
	}
	for (i = 0; i < n; i++) {
		if (!has_process(s, group[i]))
			all[s->n_pids++] = group[i];
	}
	return 0;
}

const pid_t *live_stop_pids(const struct live_stop *s, size_t *ret_n)
{
	*ret_n = s->n_pids;
	return s->pids;
}

static bool is_named(const struct live_stop *s, pid_t pid)
{
	size_t i;

	for (i = 0; i < s->n_named; i++) {
		if (s->processes[i].pid == pid)
			return true;
	}
	return false;
}

void live_stop_forget_ended(struct live_stop *s)
{
	struct os_proc_stat stat;
	size_t i, n = 0;
	pid_t tid;

	for (i = 0; i < s->n_pids; i++) {
		if (is_named(s, s->pids[i]) || os_proc_living(s->pids[i], &tid, &stat) == 0)
			s->pids[n++] = s->pids[i];
	}
	s->n_pids = n;
}

bool live_stop_excuses(const struct live_stop *s, const struct live_origin *o)
{
	struct os_proc_stat stat;

	if (!s->stopped) {
		if (os_proc_stat(o->pid, o->pid, &stat) < 0)
			return true;
		return (s->tree || s->freeze) && live_descends(o, s->pids, s->n_pids, NULL);
	}
	if (s->gone && live_made_after(o, &s->go))
		return true;
	return live_descends(o, s->pids, s->n_pids, &s->stop);
}
