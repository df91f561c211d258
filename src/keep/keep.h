/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The preservation table: which pages are to be carried, in shared memory, in the form in which
 * the next owner reads it.  It knows page numbers only; it never touches the pages themselves,
 * never maps or allocates memory for tables (the caller's area is all it has), and is owned by
 * one process at a time, which the caller sees to.  Layout and protocol: docs/design/keep.md.
 *
 * A *block* of order k is 2^k pages, at a multiple of 2^k.  A page is preserved at one order at
 * a time.
 *
 * Codes that every function with a hand can return besides its own:
 *   -EINVAL   a page that is no multiple of 2^order, an empty range, unknown flags
 *   -ERANGE   an order above the geometry's, or pages beyond its end
 *   -EBADMSG  the table is damaged (it was attached without keep_validate())
 * and those that change something:
 *   -EROFS    the table was attached with KEEP_READ_ONLY
 *   -ENOMEM   no table page is left; nothing was changed.  Never in an area of
 * keep_area_bytes() others    what the area's ready() returned; nothing was changed
 *
 * Threads: everything with a hand may be called by many threads at once, each with a hand of
 * its own, on any pages.  What two threads do to the same page at the same time happens in some
 * order; a change that is refused for an overlap (-EBUSY) may be seen for a moment before it is
 * taken back.
 */
#ifndef TORPOR_KEEP_KEEP_H
#define TORPOR_KEEP_KEEP_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEEP_ORDER_MAX 31
#define KEEP_ORDERS (KEEP_ORDER_MAX + 1)
#define KEEP_PAGES_MAX (UINT64_C(1) << 52)

enum {
	KEEP_READ_ONLY = 1, /* keep_attach(): look on while another process may own it */
	KEEP_LARGEST = 2, /* keep_preserve_range(): largest aligned blocks instead of order 0 */
	KEEP_SPLIT = 4,   /* keep_unpreserve(), _range(): larger blocks may be split */
	KEEP_CRASHED = 8, /* keep_validate(): what a crash may leave is no error */
};

struct keep_geometry {
	uint64_t pages;      /* 0 to pages - 1 can be preserved; 1 to KEEP_PAGES_MAX */
	uint32_t page_bytes; /* 4096, 16384 or 65536: of a page, and of a table */
	uint32_t order_max;  /* highest order accepted, at most KEEP_ORDER_MAX */
};

/*
 * Memory for the table, at a multiple of 8 bytes; shared with the next owner, who may map it
 * anywhere.  Stays the caller's, and must stay mapped until keep_close().
 */
struct keep_area {
	void *addr;
	uint64_t bytes; /* what is beyond whole pages is not used */
	/*
	 * Called before bytes [offset, offset + bytes) of the area are touched for the first
	 * time, so that the owner can allocate them (a full filesystem is an error here instead
	 * of SIGBUS later).  Returns 0 or a negative errno, which ends the operation.  May be
	 * called by several threads at once, also twice for the same bytes.  NULL: all of it is
	 * there.
	 */
	int (*ready)(void *ctx, uint64_t offset, uint64_t bytes);
	void *ctx;
};

struct keep;
struct keep_hand;

/* What keep_attach() found, all 0 after a clean keep_close(). */
struct keep_found {
	bool crashed;      /* the last owner did not close it; what follows was mended */
	uint64_t leaked;   /* table pages taken but not reached, now free */
	uint64_t overlaps; /* runs of a smaller order inside a larger one: the larger stays */
};

/*
 * Bytes of an area in which no order of operations can meet -ENOMEM; a sparse file of that size
 * takes only what ready() was called for.  0 when the geometry is not valid.
 */
uint64_t keep_area_bytes(const struct keep_geometry *geometry);

/*
 * Makes an empty table in the area, whatever was there.  -EINVAL: geometry; -ENOSPC: the area
 * is too small for the header and one path of tables; -ENOMEM: private memory.
 */
int keep_create(const struct keep_area *area, const struct keep_geometry *geometry,
		struct keep **ret, struct err *e);

/*
 * Attaches what keep_create() made, in constant time when it was closed; else every table is
 * looked at once and mended.  What comes from a stranger is to be given to keep_validate()
 * before anything else; no function leaves the area even so.  Sees to it that the table counts
 * as not closed until keep_close().  With KEEP_READ_ONLY nothing is written, so the area may be
 * mapped for reading, another process may own it at the time, and nothing is mended.
 * -EBADMSG: not a table, or damaged; -EOPNOTSUPP: another layout version; -ENOMEM: private
 * memory. `ret_found` may be NULL.
 */
int keep_attach(const struct keep_area *area, unsigned int flags, struct keep **ret,
		struct keep_found *ret_found, struct err *e);

/*
 * Ends the use of the table, with all hands, and marks it as closed.  No other thread may be in
 * it.  NULL is fine.
 */
void keep_close(struct keep *keep);

/* As keep_close(), but leaves the table as a crash would: for a caller who found it damaged. */
void keep_abandon(struct keep *keep);

struct keep_geometry keep_geometry(const struct keep *keep);

/* A hand, for one thread at a time; freed by keep_hand_free() or keep_close().  -ENOMEM */
int keep_hand_new(struct keep *keep, struct keep_hand **ret);

/*
 * Lets go of the tables that the hand remembers: one path for each order it used, which cannot
 * be released meanwhile.  For a thread that will not be back soon.
 */
void keep_hand_rest(struct keep_hand *hand);
void keep_hand_free(struct keep_hand *hand);

/*
 * Preserves pages [page, page + 2^order).
 * -EEXIST: this very block is preserved; -EBUSY: it overlaps with one of another order, or with
 * one that another thread preserves at this moment.
 */
int keep_preserve(struct keep_hand *hand, uint64_t page, unsigned int order);

/*
 * Takes that back.  -ENOENT: not preserved, or in blocks of smaller orders.  Lies in a block of
 * a larger order: with KEEP_SPLIT the rest of it becomes largest aligned blocks, else -EINVAL.
 * In an area smaller than keep_area_bytes() -ENOMEM is possible: what was collapsed needs
 * tables.
 */
int keep_unpreserve(struct keep_hand *hand, uint64_t page, unsigned int order,
		    unsigned int flags);

/*
 * Preserves pages [start, start + pages) at order 0, or with KEEP_LARGEST as the largest
 * aligned blocks.  All or nothing for its caller; others, and a crash, can see it half done.
 * -EEXIST, -EBUSY: as keep_preserve(), for some block of it; nothing was changed.
 * -ENOTRECOVERABLE: it failed and could not be undone, since other threads used up the table
 * pages; part of it is preserved.  Not in an area of keep_area_bytes().
 */
int keep_preserve_range(struct keep_hand *hand, uint64_t start, uint64_t pages,
			unsigned int flags);

/*
 * Takes out pages [start, start + pages), preserved at whatever orders.  -ENOENT: not all of it
 * is preserved.  A block reaches beyond the range: with KEEP_SPLIT what is outside stays, as
 * the largest aligned blocks, else -EINVAL.  Nothing was changed, except when other threads
 * take out pages of the range at the same time: then -ENOENT can come after part was done.
 */
int keep_unpreserve_range(struct keep_hand *hand, uint64_t start, uint64_t pages,
			  unsigned int flags);

/* The order at which the page is preserved (the largest, if there are two), or -ENOENT. */
int keep_find(struct keep_hand *hand, uint64_t page);

struct keep_run {
	uint64_t start, pages;
};

/* The first run of preserved pages at or after `from`, as long as it goes on.  -ENOENT: none.
 */
int keep_next_run(struct keep_hand *hand, uint64_t from, struct keep_run *ret);

/*
 * Calls fn for the runs of preserved pages within [start, start + pages), in order, neighbours
 * merged whatever their orders.  What others change meanwhile is seen or not.  Many threads:
 * each walks a part (best cut at multiples of keep_leaf_pages()); runs are cut where parts are.
 * Stops with what fn returns, if that is not 0.
 */
typedef int keep_run_fn(void *ctx, uint64_t start, uint64_t pages);
int keep_walk(struct keep_hand *hand, uint64_t start, uint64_t pages, keep_run_fn *fn,
	      void *ctx);

/* Pages under one table of bits at order 0. */
uint64_t keep_leaf_pages(const struct keep *keep);

/* Preserved pages in [start, start + pages), in time proportional to its tables. */
int keep_count(struct keep_hand *hand, uint64_t start, uint64_t pages, uint64_t *ret);

struct keep_stats {
	uint64_t blocks[KEEP_ORDERS]; /* preserved, by order */
	uint64_t pages;               /* in all of them */
	uint64_t tables;              /* table pages taken */
	uint64_t table_bytes;         /* the same in bytes; the header is not in it */
	uint64_t header_bytes;
	uint64_t ready_bytes; /* of the area, that were ever needed at once */
	uint64_t area_bytes;
};

int keep_stats(struct keep_hand *hand, struct keep_stats *ret);

/* What keep_validate() saw. */
struct keep_report {
	uint64_t tables, leaves; /* reached; leaves are among the tables */
	uint64_t collapsed;      /* descriptors that say FULL */
	uint64_t untidy;         /* tables that are empty or full and not released, or FROZEN */
	uint64_t leaked;         /* table pages taken but not reached */
	uint64_t overlaps;       /* runs that begin within a block of another order */
};

/*
 * Looks at all of a table that may come from anywhere.  -EBADMSG, with the place in the
 * message, when it is not as it must be: a table reached twice or in a circle, numbers outside
 * the area or in its header, bits beyond the end, a population that is not so, orders that
 * overlap, pages leaked or not released.  With KEEP_CRASHED only what a crash can leave is let
 * pass.  Time and private memory are bounded by the area's bytes.  No other thread or process
 * may change the table meanwhile; if one does, -EBADMSG can come without cause.
 */
int keep_validate(struct keep *keep, unsigned int flags, struct keep_report *ret,
		  struct err *e);

#endif
