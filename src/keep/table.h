/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Layout of the table in its area, and what one process knows about it.  Private to the room.
 */
#ifndef TORPOR_KEEP_TABLE_H
#define TORPOR_KEEP_TABLE_H

#include "base/num.h"
#include "base/wait.h"
#include "keep/keep.h"
#include "keep/word.h"

#define KEEP_MAGIC UINT64_C(0x7065656b70726f74) /* "torpkeep" */
#define KEEP_VERSION 1
#define KEEP_LEVELS 6 /* (52 - 15) bits by 9 a level, and the leaf */
#define KEEP_MAP_OFFSET 512
#define KEEP_TABLES_MAX (UINT32_C(1) << 28)

enum { KEEP_CLOSED = 0, KEEP_IN_USE = 1 };

/* At the start of the area; the map of table pages follows at KEEP_MAP_OFFSET. */
struct keep_header {
	uint64_t magic;
	uint32_t version;
	uint32_t page_shift;
	uint64_t pages;
	uint32_t order_max;
	uint32_t table_pages; /* of the area, header included */
	uint64_t sum;         /* of the above */
	keep_word state;
	keep_word orders; /* bit k: order k was used since attach */
	keep_word ready;  /* pages of the area that may be touched */
	uint64_t unused[24];
	keep_word root[KEEP_ORDERS];
};

_Static_assert(sizeof(struct keep_header) == KEEP_MAP_OFFSET, "the map follows the header");

/* A descriptor; see the drawing in docs/design/keep.md. */
enum { DESC_EMPTY = 0, DESC_FULL = 1, DESC_TABLE = 2, DESC_FROZEN = 3 };
#define DESC_STATE UINT64_C(3)
#define DESC_WANT UINT64_C(4)
#define DESC_INDEX_SHIFT 3
#define DESC_HIGH_SHIFT 32

static inline unsigned int desc_state(uint64_t desc)
{
	return (unsigned int)(desc & DESC_STATE);
}

static inline uint32_t desc_index(uint64_t desc)
{
	return (uint32_t)desc >> DESC_INDEX_SHIFT;
}

static inline uint32_t desc_high(uint64_t desc)
{
	return (uint32_t)(desc >> DESC_HIGH_SHIFT);
}

static inline uint64_t desc_make(unsigned int state, uint32_t index, uint32_t high)
{
	return state | (uint64_t)index << DESC_INDEX_SHIFT | (uint64_t)high << DESC_HIGH_SHIFT;
}

static inline bool desc_is_uniform(uint64_t desc)
{
	return desc_state(desc) < DESC_TABLE;
}

/* The tree of one order.  Depth 0 is its top table, depth levels - 1 its leaves. */
struct keep_tree {
	uint64_t blocks; /* 0: the order is larger than all pages */
	uint32_t levels;
	uint8_t shift[KEEP_LEVELS]; /* log2 of the blocks under one table at this depth */
};

struct keep {
	struct keep_header *header;
	keep_word *map;
	struct keep_area area;
	uint32_t page_shift, leaf_shift, fan_shift;
	uint32_t table_pages, first_table;
	uint64_t pages;
	uint32_t order_max;
	bool read_only;
	_Atomic uint32_t freezes; /* numbers given to freezes so far */
	_Atomic uint32_t hint;    /* word of the map below which none is free, perhaps */
	_Atomic(struct keep_hand *) hands; /* only ever grows */
	struct wait_lock split;            /* held while a block is split: see keep_split() */
	struct keep_tree tree[KEEP_ORDERS];
};

/*
 * What one hand remembers of one tree: its way down.  Tables 0 to depth - 1 of it are pinned
 * and there.  One more slot may be set, for a position whose descriptor is uniform (pins =
 * depth + 1). Only the slots are seen by other threads.
 */
struct keep_path {
	uint64_t first, count; /* blocks of the leaf; count is 0 when the path ends in none */
	keep_word *leaf;
	uint32_t tail_at; /* word of the leaf that is not whole, if any */
	uint32_t depth, pins;
	uint64_t tail_full; /* ... and its value when full */
	uint64_t end; /* DESC_TABLE at a leaf; else DESC_EMPTY or DESC_FULL, at desc[depth] */
	keep_word *desc[KEEP_LEVELS]; /* leads to the table at this depth */
	keep_word *table[KEEP_LEVELS];
	uint64_t no[KEEP_LEVELS];                 /* position: block >> shift */
	_Alignas(64) keep_word slot[KEEP_LEVELS]; /* position + 1, or 0 */
};

struct keep_hand {
	struct keep *keep;
	struct keep_hand *next;
	atomic_bool taken;
	bool dirty;                   /* the last change made a word or descriptor uniform */
	uint32_t orders;              /* that may be changed: none when read only */
	const keep_word *orders_used; /* the header's `orders` */
	struct keep_path path[KEEP_ORDERS];
};

/* Words of the table at (order, depth, no) that exist, and of a leaf the bits in one more. */
struct keep_extent {
	uint32_t words;
	uint64_t tail;
};

/* area.c: the area and its pages */
struct keep_extent keep_extent(const struct keep *k, unsigned int order, uint32_t depth,
			       uint64_t no);
void keep_tree_shape(struct keep *k, unsigned int order);
uint32_t keep_header_pages(uint32_t page_shift, uint32_t table_pages);
int keep_table_new(struct keep *k, uint32_t *ret_index);
void keep_table_free(struct keep *k, uint32_t index);
/* Makes a table that nobody can reach all EMPTY or all FULL. */
void keep_fill(struct keep *k, uint32_t index, unsigned int order, uint32_t depth, uint64_t no,
	       unsigned int value);
/* DESC_EMPTY or DESC_FULL when all of it is, else DESC_TABLE. */
unsigned int keep_uniform(const keep_word *table, bool leaf, struct keep_extent extent);

static inline keep_word *keep_table_at(const struct keep *k, uint32_t index)
{
	return (keep_word *)((char *)k->area.addr + ((uint64_t)index << k->page_shift));
}

static inline bool keep_index_valid(const struct keep *k, uint32_t index)
{
	return index >= k->first_table && index < k->table_pages;
}

static inline uint64_t keep_span_end(const struct keep_tree *tree, uint64_t block,
				     uint32_t depth)
{
	uint64_t end = ((block >> tree->shift[depth]) + 1) << tree->shift[depth];

	return num_min(end, tree->blocks);
}

/* path.c: pins */

/*
 * Brings the hand's path to the block: to its leaf, or to the descriptor that says EMPTY or
 * FULL for it (path->end).  0 or -EBADMSG.
 */
int keep_path_seek(struct keep_hand *hand, unsigned int order, uint64_t block);
/* Releases the lowest table of the path if it is uniform, then the one above, and so on. */
void keep_path_tidy(struct keep_hand *hand, unsigned int order);
/* As keep_path_tidy(), after word `at` of the path's leaf became uniform; looks beside it
 * first. */
void keep_path_tidy_at(struct keep_hand *hand, unsigned int order, uint32_t at);
void keep_path_rest(struct keep_hand *hand, unsigned int order);

/* tree.c: one order, without regard to the others */

/*
 * Sets (or clears) blocks [lo, hi), all of which must be clear (or set): else -EEXIST (or
 * -ENOENT) at the first that is not.  *ret_done is where it stopped: [lo, *ret_done) was
 * changed. Releases nothing: keep_tree_tidy() does.
 */
int keep_tree_change(struct keep_hand *hand, unsigned int order, uint64_t lo, uint64_t hi,
		     bool set, uint64_t *ret_done);
int keep_tree_tidy(struct keep_hand *hand, unsigned int order, uint64_t lo, uint64_t hi);
/* 1 or 0: is the block preserved? */
int keep_tree_test(struct keep_hand *hand, unsigned int order, uint64_t block);
/* The first run of set blocks in [from, to), cut there.  1, or 0 if there is none. */
int keep_tree_next(struct keep_hand *hand, unsigned int order, uint64_t from, uint64_t to,
		   uint64_t *ret_start, uint64_t *ret_end);
/* 1 or 0: does a block of this order overlap with pages [start, end)? */
int keep_tree_overlaps(struct keep_hand *hand, unsigned int order, uint64_t start,
		       uint64_t end);
int keep_tree_count(struct keep_hand *hand, unsigned int order, uint64_t lo, uint64_t hi,
		    uint64_t *ret);

/* runs.c: all orders merged */
struct keep_runs {
	struct keep_hand *hand;
	uint64_t orders;   /* those that have more */
	uint64_t to;       /* pages */
	uint64_t overlaps; /* runs that began within another so far */
	uint64_t start[KEEP_ORDERS], end[KEEP_ORDERS]; /* next run of each, in pages */
};

int keep_runs_begin(struct keep_runs *runs, struct keep_hand *hand, uint64_t from, uint64_t to);
/* 1 and the next merged run, or 0 at the end. */
int keep_runs_next(struct keep_runs *runs, uint64_t *ret_start, uint64_t *ret_end);

/* check.c, mend.c */
/* The structure alone.  `seen` (a bit a table page, all 0) gets what is reached. */
int keep_check_trees(struct keep *k, bool crashed, uint64_t *seen, struct keep_report *report,
		     struct err *e);
int keep_mend(struct keep *k, struct keep_found *found, struct err *e);
/* Writes the population of each table beside its number.  Nobody else may be in the table. */
void keep_seal_tree(struct keep_hand *hand, unsigned int order);

static inline uint64_t keep_map_words(const struct keep *k)
{
	return num_pages(k->table_pages, 64);
}

/* Bits lo to hi - 1 of a word, 0 <= lo < hi <= 64. */
static inline uint64_t keep_mask(uint32_t lo, uint32_t hi)
{
	return (~UINT64_C(0) >> (64 - (hi - lo))) << lo;
}

/* Those in use, of those that there are. */
static inline uint64_t keep_orders(const struct keep *k)
{
	return keep_load(&k->header->orders) & ((UINT64_C(2) << k->order_max) - 1);
}

static inline uint64_t keep_others(const struct keep *k, unsigned int order)
{
	return keep_orders(k) & ~(UINT64_C(1) << order);
}

#endif
