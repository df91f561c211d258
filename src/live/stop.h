/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stopping what runs, and letting it go on whatever happens: processes by ptrace, which the
 * kernel undoes when this process ends; a control group by its freezer and a guardian.
 */
#ifndef TORPOR_LIVE_STOP_H
#define TORPOR_LIVE_STOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "live/lineage.h"

struct live_stop;

struct live_stop_spec {
	const pid_t *pids;
	size_t n_pids;
	bool tree;          /* and all that descend from them */
	const char *cgroup; /* path of a cgroup v2 folder, or its name below the mount; NULL:
			       none */
};

/*
 * Looks whether all of it can be stopped, and starts the guardian; stops nothing.  -ESRCH no
 * such process; -EPERM a debugger has it, a kernel thread, no permission; -EINVAL it would stop
 * this process, which may be one of those that descend from it.
 */
int live_stop_new(const struct live_stop_spec *spec, struct live_stop **ret, struct err *e);

/*
 * Stops; on return every thread is known to be stopped.  On failure all of them run again.
 * -ESRCH a process that was named has ended; -ETIMEDOUT a thread does not stop; -EPERM;
 * -ECANCELED.
 */
int live_stop_now(struct live_stop *s, const atomic_bool *cancel, struct err *e);

/* Lets all go on; again is harmless. */
int live_stop_go(struct live_stop *s, struct err *e);

/* Lets all go on, and frees. */
void live_stop_free(struct live_stop *s);

/*
 * The processes: before live_stop_now() those that were named, and what descended from them or
 * was in the group then; after it all that are stopped.  Until the next call.
 */
const pid_t *live_stop_pids(const struct live_stop *s, size_t *ret_n);

/* Takes those from the list that have ended since; one that was named stays. */
void live_stop_forget_ended(struct live_stop *s);

/*
 * Was this process, which is not in the list, no writer while all stood still?  Before
 * live_stop_now(): it will be stopped with the others, or has ended; afterwards: those that
 * were stopped made it later, or somebody did when all had gone on.
 */
bool live_stop_excuses(const struct live_stop *s, const struct live_origin *o);

/* Threads that were stopped by the last live_stop_now(); those of a control group are counted
 * as processes. */
size_t live_stop_threads(const struct live_stop *s);

#endif
