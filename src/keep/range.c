// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Ranges: cut into pieces of one order, checked first, then changed, then undone or tidied.
 * No list of what was done is kept: the same cut made again says it.
 */
#include "keep/rules.h"

struct keep_piece keep_cut(uint64_t start, uint64_t end, unsigned int order_max)
{
	unsigned int order = 63 - (unsigned int)__builtin_clzll(end - start);

	/* The length alone would do only at a start that is a multiple of it. */
	if (start && (unsigned int)__builtin_ctzll(start) < order)
		order = (unsigned int)__builtin_ctzll(start);
	if (order < order_max)
		return (struct keep_piece){order, start, start + (UINT64_C(1) << order)};
	return (struct keep_piece){order_max, start,
				   start + ((end - start) >> order_max << order_max)};
}

static int piece_change(struct keep_hand *hand, struct keep_piece p, bool set,
			uint64_t *ret_done)
{
	uint64_t done = p.start >> p.order;
	int rc = keep_tree_change(hand, p.order, done, p.end >> p.order, set, &done);

	*ret_done = done << p.order;
	return rc;
}

/* Without regard to what is there already: for a block's inner pieces, and for undoing. */
static int pieces_force(struct keep_hand *hand, uint64_t start, uint64_t end,
			unsigned int order_max, bool set, uint64_t *ret_done)
{
	*ret_done = start;
	while (*ret_done < end) {
		struct keep_piece p = keep_cut(start, end, order_max);
		int rc;

		p.start = *ret_done;
		rc = piece_change(hand, p, set, ret_done);
		if (rc == -EEXIST || rc == -ENOENT)
			*ret_done += UINT64_C(1) << p.order;
		else if (rc)
			return rc;
		if (*ret_done == p.end)
			start = p.end;
	}
	return 0;
}

static void pieces_tidy(struct keep_hand *hand, uint64_t start, uint64_t end,
			unsigned int order_max)
{
	while (start < end) {
		struct keep_piece p = keep_cut(start, end, order_max);

		keep_tree_tidy(hand, p.order, p.start >> p.order, p.end >> p.order);
		start = p.end;
	}
}

static int check_range(const struct keep *k, uint64_t start, uint64_t pages, uint64_t *ret_end)
{
	if (!pages)
		return -EINVAL;
	if (num_add_overflows(start, pages, ret_end) || *ret_end > k->pages)
		return -ERANGE;
	return k->read_only ? -EROFS : 0;
}

/* Is anything of it preserved?  With `after`, when it was set: in other orders, that is. */
static int pieces_check(struct keep_hand *hand, uint64_t start, uint64_t end,
			unsigned int order_max, bool after)
{
	while (start < end) {
		struct keep_piece p = keep_cut(start, end, order_max);
		int rc = after ? 0 : keep_tree_overlaps(hand, p.order, p.start, p.end);

		if (rc)
			return rc < 0 ? rc : -EEXIST;
		rc = keep_busy(hand, p.order, p.start, p.end);
		if (rc)
			return rc;
		start = p.end;
	}
	return 0;
}

/* Takes back pieces of [start, end) up to `done`; the cut is that of the whole. */
static int pieces_undo(struct keep_hand *hand, uint64_t start, uint64_t end, uint64_t done,
		       unsigned int order_max)
{
	while (start < done) {
		struct keep_piece p = keep_cut(start, end, order_max);
		uint64_t at = p.start;
		int rc;

		p.end = num_min(p.end, done);
		start = p.end;
		while (at < p.end) {
			p.start = at;
			rc = piece_change(hand, p, false, &at);
			if (rc == -ENOENT)
				at += UINT64_C(1) << p.order;
			else if (rc)
				return -ENOTRECOVERABLE;
		}
	}
	return 0;
}

int keep_preserve_range(struct keep_hand *hand, uint64_t start, uint64_t pages,
			unsigned int flags)
{
	unsigned int order_max = flags & KEEP_LARGEST ? hand->keep->order_max : 0;
	uint64_t end, done = start;
	int rc = check_range(hand->keep, start, pages, &end);

	if (rc || flags & ~(unsigned int)KEEP_LARGEST)
		return rc ? rc : -EINVAL;
	rc = pieces_check(hand, start, end, order_max, false);
	if (rc)
		return rc;
	while (done < end && !rc)
		rc = piece_change(hand, keep_cut(done, end, order_max), true, &done);
	if (!rc)
		rc = pieces_check(hand, start, end, order_max, true);
	if (rc && pieces_undo(hand, start, end, done, order_max))
		rc = -ENOTRECOVERABLE;
	pieces_tidy(hand, start, end, order_max);
	return rc;
}

/* The two parts of a block outside [lo, hi), set or cleared; on failure the first error. */
static int outside(struct keep_hand *hand, struct keep_piece block, uint64_t lo, uint64_t hi,
		   bool set)
{
	uint64_t done;
	int rc = pieces_force(hand, block.start, lo, block.order, set, &done);

	if (rc && set)
		pieces_force(hand, block.start, done, block.order, false, &done);
	if (rc)
		return rc;
	return pieces_force(hand, hi, block.end, block.order, set, &done);
}

int keep_split(struct keep_hand *hand, unsigned int order, uint64_t lo, uint64_t hi)
{
	uint64_t size = UINT64_C(1) << order, first = lo & ~(size - 1), done;
	struct keep_piece block = {order, first, first + size};
	struct wait_lock *lock = &hand->keep->split;
	int rc = -ENOENT;

	wait_lock_acquire(lock);
	if (keep_tree_test(hand, order, first >> order) == 1) {
		/* What overlaps for a moment is preserved twice, and not for a moment not at
		 * all. */
		rc = outside(hand, block, lo, hi, true);
		if (!rc)
			rc = piece_change(hand, block, false, &done);
		if (rc)
			outside(hand, block, lo, hi, false);
		pieces_tidy(hand, block.start, lo, order);
		pieces_tidy(hand, hi, block.end, order);
		keep_tree_tidy(hand, order, first >> order, (first >> order) + 1);
	}
	wait_lock_release(lock);
	return rc;
}

/* The blocks of one order at `pos` that go on from there, cut at `end`; -ENOENT: not preserved.
 */
static int piece_at(struct keep_hand *hand, uint64_t pos, uint64_t end, struct keep_piece *ret)
{
	int order = keep_find(hand, pos), rc;
	uint64_t lo, hi;

	if (order < 0)
		return order;
	lo = pos >> order;
	hi = num_min(((end - 1) >> order) + 1, hand->keep->tree[order].blocks);
	rc = keep_tree_next(hand, (unsigned int)order, lo, hi, &lo, &hi);
	if (rc < 0)
		return rc;
	if (!rc || lo << order > pos)
		return -ENOENT;
	*ret = (struct keep_piece){(unsigned int)order, lo << order, hi << order};
	return 0;
}

static int check_preserved(struct keep_hand *hand, uint64_t start, uint64_t end, bool may_split)
{
	struct keep_piece p;
	uint64_t pos;
	int rc;

	for (pos = start; pos < end; pos = p.end) {
		rc = piece_at(hand, pos, end, &p);
		if (rc)
			return rc;
		if (!may_split && (p.start < start || p.end > end))
			return -EINVAL;
	}
	return 0;
}

/* Takes out what [start, end) has of the one block that page `pos` is in. */
static int take_edge(struct keep_hand *hand, uint64_t pos, uint64_t start, uint64_t end,
		     struct keep_piece *ret_block)
{
	int order = keep_find(hand, pos);
	uint64_t size, first, done;

	if (order < 0)
		return order;
	size = UINT64_C(1) << order;
	first = pos & ~(size - 1);
	*ret_block = (struct keep_piece){(unsigned int)order, first, first + size};
	if (first >= start && first + size <= end)
		return piece_change(hand, *ret_block, false, &done);
	return keep_split(hand, (unsigned int)order, num_max(first, start),
			  num_min(first + size, end));
}

/* Undoes take_edge(): needs no table page, but for what others did meanwhile. */
static int put_edge(struct keep_hand *hand, struct keep_piece block, uint64_t start,
		    uint64_t end)
{
	uint64_t done;
	int rc = piece_change(hand, block, true, &done);

	if (!rc && (block.start < start || block.end > end))
		rc = outside(hand, block, num_max(block.start, start), num_min(block.end, end),
			     false);
	return rc ? -ENOTRECOVERABLE : 0;
}

/* The pages of every order that overlap with [start, end), after it was changed. */
static void tidy_all(struct keep_hand *hand, uint64_t start, uint64_t end)
{
	uint64_t orders = keep_orders(hand->keep);

	for (; orders; orders &= orders - 1) {
		unsigned int order = (unsigned int)__builtin_ctzll(orders);
		uint64_t blocks = hand->keep->tree[order].blocks;

		keep_tree_tidy(hand, order, start >> order,
			       num_min(((end - 1) >> order) + 1, blocks));
	}
}

int keep_unpreserve_range(struct keep_hand *hand, uint64_t start, uint64_t pages,
			  unsigned int flags)
{
	struct keep_piece tail, p;
	uint64_t end, pos;
	int rc = check_range(hand->keep, start, pages, &end);

	if (rc || flags & ~(unsigned int)KEEP_SPLIT)
		return rc ? rc : -EINVAL;
	rc = check_preserved(hand, start, end, flags & KEEP_SPLIT);
	if (!rc)
		rc = take_edge(hand, end - 1, start, end, &tail);
	if (rc)
		return rc;
	/* Only the edges can need table pages: now that both have them, the rest cannot fail.
	 */
	p = tail;
	if (tail.start > start) {
		rc = take_edge(hand, start, start, end, &p);
		if (rc && put_edge(hand, tail, start, end))
			rc = -ENOTRECOVERABLE;
	}
	for (pos = p.end; pos < tail.start && !rc; pos = p.end) {
		rc = piece_at(hand, pos, tail.start, &p);
		if (!rc)
			rc = piece_change(hand, p, false, &p.end);
	}
	tidy_all(hand, num_min(start, tail.start), num_max(end, tail.end));
	return rc;
}
