/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory that tells whether it was taken at one instant.  Every page of it follows from a few
 * counters:
 *
 *     page 0          head: what is below, and `begun`
 *     page 1 + s      A[] of slot s
 *     ...             pages that the slots stamp in turn
 *     page n - 2 - s  B[] of slot s
 *     page n - 1      foot: `done`
 *
 * Behind that there may be a tail of TAIL pages, which comes and goes.  It is cut off the file,
 * which then grows again, and each time but every second it is filled with its number, from its
 * begin; else it stays a hole, or zeros that reading made of it.
 *
 * A slot has one writer at a time.  Its step number i is: begun++, A[i % PAIRS]++, stamp its
 * page number i % (its pages) with i / (its pages) + 1, B[i % PAIRS]++, done++.  So a pair is
 * equal or one apart, the pairs of a slot give the number of its steps, and that number gives
 * the content of each of its pages.
 */
#ifndef TORPOR_TESTS_LIVE_LAYOUT_H
#define TORPOR_TESTS_LIVE_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAYOUT_PAGE 4096u
#define LAYOUT_WORDS (LAYOUT_PAGE / sizeof(uint64_t))
#define LAYOUT_MAGIC UINT64_C(0x0a0d726574697277)
#define LAYOUT_PAIRS 8u
#define LAYOUT_SLOTS_MAX 4096u
#define LAYOUT_TAIL 256u

typedef _Atomic uint64_t layout_word;

/* What a page between the counters is. */
enum layout_kind {
	LAYOUT_HOLE,   /* never touched */
	LAYOUT_ZERO,   /* written once, with zeros */
	LAYOUT_NOISE,  /* stamped; the rest does not compress */
	LAYOUT_TEXT,   /* stamped; the rest compresses */
	LAYOUT_TOGGLE, /* filled with an odd stamp, all zero with an even one */
};

struct layout_head {
	uint64_t magic, pages, slots;
	layout_word begun;
	layout_word cuts,
		grown; /* how often the tail was begun to be cut off, and was whole again */
};

struct layout {
	uint8_t *at;
	uint64_t pages, slots;
};

static inline layout_word *layout_page(const struct layout *l, uint64_t page)
{
	return (layout_word *)(l->at + page * LAYOUT_PAGE);
}

static inline struct layout_head *layout_head(const struct layout *l)
{
	return (struct layout_head *)l->at;
}

static inline layout_word *layout_done(const struct layout *l)
{
	return layout_page(l, l->pages - 1);
}

static inline layout_word *layout_a(const struct layout *l, uint64_t slot)
{
	return layout_page(l, 1 + slot);
}

static inline layout_word *layout_b(const struct layout *l, uint64_t slot)
{
	return layout_page(l, l->pages - 2 - slot);
}

/* How many pages slot `s` stamps: those between the counters go round the slots. */
static inline uint64_t layout_own(const struct layout *l, uint64_t s)
{
	uint64_t between = l->pages - 2 - 2 * l->slots;

	return between / l->slots + (s < between % l->slots);
}

static inline uint64_t layout_own_page(const struct layout *l, uint64_t s, uint64_t j)
{
	return 1 + l->slots + j * l->slots + s;
}

/* The number of its stamp after `steps` steps: how often page j of m was visited. */
static inline uint64_t layout_stamp(uint64_t steps, uint64_t j, uint64_t m)
{
	return steps / m + (j < steps % m);
}

static inline uint64_t layout_mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* Neighbours are mostly alike, as in memory that programs use. */
static inline enum layout_kind layout_kind(uint64_t page)
{
	static const enum layout_kind kinds[16] = {
		LAYOUT_HOLE,   LAYOUT_HOLE,   LAYOUT_ZERO,  LAYOUT_ZERO,
		LAYOUT_TOGGLE, LAYOUT_TOGGLE, LAYOUT_NOISE, LAYOUT_NOISE,
		LAYOUT_NOISE,  LAYOUT_TEXT,   LAYOUT_TEXT,  LAYOUT_TEXT,
		LAYOUT_TEXT,   LAYOUT_TEXT,   LAYOUT_TEXT,  LAYOUT_NOISE,
	};
	uint64_t cluster = layout_mix(page / 7), alone = layout_mix(page + 1000003);

	return kinds[alone % 8 ? cluster % 16 : alone / 8 % 16];
}

/* Word w of a page that has its stamp; the first and the last word are the stamp itself. */
static inline uint64_t layout_content(enum layout_kind kind, uint64_t page, uint64_t stamp,
				      unsigned int w)
{
	switch (kind) {
	case LAYOUT_NOISE:
		return w == 0 || w == LAYOUT_WORDS - 1 ? stamp
						       : layout_mix(page * LAYOUT_WORDS + w);
	case LAYOUT_TEXT:
		return w == 0 || w == LAYOUT_WORDS - 1 ? stamp : page + w / 64;
	case LAYOUT_TOGGLE:
		return stamp % 2 ? stamp : 0;
	default:
		return 0;
	}
}

/* What all words of the tail are when it is whole for the n-th time. */
static inline uint64_t layout_tail_content(uint64_t n)
{
	return n % 2 ? n : 0;
}

/* Says what is wrong on standard error; true: it is the memory of one instant.  `ret_steps`:
 * finished ones. */
bool layout_check(const struct layout *l, uint64_t *ret_steps);

/* The same of the tail, of which there are `pages` pages. */
bool layout_check_tail(const struct layout *l, uint64_t pages);

#endif
