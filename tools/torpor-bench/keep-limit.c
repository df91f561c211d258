// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What no tracker is likely to beat: one flat bitmap for all pages there are, of order 0 alone,
 * whose bits are set atomically, without a look at anything, and read a word at a time.  It
 * says as well whether two threads on memory of their own can be faster than one here and now.
 */
#include <stdlib.h>

#include "bench.h"
#include "keep.h"

struct flat {
	_Atomic uint64_t *bits;
	uint64_t pages; /* a multiple of 64 */
	struct track_arena arena;
};

static void *create(uint64_t pages)
{
	struct flat *t = calloc(1, sizeof(*t));

	if (!t)
		bench_die("no memory");
	track_arena_new(&t->arena, pages);
	t->pages = num_round_up(pages, 64);
	t->bits = track_alloc(&t->arena, t->pages / 8);
	return t;
}

static int preserve(void *p, uint64_t pfn)
{
	struct flat *t = p;

	track_set_bit(t->bits, pfn);
	return 0;
}

static void nothing(void *p)
{
	(void)p;
}

/* In runs of one word at most. */
static void walk(void *p, track_run_fn run, void *ctx)
{
	const struct flat *t = p;
	unsigned int from, len;
	uint64_t word, i;

	for (i = 0; i < t->pages / 64; i++) {
		word = atomic_load_explicit(&t->bits[i], memory_order_relaxed);
		for (from = 0; word; from += len) {
			from += (unsigned int)__builtin_ctzll(word);
			word >>= __builtin_ctzll(word);
			len = ~word ? (unsigned int)__builtin_ctzll(~word) : 64;
			word = len < 64 ? word >> len : 0;
			run(ctx, i * 64 + from, len);
		}
	}
}

static size_t bytes(void *p)
{
	struct flat *t = p;

	return atomic_load(&t->arena.bytes);
}

static void destroy(void *p)
{
	struct flat *t = p;

	track_arena_free(&t->arena);
	free(t);
}

const struct track_ops track_limit = {
	.name = "limit: flat bitmap",
	.create = create,
	.preserve = preserve,
	.serialize = nothing,
	.attach = nothing,
	.walk = walk,
	.bytes = bytes,
	.destroy = destroy,
};
