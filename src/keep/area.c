// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The pages of the area: which are taken, and how a new table looks.  A page is taken by a bit
 * in the map and by nothing else, so a crash can lose one (until the next attach) but never
 * give it out twice.  Never links or unlinks a table.
 */
#include "keep/table.h"

/* Pages made ready at once: a call to the owner costs a system call. */
#define READY_PAGES 8

uint32_t keep_header_pages(uint32_t page_shift, uint32_t table_pages)
{
	return (uint32_t)num_pages(KEEP_MAP_OFFSET + num_pages(table_pages, 64) * 8,
				   UINT64_C(1) << page_shift);
}

void keep_tree_shape(struct keep *k, unsigned int order)
{
	struct keep_tree *tree = &k->tree[order];
	uint32_t top = k->leaf_shift, d;

	tree->blocks = k->pages >> order;
	tree->levels = 1;
	while (tree->blocks > UINT64_C(1) << top) {
		top += k->fan_shift;
		tree->levels++;
	}
	for (d = 0; d < tree->levels; d++)
		tree->shift[d] = (uint8_t)(top - d * k->fan_shift);
}

struct keep_extent keep_extent(const struct keep *k, unsigned int order, uint32_t depth,
			       uint64_t no)
{
	const struct keep_tree *tree = &k->tree[order];
	uint64_t left = num_min(tree->blocks - (no << tree->shift[depth]),
				UINT64_C(1) << tree->shift[depth]);

	if (depth + 1 < tree->levels)
		return (struct keep_extent){
			.words = (uint32_t)num_pages(left, UINT64_C(1)
								   << tree->shift[depth + 1])};
	return (struct keep_extent){.words = (uint32_t)(left / 64),
				    .tail = (UINT64_C(1) << (left % 64)) - 1};
}

unsigned int keep_uniform(const keep_word *table, bool leaf, struct keep_extent extent)
{
	uint64_t first = extent.words ? keep_load(&table[0]) : 0;
	uint64_t full = leaf ? ~UINT64_C(0) : DESC_FULL;
	uint32_t i;

	if (!extent.words)
		first = keep_load(&table[0]) == extent.tail ? full : keep_load(&table[0]);
	if (first != full && first != DESC_EMPTY)
		return DESC_TABLE;
	/* From the end: what is filled in order is told from a full one at once. */
	if (extent.tail && keep_load(&table[extent.words]) != (first ? extent.tail : 0))
		return DESC_TABLE;
	for (i = extent.words; i-- > 0;)
		if (keep_load(&table[i]) != first)
			return DESC_TABLE;
	return first ? DESC_FULL : DESC_EMPTY;
}

void keep_fill(struct keep *k, uint32_t index, unsigned int order, uint32_t depth, uint64_t no,
	       unsigned int value)
{
	struct keep_extent extent = keep_extent(k, order, depth, no);
	keep_word *table = keep_table_at(k, index);
	uint32_t words = UINT32_C(1) << k->fan_shift, i;
	uint64_t each = depth + 1 < k->tree[order].levels ? DESC_FULL : ~UINT64_C(0);

	if (value == DESC_EMPTY)
		extent = (struct keep_extent){.words = 0};
	for (i = 0; i < extent.words; i++)
		atomic_store_explicit(&table[i], each, memory_order_relaxed);
	keep_store_hook();
	for (; i < words; i++)
		atomic_store_explicit(&table[i], i == extent.words ? extent.tail : 0,
				      memory_order_relaxed);
	keep_store_hook();
}

/* Takes a free page of the map's words [from, to); 1 when there was one. */
static int take_page(struct keep *k, uint64_t from, uint64_t to, uint32_t *ret_index)
{
	uint64_t i;

	for (i = from; i < to; i++) {
		uint64_t word;

		while (~(word = keep_load(&k->map[i]))) {
			uint64_t bit = ~word & (word + 1);

			if (keep_or(&k->map[i], bit) & bit)
				continue;
			*ret_index = (uint32_t)(i * 64 + (uint64_t)__builtin_ctzll(bit));
			/* A map that nobody validated may say that others are free. */
			if (!keep_index_valid(k, *ret_index))
				continue;
			atomic_store_explicit(&k->hint, (uint32_t)i, memory_order_relaxed);
			return 1;
		}
	}
	return 0;
}

static int make_ready(struct keep *k, uint32_t index)
{
	uint64_t have = keep_load(&k->header->ready), want;
	int rc;

	if (index < have)
		return 0;
	want = num_min(num_round_up(index + 1u, READY_PAGES), k->table_pages);
	if (k->area.ready) {
		rc = k->area.ready(k->area.ctx, have << k->page_shift,
				   (want - have) << k->page_shift);
		if (rc)
			return rc;
	}
	while (have < want && !keep_cas(&k->header->ready, have, want))
		have = keep_load(&k->header->ready);
	return 0;
}

int keep_table_new(struct keep *k, uint32_t *ret_index)
{
	uint64_t words = keep_map_words(k);
	uint64_t hint = atomic_load_explicit(&k->hint, memory_order_relaxed);
	uint32_t index;
	int rc;

	if (!take_page(k, hint, words, &index) && !take_page(k, 0, words, &index))
		return -ENOMEM;
	rc = make_ready(k, index);
	if (rc) {
		keep_table_free(k, index);
		return rc;
	}
	*ret_index = index;
	return 0;
}

void keep_table_free(struct keep *k, uint32_t index)
{
	uint32_t word = index / 64;

	keep_and(&k->map[word], ~(UINT64_C(1) << (index % 64)));
	if (word < atomic_load_explicit(&k->hint, memory_order_relaxed))
		atomic_store_explicit(&k->hint, word, memory_order_relaxed);
}
