// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * When a control group is known to stand still: processes that are busy, stopped, or asleep in
 * the kernel where nothing reaches them, in groups with and without groups below.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "freeze_rig.h"
#include "live/freeze.h"

/* Reads its own memory that a userfaultfd never fills: asleep in the kernel, and only SIGKILL
 * reaches it. */
static void sleep_in_the_kernel(atomic_ulong *ready)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = {.api = UFFD_API};
	void *at =
		mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register reg = {{(uintptr_t)at, 65536}, UFFDIO_REGISTER_MODE_MISSING, 0};
	char buf[16];
	struct iovec to = {buf, sizeof(buf)}, from = {at, sizeof(buf)};

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0 || ioctl(fd, UFFDIO_REGISTER, &reg) < 0)
		_exit(1);
	atomic_store(ready, 1);
	process_vm_readv(getpid(), &to, 1, &from, 1, 0);
	_exit(2);
}

/* A group with a process somewhere below that cannot be frozen, and one that can. */
static void make_unfreezable(struct rig *r, const char *group)
{
	struct os_proc_stat stat = {.state = '?'};

	rig_worker(r, "a");
	assert_true(rig_runs(r, 0));
	r->workers[r->n_workers] = fork();
	if (r->workers[r->n_workers] == 0) {
		if (!rig_write(r, group, "cgroup.procs", "0"))
			_exit(3);
		sleep_in_the_kernel(&r->counters[1]);
	}
	r->n_workers++;
	assert_true(RIG_WAIT(
		os_proc_stat(r->workers[1], r->workers[1], &stat) == 0 &&
		((stat.state == 'D' && atomic_load(&r->counters[1])) || stat.state == 'Z')));
	if (stat.state == 'Z')
		skip();
}

static void *cancel_soon(void *cancel)
{
	rig_nap(150000);
	atomic_store((atomic_bool *)cancel, true);
	return NULL;
}

static void test_cancel_is_seen_and_undone(void **state)
{
	struct rig *r = rig_or_skip(state);
	atomic_bool cancel = false;
	struct live_freeze *f;
	pthread_t thread;
	uint64_t start;

	make_unfreezable(r, "a/b");
	assert_int_equal(live_freeze_new(r->path, &f, NULL), 0);
	pthread_create(&thread, NULL, cancel_soon, &cancel);
	start = clock_mono_ns();
	assert_int_equal(live_freeze_now(f, &cancel, NULL), -ECANCELED);
	assert_true(clock_mono_ns() - start < 2000000000u);
	pthread_join(thread, NULL);
	assert_false(rig_freezes(r, "a"));
	assert_true(rig_runs(r, 0));
	/* One that was made before does not freeze at all. */
	assert_int_equal(live_freeze_now(f, &cancel, NULL), -ECANCELED);
	/* It freezes when there is nothing left that does not. */
	kill(r->workers[1], SIGKILL);
	assert_true(RIG_WAIT(!rig_has(r, "a/b", "cgroup.events", "populated 1")));
	assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
	assert_true(rig_stands(r, 0));
	live_freeze_free(f);
	assert_true(rig_runs(r, 0));
}

static void test_process_that_does_not_freeze_is_named(void **state)
{
	struct rig *r = rig_or_skip(state);
	struct live_freeze *f;
	struct err e;
	char pid[16];

	make_unfreezable(r, "a/b/c");
	snprintf(pid, sizeof(pid), "%d", r->workers[1]);
	assert_int_equal(live_freeze_new(r->path, &f, NULL), 0);
	assert_int_equal(live_freeze_now(f, NULL, &e), -ETIMEDOUT);
	assert_non_null(strstr(e.text, pid));
	assert_false(rig_freezes(r, "a"));
	assert_true(rig_runs(r, 0));
	live_freeze_free(f);
}

/* It never enters the kernel by itself, and is frozen on its way back from an interrupt. */
static void test_busy_process_freezes(void **state)
{
	static const char *const where[] = {"a", "a/b/c"};
	struct rig *r = rig_or_skip(state);
	struct live_freeze *f;
	size_t i;

	for (i = 0; i < ARRAY_LEN(where); i++) {
		rig_start(r, where[i], 0);
		assert_true(rig_runs(r, (int)i));
	}
	assert_int_equal(live_freeze_new(r->path, &f, NULL), 0);
	for (i = 0; i < 10; i++) {
		assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
		assert_true(rig_stands(r, 0) && rig_stands(r, 1));
		assert_int_equal(live_freeze_thaw(f, NULL), 0);
		assert_true(rig_runs(r, 0) && rig_runs(r, 1));
	}
	live_freeze_free(f);
}

/* It waits for its child, which stands still too: no signal reaches it, and it counts as
 * frozen. */
static void test_parent_of_a_vfork_freezes(void **state)
{
	struct rig *r = rig_or_skip(state);
	struct os_proc_stat stat = {.state = '?'};
	struct live_freeze *f;
	int i;

	for (i = 0; i < 2; i++) {
		r->workers[i] = fork();
		if (r->workers[i] == 0) {
			if (!rig_write(r, i ? "a/b/c" : "a", "cgroup.procs", "0"))
				_exit(1);
			atomic_store(&r->counters[i], 1);
			/* As vfork(2), but with memory of its own, which sanitizers need. */
			if (syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) == 0) {
				for (;;)
					pause();
			}
			_exit(0);
		}
		r->n_workers++;
		assert_true(RIG_WAIT(atomic_load(&r->counters[i]) &&
				     os_proc_stat(r->workers[i], r->workers[i], &stat) == 0 &&
				     stat.state == 'D'));
	}
	assert_int_equal(live_freeze_new(r->path, &f, NULL), 0);
	assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
	live_freeze_free(f);
}

static void test_stopped_process_counts_as_frozen(void **state)
{
	struct rig *r = rig_or_skip(state);
	struct os_proc_stat stat = {.state = '?'};
	struct live_freeze *f;

	rig_worker(r, "a");
	assert_true(rig_runs(r, 0));
	kill(r->workers[0], SIGSTOP);
	assert_true(RIG_WAIT(os_proc_stat(r->workers[0], r->workers[0], &stat) == 0 &&
			     stat.state == 'T'));
	assert_int_equal(live_freeze_new(r->path, &f, NULL), 0);
	assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
	live_freeze_free(f);
	assert_true(rig_stands(r, 0));
	kill(r->workers[0], SIGCONT);
	assert_true(rig_runs(r, 0));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_cancel_is_seen_and_undone),
		TEST(test_process_that_does_not_freeze_is_named),
		TEST(test_busy_process_freezes),
		TEST(test_parent_of_a_vfork_freezes),
		TEST(test_stopped_process_counts_as_frozen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
