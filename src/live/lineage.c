// SPDX-License-Identifier: LGPL-2.1-or-later
/* Who made a process, and when; see lineage.h. */
#include "live/lineage.h"

/* A chain of parents is not longer than this; one that changes while it is read may go round. */
#define GENERATIONS_MAX 4096

#define PID_RANGE_MIN 32768

bool live_made_after(const struct live_origin *o, const struct os_proc_moment *m)
{
	if (o->start_ticks && o->start_ticks != m->ticks)
		return o->start_ticks > m->ticks;
	if (!o->start_ticks)
		return false;
	/* Numbers begin again at the end of their range, which is at least this large. */
	return o->pid > m->last_pid || m->last_pid - o->pid > PID_RANGE_MIN / 2;
}

static bool is_in(const pid_t *pids, size_t n, pid_t pid)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (pids[i] == pid)
			return true;
	}
	return false;
}

bool live_descends(const struct live_origin *o, const pid_t *pids, size_t n, const struct os_proc_moment *m)
{
	struct live_origin at = *o;
	struct os_proc_stat stat;
	int i;

	for (i = 0; i < GENERATIONS_MAX && at.pid > 1; i++) {
		if (is_in(pids, n, at.pid))
			return true;
		if (m && !live_made_after(&at, m))
			return false;
		if (at.ppid <= 1 || os_proc_stat(at.ppid, at.ppid, &stat) < 0)
			return false;
		at = (struct live_origin){at.ppid, stat.ppid, stat.start_ticks};
	}
	return false;
}
