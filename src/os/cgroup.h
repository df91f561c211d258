/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A control group of version 2: where the hierarchy is mounted, a group's processes, and its
 * freezer. A group is held by descriptors that are opened once, so that what was checked and
 * what is written to cannot be two different groups.  Nothing here waits for anything but
 * os_cgroup_wait_frozen().
 */
#ifndef TORPOR_OS_CGROUP_H
#define TORPOR_OS_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct os_cgroup {
	int dir_fd;
	int freeze_fd; /* cgroup.freeze, for reading and writing */
};

/*
 * Opens a group by the path of its folder, or by its name below the mount ("a.slice/b"; also
 * with a slash before it, as /proc/PID/cgroup says it, where there is no such path).  -ENOENT
 * no such group, -ENODEV nothing is mounted, -ENOTDIR, -EINVAL no folder of a cgroup2 file
 * system, the root group or a threaded one, -EACCES.
 */
int os_cgroup_open(const char *name, struct os_cgroup *ret, struct err *e);

/* A group that was not opened, or that was closed, has descriptors of -1. */
void os_cgroup_close(struct os_cgroup *g);

/* What cgroup.freeze says, of this group alone: 1 or 0; -ENODEV the group was removed. */
int os_cgroup_freezes(const struct os_cgroup *g);

/*
 * Once os_cgroup_set_freeze(..., true) has returned: do all processes in the group and below
 * stand still?  1; or 0 after something has changed or the time is over, and the caller asks
 * again; -ENODEV the group was removed.
 */
int os_cgroup_wait_frozen(const struct os_cgroup *g, int timeout_ms);

/* Writes cgroup.freeze.  -ENODEV.  Async-signal-safe: it is called between fork and _exit. */
int os_cgroup_set_freeze(int freeze_fd, bool frozen);

/*
 * The processes in the group and in all groups below, ascending, each once; those of other PID
 * namespaces have no number here and are left out.  *ret is the caller's to free.  -ENODEV the
 * group was removed.
 */
int os_cgroup_pids(const struct os_cgroup *g, pid_t **ret, size_t *ret_n);

/* Which of the groups above freezes this one?  1 and its path, 0 none of them, or a negative
 * errno. */
int os_cgroup_frozen_above(const struct os_cgroup *g, char *ret_path, size_t bytes);

/*
 * A descriptor of the root group's cgroup.procs, to which a process writes "0" to move there:
 * it is then out of reach of whatever is done to its group as a whole.  A negative errno when
 * that is not permitted, or when the root cannot be seen from here.
 */
int os_cgroup_open_root(void);

/* Where the hierarchy is mounted, by the text of a /proc/PID/mountinfo.  -ENODEV nowhere.  For
 * tests. */
int os_cgroup_mount(const char *mountinfo, char *ret, size_t bytes);

#endif
