/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What stopping processes and keeping the list of them share; see stop.h. */
#ifndef TORPOR_LIVE_STOP_PRIV_H
#define TORPOR_LIVE_STOP_PRIV_H

#include <pthread.h>
#include <stdint.h>

#include "live/freeze.h"
#include "live/stop.h"
#include "os/trace.h"

struct process {
	pid_t pid;
	int pidfd;
	bool is_child; /* of this process */
};

struct thread {
	pid_t tid, pid;
	bool is_child;
	enum os_trace_state state;
	int signal; /* to be delivered when it goes on */
};

/* What the keeper has come to; it waits in STOPPED until it is told GO. */
enum phase { STOPPING, STOPPED, FAILED, GO };

struct live_stop {
	bool tree;
	bool has_keeper;
	pthread_t keeper;
	_Atomic uint32_t phase;
	const atomic_bool *cancel;
	struct err *e; /* the keeper's until it leaves STOPPING */
	int rc;
	struct process *processes; /* those that were named first */
	size_t n_processes, n_named;
	struct thread *threads; /* by number */
	size_t n_threads;
	struct live_freeze *freeze;
	pid_t *pids; /* for live_stop_pids() */
	size_t n_pids, n_frozen;
	bool stopped, gone;
	struct os_proc_moment stop, go; /* all stood still already, still */
};

/* What can be said before anything stands still, and adds what was named. */
int stop_list_add_named(struct live_stop *s, const pid_t *pids, size_t n, struct err *e);

/* Adds the children of those in the list.  1: there were some that were not known. */
int stop_list_add_children(struct live_stop *s, struct err *e);

/* Only those are left that were named. */
void stop_list_reset(struct live_stop *s);

/* Has it ended?  Its number may mean another one by now. */
bool stop_list_ended(const struct process *p);

/* Makes the list for live_stop_pids(). */
int stop_list_pids(struct live_stop *s, struct err *e);

#endif
