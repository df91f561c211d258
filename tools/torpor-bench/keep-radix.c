// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The radix tree of KHO v2 (version 9, February 2026): one tree of six levels for all orders,
 * whose keys hold the order as the place of their highest bit, and one mutex around every
 * change and around whole walks.  Its successor walks it and makes a reservation for each page.
 */
#include <stdlib.h>

#include "bench.h"
#include "keep.h"

#define LEAF_BITS (TRACK_PAGE_BYTES * 8u)
#define LEAF_SHIFT 15u
#define NODE_SLOTS 512u
#define NODE_SHIFT 9u
#define LEVELS 6u
#define ORDER_0_BIT 52u /* 64 - the page shift */

struct node {
	uintptr_t slots[NODE_SLOTS];
};

struct radix {
	pthread_mutex_t lock;
	struct node *root;
	struct track_arena arena;
};

static void *create(uint64_t pages)
{
	struct radix *t = calloc(1, sizeof(*t));

	if (!t)
		bench_die("no memory");
	pthread_mutex_init(&t->lock, NULL);
	track_arena_new(&t->arena, pages);
	t->root = track_alloc(&t->arena, sizeof(*t->root));
	return t;
}

static void preserve_order(struct radix *t, uint64_t pfn, unsigned int order)
{
	uint64_t key = UINT64_C(1) << (ORDER_0_BIT - order) | pfn >> order;
	struct node *node;
	unsigned int level;
	uintptr_t *slot;

	pthread_mutex_lock(&t->lock);
	node = t->root;
	for (level = LEVELS - 1; level > 0; level--) {
		slot = &node->slots[(key >> (LEAF_SHIFT + (level - 1) * NODE_SHIFT)) %
				    NODE_SLOTS];
		if (!*slot)
			*slot = (uintptr_t)track_alloc(&t->arena, sizeof(*node));
		node = (struct node *)*slot;
	}
	((uint64_t *)node)[key % LEAF_BITS / 64] |= UINT64_C(1) << key % 64;
	pthread_mutex_unlock(&t->lock);
}

static int preserve(void *p, uint64_t pfn)
{
	preserve_order(p, pfn, 0);
	return 0;
}

static void preserve_range(void *p, uint64_t pfn, uint64_t pages)
{
	const uint64_t end = pfn + pages;
	unsigned int order;

	for (; pfn < end; pfn += UINT64_C(1) << order) {
		order = track_order(pfn, end, ORDER_0_BIT - 1);
		preserve_order(p, pfn, order);
	}
}

static void serialize(void *p)
{
	(void)p; /* the root is the state, since the tree was made */
}

struct walking {
	track_run_fn run;
	void *ctx;
};

static void walk_leaf(const struct walking *w, struct node *leaf, uint64_t key)
{
	/* A leaf lies in one order: what is above its bits is the same for all of them. */
	unsigned int top = 63u - (unsigned int)__builtin_clzll(key | 1),
		     order = ORDER_0_BIT - top;
	uint64_t i;

	if (top >= LEAF_SHIFT) {
		track_each_bit((_Atomic uint64_t *)leaf, LEAF_BITS,
			       (key & ~(UINT64_C(1) << top)) << order, order, w->run, w->ctx);
		return;
	}
	/* The lowest one alone holds several, for which the order is found for each key. */
	for (i = 1; i < LEAF_BITS; i++) {
		if (!(leaf->slots[i / 64] >> i % 64 & 1))
			continue;
		top = 63u - (unsigned int)__builtin_clzll(i);
		order = ORDER_0_BIT - top;
		w->run(w->ctx, (i & ~(UINT64_C(1) << top)) << order, UINT64_C(1) << order);
	}
}

static void walk_node(const struct walking *w, struct node *node, unsigned int level,
		      uint64_t key)
{
	unsigned int i;

	if (level == 0) {
		walk_leaf(w, node, key);
		return;
	}
	for (i = 0; i < NODE_SLOTS; i++) {
		if (node->slots[i])
			walk_node(w, (struct node *)node->slots[i], level - 1,
				  key | (uint64_t)i << (LEAF_SHIFT + (level - 1) * NODE_SHIFT));
	}
}

static void walk(void *p, track_run_fn run, void *ctx)
{
	const struct walking w = {run, ctx};
	struct radix *t = p;

	pthread_mutex_lock(&t->lock);
	walk_node(&w, t->root, LEVELS - 1, 0);
	pthread_mutex_unlock(&t->lock);
}

static void attach(void *p)
{
	track_read_back(p, walk);
}

static size_t bytes(void *p)
{
	struct radix *t = p;

	return atomic_load(&t->arena.bytes);
}

static void destroy(void *p)
{
	struct radix *t = p;

	track_arena_free(&t->arena);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

const struct track_ops track_radix = {
	.name = "radix tree, mutex",
	.create = create,
	.preserve = preserve,
	.preserve_range = preserve_range,
	.serialize = serialize,
	.attach = attach,
	.walk = walk,
	.bytes = bytes,
	.destroy = destroy,
};
