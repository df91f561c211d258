/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A table in shared memory beside a model of it: an array that says of each page at which order
 * it is preserved.  The model is written for being obviously right, page by page.
 */
#ifndef TORPOR_TESTS_KEEP_RIG_H
#define TORPOR_TESTS_KEEP_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/num.h"
#include "keep/keep.h"

/* Under a sanitizer, whose threads and forks are many times slower, some do less. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define RIG_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define RIG_SANITIZED 1
#endif
#endif
#ifndef RIG_SANITIZED
#define RIG_SANITIZED 0
#endif

struct keep_rig {
	struct keep_geometry geometry;
	struct keep_area area;
	struct keep *keep;
	struct keep_hand *hand;
	uint8_t *owner; /* order + 1 at which a page is preserved, or 0 */
	uint64_t random;
};

static inline uint64_t rig_random(struct keep_rig *r, uint64_t below)
{
	r->random ^= r->random << 13;
	r->random ^= r->random >> 7;
	r->random ^= r->random << 17;
	return (r->random >> 11) % below;
}

static inline void rig_attach(struct keep_rig *r, struct keep_found *found)
{
	struct err e = {.text = ""};

	if (keep_attach(&r->area, 0, &r->keep, found, &e))
		fail_msg("attach: %s", e.text);
	assert_int_equal(keep_hand_new(r->keep, &r->hand), 0);
}

/* With `bytes` 0 the area has the size that is never too small. */
static inline void rig_new(struct keep_rig *r, uint64_t pages, uint32_t page_bytes,
			   uint32_t order_max, uint64_t bytes)
{
	struct err e = {.text = ""};

	*r = (struct keep_rig){.random = 88172645463325252u};
	r->geometry = (struct keep_geometry){pages, page_bytes, order_max};
	r->area.bytes = bytes ? bytes : keep_area_bytes(&r->geometry);
	r->area.addr = mmap(NULL, r->area.bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(r->area.addr != MAP_FAILED);
	r->owner = pages <= MIB(64) ? calloc(1, pages) : NULL;
	if (keep_create(&r->area, &r->geometry, &r->keep, &e))
		fail_msg("create: %s", e.text);
	assert_int_equal(keep_hand_new(r->keep, &r->hand), 0);
}

/* Nothing leaked, nothing left to release, and every number as it should be. */
static inline void rig_assert_sound(struct keep_rig *r)
{
	struct keep_report report;
	struct err e = {.text = ""};

	keep_hand_rest(r->hand);
	if (keep_validate(r->keep, 0, &report, &e))
		fail_msg("%s", e.text);
}

static inline void rig_free(struct keep_rig *r)
{
	struct keep_report report;
	struct err e = {.text = ""};

	rig_assert_sound(r);
	keep_close(r->keep);
	/* Now the populations are there too. */
	assert_int_equal(keep_attach(&r->area, KEEP_READ_ONLY, &r->keep, NULL, &e), 0);
	if (keep_validate(r->keep, 0, &report, &e))
		fail_msg("closed: %s", e.text);
	keep_close(r->keep);
	munmap(r->area.addr, r->area.bytes);
	free(r->owner);
}

static inline uint64_t rig_tables(struct keep_rig *r)
{
	struct keep_stats stats;

	keep_hand_rest(r->hand);
	assert_int_equal(keep_stats(r->hand, &stats), 0);
	return stats.tables;
}

/* The largest aligned block at pos that ends by `end`. */
static inline unsigned int model_order(uint64_t pos, uint64_t end, unsigned int order_max)
{
	unsigned int order = 0;

	while (order < order_max && !(pos & ((UINT64_C(2) << order) - 1)) &&
	       pos + (UINT64_C(2) << order) <= end)
		order++;
	return order;
}

static inline void model_cut(struct keep_rig *r, uint64_t pos, uint64_t end,
			     unsigned int order_max)
{
	while (pos < end) {
		unsigned int order = model_order(pos, end, order_max);

		memset(r->owner + pos, (int)order + 1, UINT64_C(1) << order);
		pos += UINT64_C(1) << order;
	}
}

static inline bool model_any(const struct keep_rig *r, uint64_t pos, uint64_t end)
{
	for (; pos < end; pos++)
		if (r->owner[pos])
			return true;
	return false;
}

static inline int model_check(const struct keep_rig *r, uint64_t page, unsigned int order)
{
	if (order > r->geometry.order_max || page + (UINT64_C(1) << order) > r->geometry.pages)
		return -ERANGE;
	return page % (UINT64_C(1) << order) ? -EINVAL : 0;
}

static inline int model_preserve(struct keep_rig *r, uint64_t page, unsigned int order)
{
	int rc = model_check(r, page, order);

	if (rc)
		return rc;
	if (r->owner[page] == order + 1)
		return -EEXIST;
	if (model_any(r, page, page + (UINT64_C(1) << order)))
		return -EBUSY;
	memset(r->owner + page, (int)order + 1, UINT64_C(1) << order);
	return 0;
}

/* Takes [lo, hi) out of the one block that has it. */
static inline void model_take(struct keep_rig *r, uint64_t lo, uint64_t hi)
{
	unsigned int order = r->owner[lo] - 1u;
	uint64_t size = UINT64_C(1) << order, first = lo / size * size;

	model_cut(r, first, lo, order);
	memset(r->owner + lo, 0, hi - lo);
	model_cut(r, hi, first + size, order);
}

static inline int model_unpreserve(struct keep_rig *r, uint64_t page, unsigned int order,
				   unsigned int flags)
{
	int rc = model_check(r, page, order);

	if (rc)
		return rc;
	if (r->owner[page] < order + 1)
		return -ENOENT;
	if (r->owner[page] > order + 1 && !(flags & KEEP_SPLIT))
		return -EINVAL;
	model_take(r, page, page + (UINT64_C(1) << order));
	return 0;
}

/* 0 for any overlap: which of -EEXIST and -EBUSY comes is asked of model_has_block(). */
static inline bool model_preserve_range(struct keep_rig *r, uint64_t start, uint64_t pages,
					unsigned int flags)
{
	if (model_any(r, start, start + pages))
		return false;
	model_cut(r, start, start + pages, flags & KEEP_LARGEST ? r->geometry.order_max : 0);
	return true;
}

/* Is one of the blocks that the range is cut into preserved as it is? */
static inline bool model_has_block(const struct keep_rig *r, uint64_t start, uint64_t pages,
				   unsigned int flags)
{
	uint64_t end = start + pages;

	while (start < end) {
		unsigned int order = model_order(
			start, end, flags & KEEP_LARGEST ? r->geometry.order_max : 0);

		if (r->owner[start] == order + 1)
			return true;
		start += UINT64_C(1) << order;
	}
	return false;
}

static inline int model_unpreserve_range(struct keep_rig *r, uint64_t start, uint64_t pages,
					 unsigned int flags)
{
	uint64_t end = start + pages, pos, next;

	for (pos = start; pos < end; pos = next) {
		uint64_t size = UINT64_C(1) << (r->owner[pos] ? r->owner[pos] - 1 : 0);

		if (!r->owner[pos])
			return -ENOENT;
		next = pos / size * size + size;
		if (!(flags & KEEP_SPLIT) && (pos % size || next > end))
			return -EINVAL;
	}
	for (pos = start; pos < end; pos = next) {
		uint64_t size = UINT64_C(1) << (r->owner[pos] ? r->owner[pos] - 1 : 0);

		next = num_min(pos / size * size + size, end);
		model_take(r, pos, next);
	}
	return 0;
}

/* What is asked of a walk: the model's runs, one after the other. */
struct rig_walk {
	struct keep_rig *r;
	uint64_t pos, end, pages;
};

static inline int rig_next(void *ctx, uint64_t start, uint64_t pages)
{
	struct rig_walk *w = ctx;
	uint64_t end;

	while (w->pos < w->end && !w->r->owner[w->pos])
		w->pos++;
	for (end = w->pos; end < w->end && w->r->owner[end];)
		end++;
	assert_int_equal(start, w->pos);
	assert_int_equal(pages, end - w->pos);
	w->pos = end;
	w->pages += pages;
	return 0;
}

static inline void rig_assert_walk(struct keep_rig *r, uint64_t start, uint64_t pages)
{
	struct rig_walk walk = {.r = r, .pos = start, .end = start + pages};
	uint64_t count;

	assert_int_equal(keep_walk(r->hand, start, pages, rig_next, &walk), 0);
	assert_false(model_any(r, walk.pos, start + pages));
	assert_int_equal(keep_count(r->hand, start, pages, &count), 0);
	assert_int_equal(count, walk.pages);
}

static inline void rig_assert_page(struct keep_rig *r, uint64_t page)
{
	int order = keep_find(r->hand, page);

	if (order != (r->owner[page] ? r->owner[page] - 1 : -ENOENT))
		fail_msg("page %llu: %d, not %d", (unsigned long long)page, order,
			 r->owner[page] - 1);
}

/* All of it: every order's blocks, and the runs. */
static inline void rig_assert_same(struct keep_rig *r)
{
	uint64_t blocks[KEEP_ORDERS] = {0}, page;
	struct keep_stats stats;
	unsigned int order;

	for (page = 0; page < r->geometry.pages; page++) {
		if (r->owner[page])
			blocks[r->owner[page] - 1]++;
		if (page % 61 == 0 || !page || r->owner[page] != r->owner[page - 1])
			rig_assert_page(r, page);
	}
	assert_int_equal(keep_stats(r->hand, &stats), 0);
	for (order = 0; order < KEEP_ORDERS; order++)
		assert_int_equal(stats.blocks[order], blocks[order] >> order);
	rig_assert_walk(r, 0, r->geometry.pages);
}

#endif
