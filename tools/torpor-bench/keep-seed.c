// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The table proposed in its place (April 2025): a tree of four levels for each order, every
 * table a page, the lowest ones bitmaps; tables are installed by compare-and-swap, bits set
 * atomically, and to serialize is to write down the roots.  Its successor reads it as the
 * list's does.  Once with the rw_semaphore and the xarray of orders that it was published with,
 * once without any lock.
 *
 * What was published wrong is right here where a benchmark would see it: addresses in the walk
 * of higher orders, alignment of a range's start, orders too large to be handed over.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench.h"
#include "keep.h"

#define LEAF_BITS (TRACK_PAGE_BYTES * 8u)
#define LEAF_SHIFT 15u
#define TABLE_SLOTS 512u
#define TABLE_SHIFT 9u
#define LEVELS 4u
#define ORDERS 11u /* the kernel's NR_PAGE_ORDERS */

typedef _Atomic(uintptr_t) table_ref; /* its low 12 bits are free for flags */

struct table {
	struct track_sem sem;
	bool finished;
	struct track_xarray orders; /* of table_ref */
	struct track_arena arena;
	uintptr_t roots[ORDERS];
};

static void *create(uint64_t pages)
{
	struct table *t = calloc(1, sizeof(*t));

	if (!t)
		bench_die("no memory");
	track_arena_new(&t->arena, pages);
	return t;
}

static uintptr_t install(struct table *t, table_ref *at)
{
	uintptr_t made = (uintptr_t)track_alloc(&t->arena, TRACK_PAGE_BYTES), there = 0;

	if (atomic_compare_exchange_strong(at, &there, made))
		return made;
	track_give_back(&t->arena, TRACK_PAGE_BYTES);
	return there;
}

static inline uintptr_t follow(struct table *t, table_ref *at)
{
	uintptr_t there = atomic_load_explicit(at, memory_order_acquire);

	if (!there)
		there = install(t, at);
	return there & ~(uintptr_t)(TRACK_PAGE_BYTES - 1);
}

static void preserve_order(struct table *t, uint64_t pfn, unsigned int order)
{
	table_ref *at = track_xa_load_or_make(&t->orders, &t->arena, order, sizeof(*at));
	uint64_t bit = pfn >> order;
	unsigned int level;

	for (level = LEVELS - 1; level > 0; level--)
		at = (table_ref *)follow(t, at) +
		     (bit >> (LEAF_SHIFT + (level - 1) * TABLE_SHIFT)) % TABLE_SLOTS;
	track_set_bit((_Atomic uint64_t *)follow(t, at), bit % LEAF_BITS);
}

static int preserve_bare(void *p, uint64_t pfn)
{
	struct table *t = p;

	if (t->finished)
		return -EBUSY;
	preserve_order(t, pfn, 0);
	return 0;
}

static int preserve(void *p, uint64_t pfn)
{
	struct table *t = p;
	int rc;

	track_sem_read(&t->sem);
	rc = preserve_bare(t, pfn);
	track_sem_unread(&t->sem);
	return rc;
}

static void preserve_range_bare(void *p, uint64_t pfn, uint64_t pages)
{
	const uint64_t end = pfn + pages;
	struct table *t = p;
	unsigned int order;

	for (; pfn < end; pfn += UINT64_C(1) << order) {
		order = track_order(pfn, end, ORDERS - 1);
		preserve_order(t, pfn, order);
	}
}

static void preserve_range(void *p, uint64_t pfn, uint64_t pages)
{
	struct table *t = p;

	track_sem_read(&t->sem);
	preserve_range_bare(t, pfn, pages);
	track_sem_unread(&t->sem);
}

static void add_root(void *ctx, uint64_t order, void *at)
{
	struct table *t = ctx;

	t->roots[order] = atomic_load((table_ref *)at);
}

static void serialize(void *p)
{
	struct table *t = p;

	track_sem_write(&t->sem);
	t->finished = true;
	track_sem_unwrite(&t->sem);
	track_xa_each(&t->orders, add_root, t);
}

struct walking {
	track_run_fn run;
	void *ctx;
	unsigned int order;
};

static void walk_table(const struct walking *w, uintptr_t at, unsigned int level, uint64_t bit)
{
	table_ref *slots = (table_ref *)at;
	uintptr_t next;
	unsigned int i;

	if (level == 0) {
		track_each_bit((_Atomic uint64_t *)at, LEAF_BITS, bit << w->order, w->order,
			       w->run, w->ctx);
		return;
	}
	for (i = 0; i < TABLE_SLOTS; i++) {
		next = atomic_load_explicit(&slots[i], memory_order_acquire);
		if (next)
			walk_table(w, next & ~(uintptr_t)(TRACK_PAGE_BYTES - 1), level - 1,
				   bit + ((uint64_t)i
					  << (LEAF_SHIFT + (level - 1) * TABLE_SHIFT)));
	}
}

static void walk(void *p, track_run_fn run, void *ctx)
{
	struct table *t = p;
	unsigned int order;

	for (order = 0; order < ORDERS; order++) {
		const struct walking w = {run, ctx, order};

		if (t->roots[order])
			walk_table(&w, t->roots[order], LEVELS - 1, 0);
	}
}

static void attach(void *p)
{
	track_read_back(p, walk);
}

static size_t bytes(void *p)
{
	struct table *t = p;

	return atomic_load(&t->arena.bytes);
}

static void destroy(void *p)
{
	struct table *t = p;

	track_arena_free(&t->arena);
	free(t);
}

const struct track_ops track_seed = {
	.name = "table, rw_semaphore",
	.create = create,
	.preserve = preserve,
	.preserve_range = preserve_range,
	.serialize = serialize,
	.attach = attach,
	.walk = walk,
	.bytes = bytes,
	.destroy = destroy,
};

const struct track_ops track_seed_bare = {
	.name = "table, no lock",
	.create = create,
	.preserve = preserve_bare,
	.preserve_range = preserve_range_bare,
	.serialize = serialize,
	.attach = attach,
	.walk = walk,
	.bytes = bytes,
	.destroy = destroy,
};
