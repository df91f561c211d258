// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Freezing a control group and thawing it; see freeze.h.  What is asked and undone is the
 * group's own cgroup.freeze: groups above and below have theirs, and stay as they are.
 */
#include "live/freeze.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "live/guardian.h"
#include "os/cgroup.h"
#include "os/proc.h"

/* A process that does not stand still within this sleeps in the kernel, and may do so for ever.
 */
#define FREEZE_TIMEOUT_NS 10000000000u

/*
 * The kernel tells of a change at once, but of a second one within 10 ms only when they are
 * over: so we look by ourselves too, rarer and rarer.  The longest pause is how late a cancel
 * may be seen.
 */
#define PAUSE_FIRST_MS 1
#define PAUSE_MAX_MS 100

struct live_freeze {
	char *name;
	struct os_cgroup group;
	struct live_guardian guardian;
	bool ours;   /* we have frozen it, or may have: it is to be thawed */
	bool stands; /* between a live_freeze_now() that went well and the thaw */
};

/* A process that freezes its own group stands still, and nobody is left to thaw. */
static int refuse_own(const struct live_freeze *f, struct err *e)
{
	CLEANUP_FREE pid_t *pids = NULL;
	size_t n = 0, i;
	int rc = live_freeze_pids(f, &pids, &n, e);

	for (i = 0; i < n && !rc; i++) {
		if (pids[i] == getpid())
			rc = err_set(e, -EINVAL,
				     "cannot freeze control group %s: this process is in it",
				     f->name);
	}
	return rc;
}

int live_freeze_new(const char *cgroup, struct live_freeze **ret, struct err *e)
{
	struct live_freeze *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return err_sys(e, -ENOMEM, "cannot freeze control group %s", cgroup);
	f->group = (struct os_cgroup){-1, -1};
	f->guardian.fd = -1;
	f->name = strdup(cgroup);
	rc = f->name ? 0 : err_sys(e, -ENOMEM, "cannot freeze control group %s", cgroup);
	if (!rc)
		rc = os_cgroup_open(cgroup, &f->group, e);
	if (!rc)
		rc = refuse_own(f, e);
	if (!rc)
		rc = live_guardian_start(&f->group, &f->guardian, e);
	if (rc < 0) {
		live_freeze_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}

/* Names a process that sleeps so that no signal reaches it, if there is one. */
static int does_not_freeze(const struct live_freeze *f, struct err *e)
{
	CLEANUP_FREE pid_t *pids = NULL;
	size_t n = 0, i;

	if (os_cgroup_pids(&f->group, &pids, &n) < 0)
		n = 0;
	for (i = 0; i < n; i++) {
		struct os_proc_stat stat;

		if (os_proc_stat(pids[i], pids[i], &stat) == 0 && stat.state == 'D')
			return err_set(e, -ETIMEDOUT,
				       "control group %s does not freeze: process %d (%s) "
				       "sleeps in the kernel",
				       f->name, pids[i], stat.comm);
	}
	return err_set(e, -ETIMEDOUT, "control group %s does not freeze", f->name);
}

static int wait_frozen(const struct live_freeze *f, const atomic_bool *cancel, struct err *e)
{
	const uint64_t deadline = clock_mono_ns() + FREEZE_TIMEOUT_NS;
	int pause_ms = PAUSE_FIRST_MS, rc;

	for (;;) {
		rc = os_cgroup_wait_frozen(&f->group, pause_ms);
		if (rc < 0)
			return err_sys(e, rc, "cannot freeze control group %s", f->name);
		if (rc)
			return 0;
		if (cancel && atomic_load(cancel))
			return err_set(e, -ECANCELED, "cancelled");
		if (clock_mono_ns() > deadline)
			return does_not_freeze(f, e);
		pause_ms = pause_ms < PAUSE_MAX_MS / 2 ? 2 * pause_ms : PAUSE_MAX_MS;
	}
}

/* As before live_freeze_now().  When it cannot be done here, the guardian stays armed and tries
 * at the end. */
static int undo(struct live_freeze *f, struct err *e)
{
	int rc = f->ours ? os_cgroup_set_freeze(f->group.freeze_fd, false) : 0;

	f->stands = false;
	/* A group that was removed had nothing left in it. */
	if (rc < 0 && rc != -ENODEV)
		return err_sys(e, rc, "cannot thaw control group %s", f->name);
	f->ours = false;
	live_guardian_disarm(&f->guardian);
	return 0;
}

int live_freeze_now(struct live_freeze *f, const atomic_bool *cancel, struct err *e)
{
	int rc = refuse_own(f, e), before;

	if (rc < 0)
		return rc;
	before = os_cgroup_freezes(&f->group);
	if (before < 0)
		return err_sys(e, before, "cannot freeze control group %s", f->name);
	if (cancel && atomic_load(cancel))
		return err_set(e, -ECANCELED, "cancelled");
	if (!before) {
		rc = live_guardian_arm(&f->guardian, e);
		if (rc < 0) {
			live_guardian_disarm(&f->guardian);
			return err_wrap(e, rc, "cannot freeze control group %s", f->name);
		}
		f->ours = true;
		rc = os_cgroup_set_freeze(f->group.freeze_fd, true);
		if (rc < 0)
			err_sys(e, rc, "cannot freeze control group %s", f->name);
	}
	if (!rc)
		rc = wait_frozen(f, cancel, e);
	if (rc < 0)
		undo(f, NULL);
	else
		f->stands = true;
	return rc;
}

int live_freeze_thaw(struct live_freeze *f, struct err *e)
{
	const int still = f->stands ? os_cgroup_freezes(&f->group) : 1;
	int rc = undo(f, e);

	if (!rc && !still)
		rc = err_set(e, -ESTALE,
			     "control group %s was thawed by somebody else meanwhile", f->name);
	return rc;
}

void live_freeze_free(struct live_freeze *f)
{
	if (!f)
		return;
	undo(f, NULL);
	live_guardian_end(&f->guardian);
	os_cgroup_close(&f->group);
	free(f->name);
	free(f);
}

int live_freeze_pids(const struct live_freeze *f, pid_t **ret, size_t *ret_n, struct err *e)
{
	int rc = os_cgroup_pids(&f->group, ret, ret_n);

	return rc < 0 ? err_sys(e, rc, "cannot list the processes of control group %s", f->name)
		      : 0;
}

static int thaw(const char *name, const struct os_cgroup *group, bool *ret_was_frozen,
		struct err *e)
{
	char above[PATH_MAX];
	int before = os_cgroup_freezes(group),
	    rc = before < 0 ? before : os_cgroup_set_freeze(group->freeze_fd, false);

	if (rc < 0)
		return err_sys(e, rc, "cannot thaw control group %s", name);
	rc = os_cgroup_frozen_above(group, above, sizeof(above));
	if (rc < 0)
		return err_sys(e, rc, "cannot look at the groups above control group %s", name);
	if (rc)
		return err_set(e, -EBUSY,
			       "control group %s stays frozen by the group above: %s", name,
			       above);
	if (ret_was_frozen)
		*ret_was_frozen = before;
	return 0;
}

int live_thaw(const char *cgroup, bool *ret_was_frozen, struct err *e)
{
	struct os_cgroup group = {-1, -1};
	int rc = os_cgroup_open(cgroup, &group, e);

	if (!rc)
		rc = thaw(cgroup, &group, ret_was_frozen, e);
	os_cgroup_close(&group);
	return rc;
}
