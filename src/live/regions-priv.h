/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The inside of the copy of regions, shared by its files; see regions.h.
 *
 * A region is cut where one mapping ends and the next begins (pieces), and these into cells of
 * 2 MiB at most.  Of a cell the pages that exist are known before any is read: reading one that
 * does not would make it.
 */
#ifndef TORPOR_LIVE_REGIONS_PRIV_H
#define TORPOR_LIVE_REGIONS_PRIV_H

#include <sys/types.h>

#include "base/wait.h"
#include "live/arena.h"
#include "live/regions.h"

#define CELL_PAGES 512u

/* A mapping, or what of it lies in a region. */
struct piece {
	uint8_t *at;
	uint64_t pages;
	uint32_t region;
	uint64_t first_page; /* in the region */
	bool private;        /* pages in its page tables exist, whatever its file has */
	bool file;           /* pages of its file exist; without one there are no others */
	uint64_t map_start, map_end; /* of the whole mapping */
	uint64_t offset;             /* in the file */
	dev_t dev;                   /* of the file, as the maps tell it */
	ino_t ino;
	int fd; /* the file; -1: it cannot be asked, and has all pages */
	bool owns_fd;
	/* Of the file, as it was looked at last: */
	uint64_t end; /* pages before its end */
	bool whole;   /* all of them exist, or it does not tell */
};

struct cell {
	const uint8_t *src;
	uint8_t *at; /* where it is copied to; NULL while it has no pages */
	size_t piece;
	uint32_t region;
	uint32_t pages;
	uint64_t first_page; /* in the region */
	/* Bit i is page i. */
	uint64_t there[CELL_PAGES / 64]; /* exists */
	uint64_t zero[CELL_PAGES / 64];  /* exists, is zero, and was not copied */
};

struct live_regions {
	struct live_copy_opts opts;
	struct piece *pieces; /* by region and address, as the cells are */
	size_t n_pieces;
	struct cell *cells;
	size_t n_cells;
	int pagemap; /* negative: what is private and exists is not known */

	struct live_arena *arena;
	struct wait_lock late;           /* for taking of the arena in the critical section */
	_Atomic uint64_t looked, copied; /* pages */

	struct memory_extent *extents;
	size_t n_extents;
	struct memory_view view;
};

/*
 * Finds the mappings that the regions consist of, and opens their files.  -EFAULT: part of a
 * region is not mapped, or cannot be read.
 */
int regions_map_find(struct live_regions *r, const struct live_region *regions, size_t n,
		     struct err *e);

/* Looks at the files: how long they are, and whether they have holes. */
void regions_map_look(struct live_regions *r);

/* Finds out which pages of a cell exist, files having been looked at.  Any thread. */
void regions_map_look_cell(const struct live_regions *r, struct cell *cell);

/* Closes what was opened. */
void regions_map_close(struct live_regions *r);

#endif
