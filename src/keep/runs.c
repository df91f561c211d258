// SPDX-License-Identifier: LGPL-2.1-or-later
/* Reading out: runs of all orders merged, counts, statistics.  Changes nothing. */
#include "keep/table.h"

/* The next run of this order at or after page `from`, or none. */
static int advance(struct keep_runs *runs, unsigned int order, uint64_t from)
{
	const struct keep_tree *tree = &runs->hand->keep->tree[order];
	uint64_t lo = from >> order;
	uint64_t hi = num_min(num_pages(runs->to, UINT64_C(1) << order), tree->blocks);
	int rc = from < runs->to && lo < hi
			 ? keep_tree_next(runs->hand, order, lo, hi, &lo, &hi)
			 : 0;

	if (rc < 0)
		return rc;
	if (!rc) {
		runs->orders &= ~(UINT64_C(1) << order);
		return 0;
	}
	runs->start[order] = num_max(lo << order, from);
	runs->end[order] = num_min(hi << order, runs->to);
	return 0;
}

int keep_runs_begin(struct keep_runs *runs, struct keep_hand *hand, uint64_t from, uint64_t to)
{
	uint64_t orders = keep_orders(hand->keep);
	int rc = 0;

	runs->hand = hand;
	runs->to = to;
	runs->overlaps = 0;
	runs->orders = orders;
	for (; orders && !rc; orders &= orders - 1)
		rc = advance(runs, (unsigned int)__builtin_ctzll(orders), from);
	return rc;
}

static int next_of_one(struct keep_runs *runs, uint64_t *ret_start, uint64_t *ret_end)
{
	unsigned int order = (unsigned int)__builtin_ctzll(runs->orders);

	*ret_start = runs->start[order];
	*ret_end = runs->end[order];
	return advance(runs, order, *ret_end);
}

/* Takes in every run that begins at or before *end; 1 when there was one. */
static int absorb(struct keep_runs *runs, uint64_t *end)
{
	uint64_t orders;
	int any = 0;

	for (orders = runs->orders; orders; orders &= orders - 1) {
		unsigned int order = (unsigned int)__builtin_ctzll(orders);
		int rc;

		if (runs->start[order] > *end)
			continue;
		if (runs->start[order] < *end)
			runs->overlaps++;
		*end = num_max(*end, runs->end[order]);
		rc = advance(runs, order, runs->end[order]);
		if (rc)
			return rc;
		any = 1;
	}
	return any;
}

int keep_runs_next(struct keep_runs *runs, uint64_t *ret_start, uint64_t *ret_end)
{
	uint64_t orders = runs->orders;
	uint64_t start = UINT64_MAX, end;
	int rc;

	if (!orders)
		return 0;
	if (!(orders & (orders - 1))) {
		rc = next_of_one(runs, ret_start, ret_end);
		return rc ? rc : 1;
	}
	for (; orders; orders &= orders - 1)
		start = num_min(start, runs->start[__builtin_ctzll(orders)]);
	/* Absorbs first of all the run that begins here: neighbours do not overlap. */
	end = start;
	do
		rc = absorb(runs, &end);
	while (rc > 0);
	*ret_start = start;
	*ret_end = end;
	return rc ? rc : 1;
}

static int check_range(const struct keep *k, uint64_t start, uint64_t pages, uint64_t *ret_end)
{
	if (num_add_overflows(start, pages, ret_end) || *ret_end > k->pages)
		return -ERANGE;
	return 0;
}

int keep_next_run(struct keep_hand *hand, uint64_t from, struct keep_run *ret)
{
	struct keep_runs runs;
	uint64_t start, end;
	int rc;

	if (from >= hand->keep->pages)
		return -ENOENT;
	rc = keep_runs_begin(&runs, hand, from, hand->keep->pages);
	if (!rc)
		rc = keep_runs_next(&runs, &start, &end);
	if (rc <= 0)
		return rc ? rc : -ENOENT;
	*ret = (struct keep_run){start, end - start};
	return 0;
}

/* A walk of one order: the run that may still grow, in pages. */
struct walk {
	keep_run_fn *fn;
	void *ctx;
	unsigned int order;
	uint64_t from, to; /* the part that is walked */
	uint64_t start, end;
};

static int flush(struct walk *w)
{
	uint64_t start = num_max(w->start, w->from), end = num_min(w->end, w->to);

	return start < end ? w->fn(w->ctx, start, end - start) : 0;
}

/* Blocks [lo, hi) are set. */
static inline int add_blocks(struct walk *w, uint64_t lo, uint64_t hi)
{
	int rc = 0;

	if (lo << w->order != w->end) {
		rc = flush(w);
		w->start = lo << w->order;
	}
	w->end = hi << w->order;
	return rc;
}

/* Word `bits` of a leaf, for blocks from `base` on. */
static inline int add_word(struct walk *w, uint64_t base, uint64_t bits)
{
	int rc = 0;

	if (bits == ~UINT64_C(0))
		return add_blocks(w, base, base + 64);
	while (bits && !rc) {
		unsigned int lo = (unsigned int)__builtin_ctzll(bits);
		/* A carry runs through the lowest run of ones and stops behind it. */
		uint64_t behind = bits + (bits & -bits);
		unsigned int hi = behind ? (unsigned int)__builtin_ctzll(behind) : 64;

		rc = add_blocks(w, base + lo, base + hi);
		bits &= behind;
	}
	return rc;
}

static int walk_one(struct keep_hand *hand, struct walk *w)
{
	const struct keep_tree *tree = &hand->keep->tree[w->order];
	struct keep_path *path = &hand->path[w->order];
	uint64_t pos = w->from >> w->order, end, to;
	int rc = 0;

	to = num_min(num_pages(w->to, UINT64_C(1) << w->order), tree->blocks);
	for (; pos < to && !rc; pos = end) {
		rc = keep_path_seek(hand, w->order, pos);
		if (rc)
			return rc;
		end = keep_span_end(tree, pos,
				    path->end == DESC_TABLE ? tree->levels - 1 : path->depth);
		end = num_min(end, to);
		if (path->end == DESC_FULL)
			rc = add_blocks(w, pos, end);
		if (path->end != DESC_TABLE)
			continue;
		for (; pos < end && !rc; pos = (pos | 63) + 1) {
			uint64_t bits = keep_load(&path->leaf[(pos - path->first) / 64]);

			bits &= ~UINT64_C(0) << (pos % 64);
			rc = add_word(w, pos & ~UINT64_C(63), bits);
		}
	}
	return rc ? rc : flush(w);
}

int keep_walk(struct keep_hand *hand, uint64_t start, uint64_t pages, keep_run_fn *fn,
	      void *ctx)
{
	uint64_t orders = keep_orders(hand->keep), end;
	struct keep_runs runs;
	int rc = check_range(hand->keep, start, pages, &end), more;

	if (rc || !orders)
		return rc;
	if (!(orders & (orders - 1))) {
		struct walk w = {.fn = fn, .ctx = ctx, .from = start, .to = end};

		w.order = (unsigned int)__builtin_ctzll(orders);
		return walk_one(hand, &w);
	}
	rc = keep_runs_begin(&runs, hand, start, end);
	while (!rc) {
		more = keep_runs_next(&runs, &start, &end);
		if (more <= 0)
			return more;
		rc = fn(ctx, start, end - start);
	}
	return rc;
}

uint64_t keep_leaf_pages(const struct keep *keep)
{
	return UINT64_C(1) << keep->leaf_shift;
}

static int add_run(void *ctx, uint64_t start, uint64_t pages)
{
	*(uint64_t *)ctx += pages;
	return 0;
}

int keep_count(struct keep_hand *hand, uint64_t start, uint64_t pages, uint64_t *ret)
{
	uint64_t orders = keep_orders(hand->keep), end, sum = 0;
	int rc = check_range(hand->keep, start, pages, &end);

	if (!rc && orders == 1)
		rc = keep_tree_count(hand, 0, start, end, &sum);
	else if (!rc)
		rc = keep_walk(hand, start, pages, add_run, &sum);
	if (!rc)
		*ret = sum;
	return rc;
}

int keep_stats(struct keep_hand *hand, struct keep_stats *ret)
{
	const struct keep *k = hand->keep;
	struct keep_stats stats = {.pages = 0};
	uint64_t orders = keep_orders(k), i;
	unsigned int order;

	for (order = 0; order <= k->order_max; order++) {
		int rc = 0;

		if (orders >> order & 1)
			rc = keep_tree_count(hand, order, 0, k->tree[order].blocks,
					     &stats.blocks[order]);
		if (rc)
			return rc;
		stats.pages += stats.blocks[order] << order;
	}
	for (i = 0; i < keep_map_words(k); i++)
		stats.tables += (uint64_t)__builtin_popcountll(keep_load(&k->map[i]));
	/* The header and what is beyond the area count as taken. */
	stats.tables -= k->first_table + (keep_map_words(k) * 64 - k->table_pages);
	stats.table_bytes = stats.tables << k->page_shift;
	stats.header_bytes = (uint64_t)k->first_table << k->page_shift;
	stats.ready_bytes = keep_load(&k->header->ready) << k->page_shift;
	stats.area_bytes = (uint64_t)k->table_pages << k->page_shift;
	*ret = stats;
	return 0;
}
