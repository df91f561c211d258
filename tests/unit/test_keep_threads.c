// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Many threads in one table.  Each has pages of its own, in the same leaves as the others', for
 * which every result must be the model's; and all fight over shared pages, for which every
 * success is accounted: what was won must have been free, and what was lost is not there.
 * Afterwards no table may be left that could have been released.
 *
 * Built twice: as it is, and with a hook after every store and pin that now and then lets
 * another thread run there, where on few processors one would hardly ever be interrupted.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "keep_ops.h"

#define THREADS_MAX 4
#define STRIPE 512      /* pages: the part of thread t is every (t mod threads)th stripe */
#define SHARED_PAGES 64 /* at the start of each leaf, whose first stripe is nobody's */
#define LEAVES 3
#define PAGES (UINT64_C(32768) * LEAVES)

#ifdef KEEP_STORE_HOOK
#include "keep/word.h"

void keep_store_hook(void)
{
	static _Thread_local uint32_t n = 12345;

	n = n * 1664525 + 1013904223;
	if (n >> 28 == 0)
		sched_yield();
}
#endif

struct arena {
	struct keep_rig r;
	int threads, rounds;
	atomic_bool stop;
	pthread_barrier_t start;
	/* Who holds what of the shared pages: set after a success, cleared before giving back.
	 */
	_Atomic int held[PAGES];
};

struct fighter {
	struct arena *arena;
	int self;
	struct keep_rig mine; /* generator; the model's array is shared, its parts are not */
	pthread_t thread;
};

static uint64_t my_stripe(struct fighter *f)
{
	uint64_t stripes = PAGES / STRIPE, stripe;

	do
		stripe = rig_random(&f->mine, stripes);
	while (stripe % (uint64_t)f->arena->threads != (uint64_t)f->self ||
	       stripe % (32768 / STRIPE) == 0);
	return stripe * STRIPE;
}

static void fight_alone(struct fighter *f, struct keep_hand *hand)
{
	uint64_t from = my_stripe(f), page;
	struct op op = op_random(&f->mine, from, from + STRIPE);

	f->mine.hand = hand;
	op_both(&f->mine, &op);
	page = from + rig_random(&f->mine, STRIPE);
	rig_assert_page(&f->mine, page);
	/* Whole stripes make leaves full, and empty. */
	if (rig_random(&f->mine, 6) == 0 && !model_any(&f->mine, from, from + STRIPE)) {
		op = (struct op){OP_PRESERVE_RANGE, from, STRIPE, 0, 0};
		op_both(&f->mine, &op);
	} else if (rig_random(&f->mine, 6) == 0) {
		for (page = from; page < from + STRIPE; page++)
			if (f->mine.owner[page])
				assert_int_equal(keep_unpreserve(hand, page, 0, KEEP_SPLIT), 0);
		memset(f->mine.owner + from, 0, STRIPE);
	}
}

/* One try for a shared block, which overlaps with what others try for; given back at once or
 * later. */
static void fight_over(struct fighter *f, struct keep_hand *hand)
{
	unsigned int order = (unsigned int)rig_random(&f->mine, 4);
	uint64_t page =
		rig_random(&f->mine, LEAVES) * 32768 + rig_random(&f->mine, SHARED_PAGES);
	uint64_t size = UINT64_C(1) << order, i;
	int rc;

	page &= ~(size - 1);
	rc = keep_preserve(hand, page, order);
	if (rc) {
		assert_true(rc == -EEXIST || rc == -EBUSY);
		return;
	}
	for (i = 0; i < size; i++)
		assert_int_equal(atomic_exchange(&f->arena->held[page + i], f->self + 1), 0);
	assert_true(keep_find(hand, page) >= (int)order);
	for (i = 0; i < size; i++)
		assert_int_equal(atomic_exchange(&f->arena->held[page + i], 0), f->self + 1);
	assert_int_equal(keep_unpreserve(hand, page, order, 0), 0);
}

/* All try for the same single page, and for giving it back. */
static void fight_for_one(struct fighter *f, struct keep_hand *hand)
{
	uint64_t page = 32768 * rig_random(&f->mine, LEAVES) + SHARED_PAGES + 3;
	int rc;

	if (rig_random(&f->mine, 2)) {
		rc = keep_preserve(hand, page, 0);
		assert_true(rc == 0 || rc == -EEXIST);
		if (!rc)
			atomic_fetch_add(&f->arena->held[page], 1);
	} else {
		rc = keep_unpreserve(hand, page, 0, 0);
		assert_true(rc == 0 || rc == -ENOENT);
		if (!rc)
			atomic_fetch_sub(&f->arena->held[page], 1);
	}
}

static void *fight(void *arg)
{
	struct fighter *f = arg;
	struct keep_hand *hand;
	int i;

	assert_int_equal(keep_hand_new(f->arena->r.keep, &hand), 0);
	pthread_barrier_wait(&f->arena->start);
	for (i = 0; i < f->arena->rounds; i++) {
		uint64_t what = rig_random(&f->mine, 8);

		if (what < 4)
			fight_alone(f, hand);
		else if (what < 6)
			fight_over(f, hand);
		else
			fight_for_one(f, hand);
		if (rig_random(&f->mine, 64) == 0)
			keep_hand_rest(hand);
	}
	keep_hand_free(hand);
	return NULL;
}

static int in_order(void *ctx, uint64_t start, uint64_t pages)
{
	uint64_t *end = ctx;

	assert_true(start >= *end && pages && start + pages <= PAGES);
	*end = start + pages;
	return 0;
}

/* Reads while the others change. */
static void *look_on(void *arg)
{
	struct arena *a = arg;
	struct keep_hand *hand;
	struct keep_stats stats;
	uint64_t end;

	assert_int_equal(keep_hand_new(a->r.keep, &hand), 0);
	while (!atomic_load(&a->stop)) {
		end = 0;
		assert_int_equal(keep_walk(hand, 0, PAGES, in_order, &end), 0);
		assert_int_equal(keep_stats(hand, &stats), 0);
		keep_hand_rest(hand);
	}
	keep_hand_free(hand);
	return NULL;
}

static void assert_shared(struct arena *a)
{
	uint64_t leaf, i;

	for (leaf = 0; leaf < LEAVES; leaf++)
		for (i = 0; i < STRIPE; i++) {
			uint64_t page = leaf * 32768 + i;
			int held = atomic_load(&a->held[page]);

			assert_true(held == 0 || held == 1);
			assert_int_equal(keep_find(a->r.hand, page), held ? 0 : -ENOENT);
			a->r.owner[page] = (uint8_t)held;
		}
}

static void run_threads(int threads, int rounds, uint64_t seed)
{
	struct arena *a = calloc(1, sizeof(*a));
	struct fighter f[THREADS_MAX];
	pthread_t looker;
	uint64_t page;
	int i;

	rig_new(&a->r, PAGES, 4096, 9, 0);
	a->threads = threads;
	a->rounds = rounds;
	pthread_barrier_init(&a->start, NULL, (unsigned int)threads);
	assert_int_equal(pthread_create(&looker, NULL, look_on, a), 0);
	for (i = 0; i < threads; i++) {
		f[i] = (struct fighter){.arena = a, .self = i, .mine = a->r};
		f[i].mine.random += (uint64_t)i * 1000003 + seed;
		assert_int_equal(pthread_create(&f[i].thread, NULL, fight, &f[i]), 0);
	}
	for (i = 0; i < threads; i++)
		pthread_join(f[i].thread, NULL);
	atomic_store(&a->stop, true);
	pthread_join(looker, NULL);
	assert_shared(a);
	rig_assert_same(&a->r);
	rig_assert_sound(&a->r);
	for (page = 0; page < PAGES; page++)
		if (a->r.owner[page])
			assert_int_equal(keep_unpreserve(a->r.hand, page, 0, KEEP_SPLIT), 0);
	assert_int_equal(rig_tables(&a->r), 0);
	rig_free(&a->r);
	pthread_barrier_destroy(&a->start);
	free(a);
}

#define ROUNDS (RIG_SANITIZED ? 4000 : 40000)

static void test_two_threads(void **state)
{
	for (uint64_t seed = 1; seed < 4; seed++)
		run_threads(2, ROUNDS, seed);
}

static void test_four_threads(void **state)
{
	for (uint64_t seed = 1; seed < 3; seed++)
		run_threads(4, ROUNDS, seed);
}

/* One page a thread, in a table with nothing else: leaves come and go all the time. */
static void *flicker(void *arg)
{
	struct fighter *f = arg;
	struct keep_hand *hand;
	int i;

	assert_int_equal(keep_hand_new(f->arena->r.keep, &hand), 0);
	pthread_barrier_wait(&f->arena->start);
	for (i = 0; i < f->arena->rounds; i++) {
		uint64_t page = (rig_random(&f->mine, 2) * 32768) + (uint64_t)f->self;

		assert_int_equal(keep_preserve(hand, page, 0), 0);
		assert_int_equal(keep_find(hand, page), 0);
		if (i % 3 == 0)
			keep_hand_rest(hand);
		assert_int_equal(keep_unpreserve(hand, page, 0, 0), 0);
		assert_int_equal(keep_find(hand, page), -ENOENT);
		if (i % 2 == 0)
			keep_hand_rest(hand);
	}
	keep_hand_free(hand);
	return NULL;
}

/* The same at the other end: all is full but for a page a thread. */
static void *flicker_full(void *arg)
{
	struct fighter *f = arg;
	struct keep_hand *hand;
	int i;

	assert_int_equal(keep_hand_new(f->arena->r.keep, &hand), 0);
	pthread_barrier_wait(&f->arena->start);
	for (i = 0; i < f->arena->rounds; i++) {
		uint64_t page = (rig_random(&f->mine, 2) * 32768) + (uint64_t)f->self;

		assert_int_equal(keep_unpreserve(hand, page, 0, 0), 0);
		assert_int_equal(keep_find(hand, page), -ENOENT);
		if (i % 3 == 0)
			keep_hand_rest(hand);
		assert_int_equal(keep_preserve(hand, page, 0), 0);
		assert_int_equal(keep_find(hand, page), 0);
		if (i % 2 == 0)
			keep_hand_rest(hand);
	}
	keep_hand_free(hand);
	return NULL;
}

static void run_flicker(void *(*fn)(void *), bool full)
{
	struct arena *a = calloc(1, sizeof(*a));
	struct fighter f[3];
	struct keep_stats stats;
	int i;

	rig_new(&a->r, PAGES, 4096, 0, 0);
	if (full)
		assert_int_equal(keep_preserve_range(a->r.hand, 0, PAGES, 0), 0);
	keep_hand_rest(a->r.hand);
	a->rounds = ROUNDS;
	pthread_barrier_init(&a->start, NULL, 3);
	for (i = 0; i < 3; i++) {
		f[i] = (struct fighter){.arena = a, .self = i, .mine = a->r};
		f[i].mine.random += (uint64_t)i;
		assert_int_equal(pthread_create(&f[i].thread, NULL, fn, &f[i]), 0);
	}
	for (i = 0; i < 3; i++)
		pthread_join(f[i].thread, NULL);
	assert_int_equal(rig_tables(&a->r), 0);
	assert_int_equal(keep_stats(a->r.hand, &stats), 0);
	assert_int_equal(stats.pages, full ? PAGES : 0);
	rig_free(&a->r);
	pthread_barrier_destroy(&a->start);
	free(a);
}

static void test_leaves_that_come_and_go(void **state)
{
	run_flicker(flicker, false);
}

static void test_leaves_that_fill_and_break(void **state)
{
	run_flicker(flicker_full, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_threads),
		cmocka_unit_test(test_four_threads),
		cmocka_unit_test(test_leaves_that_come_and_go),
		cmocka_unit_test(test_leaves_that_fill_and_break),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
