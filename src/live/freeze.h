/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The freezer of a control group (v2), and the guardian that thaws it when this process ends.
 * A frozen group outlives who froze it; the guardian does not let that happen.
 */
#ifndef TORPOR_LIVE_FREEZE_H
#define TORPOR_LIVE_FREEZE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct live_freeze;

/*
 * Finds the group (a path of a folder, or its name below the cgroup2 mount) and starts the
 * guardian, for which this process is forked.  Freezes nothing.  -ENOENT, -ENOTDIR, -EINVAL: no
 * such group, the root group, or one that this process is in or below; -EACCES; -ENODEV no
 * cgroup2 is mounted.
 */
int live_freeze_new(const char *cgroup, struct live_freeze **ret, struct err *e);

/*
 * Freezes; on return all processes in the group and below are known to stand still.  On failure
 * it is as before.  -ETIMEDOUT a process does not stop; -ECANCELED; -EPIPE the guardian was
 * killed; -ENODEV the group was removed.
 */
int live_freeze_now(struct live_freeze *f, const atomic_bool *cancel, struct err *e);

/*
 * Thaws, unless it was frozen before live_freeze_now().  Again is harmless.  -ESTALE somebody
 * else had thawed it meanwhile, so what was read since is no state of one moment.
 */
int live_freeze_thaw(struct live_freeze *f, struct err *e);

/* Thaws, ends the guardian and frees. */
void live_freeze_free(struct live_freeze *f);

/* The processes in the group and the groups below; *ret is the caller's to free. */
int live_freeze_pids(const struct live_freeze *f, pid_t **ret, size_t *ret_n, struct err *e);

/*
 * Thaws a group by hand, as the guardian would.  0 also when it was not frozen, and
 * *ret_was_frozen (may be NULL) then says so.  -EBUSY it is thawed itself, but a group above,
 * which is named, is frozen and keeps it so.
 */
int live_thaw(const char *cgroup, bool *ret_was_frozen, struct err *e);

#endif
