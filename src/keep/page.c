// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Preserving and unpreserving one block: the paths that many threads use at once, and the rules
 * between orders.  Ranges are in range.c.
 */
#include "keep/rules.h"

static int check_block(const struct keep *k, uint64_t page, unsigned int order)
{
	if (k->read_only)
		return -EROFS;
	if (order > k->order_max || page >= k->pages || k->pages - page < UINT64_C(1) << order)
		return -ERANGE;
	return page & ((UINT64_C(1) << order) - 1) ? -EINVAL : 0;
}

int keep_busy(struct keep_hand *hand, unsigned int order, uint64_t start, uint64_t end)
{
	uint64_t orders = keep_others(hand->keep, order);

	for (; orders; orders &= orders - 1) {
		int rc = keep_tree_overlaps(hand, (unsigned int)__builtin_ctzll(orders), start,
					    end);

		if (rc)
			return rc < 0 ? rc : -EBUSY;
	}
	return 0;
}

static int preserve(struct keep_hand *hand, uint64_t page, unsigned int order)
{
	uint64_t block = page >> (order % 64), end = page + (UINT64_C(1) << (order % 64)), done;
	bool dirty;
	int rc = check_block(hand->keep, page, order);

	if (rc)
		return rc;
	rc = keep_tree_test(hand, order, block);
	if (rc)
		return rc < 0 ? rc : -EEXIST;
	rc = keep_busy(hand, order, page, end);
	if (!rc)
		rc = keep_tree_change(hand, order, block, block + 1, true, &done);
	if (rc)
		return rc;
	dirty = hand->dirty;
	rc = keep_busy(hand, order, page, end);
	if (rc) {
		int undone = keep_tree_change(hand, order, block, block + 1, false, &done);

		/* Somebody who takes it out by himself saves us the work. */
		if (undone && undone != -ENOENT)
			rc = -ENOTRECOVERABLE;
		dirty |= hand->dirty;
	}
	if (dirty)
		keep_tree_tidy(hand, order, block, block + 1);
	return rc;
}

/*
 * Is the block in the leaf that the hand used last?  Then its word and bit.  Blocks that there
 * are not, and orders, are in no leaf: so this is also the check of what the caller said.
 */
static inline keep_word *remembered(struct keep_hand *hand, uint64_t page, unsigned int order,
				    uint32_t *ret_at, uint64_t *ret_bit)
{
	const struct keep_path *path = &hand->path[order % KEEP_ORDERS];
	uint64_t block, in_leaf;

	if (order >= hand->orders)
		return NULL;
	block = page >> order;
	in_leaf = block - path->first;
	if (in_leaf >= path->count || block << order != page)
		return NULL;
	*ret_at = (uint32_t)(in_leaf / 64);
	*ret_bit = UINT64_C(1) << (block % 64);
	return &path->leaf[*ret_at];
}

static inline bool others_used(const struct keep_hand *hand, unsigned int order)
{
	return keep_load(hand->orders_used) & ~(UINT64_C(1) << order);
}

int keep_preserve(struct keep_hand *hand, uint64_t page, unsigned int order)
{
	const struct keep_path *path;
	uint64_t bit, old;
	uint32_t at;
	keep_word *word = remembered(hand, page, order, &at, &bit);

	if (!word || others_used(hand, order))
		return preserve(hand, page, order);
	path = &hand->path[order];
	old = keep_or(word, bit);
	if (old & bit)
		return -EEXIST;
	/* Another order came into use between the two looks: as for any other overlap. */
	if (others_used(hand, order) &&
	    keep_busy(hand, order, page, page + (UINT64_C(1) << order))) {
		keep_and(word, ~bit);
		keep_path_tidy_at(hand, order, at);
		return -EBUSY;
	}
	if ((old | bit) == (at == path->tail_at ? path->tail_full : ~UINT64_C(0)))
		keep_path_tidy_at(hand, order, at);
	return 0;
}

int keep_find(struct keep_hand *hand, uint64_t page)
{
	const struct keep *k = hand->keep;
	uint64_t orders = keep_orders(k);
	int rc;

	if (page >= k->pages)
		return -ERANGE;
	while (orders) {
		unsigned int order = 63 - (unsigned int)__builtin_clzll(orders);

		orders &= ~(UINT64_C(1) << order);
		if (order > k->order_max || page >> order >= k->tree[order].blocks)
			continue;
		rc = keep_tree_test(hand, order, page >> order);
		if (rc)
			return rc < 0 ? rc : (int)order;
	}
	return -ENOENT;
}

/* The bit is not set: why, and what to do about it. */
static int unpreserve(struct keep_hand *hand, uint64_t page, unsigned int order,
		      unsigned int flags)
{
	uint64_t block = page >> (order % 64), done;
	int rc = check_block(hand->keep, page, order), larger;

	if (rc || flags & ~(unsigned int)KEEP_SPLIT)
		return rc ? rc : -EINVAL;
	larger = keep_find(hand, page);
	if (larger > (int)order) {
		if (!(flags & KEEP_SPLIT))
			return -EINVAL;
		return keep_split(hand, (unsigned int)larger, page,
				  page + (UINT64_C(1) << order));
	}
	if (larger < 0)
		return larger;
	rc = keep_tree_change(hand, order, block, block + 1, false, &done);
	if (!rc && hand->dirty)
		keep_tree_tidy(hand, order, block, block + 1);
	return rc;
}

int keep_unpreserve(struct keep_hand *hand, uint64_t page, unsigned int order,
		    unsigned int flags)
{
	uint64_t bit, old;
	uint32_t at;
	keep_word *word = remembered(hand, page, order, &at, &bit);

	if (!word || flags & ~(unsigned int)KEEP_SPLIT)
		return unpreserve(hand, page, order, flags);
	old = keep_and(word, ~bit);
	if (!(old & bit))
		return unpreserve(hand, page, order, flags);
	if (old == bit)
		keep_path_tidy_at(hand, order, at);
	return 0;
}
