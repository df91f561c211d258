// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The way down a tree, its pins, and the release of tables that became uniform: steps P, F and
 * L of docs/design/keep.md.  Nothing else in the room decides when a table page may be used
 * again.
 */
#include "keep/table.h"

static void set_slot(keep_word *slot, uint64_t value)
{
	atomic_store(slot, value);
	keep_store_hook();
}

static bool pinned_by_others(const struct keep_hand *me, unsigned int order, uint32_t depth,
			     uint64_t no)
{
	struct keep_hand *h;

	for (h = atomic_load(&me->keep->hands); h; h = h->next)
		if (h != me && keep_load(&h->path[order].slot[depth]) == no + 1)
			return true;
	return false;
}

/* F1 to F4.  True when the table was released: nobody is in it, and its page is free. */
static bool release(struct keep_hand *hand, unsigned int order, uint32_t depth, uint64_t no,
		    keep_word *desc)
{
	struct keep *k = hand->keep;
	uint64_t seen = keep_load(desc), frozen;
	uint32_t index = desc_index(seen);
	unsigned int value;

	if (k->read_only || desc_is_uniform(seen) || !keep_index_valid(k, index))
		return false;
	frozen = desc_make(DESC_FROZEN, index, atomic_fetch_add(&k->freezes, 1) + 1);
	if (!keep_cas(desc, seen, frozen)) {
		/*
		 * Once is enough: what changes it again was begun after our slot was left, so
		 * it does not give up for us.
		 */
		seen = keep_load(desc);
		if (desc_is_uniform(seen) || desc_index(seen) != index ||
		    !keep_cas(desc, seen, frozen))
			return false;
	}
	if (pinned_by_others(hand, order, depth, no)) {
		keep_cas(desc, frozen, desc_make(DESC_TABLE, index, 0) | DESC_WANT);
		return false;
	}
	value = keep_uniform(keep_table_at(k, index), depth + 1 == k->tree[order].levels,
			     keep_extent(k, order, depth, no));
	if (value == DESC_TABLE) {
		keep_cas(desc, frozen, desc_make(DESC_TABLE, index, 0));
		return false;
	}
	if (!keep_cas(desc, frozen, value))
		return false;
	keep_table_free(k, index);
	return true;
}

/* The hand's table at this depth is gone: its path ends there, and pins nothing below. */
static void cut(struct keep_path *path, uint32_t depth)
{
	while (path->pins > depth + 1)
		set_slot(&path->slot[--path->pins], 0);
	path->depth = depth;
	path->count = 0;
}

/* Releases upwards, beginning with the path's table at `depth`, as long as there is one to
 * release. */
static void tidy_from(struct keep_hand *hand, unsigned int order, uint32_t depth)
{
	struct keep_path *path = &hand->path[order];
	struct keep *k = hand->keep;

	for (;; depth--) {
		if (keep_uniform(path->table[depth], depth + 1 == k->tree[order].levels,
				 keep_extent(k, order, depth, path->no[depth])) == DESC_TABLE)
			return;
		if (!release(hand, order, depth, path->no[depth], path->desc[depth]))
			return;
		cut(path, depth);
		if (!depth)
			return;
	}
}

void keep_path_tidy(struct keep_hand *hand, unsigned int order)
{
	struct keep_path *path = &hand->path[order];

	if (path->depth && !hand->keep->read_only)
		tidy_from(hand, order, path->depth - 1);
}

void keep_path_tidy_at(struct keep_hand *hand, unsigned int order, uint32_t at)
{
	struct keep_path *path = &hand->path[order];
	struct keep *k = hand->keep;
	struct keep_extent extent =
		keep_extent(k, order, path->depth - 1, path->no[path->depth - 1]);
	uint64_t value = keep_load(&path->leaf[at]);

	if (at + 1 < extent.words && keep_load(&path->leaf[at + 1]) != value)
		return;
	if (at > 0 && at < extent.words && keep_load(&path->leaf[at - 1]) != value)
		return;
	keep_path_tidy(hand, order);
}

/* L2, after the slot was changed.  The descriptor lies in a table that is still pinned. */
static void left(struct keep_hand *hand, unsigned int order, uint32_t depth, uint64_t no,
		 keep_word *desc)
{
	uint64_t seen = keep_load(desc);

	if (desc_state(seen) != DESC_FROZEN && !(seen & DESC_WANT))
		return;
	if (release(hand, order, depth, no, desc) && depth)
		tidy_from(hand, order, depth - 1);
}

/* Leaves what is pinned at `keep` and below. */
static void trim(struct keep_hand *hand, unsigned int order, uint32_t keep)
{
	struct keep_path *path = &hand->path[order];

	while (path->pins > keep) {
		uint32_t d = --path->pins;

		if (path->depth > d) {
			path->depth = d;
			path->count = 0;
		}
		set_slot(&path->slot[d], 0);
		left(hand, order, d, path->no[d], path->desc[d]);
	}
}

/*
 * P1, where the slot does not have the position yet.  True when the tables above are still
 * those of the path: leaving the position before may have released them.
 */
static bool move(struct keep_hand *hand, unsigned int order, uint32_t d, uint64_t no,
		 keep_word *desc)
{
	struct keep_path *path = &hand->path[order];
	keep_word *old_desc = path->desc[d];
	uint64_t old_no = path->no[d];
	bool leaves = d < path->pins;

	if (leaves && old_no == no)
		return true;
	path->desc[d] = desc;
	path->no[d] = no;
	path->pins = d + 1;
	set_slot(&path->slot[d], no + 1);
	if (leaves)
		left(hand, order, d, old_no, old_desc);
	return path->depth == d;
}

/* P2 and P3. */
static uint64_t enter(const struct keep *k, keep_word *desc)
{
	for (;;) {
		uint64_t seen = keep_load(desc);

		if (desc_state(seen) != DESC_FROZEN || k->read_only)
			return seen;
		keep_cas(desc, seen, desc_make(DESC_TABLE, desc_index(seen), 0) | DESC_WANT);
	}
}

static void arrive(struct keep_hand *hand, unsigned int order)
{
	struct keep_path *path = &hand->path[order];
	struct keep_extent extent;

	path->leaf = path->table[path->depth - 1];
	path->first = path->no[path->depth - 1] << hand->keep->leaf_shift;
	path->end = DESC_TABLE;
	extent = keep_extent(hand->keep, order, path->depth - 1, path->no[path->depth - 1]);
	path->count = extent.words * UINT64_C(64) + (uint64_t)__builtin_popcountll(extent.tail);
	path->tail_at = extent.tail ? extent.words : UINT32_MAX;
	path->tail_full = extent.tail;
}

int keep_path_seek(struct keep_hand *hand, unsigned int order, uint64_t block)
{
	struct keep *k = hand->keep;
	const struct keep_tree *tree = &k->tree[order];
	struct keep_path *path = &hand->path[order];
	uint64_t fan_mask = (UINT64_C(1) << k->fan_shift) - 1;
	uint32_t d = 0;

	if (block - path->first < path->count)
		return 0;
	while (d < path->depth && path->no[d] == block >> tree->shift[d])
		d++;
	trim(hand, order, d + 1);
	path->depth = d = (uint32_t)num_min(d, path->depth);
	path->count = 0;
	while (d < tree->levels) {
		uint64_t no = block >> tree->shift[d], seen;
		keep_word *desc =
			d ? &path->table[d - 1][no & fan_mask] : &k->header->root[order];

		if (!move(hand, order, d, no, desc)) {
			d = path->depth;
			continue;
		}
		seen = enter(k, desc);
		if (desc_is_uniform(seen)) {
			path->end = seen;
			return seen <= DESC_FULL ? 0 : -EBADMSG;
		}
		if (!keep_index_valid(k, desc_index(seen)))
			return -EBADMSG;
		path->table[d] = keep_table_at(k, desc_index(seen));
		path->depth = ++d;
	}
	arrive(hand, order);
	return 0;
}

void keep_path_rest(struct keep_hand *hand, unsigned int order)
{
	trim(hand, order, 0);
}
