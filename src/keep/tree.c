// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Changing and reading the tree of one order.  Knows nothing of the other orders, releases no
 * table by itself (keep_tree_tidy() does), and never undoes what it did.
 */
#include "keep/table.h"

/* Words of the path's leaf for blocks [pos, hi), up to the first that is not as it must be. */
static int change_leaf(struct keep_hand *hand, unsigned int order, uint64_t pos, uint64_t hi,
		       bool set, uint64_t *ret_next)
{
	struct keep_path *path = &hand->path[order];
	uint64_t in_leaf = (UINT64_C(1) << hand->keep->leaf_shift) - 1;

	hi = num_min(hi, (pos | in_leaf) + 1);
	while (pos < hi) {
		uint64_t next = num_min((pos | 63) + 1, hi);
		uint32_t at = (uint32_t)((pos & in_leaf) / 64);
		uint64_t mask = keep_mask(pos % 64, (uint32_t)(next - (pos & ~UINT64_C(63))));
		uint64_t seen, value;

		do {
			seen = keep_load(&path->leaf[at]);
			value = set ? seen | mask : seen & ~mask;
			if ((seen ^ value) != mask) {
				*ret_next = pos;
				return set ? -EEXIST : -ENOENT;
			}
		} while (!keep_cas(&path->leaf[at], seen, value));
		if (!value || value == (at == path->tail_at ? path->tail_full : ~UINT64_C(0)))
			hand->dirty = true;
		pos = next;
	}
	*ret_next = pos;
	return 0;
}

/* Blocks [pos, hi) of a leaf that nobody can reach. */
static void change_unreached(struct keep *k, uint32_t leaf, uint64_t pos, uint64_t hi, bool set)
{
	uint64_t in_leaf = (UINT64_C(1) << k->leaf_shift) - 1, next;

	for (; pos < hi; pos = next) {
		keep_word *word = &keep_table_at(k, leaf)[(pos & in_leaf) / 64];
		uint64_t mask, seen = atomic_load_explicit(word, memory_order_relaxed);

		next = num_min((pos | 63) + 1, hi);
		mask = keep_mask(pos % 64, (uint32_t)(next - (pos & ~UINT64_C(63))));
		atomic_store_explicit(word, set ? seen | mask : seen & ~mask,
				      memory_order_relaxed);
	}
}

/* Tables made for one change and not linked yet. */
struct chain {
	uint32_t index[KEEP_LEVELS];
	uint32_t count;
};

static void chain_free(struct keep *k, struct chain *chain)
{
	while (chain->count)
		keep_table_free(k, chain->index[--chain->count]);
}

/* One more table, at `depth` over block pos, as uniform as its descriptor `value` said. */
static int chain_add(struct keep *k, struct chain *chain, unsigned int order, uint32_t depth,
		     uint64_t pos, unsigned int value)
{
	uint32_t index;
	int rc = keep_table_new(k, &index);

	if (rc)
		return rc;
	chain->index[chain->count++] = index;
	keep_fill(k, index, order, depth, pos >> k->tree[order].shift[depth], value);
	return 0;
}

/*
 * Builds tables for depths [top, bottom) over block pos, in which blocks [pos, hi) are changed:
 * one entry of the lowest table, or bits if that is a leaf.  *ret_desc leads to the topmost.
 */
static int chain_build(struct keep *k, struct chain *chain, unsigned int order, uint64_t pos,
		       uint64_t hi, bool set, uint32_t top, uint32_t bottom, uint64_t *ret_desc)
{
	const struct keep_tree *tree = &k->tree[order];
	uint64_t fan_mask = (UINT64_C(1) << k->fan_shift) - 1;
	uint64_t child = set ? DESC_FULL : DESC_EMPTY;
	unsigned int before = set ? DESC_EMPTY : DESC_FULL;
	uint32_t d;

	for (d = bottom; d-- > top;) {
		int rc = chain_add(k, chain, order, d, pos, before);
		uint32_t index;

		if (rc)
			return rc;
		index = chain->index[chain->count - 1];
		if (d + 1 == tree->levels)
			change_unreached(k, index, pos, hi, set);
		else
			atomic_store_explicit(
				&keep_table_at(k,
					       index)[(pos >> tree->shift[d + 1]) & fan_mask],
				child, memory_order_relaxed);
		child = desc_make(DESC_TABLE, index, 0);
	}
	*ret_desc = child;
	return 0;
}

/* The path ends at a uniform descriptor: one compare-and-swap of it changes [pos, *ret_next).
 */
static int change_uniform(struct keep_hand *hand, unsigned int order, uint64_t pos, uint64_t hi,
			  bool set, uint64_t *ret_next)
{
	struct keep *k = hand->keep;
	const struct keep_tree *tree = &k->tree[order];
	struct keep_path *path = &hand->path[order];
	uint32_t top = path->depth, d;
	struct chain chain = {.count = 0};
	uint64_t bit = UINT64_C(1) << order, desc;
	int rc;

	/* The highest descriptor all of whose blocks are to be changed. */
	for (d = top; d < tree->levels; d++)
		if (!(pos & ((UINT64_C(1) << tree->shift[d]) - 1)) &&
		    hi >= keep_span_end(tree, pos, d))
			break;
	hi = num_min(hi, keep_span_end(tree, pos, d < tree->levels ? d : tree->levels - 1));
	rc = chain_build(k, &chain, order, pos, hi, set, top, d, &desc);
	if (rc) {
		chain_free(k, &chain);
		return rc;
	}
	/* Before the first block of an order can be seen: others look here whom to ask. */
	if (!(keep_load(&k->header->orders) & bit))
		keep_or(&k->header->orders, bit);
	if (!keep_cas(path->desc[top], path->end, desc)) {
		chain_free(k, &chain);
		*ret_next = pos;
		return 0;
	}
	/* With new tables there, nothing above them is uniform. */
	if (d == top)
		hand->dirty = true;
	*ret_next = hi;
	return 0;
}

int keep_tree_change(struct keep_hand *hand, unsigned int order, uint64_t lo, uint64_t hi,
		     bool set, uint64_t *ret_done)
{
	struct keep_path *path = &hand->path[order];
	int rc = 0;

	hand->dirty = false;
	while (lo < hi && !rc) {
		rc = keep_path_seek(hand, order, lo);
		if (rc)
			break;
		if (path->end == DESC_TABLE)
			rc = change_leaf(hand, order, lo, hi, set, &lo);
		else if (path->end == (set ? DESC_FULL : DESC_EMPTY))
			rc = set ? -EEXIST : -ENOENT;
		else
			rc = change_uniform(hand, order, lo, hi, set, &lo);
	}
	*ret_done = lo;
	return rc;
}

/* What the path shows of the block and its neighbours: up to *ret_end all is under one table.
 */
static int look(struct keep_hand *hand, unsigned int order, uint64_t block, uint64_t *ret_end)
{
	const struct keep_tree *tree = &hand->keep->tree[order];
	struct keep_path *path = &hand->path[order];
	int rc = keep_path_seek(hand, order, block);

	if (rc)
		return rc;
	*ret_end = keep_span_end(tree, block,
				 path->end == DESC_TABLE ? tree->levels - 1 : path->depth);
	return 0;
}

int keep_tree_tidy(struct keep_hand *hand, unsigned int order, uint64_t lo, uint64_t hi)
{
	uint64_t end;
	int rc;

	for (; lo < hi; lo = end) {
		rc = look(hand, order, lo, &end);
		if (rc)
			return rc;
		keep_path_tidy(hand, order);
	}
	return 0;
}

int keep_tree_test(struct keep_hand *hand, unsigned int order, uint64_t block)
{
	struct keep_path *path = &hand->path[order];
	uint64_t in_leaf = (UINT64_C(1) << hand->keep->leaf_shift) - 1;
	int rc = keep_path_seek(hand, order, block);

	if (rc)
		return rc;
	if (path->end != DESC_TABLE)
		return path->end == DESC_FULL;
	return keep_load(&path->leaf[(block & in_leaf) / 64]) >> (block % 64) & 1;
}

/* The first block in [pos, end), all in the path's leaf, that is set (or is not); else end. */
static uint64_t leaf_find(const struct keep_path *path, uint64_t in_leaf, uint64_t pos,
			  uint64_t end, bool set)
{
	uint64_t flip = set ? 0 : ~UINT64_C(0);
	const keep_word *word = &path->leaf[(pos & in_leaf) / 64];
	uint64_t bits = (keep_load(word) ^ flip) >> (pos % 64);

	if (bits)
		return num_min(pos + (uint64_t)__builtin_ctzll(bits), end);
	for (pos = (pos | 63) + 1; pos < end; pos += 64) {
		bits = keep_load(++word) ^ flip;
		if (bits)
			return num_min(pos + (uint64_t)__builtin_ctzll(bits), end);
	}
	return end;
}

/* The first block in [pos, to) that is set (or is not), or `to`. */
static int find(struct keep_hand *hand, unsigned int order, uint64_t pos, uint64_t to, bool set,
		uint64_t *ret)
{
	struct keep_path *path = &hand->path[order];
	uint64_t in_leaf = (UINT64_C(1) << hand->keep->leaf_shift) - 1, end;

	while (pos < to) {
		int rc = look(hand, order, pos, &end);

		if (rc)
			return rc;
		end = num_min(end, to);
		if (path->end == DESC_TABLE)
			pos = leaf_find(path, in_leaf, pos, end, set);
		else if (set != (path->end == DESC_FULL))
			pos = end;
		if (pos < end)
			break;
	}
	*ret = num_min(pos, to);
	return 0;
}

int keep_tree_next(struct keep_hand *hand, unsigned int order, uint64_t from, uint64_t to,
		   uint64_t *ret_start, uint64_t *ret_end)
{
	int rc = find(hand, order, from, to, true, ret_start);

	if (rc || *ret_start >= to)
		return rc;
	rc = find(hand, order, *ret_start, to, false, ret_end);
	if (rc)
		return rc;
	/* Somebody cleared it in between. */
	if (*ret_end == *ret_start)
		*ret_end = *ret_start + 1;
	return 1;
}

int keep_tree_overlaps(struct keep_hand *hand, unsigned int order, uint64_t start, uint64_t end)
{
	uint64_t lo = start >> order,
		 hi = num_min(((end - 1) >> order) + 1, hand->keep->tree[order].blocks);
	int rc;

	if (lo >= hi)
		return 0;
	if (hi - lo == 1)
		return keep_tree_test(hand, order, lo);
	rc = find(hand, order, lo, hi, true, &lo);
	return rc ? rc : lo < hi;
}

int keep_tree_count(struct keep_hand *hand, unsigned int order, uint64_t lo, uint64_t hi,
		    uint64_t *ret)
{
	struct keep_path *path = &hand->path[order];
	uint64_t in_leaf = (UINT64_C(1) << hand->keep->leaf_shift) - 1, end, next, sum = 0;

	for (; lo < hi; lo = end) {
		int rc = look(hand, order, lo, &end);

		if (rc)
			return rc;
		end = num_min(end, hi);
		if (path->end == DESC_FULL)
			sum += end - lo;
		if (path->end != DESC_TABLE)
			continue;
		for (; lo < end; lo = next) {
			uint64_t mask;

			next = num_min((lo | 63) + 1, end);
			mask = keep_mask(lo % 64, (uint32_t)(next - (lo & ~UINT64_C(63))));
			sum += (uint64_t)__builtin_popcountll(
				keep_load(&path->leaf[(lo & in_leaf) / 64]) & mask);
		}
	}
	*ret = sum;
	return 0;
}
