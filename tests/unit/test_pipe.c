// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The pipeline with numbers for jobs: order, back-pressure, errors from each stage, cancelling;
 * and that every job that was taken is either done or dropped, once.  Made for a thread
 * sanitizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "../pattern.h"
#include "base/num.h"
#include "base/wait.h"
#include "pipe/pipe.h"

#include <cmocka.h>

#define NEVER UINT64_MAX
#define JOBS_MAX 20000u

struct rig {
	uint64_t jobs; /* that there are */
	uint64_t fail_take, fail_work, fail_done, cancel_at;
	uint64_t slow; /* this job's work waits until `slow_until` jobs were taken */
	uint64_t slow_until;
	bool random_work;
	atomic_bool cancel;

	_Atomic uint64_t taken, finished;
	_Atomic uint32_t turn; /* changes with every take, for those who wait */
	_Atomic int in_take, in_done;
	_Atomic uint8_t ends[JOBS_MAX]; /* 1 done, 2 dropped */
	bool out_of_order;
	uint64_t most_ahead; /* taken while the slow job was at work */
};

struct job {
	uint64_t number, square;
};

static struct rig rig;
static pthread_t caller; /* of all tests */

static int take(void *ctx, void *worker, void *job_arg, struct err *e)
{
	struct job *job = job_arg;
	uint64_t n = atomic_load(&rig.taken);

	assert_int_equal(atomic_fetch_add(&rig.in_take, 1), 0);
	if (n == rig.cancel_at)
		atomic_store(&rig.cancel, true);
	if (n == rig.fail_take) {
		atomic_fetch_sub(&rig.in_take, 1);
		return err_set(e, -EIO, "take %llu", (unsigned long long)n);
	}
	if (n == rig.jobs) {
		atomic_fetch_sub(&rig.in_take, 1);
		return 0;
	}
	*job = (struct job){.number = n};
	atomic_store(&rig.taken, n + 1);
	atomic_fetch_add(&rig.turn, 1);
	wait_wake(&rig.turn);
	atomic_fetch_sub(&rig.in_take, 1);
	return 1;
}

/* All threads but the caller's leave signals alone. */
static void check_mask(void)
{
	sigset_t mask;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	if ((sigismember(&mask, SIGTERM) == 0) != (pthread_equal(pthread_self(), caller) != 0))
		abort();
}

static int work(void *ctx, void *worker, void *job_arg, struct err *e)
{
	struct job *job = job_arg;
	uint64_t seed = job->number * 7919 + 1, spins;

	check_mask();
	++*(uint64_t *)
		  worker; /* a worker belongs to one thread: the sanitizer would see another */
	if (rig.random_work)
		for (spins = pattern_random(&seed) % 3000; spins; spins--)
			__asm__ volatile("" ::: "memory");
	if (job->number == rig.slow) {
		uint32_t seen;

		while (seen = atomic_load(&rig.turn), atomic_load(&rig.taken) < rig.slow_until)
			wait_while(&rig.turn, seen);
		rig.most_ahead = atomic_load(&rig.taken);
	}
	job->square = job->number * job->number;
	if (job->number == rig.fail_work)
		return err_set(e, -EBADMSG, "work %llu", (unsigned long long)job->number);
	return 0;
}

static int done(void *ctx, void *job_arg, struct err *e)
{
	struct job *job = job_arg;

	if (atomic_fetch_add(&rig.in_done, 1) || job->number != atomic_load(&rig.finished) ||
	    job->square != job->number * job->number)
		rig.out_of_order = true;
	atomic_fetch_add(&rig.finished, 1);
	atomic_fetch_add(&rig.ends[job->number], 1);
	atomic_fetch_sub(&rig.in_done, 1);
	if (job->number == rig.fail_done)
		return err_set(e, -ENOSPC, "done %llu", (unsigned long long)job->number);
	return 0;
}

static void drop(void *ctx, void *job_arg)
{
	struct job *job = job_arg;

	atomic_fetch_add(&rig.ends[job->number], 2);
}

static const struct pipe_ops ops = {take, work, done, drop};

static void reset(uint64_t jobs)
{
	memset(&rig, 0, sizeof(rig));
	rig.jobs = jobs;
	rig.fail_take = rig.fail_work = rig.fail_done = rig.cancel_at = rig.slow = NEVER;
}

static int run(unsigned int n_workers, unsigned int slots, struct err *e)
{
	uint64_t counts[16] = {0}, sum = 0;
	void *workers[16];
	struct pipe_plan plan = {
		.ops = &ops,
		.workers = workers,
		.n_workers = n_workers,
		.slots = slots,
		.job_bytes = sizeof(struct job),
		.cancel = &rig.cancel,
	};
	unsigned int started = 0;
	uint64_t i;
	int rc;

	for (i = 0; i < n_workers; i++)
		workers[i] = &counts[i];
	rc = pipe_run(&plan, &started, e);
	assert_int_equal(started, n_workers);
	assert_false(rig.out_of_order);
	for (i = 0; i < rig.taken; i++)
		assert_in_range(rig.ends[i], 1, 2);
	for (i = 0; i < n_workers; i++)
		sum += counts[i];
	assert_in_range(sum, rig.finished, rig.taken);
	return rc;
}

static const unsigned int worker_counts[] = {1, 2, 7};

static void test_order(void **unused)
{
	static const uint64_t job_counts[] = {0, 1, 2, 6, 7, 8, 9, 1000, JOBS_MAX};
	struct err e = {.text = ""};

	for (size_t i = 0; i < ARRAY_LEN(job_counts); i++)
		for (size_t w = 0; w < ARRAY_LEN(worker_counts); w++)
			for (unsigned int more = 0; more < 9; more += 4) {
				reset(job_counts[i]);
				rig.random_work = true;
				assert_int_equal(
					run(worker_counts[w], worker_counts[w] + more, &e), 0);
				assert_int_equal(rig.finished, job_counts[i]);
				assert_string_equal(e.text, "");
			}
}

/* Job 3 is at work until all slots behind it are taken: the others go on so far, and no
 * further. */
static void test_slow_job_holds_up_nobody(void **unused)
{
	for (unsigned int slots = 2; slots < 40; slots += 5) {
		reset(200);
		rig.slow = 3;
		rig.slow_until = 3 + slots;
		assert_int_equal(run(2, slots, NULL), 0);
		assert_int_equal(rig.finished, 200);
		assert_int_equal(rig.most_ahead, 3 + slots);
	}
}

static void expect_error(int want, const char *says, unsigned int n_workers)
{
	struct err e = {.text = ""};
	int rc = run(n_workers, n_workers + 5, &e);

	assert_int_equal(rc, want);
	assert_string_equal(e.text, says);
}

static void test_errors(void **unused)
{
	static const uint64_t places[] = {0, 1, 5, 77, 199};
	char says[32];

	for (size_t w = 0; w < ARRAY_LEN(worker_counts); w++)
		for (size_t i = 0; i < ARRAY_LEN(places); i++)
			for (int stage = 0; stage < 3; stage++) {
				reset(200);
				rig.random_work = true;
				*(stage == 0   ? &rig.fail_take
				  : stage == 1 ? &rig.fail_work
					       : &rig.fail_done) = places[i];
				snprintf(says, sizeof(says), "%s %u",
					 (const char *[]){"take", "work", "done"}[stage],
					 (unsigned int)places[i]);
				expect_error((int[]){-EIO, -EBADMSG, -ENOSPC}[stage], says,
					     worker_counts[w]);
				if (stage == 1) /* a job whose work failed is never done */
					assert_int_equal(rig.ends[places[i]], 2);
				assert_true(rig.finished <= places[i] + 1);
			}
}

/* A failing job at work while the one before it hangs on until much later: its error is the
 * one. */
static void test_first_error_wins(void **unused)
{
	struct err e = {.text = ""};

	reset(100);
	rig.slow = 0;
	rig.slow_until = 2;
	rig.fail_work = 1;
	assert_int_equal(run(2, 8, &e), -EBADMSG);
	assert_string_equal(e.text, "work 1");
	/* An earlier error is not replaced: done of 0 fails where work of 1 did already, or not
	 * at all. */
	reset(100);
	rig.fail_work = 1;
	rig.fail_done = 0;
	assert_int_equal(run(1, 8, &e), -ENOSPC);
	assert_string_equal(e.text, "done 0");
}

static void test_cancel(void **unused)
{
	for (size_t w = 0; w < ARRAY_LEN(worker_counts); w++) {
		reset(1000);
		rig.cancel_at = 50;
		expect_error(-ECANCELED, "cancelled", worker_counts[w]);
		assert_int_equal(rig.taken, 51);
		reset(10);
		atomic_store(&rig.cancel, true);
		expect_error(-ECANCELED, "cancelled", worker_counts[w]);
		assert_int_equal(rig.taken, 0);
	}
}

static void test_no_err_and_no_done(void **unused)
{
	static const struct pipe_ops bare = {.take = take, .work = work};
	uint64_t counts[2] = {0};
	void *workers[2] = {&counts[0], &counts[1]};
	struct pipe_plan plan = {.ops = &bare,
				 .workers = workers,
				 .n_workers = 2,
				 .slots = 4,
				 .job_bytes = sizeof(struct job)};

	reset(500);
	assert_int_equal(pipe_run(&plan, NULL, NULL), 0);
	assert_int_equal(counts[0] + counts[1], 500);
	reset(500);
	rig.fail_work = 100;
	assert_int_equal(pipe_run(&plan, NULL, NULL), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),  cmocka_unit_test(test_slow_job_holds_up_nobody),
		cmocka_unit_test(test_errors), cmocka_unit_test(test_first_error_wins),
		cmocka_unit_test(test_cancel), cmocka_unit_test(test_no_err_and_no_done),
	};

	caller = pthread_self();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
