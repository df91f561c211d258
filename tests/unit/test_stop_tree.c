// SPDX-License-Identifier: LGPL-2.1-or-later
/* Families of processes: all that descend are stopped, and who was made later is told from who was there. */
#include "stop_rig.h"

static void forked_count(struct box *b, int i)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			b->counters[i]++;
	}
	b->pids[i] = pid;
}

/* Two children, one of which has one of its own. */
static void family(struct box *b)
{
	pid_t pid;

	forked_count(b, 1);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		forked_count(b, 2);
		for (;;)
			b->counters[3]++;
	}
	b->pids[3] = pid;
	count(b);
}

static bool listed(const struct live_stop *s, pid_t pid)
{
	size_t n, i;
	const pid_t *pids = live_stop_pids(s, &n);

	for (i = 0; i < n; i++) {
		if (pids[i] == pid)
			return true;
	}
	return false;
}

static void test_all_that_descend(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, family);
	struct live_stop *s;
	uint64_t before;
	int round, i;

	wait_until(r->box->counters[0] && r->box->counters[1] && r->box->counters[2] && r->box->counters[3]);
	/* One: the others go on. */
	s = new_stop(&pid, 1, false);
	stop_now(s);
	before = r->box->counters[0];
	expect_moving(r->box);
	assert_int_equal(r->box->counters[0], before);
	free_stop();

	s = new_stop(&pid, 1, true);
	for (round = 0; round < 20; round++) {
		/* They are known before. */
		for (i = 1; i < 4; i++)
			assert_true(listed(s, r->box->pids[i]));
		stop_now(s);
		assert_int_equal(live_stop_threads(s), 4 * (1 + UNDER_TSAN));
		for (i = 1; i < 4; i++)
			assert_true(listed(s, r->box->pids[i]) && all_in(r->box->pids[i], "t"));
		expect_still(r->box);
		live_stop_go(s, NULL);
		for (i = 0; i < 4; i++) {
			before = r->box->counters[i];
			wait_until(r->box->counters[i] > before);
		}
	}
	/* One that was found may end. */
	kill(r->box->pids[2], SIGKILL);
	r->box->pids[2] = 0;
	stop_now(s);
	assert_int_equal(live_stop_threads(s), 3 * (1 + UNDER_TSAN));
	expect_still(r->box);
	free_stop();
}

/* Children that count a little and end, all the time, and each makes one of its own. */
static void fork_all_the_time(struct box *b)
{
	int i;

	for (;;) {
		pid_t pid = fork();

		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (fork() == 0) {
				b->counters[1]++;
				_exit(0);
			}
			for (i = 0; i < 100; i++)
				b->counters[2]++;
			_exit(0);
		}
		b->counters[0]++;
		b->ready = true;
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
}

/* Not while something is being stopped: a stop is waited for by whoever waits for just any child. */
static void reap_orphans(pid_t but)
{
	siginfo_t info = {.si_pid = 0};

	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid && info.si_pid != but) {
		waitpid(info.si_pid, NULL, 0);
		info.si_pid = 0;
	}
}

static void test_one_that_makes_children_all_the_time(void **state)
{
	struct rig *r = *state;
	pid_t pid;
	struct live_stop *s;
	uint64_t parents, children;
	int i;

	/* Orphans come to us, so that they are not in the way of others. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	pid = rig_child(r, fork_all_the_time);
	wait_until(r->box->ready);
	for (i = 0; i < 150; i++) {
		s = new_stop(&pid, 1, true);
		stop_now(s);
		assert_true(all_in(pid, "t"));
		parents = r->box->counters[0];
		children = r->box->counters[2];
		/* Orphans belong to nobody, and may do their work now. */
		reap_orphans(pid);
		assert_int_equal(r->box->counters[0], parents);
		assert_int_equal(r->box->counters[2], children);
		free_stop();
		wait_until(r->box->counters[0] > parents);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	rig_forget(r, pid);
	wait_until(waitpid(-1, NULL, WNOHANG) < 0);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* A child in vfork(2) lends its parent's memory, which cannot be stopped before it gives it back. */
static void vfork_all_the_time(struct box *b)
{
	for (;;) {
		if (vfork() == 0) {
			b->counters[1]++;
			_exit(0);
		}
		b->counters[0]++;
		b->ready = true;
		waitpid(-1, NULL, 0);
	}
}

static void test_one_that_vforks_all_the_time(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, vfork_all_the_time);
	int i;

	wait_until(r->box->ready);
	for (i = 0; i < 150; i++) {
		struct live_stop *s = new_stop(&pid, 1, i % 2 || UNDER_TSAN);

		stop_now(s);
		expect_still(r->box);
		free_stop();
		expect_moving(r->box);
	}
}

/* ---- who could have written ---- */

static struct live_origin origin_of(pid_t pid)
{
	struct os_proc_stat stat;

	assert_int_equal(os_proc_stat(pid, pid, &stat), 0);
	return (struct live_origin){pid, stat.ppid, stat.start_ticks};
}

static bool excused(const struct live_stop *s, pid_t pid)
{
	struct live_origin o = origin_of(pid);

	return live_stop_excuses(s, &o);
}

/* The clock of starts is coarse: within one tick numbers tell. */
static void test_before_and_after_a_moment(void **state)
{
	struct rig *r = *state;
	int i;

	for (i = 0; i < 200; i++) {
		pid_t before = rig_child(r, count), after;
		struct os_proc_moment moment;
		struct live_origin o = origin_of(before);

		assert_int_equal(os_proc_now(&moment), 0);
		assert_false(live_made_after(&o, &moment));
		after = rig_child(r, count);
		o = origin_of(after);
		assert_true(live_made_after(&o, &moment));
		rig_end(r, before);
		rig_end(r, after);
	}
}

/* Numbers begin again at the end of their range, and may not be known. */
static void test_numbers_within_a_tick(void **state)
{
	static const struct os_proc_moment low = {1000, 300}, high = {1000, 32700};

	assert_true(live_made_after(&(struct live_origin){301, 1, 1000}, &low));
	assert_false(live_made_after(&(struct live_origin){300, 1, 1000}, &low));
	assert_false(live_made_after(&(struct live_origin){299, 1, 1000}, &low));
	assert_true(live_made_after(&(struct live_origin){299, 1, 1001}, &low));
	assert_false(live_made_after(&(struct live_origin){301, 1, 999}, &low));
	assert_true(live_made_after(&(struct live_origin){305, 1, 1000}, &high));
	assert_false(live_made_after(&(struct live_origin){32699, 1, 1000}, &high));
	assert_false(live_made_after(&(struct live_origin){.pid = 32701}, &high));
}

/* Makes a child when told, and says so; those stay. */
static void fork_when_told(struct box *b)
{
	int i = 1;

	for (;;) {
		b->counters[0]++;
		if (!b->flag)
			continue;
		forked_count(b, i++);
		b->flag = false;
	}
}

static pid_t tell(struct box *b, int i)
{
	b->flag = true;
	wait_until(!b->flag && b->pids[i]);
	return b->pids[i];
}

static void test_children_made_before_and_after(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, fork_when_told), other = rig_child(r, count), before, between, after, later;
	struct live_origin seen;
	struct live_stop *s;

	before = tell(r->box, 1);
	s = new_stop(&pid, 1, false);
	/* Without the tree they are not stopped. */
	assert_false(excused(s, before));
	assert_false(excused(s, other));
	between = tell(r->box, 2);
	stop_now(s);
	assert_false(excused(s, before));
	assert_false(excused(s, between));
	/* Made by somebody else while they stand still. */
	later = rig_child(r, count);
	assert_false(excused(s, later));
	live_stop_go(s, NULL);
	after = tell(r->box, 3);
	assert_false(excused(s, before));
	assert_false(excused(s, between));
	assert_false(excused(s, later));
	assert_false(excused(s, other));
	assert_true(excused(s, after));
	/* Also when it has ended, and its parent with it. */
	seen = origin_of(after);
	kill(after, SIGKILL);
	assert_true(live_stop_excuses(s, &seen));
	/* Anybody who was made when all had gone on. */
	later = rig_child(r, count);
	assert_true(excused(s, later));
	/* The next stop forgets it. */
	stop_now(s);
	assert_false(excused(s, later));
	free_stop();
}

/* Before the stop: those that descend will be stopped; who has ended does not write. */
static void test_family_before_the_stop(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, fork_when_told), other = rig_child(r, count), child;
	struct live_stop *s = new_stop(&pid, 1, true);
	struct live_origin seen;

	child = tell(r->box, 1);
	assert_true(excused(s, child));
	assert_false(excused(s, other));
	seen = origin_of(other);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	rig_forget(r, other);
	assert_true(live_stop_excuses(s, &seen));
	stop_now(s);
	assert_true(listed(s, child));
	free_stop();
}

static void test_own_family_is_refused(void **state)
{
	pid_t parent = getppid();
	struct os_proc_stat stat;

	expect_refused(&parent, 1, true, -EINVAL, "this process does");
	if (os_proc_stat(parent, parent, &stat) == 0 && stat.ppid > 1)
		expect_refused(&stat.ppid, 1, true, -EINVAL, "this process does");
}

static void test_those_that_ended_are_forgotten(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, family);
	struct live_stop *s;
	size_t n;

	wait_until(r->box->counters[2]);
	s = new_stop(&pid, 1, true);
	live_stop_forget_ended(s);
	live_stop_pids(s, &n);
	assert_int_equal(n, 4);
	kill(r->box->pids[1], SIGKILL);
	wait_until(has_ended(r->box->pids[1]));
	live_stop_forget_ended(s);
	live_stop_pids(s, &n);
	assert_int_equal(n, 3);
	assert_false(listed(s, r->box->pids[1]));
	free_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_all_that_descend),
		RIG_TEST(test_one_that_makes_children_all_the_time),
		RIG_TEST(test_one_that_vforks_all_the_time),
		RIG_TEST(test_before_and_after_a_moment),
		cmocka_unit_test(test_numbers_within_a_tick),
		RIG_TEST(test_children_made_before_and_after),
		RIG_TEST(test_family_before_the_stop),
		RIG_TEST(test_own_family_is_refused),
		RIG_TEST(test_those_that_ended_are_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
