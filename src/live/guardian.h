/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The guardian of a frozen control group: a process that does nothing but wait for this one to
 * end, in whatever way, and then thaws the group, if it was told that this process had frozen
 * it.
 */
#ifndef TORPOR_LIVE_GUARDIAN_H
#define TORPOR_LIVE_GUARDIAN_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "os/cgroup.h"

struct live_guardian {
	pid_t pid; /* 0: none */
	int fd;    /* our end of the socket; when it closes, this process has ended */
	bool armed;
};

/*
 * Starts the guardian, and returns when it stands ready.  Forks this process, so it is called
 * before large memory is mapped.  The guardian is no child that wait(2) finds, and sends no
 * SIGCHLD.
 */
int live_guardian_start(const struct os_cgroup *group, struct live_guardian *ret,
			struct err *e);

/* From its return on the guardian thaws when this process ends.  An error: there is no guardian
 * any more. */
int live_guardian_arm(struct live_guardian *g, struct err *e);

/* The group is not frozen any more, or not by us. */
void live_guardian_disarm(struct live_guardian *g);

/* Ends it; one that is armed still thaws first.  Nothing of it is left.  Again is harmless. */
void live_guardian_end(struct live_guardian *g);

#endif
