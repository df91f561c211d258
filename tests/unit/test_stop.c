// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Stopping processes by ptrace: all threads stand still, go on as they were, lose no signal and
 * no exit status, and go on whatever becomes of who stopped them.  Families of processes are in
 * test_stop_tree.c.
 */
#include "stop_rig.h"

#include <linux/futex.h>
#include <sys/syscall.h>

static void test_stop_and_go_many_times(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, count);
	struct live_stop *s;
	size_t n;
	int i;

	wait_until(r->box->ready);
	s = new_stop(&pid, 1, false);
	expect_moving(r->box);
	for (i = 0; i < 100; i++) {
		stop_now(s);
		assert_int_equal(state_of(pid), 't');
		assert_int_equal(live_stop_threads(s), 1 + UNDER_TSAN);
		assert_int_equal(live_stop_pids(s, &n)[0], pid);
		assert_int_equal(n, 1);
		expect_still(r->box);
		assert_int_equal(live_stop_go(s, NULL), 0);
		assert_int_equal(live_stop_go(s, NULL), 0);
		expect_moving(r->box);
	}
	/* Freeing lets go, too. */
	stop_now(s);
	free_stop();
	expect_moving(r->box);
	live_stop_free(NULL);
}

static bool all_moved(const struct box *b, const uint64_t *before)
{
	int i;

	for (i = 0; i < THREADS_MAX; i++) {
		if (b->counters[i] == before[i])
			return false;
	}
	return true;
}

static void test_many_threads(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, many_threads);
	uint64_t before[THREADS_MAX] = {0};
	struct live_stop *s;
	int round, i;

	wait_until(all_moved(r->box, before));
	s = new_stop(&pid, 1, false);
	for (round = 0; round < 10; round++) {
		stop_now(s);
		assert_true(all_in(pid, "t"));
		assert_int_equal(live_stop_threads(s), THREADS_MAX + UNDER_TSAN);
		expect_still(r->box);
		for (i = 0; i < THREADS_MAX; i++)
			before[i] = r->box->counters[i];
		live_stop_go(s, NULL);
		wait_until(all_moved(r->box, before));
	}
	free_stop();
}

/* A chain of threads: each makes the next one, counts a little and ends. */
static void *link_of_chain(void *arg)
{
	_Atomic uint64_t *counter = arg;
	int i;

	start_thread(link_of_chain, arg);
	for (i = 0; i < 20000; i++)
		(*counter)++;
	return NULL;
}

static void thread_maker(struct box *b)
{
	start_thread(link_of_chain, &b->counters[0]);
	start_thread(link_of_chain, &b->counters[1]);
	count(b);
}

static void test_threads_that_come_and_go(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, thread_maker);
	struct live_stop *s;
	int i;

	wait_until(r->box->ready);
	s = new_stop(&pid, 1, false);
	for (i = 0; i < 200; i++) {
		stop_now(s);
		assert_true(all_in(pid, "t"));
		expect_still(r->box);
		live_stop_go(s, NULL);
		expect_moving(r->box);
	}
	free_stop();
}

/* A list of locks that leads in a circle: the kernel goes through 2048 of them when the thread
 * ends. */
static void end_slowly(void)
{
	static struct {
		struct robust_list list;
		uint64_t lock;
	} held = {.list.next = &held.list};
	static struct robust_list_head head = {.list.next = &held.list,
					       .futex_offset = sizeof(held.list)};

	syscall(SYS_set_robust_list, &head, sizeof(head));
}

static void leader_ends(struct box *b)
{
	end_slowly();
	start_thread(count_in_thread, &b->counters[0]);
	b->ready = true;
	while (!b->flag)
		;
	/* Without what pthread_exit(3) does before. */
	syscall(SYS_exit, 0);
}

static void test_first_thread_has_ended(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, leader_ends);
	struct live_stop *s;

	r->box->flag = true;
	wait_until(state_of(pid) == 'Z');
	s = new_stop(&pid, 1, false);
	stop_now(s);
	assert_int_equal(live_stop_threads(s), 1 + UNDER_TSAN);
	expect_still(r->box);
	live_stop_go(s, NULL);
	expect_moving(r->box);
	free_stop();
}

static void *set_soon(void *arg)
{
	struct box *b = arg;
	volatile uint64_t i;

	for (i = b->signals; i; i--)
		;
	b->flag = true;
	return NULL;
}

/* At the moment of the stop, seized or not yet: nobody waits for it in vain. */
static void test_first_thread_ends_meanwhile(void **state)
{
	struct rig *r = *state;
	int i;

	for (i = 0; i < 300; i++) {
		pid_t pid = rig_child(r, leader_ends);
		struct live_stop *s;
		pthread_t thread;

		wait_until(r->box->ready);
		s = new_stop(&pid, 1, false);
		r->box->signals = (uint64_t)i * 300;
		assert_int_equal(pthread_create(&thread, NULL, set_soon, r->box), 0);
		stop_now(s);
		expect_still(r->box);
		free_stop();
		pthread_join(thread, NULL);
		rig_end(r, pid);
		r->box->ready = r->box->flag = false;
	}
}

/* ---- as they were before ---- */

static void test_stopped_before_stays_stopped(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, many_threads);
	struct live_stop *s;
	int i;

	wait_until(r->box->ready);
	s = new_stop(&pid, 1, false);
	kill(pid, SIGSTOP);
	wait_until(all_in(pid, "T"));
	for (i = 0; i < 20; i++) {
		stop_now(s);
		expect_still(r->box);
		live_stop_go(s, NULL);
		wait_until(all_in(pid, "T"));
	}
	expect_still(r->box);
	/* What ends its stop while we hold it is not lost. */
	stop_now(s);
	kill(pid, SIGCONT);
	expect_still(r->box);
	live_stop_go(s, NULL);
	expect_moving(r->box);
	/* And what stops it. */
	stop_now(s);
	kill(pid, SIGSTOP);
	live_stop_go(s, NULL);
	wait_until(all_in(pid, "T"));
	free_stop();
}

static struct box *handlers_box;

static void on_signal(int sig, siginfo_t *info, void *context)
{
	struct box *b = handlers_box;

	/* Queued ones come in their order, each with its number. */
	if (sig != SIGUSR1 && (uint64_t)info->si_value.sival_int != b->signals)
		b->out_of_order++;
	b->signals++;
}

static void count_signals(struct box *b)
{
	struct sigaction action = {.sa_sigaction = on_signal,
				   .sa_flags = SA_SIGINFO | SA_RESTART};

	handlers_box = b;
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGRTMIN, &action, NULL);
	count(b);
}

static void test_signals_sent_while_stopped_come_later(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, count_signals);
	struct live_stop *s;
	uint64_t i;

	wait_until(r->box->ready);
	s = new_stop(&pid, 1, false);
	for (i = 0; i < 50; i++) {
		stop_now(s);
		assert_int_equal(r->box->signals, i);
		kill(pid, SIGUSR1);
		expect_still(r->box);
		assert_int_equal(r->box->signals, i);
		live_stop_go(s, NULL);
		wait_until(r->box->signals > i);
		assert_int_equal(r->box->signals, i + 1);
	}
	free_stop();
}

struct sender {
	pid_t pid;
	_Atomic bool enough;
	uint64_t sent;
};

static void *send_signals(void *arg)
{
	struct sender *sender = arg;

	while (!sender->enough) {
		if (sigqueue(sender->pid, SIGRTMIN,
			     (union sigval){.sival_int = (int)sender->sent}) == 0)
			sender->sent++;
	}
	return NULL;
}

/* A signal may be on its way when the stop comes: it is not lost, nor doubled, nor out of
 * order, nor without its value. */
static void test_no_signal_is_lost(void **state)
{
	struct rig *r = *state;
	struct sender sender = {.pid = rig_child(r, count_signals)};
	struct live_stop *s;
	pthread_t thread;
	int i;

	if (UNDER_TSAN)
		skip();
	wait_until(r->box->ready);
	s = new_stop(&sender.pid, 1, false);
	assert_int_equal(pthread_create(&thread, NULL, send_signals, &sender), 0);
	for (i = 0; i < 3000; i++) {
		stop_now(s);
		live_stop_go(s, NULL);
	}
	sender.enough = true;
	pthread_join(thread, NULL);
	wait_until(r->box->signals >= sender.sent);
	assert_int_equal(r->box->signals, sender.sent);
	assert_int_equal(r->box->out_of_order, 0);
	free_stop();
}

/* ---- ends ---- */

static void end_when_told(struct box *b)
{
	b->ready = true;
	while (!b->flag)
		;
	_exit(42);
}

static void test_ended_before(void **state)
{
	struct rig *r = *state;
	pid_t pids[2] = {rig_child(r, count), rig_child(r, end_when_told)};
	struct live_stop *s;
	struct err e;
	pid_t gone = pids[1];

	wait_until(r->box->ready);
	s = new_stop(pids, 2, false);
	r->box->flag = true;
	wait_until(has_ended(gone));
	assert_int_equal(live_stop_now(s, NULL, &e), -ESRCH);
	assert_non_null(strstr(e.text, "ended before it could be stopped"));
	/* The other one runs. */
	expect_moving(r->box);
	free_stop();
	expect_refused(&gone, 1, false, -ESRCH, "has ended");
	assert_int_equal(WEXITSTATUS(status_of(r, gone)), 42);
	expect_refused(&gone, 1, false, -ESRCH, "there is no process");
}

/* Ours to wait for, though it was traced when it ended. */
static void test_exit_status_of_a_child_is_its_parents(void **state)
{
	struct rig *r = *state;
	int i;

	for (i = 0; i < 60; i++) {
		pid_t pid = rig_child(r, end_when_told);
		struct live_stop *s;
		int rc;

		wait_until(r->box->ready);
		s = new_stop(&pid, 1, false);
		r->box->flag = true;
		rc = live_stop_now(s, NULL, NULL);
		assert_true(rc == 0 || rc == -ESRCH);
		free_stop();
		assert_int_equal(WEXITSTATUS(status_of(r, pid)), 42);
		r->box->flag = r->box->ready = false;
	}
}

static void test_killed_while_stopped(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, many_threads);
	struct live_stop *s;

	wait_until(r->box->ready);
	s = new_stop(&pid, 1, false);
	stop_now(s);
	kill(pid, SIGKILL);
	wait_until(has_ended(pid));
	live_stop_go(s, NULL);
	assert_int_equal(WTERMSIG(status_of(r, pid)), SIGKILL);
	free_stop();
}

/* A process that stops another one, and is killed. */
static void stop_and_hang(struct box *b)
{
	pid_t pid = b->pids[0];
	struct live_stop *s = new_stop(&pid, 1, false);

	stop_now(s);
	b->flag = true;
	pause();
}

static void test_killed_tracer_lets_go(void **state)
{
	struct rig *r = *state;
	int i;

	r->box->pids[0] = rig_child(r, many_threads);
	wait_until(r->box->ready);
	for (i = 0; i < 20; i++) {
		pid_t tracer = rig_child(r, stop_and_hang);

		wait_until(r->box->flag);
		assert_true(all_in(r->box->pids[0], "t"));
		expect_still(r->box);
		kill(tracer, SIGKILL);
		assert_int_equal(WTERMSIG(status_of(r, tracer)), SIGKILL);
		assert_true(all_in(r->box->pids[0], "RSD"));
		expect_moving(r->box);
		r->box->flag = false;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_stop_and_go_many_times),
		RIG_TEST(test_many_threads),
		RIG_TEST(test_threads_that_come_and_go),
		RIG_TEST(test_first_thread_has_ended),
		RIG_TEST(test_first_thread_ends_meanwhile),
		RIG_TEST(test_stopped_before_stays_stopped),
		RIG_TEST(test_signals_sent_while_stopped_come_later),
		RIG_TEST(test_no_signal_is_lost),
		RIG_TEST(test_ended_before),
		RIG_TEST(test_exit_status_of_a_child_is_its_parents),
		RIG_TEST(test_killed_while_stopped),
		RIG_TEST(test_killed_tracer_lets_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
