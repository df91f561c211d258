// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A crash at any instruction.  The room is compiled once more for this test, with a hook after
 * every store to shared memory: a child process ends there, and the parent attaches what is
 * left, checks all of it, and compares it with the operations that were acknowledged.  Then
 * children killed at any moment, one after the other, on the same memory.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keep/word.h"
#include "keep_ops.h"

#define STOPPED 42

/* Stores until the process ends; 0: never. */
static _Thread_local uint64_t stores_left;

void keep_store_hook(void)
{
	if (stores_left && !--stores_left)
		_exit(STOPPED);
}

/* Shared with the child. */
struct ack {
	_Atomic uint64_t done[2]; /* operations of each thread that returned */
};

static struct ack *ack_new(void)
{
	struct ack *ack =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(ack != MAP_FAILED);
	return ack;
}

/* Of one page: what was so before and after the operation that was cut off is so now. */
static void assert_survived(struct keep_rig *r, const uint8_t *before, const uint8_t *after)
{
	uint64_t page;

	for (page = 0; page < r->geometry.pages; page++) {
		int order;

		/* All at which something changes, and some between. */
		if (page % 31 && before[page] == before[page - 1] &&
		    after[page] == after[page - 1])
			continue;
		order = keep_find(r->hand, page);
		if (before[page] == after[page])
			assert_int_equal(order, before[page] ? before[page] - 1 : -ENOENT);
		else if (before[page] && after[page])
			assert_true(order >= 0);
		else
			assert_true(order >= 0 || order == -ENOENT);
	}
}

/* The first stores of a table, a collapse, a release, ranges, splits: all that is written. */
static const struct op script[] = {
	{OP_PRESERVE, 100, 0, 0, 0},
	{OP_PRESERVE, 101, 0, 0, 0},
	{OP_PRESERVE, 32768 + 512, 0, 9, 0},
	{OP_UNPRESERVE, 100, 0, 0, 0},
	{OP_UNPRESERVE, 101, 0, 0, 0},
	{OP_PRESERVE_RANGE, 1000, 300, 0, 0},
	{OP_PRESERVE_RANGE, 1299, 2, 0, 0},
	{OP_PRESERVE_RANGE, 3001, 1777, 0, KEEP_LARGEST},
	{OP_UNPRESERVE_RANGE, 1100, 150, 0, 0},
	{OP_UNPRESERVE, 32768 + 700, 0, 0, KEEP_SPLIT},
	{OP_UNPRESERVE_RANGE, 3000, 100, 0, KEEP_SPLIT},
	{OP_UNPRESERVE_RANGE, 3005, 1500, 0, KEEP_SPLIT},
	{OP_PRESERVE_RANGE, 65536, 65536, 0, 0},
	{OP_UNPRESERVE, 65536 + 5, 0, 0, 0},
	{OP_PRESERVE, 65536 + 5, 0, 0, 0},
	{OP_UNPRESERVE_RANGE, 65530 + 7, 40000, 0, 0},
	{OP_UNPRESERVE_RANGE, 65536, 65536, 0, 0},
	{OP_UNPRESERVE, 65536, 0, 0, 0},
	{OP_UNPRESERVE_RANGE, 105537, 25535, 0, 0},
	{OP_PRESERVE_RANGE, 131072, 131, 0, 0},
	{OP_UNPRESERVE, 131072, 0, 0, 0},
	{OP_PRESERVE, 0, 0, 9, 0},
	{OP_PRESERVE, 511, 0, 0, 0},
	{OP_UNPRESERVE_RANGE, 131073, 130, 0, 0},
};

#define SCRIPT_PAGES (131072 + 131)

static void empty(struct keep_rig *r)
{
	struct err e;

	keep_abandon(r->keep);
	assert_int_equal(keep_create(&r->area, &r->geometry, &r->keep, &e), 0);
	assert_int_equal(keep_hand_new(r->keep, &r->hand), 0);
	memset(r->owner, 0, r->geometry.pages);
}

/* Runs the script in a child that ends after `stop` stores; true when it came so far. */
static bool run_script(struct keep_rig *r, struct ack *ack, uint64_t stop)
{
	pid_t pid;
	int status;
	size_t i;

	atomic_store(&ack->done[0], 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		stores_left = stop;
		for (i = 0; i < ARRAY_LEN(script); i++) {
			op_run(r->hand, &script[i]);
			atomic_store(&ack->done[0], i + 1);
		}
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == STOPPED);
	return WEXITSTATUS(status) == STOPPED;
}

/* Attaching is cut off, too, after `stop` stores; true when it came so far. */
static bool stop_attach(struct keep_rig *r, uint64_t stop)
{
	struct err e;
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		stores_left = stop;
		_exit(keep_attach(&r->area, 0, &r->keep, NULL, &e) ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 1);
	return WEXITSTATUS(status) == STOPPED;
}

static void assert_script(struct keep_rig *r, uint64_t done)
{
	uint8_t *before = malloc(r->geometry.pages);
	size_t i;

	for (i = 0; i < done; i++)
		op_model(r, &script[i]);
	memcpy(before, r->owner, r->geometry.pages);
	if (done < ARRAY_LEN(script))
		op_model(r, &script[done]);
	rig_attach(r, NULL);
	rig_assert_sound(r);
	assert_survived(r, before, r->owner);
	free(before);
}

static void test_stopped_after_every_single_store(void **state)
{
	struct ack *ack = ack_new();
	struct keep_rig r;
	uint64_t stop;
	bool stopped = true;

	rig_new(&r, SCRIPT_PAGES, 4096, 9, 0);
	for (stop = 1; stopped; stop += RIG_SANITIZED ? 17 : 1) {
		empty(&r);
		stopped = run_script(&r, ack, stop);
		keep_abandon(r.keep);
		assert_script(&r, atomic_load(&ack->done[0]));
	}
	/* The script is long enough to mean something, and none of its ends was missed. */
	assert_true(stop > 1000);
	assert_int_equal(atomic_load(&ack->done[0]), ARRAY_LEN(script));
	rig_free(&r);
	munmap(ack, 4096);
}

static void test_stopped_while_mending(void **state)
{
	struct ack *ack = ack_new();
	struct keep_rig r;
	uint64_t stop, again;

	rig_new(&r, SCRIPT_PAGES, 4096, 9, 0);
	for (stop = 11;; stop += RIG_SANITIZED ? 331 : 37) {
		empty(&r);
		if (!run_script(&r, ack, stop))
			break;
		keep_abandon(r.keep);
		/* Each attach gets one store further than the one before, on what that left. */
		for (again = 1; stop_attach(&r, again); again++)
			;
		assert_true(again > 1);
		assert_script(&r, atomic_load(&ack->done[0]));
	}
	rig_free(&r);
	munmap(ack, 4096);
}

/* One thread of a child: endless random operations in its part, acknowledged one by one. */
struct worker {
	struct keep_rig *r;
	struct ack *ack;
	int self;
	uint64_t from, to;
	struct keep_rig mine; /* a generator and a model of its own */
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct keep_hand *hand;

	if (keep_hand_new(w->r->keep, &hand))
		_exit(1);
	for (;;) {
		struct op op = op_random(&w->mine, w->from, w->to);

		op_model(&w->mine, &op);
		op_run(hand, &op);
		atomic_fetch_add(&w->ack->done[w->self], 1);
	}
	return NULL;
}

/* Replays what was acknowledged; the operation that may have been cut off ends up in `after`.
 */
static void replay(struct worker *w, uint64_t done, uint8_t *before, uint8_t *after)
{
	struct op op;

	for (; done; done--) {
		op = op_random(&w->mine, w->from, w->to);
		op_model(&w->mine, &op);
	}
	memcpy(before + w->from, w->mine.owner + w->from, w->to - w->from);
	op = op_random(&w->mine, w->from, w->to);
	op_model(&w->mine, &op);
	memcpy(after + w->from, w->mine.owner + w->from, w->to - w->from);
}

static void run_until_killed(struct keep_rig *r, struct worker *workers, int threads,
			     uint64_t at_least)
{
	struct ack *ack = workers[0].ack;
	pthread_t thread;
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		rig_attach(r, NULL);
		if (threads > 1 && pthread_create(&thread, NULL, work, &workers[1]))
			_exit(1);
		work(&workers[0]);
	}
	while (atomic_load(&ack->done[0]) + atomic_load(&ack->done[1]) < at_least &&
	       waitpid(pid, &status, WNOHANG) == 0)
		;
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* The model goes on from what was found. */
static void take_over(struct keep_rig *r)
{
	uint64_t page;

	for (page = 0; page < r->geometry.pages; page++) {
		int order = keep_find(r->hand, page);

		r->owner[page] = order < 0 ? 0 : (uint8_t)(order + 1);
	}
}

/* The parts meet in the middle of a leaf, so that the threads share tables. */
static void killed(int threads, int times)
{
	struct ack *ack = ack_new();
	struct worker w[2];
	uint8_t *before, *after;
	struct keep_rig r;
	int i, t;

	rig_new(&r, 4 * 32768, 4096, 9, 0);
	keep_close(r.keep);
	before = calloc(1, r.geometry.pages);
	after = calloc(1, r.geometry.pages);
	for (i = 0; i < times; i++) {
		for (t = 0; t < 2; t++) {
			w[t] = (struct worker){.r = &r, .ack = ack, .self = t, .mine = r};
			w[t].from = t ? 49152 : 0;
			w[t].to = t || threads == 1 ? r.geometry.pages : 49152;
			w[t].mine.random += (uint64_t)(i * 2 + t);
			atomic_store(&ack->done[t], 0);
		}
		run_until_killed(&r, w, threads, 1 + rig_random(&r, 400));
		for (t = 0; t < threads; t++)
			replay(&w[t], atomic_load(&ack->done[t]), before, after);
		rig_attach(&r, NULL);
		rig_assert_sound(&r);
		assert_survived(&r, before, after);
		take_over(&r);
		rig_assert_same(&r);
		keep_close(r.keep);
	}
	rig_attach(&r, NULL);
	rig_free(&r);
	free(before);
	free(after);
	munmap(ack, 4096);
}

static void test_one_thread_killed_at_any_moment(void **state)
{
	killed(1, RIG_SANITIZED ? 20 : 200);
}

static void test_two_threads_killed_at_any_moment(void **state)
{
	killed(2, RIG_SANITIZED ? 20 : 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stopped_after_every_single_store),
		cmocka_unit_test(test_stopped_while_mending),
		cmocka_unit_test(test_one_thread_killed_at_any_moment),
		cmocka_unit_test(test_two_threads_killed_at_any_moment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
