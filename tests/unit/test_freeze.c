// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The freezer of a control group: what stands still and what goes on, what is refused, and that
 * a group is as before however it ends.  How processes come to stand still: test_freeze_still.c;
 * the guardian: test_guardian.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "freeze_rig.h"
#include "live/freeze.h"

static void test_mount_is_found(void **state)
{
	char point[64];

	assert_int_equal(os_cgroup_mount("31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
					 "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime "
					 "shared:9 - cgroup2 cgroup2 rw\n",
					 point, sizeof(point)),
			 0);
	assert_string_equal(point, "/sys/fs/cgroup/unified");
	/* A part of the tree comes first, and a name with a blank. */
	assert_int_equal(os_cgroup_mount("40 31 0:38 /x /mnt rw - cgroup2 cgroup2 rw\n"
					 "41 31 0:38 / /a\\040b rw - cgroup2 cgroup2 rw\n",
					 point, sizeof(point)),
			 0);
	assert_string_equal(point, "/a b");
	assert_int_equal(os_cgroup_mount("40 31 0:38 /x /mnt rw - cgroup2 cgroup2 rw", point,
					 sizeof(point)),
			 0);
	assert_string_equal(point, "/mnt");
	assert_int_equal(os_cgroup_mount("", point, sizeof(point)), -ENODEV);
	assert_int_equal(os_cgroup_mount("40 31 - cgroup2 x\n1 2 3 / / rw - cgroup x rw\n",
					 point, sizeof(point)),
			 -ENODEV);
	assert_int_equal(os_cgroup_mount("40 31 0:38 / /mnt rw - cgroup2 c rw\n", point, 4),
			 -ENAMETOOLONG);
}

static void expect_refused(const char *name, int code, const char *said)
{
	struct live_freeze *f = NULL;
	struct err e = {.text = ""};

	assert_int_equal(live_freeze_new(name, &f, &e), code);
	assert_null(f);
	if (!strstr(e.text, said))
		fail_msg("'%s' is not in '%s'", said, e.text);
}

static void test_what_is_no_group_is_refused(void **state)
{
	struct rig *r = rig_or_skip(state);
	char path[PATH_MAX];

	expect_refused("", -EINVAL, "empty");
	expect_refused("torpor-no-such-group", -ENOENT, "torpor-no-such-group");
	expect_refused("/torpor-no-such-group", -ENOENT, "torpor-no-such-group");
	expect_refused("/tmp", -EINVAL, "/tmp is no folder of a cgroup2");
	expect_refused("/etc/passwd", -ENOTDIR, "/etc/passwd");
	expect_refused("../../../../../../tmp", -EINVAL, "cgroup2");
	expect_refused(r->mount, -EINVAL, "root");
	expect_refused(".", -EINVAL, "root");
	snprintf(path, sizeof(path), "%s/cgroup.procs", rig_name(r, "a"));
	expect_refused(path, -ENOTDIR, "a/cgroup.procs");
	assert_int_equal(live_thaw("torpor-no-such-group", NULL, NULL), -ENOENT);
	assert_int_equal(live_thaw(r->mount, NULL, NULL), -EINVAL);
	/* Its processes may have threads outside of it. */
	if (rig_write(r, "own", "cgroup.type", "threaded"))
		expect_refused(rig_name(r, "own"), -EINVAL, "threaded");
}

static void test_three_names_are_one_group(void **state)
{
	struct rig *r = rig_or_skip(state);
	char slash[64];
	const char *const names[] = {rig_name(r, "a"), r->path, slash};
	size_t i;

	snprintf(slash, sizeof(slash), "/%s", rig_name(r, "a"));
	for (i = 0; i < ARRAY_LEN(names); i++) {
		struct live_freeze *f;

		assert_int_equal(live_freeze_new(names[i], &f, NULL), 0);
		assert_false(rig_freezes(r, "a"));
		assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
		assert_true(rig_freezes(r, "a"));
		live_freeze_free(f);
		assert_false(rig_freezes(r, "a"));
	}
}

static bool listed(const pid_t *pids, size_t n, pid_t pid)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (pids[i] == pid)
			return true;
	}
	return false;
}

/* Three processes in the group, two in groups below; one beside it goes on. */
static void test_group_and_groups_below_stand_still(void **state)
{
	static const char *const where[] = {"a", "a", "a", "a/b", "a/b/c", "ab"};
	struct rig *r = rig_or_skip(state);
	CLEANUP_FREE pid_t *pids = NULL;
	struct live_freeze *f;
	size_t n;
	int i, round;

	for (i = 0; i < 6; i++) {
		rig_worker(r, where[i]);
		assert_true(rig_runs(r, i));
	}
	assert_int_equal(live_freeze_new(r->path, &f, NULL), 0);
	assert_true(rig_runs(r, 0));
	assert_int_equal(live_freeze_pids(f, &pids, &n, NULL), 0);
	assert_int_equal(n, 5);
	for (i = 0; i < 5; i++)
		assert_true(listed(pids, n, r->workers[i]));
	for (round = 0; round < 3; round++) {
		assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
		/* At once, without waiting for it. */
		assert_true(rig_frozen(r, "a"));
		assert_true(rig_frozen(r, "a/b/c"));
		for (i = 0; i < 5; i++)
			assert_true(rig_stands(r, i));
		assert_true(rig_runs(r, 5));
		assert_int_equal(live_freeze_thaw(f, NULL), 0);
		for (i = 0; i < 5; i++)
			assert_true(rig_runs(r, i));
		assert_int_equal(live_freeze_thaw(f, NULL), 0);
	}
	live_freeze_free(f);
	assert_true(rig_runs(r, 4));
}

static void test_frozen_before_stays_frozen(void **state)
{
	struct rig *r = rig_or_skip(state);
	struct live_freeze *f;

	rig_worker(r, "a");
	rig_worker(r, "a/b");
	assert_true(rig_runs(r, 0) && rig_runs(r, 1));
	assert_true(rig_write(r, "a", "cgroup.freeze", "1"));
	assert_int_equal(live_freeze_new(r->path, &f, NULL), 0);
	assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
	assert_true(rig_frozen(r, "a"));
	assert_int_equal(live_freeze_thaw(f, NULL), 0);
	assert_true(rig_freezes(r, "a"));
	live_freeze_free(f);
	assert_true(rig_freezes(r, "a"));
	assert_true(rig_stands(r, 0));

	/* A group below that was, too. */
	assert_true(rig_write(r, "a", "cgroup.freeze", "0"));
	assert_true(rig_write(r, "a/b", "cgroup.freeze", "1"));
	assert_true(rig_runs(r, 0));
	assert_int_equal(live_freeze_new(r->path, &f, NULL), 0);
	assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
	live_freeze_free(f);
	assert_true(rig_runs(r, 0));
	assert_true(rig_frozen(r, "a/b"));
	assert_true(rig_stands(r, 1));
}

static void test_frozen_by_a_group_above(void **state)
{
	struct rig *r = rig_or_skip(state);
	struct live_freeze *f;
	struct err e;
	bool was_frozen = false;
	char b[64];

	snprintf(b, sizeof(b), "%s", rig_name(r, "a/b"));
	rig_worker(r, "a/b");
	assert_true(rig_runs(r, 0));
	assert_true(rig_write(r, "a", "cgroup.freeze", "1"));
	assert_int_equal(live_freeze_new(b, &f, NULL), 0);
	assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
	assert_true(rig_freezes(r, "a/b"));
	assert_int_equal(live_freeze_thaw(f, NULL), 0);
	assert_false(rig_freezes(r, "a/b"));
	assert_true(rig_frozen(r, "a/b"));
	live_freeze_free(f);

	assert_int_equal(live_thaw(b, NULL, &e), -EBUSY);
	assert_non_null(strstr(e.text, r->path));
	assert_true(rig_stands(r, 0));
	assert_int_equal(live_thaw(r->path, &was_frozen, NULL), 0);
	assert_true(was_frozen);
	assert_true(rig_runs(r, 0));
	assert_int_equal(live_thaw(b, &was_frozen, NULL), 0);
	assert_false(was_frozen);
}

/* In a process of its own, since this one must not be in a group when it is removed. */
static int own_group_refused(struct rig *r, const char *in, const char *freeze)
{
	struct live_freeze *f = NULL;
	int status, rc;
	pid_t pid = fork();

	if (pid == 0) {
		if (!rig_write(r, in, "cgroup.procs", "0"))
			_exit(99);
		rc = live_freeze_new(rig_name(r, freeze), &f, NULL);
		live_freeze_free(f);
		_exit(-rc);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_own_group_is_refused(void **state)
{
	struct rig *r = rig_or_skip(state);

	assert_int_equal(own_group_refused(r, "a", "a"), EINVAL);
	assert_int_equal(own_group_refused(r, "a/b/c", "a"), EINVAL);
	assert_int_equal(own_group_refused(r, "a/b/c", "a/b"), EINVAL);
	/* Below the own one, and one whose name only begins alike. */
	assert_int_equal(own_group_refused(r, "a", "a/b"), 0);
	assert_int_equal(own_group_refused(r, "ab", "a"), 0);
}

static void test_moved_into_the_group_meanwhile(void **state)
{
	struct rig *r = rig_or_skip(state);
	struct live_freeze *f = NULL;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (live_freeze_new(r->path, &f, NULL) < 0 ||
		    !rig_write(r, "a/b", "cgroup.procs", "0"))
			_exit(99);
		_exit(-live_freeze_now(f, NULL, NULL));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), EINVAL);
	assert_true(RIG_WAIT(rig_reap_guardians()));
	assert_false(rig_freezes(r, "a"));
}

static void test_thawed_by_somebody_else(void **state)
{
	struct rig *r = rig_or_skip(state);
	struct live_freeze *f;
	struct err e;

	rig_worker(r, "a");
	assert_int_equal(live_freeze_new(r->path, &f, NULL), 0);
	assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
	assert_int_equal(live_thaw(r->path, NULL, NULL), 0);
	assert_int_equal(live_freeze_thaw(f, &e), -ESTALE);
	assert_non_null(strstr(e.text, "meanwhile"));
	/* Said once: the next time is another one. */
	assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
	assert_int_equal(live_freeze_thaw(f, NULL), 0);
	live_freeze_free(f);
}

static void test_group_that_is_removed(void **state)
{
	struct rig *r = rig_or_skip(state);
	struct live_freeze *f, *frozen;
	char c[64];

	snprintf(c, sizeof(c), "%s", rig_name(r, "a/b/c"));
	assert_int_equal(live_freeze_new(c, &f, NULL), 0);
	assert_int_equal(live_freeze_new(c, &frozen, NULL), 0);
	assert_int_equal(live_freeze_now(frozen, NULL, NULL), 0);
	assert_int_equal(rmdir(rig_file(r, "a/b/c", "")), 0);
	assert_int_equal(live_freeze_thaw(frozen, NULL), 0);
	assert_int_equal(live_freeze_now(f, NULL, NULL), -ENODEV);
	/* Its successor of the same name is another group. */
	assert_int_equal(mkdir(rig_file(r, "a/b/c", ""), 0755), 0);
	assert_int_equal(live_freeze_now(f, NULL, NULL), -ENODEV);
	assert_false(rig_freezes(r, "a/b/c"));
	live_freeze_free(f);
	live_freeze_free(frozen);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mount_is_found),
		TEST(test_what_is_no_group_is_refused),
		TEST(test_three_names_are_one_group),
		TEST(test_group_and_groups_below_stand_still),
		TEST(test_frozen_before_stays_frozen),
		TEST(test_frozen_by_a_group_above),
		TEST(test_own_group_is_refused),
		TEST(test_moved_into_the_group_meanwhile),
		TEST(test_thawed_by_somebody_else),
		TEST(test_group_that_is_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
