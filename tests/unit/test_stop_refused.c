// SPDX-License-Identifier: LGPL-2.1-or-later
/* What cannot be stopped, and says so: a debugger has it, it is no process, it does not stop. */
#include "stop_rig.h"

#include <sys/ptrace.h>

/* ---- what cannot be stopped ---- */

static void trace_it(struct box *b)
{
	if (ptrace(PTRACE_SEIZE, b->pids[0], NULL, NULL) < 0)
		_exit(1);
	b->flag = true;
	pause();
}

static void test_debugger_is_named(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, many_threads), tracer;
	struct live_stop *s;
	struct err e;
	char want[64];

	wait_until(r->box->ready);
	s = new_stop(&pid, 1, false);
	r->box->pids[0] = pid;
	tracer = rig_child(r, trace_it);
	wait_until(r->box->flag);
	snprintf(want, sizeof(want), "process %d (", tracer);
	expect_refused(&pid, 1, false, -EPERM, want);
	/* It came in between. */
	assert_int_equal(live_stop_now(s, NULL, &e), -EPERM);
	assert_non_null(strstr(e.text, want));
	expect_moving(r->box);
	kill(tracer, SIGKILL);
	status_of(r, tracer);
	stop_now(s);
	expect_still(r->box);
	free_stop();
	expect_moving(r->box);
}

static void test_what_is_refused(void **state)
{
	static const pid_t zero = 0, negative = -5, kthreadd = 2;
	pid_t self = getpid(), parent = getppid();
	struct os_proc_stat stat;

	expect_refused(&zero, 1, false, -EINVAL, "0 is not a process");
	expect_refused(&negative, 1, false, -EINVAL, "-5 is not a process");
	expect_refused(&self, 1, false, -EINVAL, "this process itself");
	expect_refused(&parent, 1, true, -EINVAL, "this process does");
	if (os_proc_stat(2, 2, &stat) == 0 && stat.kernel_thread)
		expect_refused(&kthreadd, 1, false, -EPERM, "kernel thread");
}

static void wait_in_vfork(struct box *b)
{
	b->ready = true;
	/* The child has its parent's memory: it must not return. */
	if (vfork() == 0) {
		b->pids[0] = getpid();
		while (!b->flag)
			;
		_exit(0);
	}
	count(b);
}

static void *set_later(void *arg)
{
	nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	*(atomic_bool *)arg = true;
	return NULL;
}

/* A parent in vfork(2) cannot be stopped: giving up is possible meanwhile, and it can be when it is over. */
static void test_cancel_while_it_does_not_stop(void **state)
{
	struct rig *r = *state;
	pid_t pid = rig_child(r, wait_in_vfork);
	atomic_bool cancel = false;
	struct live_stop *s;
	pthread_t thread;

	if (UNDER_TSAN)
		skip();
	wait_until(r->box->pids[0]);
	s = new_stop(&pid, 1, false);
	assert_int_equal(pthread_create(&thread, NULL, set_later, &cancel), 0);
	assert_int_equal(live_stop_now(s, &cancel, NULL), -ECANCELED);
	pthread_join(thread, NULL);
	assert_int_equal(pthread_create(&thread, NULL, set_later, &r->box->flag), 0);
	stop_now(s);
	pthread_join(thread, NULL);
	expect_still(r->box);
	free_stop();
	r->box->pids[0] = 0;
	expect_moving(r->box);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_debugger_is_named),
		RIG_TEST(test_what_is_refused),
		RIG_TEST(test_cancel_while_it_does_not_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
