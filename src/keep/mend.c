// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What is done to a table when nobody is in it: mending after a crash, sealing at the close.
 * Both can be interrupted anywhere and done again.
 */
#include "base/cleanup.h"
#include "keep/table.h"

/* Clears what the smaller order has of pages [start, end), all within larger blocks. */
static int drop(struct keep_hand *hand, unsigned int order, uint64_t start, uint64_t end,
		uint64_t *overlaps)
{
	uint64_t lo = start >> order, hi = end >> order, run_lo, run_hi, done;

	while (lo < hi) {
		int rc = keep_tree_next(hand, order, lo, hi, &run_lo, &run_hi);

		if (rc <= 0)
			return rc;
		rc = keep_tree_change(hand, order, run_lo, run_hi, false, &done);
		if (rc)
			return rc;
		++*overlaps;
		lo = run_hi;
	}
	return 0;
}

/* Takes what smaller orders have of this order's blocks out of them. */
static int drop_below(struct keep_hand *hand, unsigned int order, uint64_t orders,
		      uint64_t *overlaps)
{
	uint64_t lo = 0, hi, blocks = hand->keep->tree[order].blocks, smaller;

	for (; lo < blocks; lo = hi) {
		int rc = keep_tree_next(hand, order, lo, blocks, &lo, &hi);

		if (rc <= 0)
			return rc;
		for (smaller = orders & ((UINT64_C(1) << order) - 1); smaller;
		     smaller &= smaller - 1) {
			rc = drop(hand, (unsigned int)__builtin_ctzll(smaller), lo << order,
				  hi << order, overlaps);
			if (rc)
				return rc;
		}
	}
	return 0;
}

/* Of two orders that overlap the larger stays: the union is the same. */
static int drop_overlaps(struct keep_hand *hand, uint64_t *overlaps)
{
	uint64_t orders = keep_orders(hand->keep);
	unsigned int order;
	int rc = 0;

	for (order = hand->keep->order_max; order > 0 && !rc; order--)
		if (orders >> order & 1)
			rc = drop_below(hand, order, orders, overlaps);
	return rc;
}

/* No FROZEN, no WANT, nothing uniform that is not released. */
static int tidy(struct keep_hand *hand)
{
	const struct keep *k = hand->keep;
	unsigned int order;

	for (order = 0; order <= k->order_max; order++) {
		int rc = keep_tree_tidy(hand, order, 0, k->tree[order].blocks);

		if (rc)
			return rc;
	}
	return 0;
}

int keep_mend(struct keep *k, struct keep_found *found, struct err *e)
{
	CLEANUP_FREE uint64_t *seen = calloc(keep_map_words(k), sizeof(*seen));
	struct keep_report report;
	struct keep_hand *hand;
	uint64_t orders = 0, i;
	int rc;

	if (!seen)
		return err_sys(e, -ENOMEM, "cannot mend the table");
	rc = keep_check_trees(k, true, seen, &report, e);
	if (rc)
		return rc;
	for (i = 0; i < k->table_pages; i++) {
		if (i >= k->first_table && !(seen[i / 64] >> (i % 64) & 1))
			keep_and(&k->map[i / 64], ~(UINT64_C(1) << (i % 64)));
	}
	found->leaked = report.leaked;
	for (i = 0; i <= k->order_max; i++)
		orders |= (uint64_t)(keep_load(&k->header->root[i]) != DESC_EMPTY) << i;
	keep_store(&k->header->orders, orders);
	rc = keep_hand_new(k, &hand);
	if (rc)
		return err_sys(e, rc, "cannot mend the table");
	rc = drop_overlaps(hand, &found->overlaps);
	/* Without a page to split a collapsed table the overlap stays, and hurts nobody. */
	if (!rc || rc == -ENOMEM)
		rc = tidy(hand);
	keep_hand_free(hand);
	return rc ? err_sys(e, rc, "cannot mend the table") : 0;
}

/* Writes the population of the hand's table at this depth into the descriptor that leads to it.
 */
static void seal(struct keep_path *path, uint32_t depth, bool leaf, uint32_t words)
{
	uint64_t desc = keep_load(path->desc[depth]);
	uint32_t sum = 0, i;

	for (i = 0; i < words; i++) {
		uint64_t word = keep_load(&path->table[depth][i]);

		sum += leaf ? (uint32_t)__builtin_popcountll(word) : word != DESC_EMPTY;
	}
	keep_store(path->desc[depth], desc_make(DESC_TABLE, desc_index(desc), sum));
}

void keep_seal_tree(struct keep_hand *hand, unsigned int order)
{
	struct keep *k = hand->keep;
	const struct keep_tree *tree = &k->tree[order];
	struct keep_path *path = &hand->path[order];
	uint64_t pos, end;
	uint32_t d;

	for (pos = 0; pos < tree->blocks; pos = end) {
		if (keep_path_seek(hand, order, pos))
			return;
		end = keep_span_end(tree, pos,
				    path->end == DESC_TABLE ? tree->levels - 1 : path->depth);
		/* An upper table when its last entry was passed. */
		for (d = path->depth; d-- > 0;)
			if (end == keep_span_end(tree, pos, d))
				seal(path, d, d + 1 == tree->levels,
				     UINT32_C(1) << k->fan_shift);
	}
}
