/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Child processes to be stopped, which count in memory that they share with the test; and what
 * state they are in. */
#ifndef TORPOR_TESTS_STOP_RIG_H
#define TORPOR_TESTS_STOP_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/num.h"
#include "live/stop.h"
#include "os/proc.h"

#include <cmocka.h>

/* ThreadSanitizer: a thread of its own in every process, signals put together, and no vfork(2).
 */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define UNDER_TSAN 1
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif

#define DEADLINE_NS 30000000000u
#define THREADS_MAX 64

/* Shared by the test and all children. */
struct box {
	_Atomic uint64_t counters[THREADS_MAX];
	_Atomic uint64_t signals, out_of_order;
	_Atomic int32_t pids[8]; /* that children made */
	_Atomic bool ready, flag;
};

struct rig {
	struct box *box;
	pid_t children[8];
	int n;
};

/* The last one that was made; a test that fails leaves it. */
static struct live_stop *rig_stop;

static inline void free_stop(void)
{
	live_stop_free(rig_stop);
	rig_stop = NULL;
}

static inline int rig_set_up(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	r->box = mmap(NULL, sizeof(*r->box), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	*state = r;
	return r->box == MAP_FAILED;
}

static inline int rig_tear_down(void **state)
{
	struct rig *r = *state;
	int i;

	free_stop();
	for (i = 0; i < 8; i++) {
		if (r->box->pids[i] > 0)
			kill(r->box->pids[i], SIGKILL);
	}
	for (i = 0; i < r->n; i++) {
		kill(r->children[i], SIGKILL);
		waitpid(r->children[i], NULL, 0);
	}
	munmap(r->box, sizeof(*r->box));
	free(r);
	return 0;
}

static inline pid_t rig_child(struct rig *r, void (*fn)(struct box *))
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fn(r->box);
		_exit(0);
	}
	assert_true(pid > 0);
	r->children[r->n++] = pid;
	return pid;
}

/* It was waited for already. */
static inline void rig_forget(struct rig *r, pid_t pid)
{
	int i;

	for (i = 0; i < r->n; i++) {
		if (r->children[i] == pid)
			r->children[i] = r->children[--r->n];
	}
}

static inline void rig_end(struct rig *r, pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	rig_forget(r, pid);
}

/* Polls, since it happens in another process. */
#define wait_until(condition)                                                    \
	do {                                                                     \
		const uint64_t deadline_ = clock_mono_ns() + DEADLINE_NS;        \
		while (!(condition)) {                                           \
			if (clock_mono_ns() > deadline_)                         \
				fail_msg("waited in vain until %s", #condition); \
			nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);  \
		}                                                                \
	} while (0)

static inline char state_of(pid_t pid)
{
	struct os_proc_stat stat;

	return os_proc_stat(pid, pid, &stat) < 0 ? '-' : stat.state;
}

/* All its threads have ended, whether or not it was waited for. */
static inline bool has_ended(pid_t pid)
{
	struct os_proc_stat stat;
	pid_t tid;

	return os_proc_living(pid, &tid, &stat) == -ESRCH;
}

/* All threads of a process that live are in one of these states. */
static inline bool all_in(pid_t pid, const char *states)
{
	CLEANUP_FREE pid_t *tids = NULL;
	size_t n = 0, i;

	if (os_proc_tasks(pid, &tids, &n) < 0)
		return false;
	for (i = 0; i < n; i++) {
		struct os_proc_stat stat;

		if (os_proc_stat(pid, tids[i], &stat) < 0 || stat.state == 'Z' ||
		    stat.state == 'X')
			continue;
		if (!strchr(states, stat.state))
			return false;
	}
	return true;
}

static inline uint64_t sum_of(const struct box *b)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < THREADS_MAX; i++)
		sum += b->counters[i];
	return sum;
}

/* Nothing moves, now and a while of other work later. */
static inline void expect_still(const struct box *b)
{
	uint64_t before = sum_of(b), end = clock_mono_ns() + 2000000;

	while (clock_mono_ns() < end)
		assert_int_equal(sum_of(b), before);
}

static inline void expect_moving(const struct box *b)
{
	uint64_t before = sum_of(b);

	wait_until(sum_of(b) > before);
}

/* ---- what children do ---- */

static inline void count(struct box *b)
{
	b->ready = true;
	for (;;)
		b->counters[0]++;
}

static inline void *count_in_thread(void *arg)
{
	_Atomic uint64_t *counter = arg;

	/* So that many of them are no burden. */
	for (;;) {
		(*counter)++;
		nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	}
	return NULL;
}

static inline void start_thread(void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, fn, arg))
		_exit(98);
	pthread_detach(thread);
}

/* ---- stopping ---- */

static inline struct live_stop *new_stop(const pid_t *pids, size_t n, bool tree)
{
	struct live_stop_spec spec = {.pids = pids, .n_pids = n, .tree = tree};
	struct live_stop *s = NULL;
	struct err e = {.text = ""};

	if (live_stop_new(&spec, &s, &e))
		fail_msg("%s", e.text);
	rig_stop = s;
	return s;
}

static inline void stop_now(struct live_stop *s)
{
	struct err e = {.text = ""};

	if (live_stop_now(s, NULL, &e))
		fail_msg("%s", e.text);
}

static inline void expect_refused(const pid_t *pids, size_t n, bool tree, int code,
				  const char *said)
{
	struct live_stop_spec spec = {.pids = pids, .n_pids = n, .tree = tree};
	struct live_stop *s = NULL;
	struct err e = {.text = ""};

	assert_int_equal(live_stop_new(&spec, &s, &e), code);
	assert_null(s);
	if (!strstr(e.text, said))
		fail_msg("'%s' is not in '%s'", said, e.text);
}

#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

static inline void many_threads(struct box *b)
{
	int i;

	for (i = 1; i < THREADS_MAX; i++)
		start_thread(count_in_thread, &b->counters[i]);
	count(b);
}

static inline int status_of(struct rig *r, pid_t pid)
{
	int status = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	rig_forget(r, pid);
	return status;
}

#endif
