/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inside of the copy, shared by its files; see copy.h. */
#ifndef TORPOR_LIVE_COPY_PRIV_H
#define TORPOR_LIVE_COPY_PRIV_H

#include "base/wait.h"
#include "live/arena.h"
#include "live/copy.h"
#include "os/busguard.h"

#define CELL_PAGES 512u

/* Consecutive pages of a file, at most 2 MiB, and where their copies lie.  Allocated once, never moved. */
struct cell {
	uint64_t first_page;
	unsigned int pages;
	uint8_t *at;
	/* Bit i is page first_page + i.  Two jobs may share a word, so bits are changed atomically. */
	_Atomic uint64_t zero[CELL_PAGES / 64];  /* was found to be zero: its copy does not count */
	_Atomic uint64_t stale[CELL_PAGES / 64]; /* not copied yet, or changed since */
	_Atomic uint64_t seen[CELL_PAGES / 64];  /* of passes, while they look at what changed */
};

struct copied_file {
	uint64_t dev, ino;
	int fd;
	uint8_t *map; /* NULL: it cannot be mapped and is read */
	uint64_t map_bytes;
	bool in_memory; /* on a file system that is memory */
	struct cell **cells; /* ascending, apart */
	size_t n_cells, cells_room;

	/* The last plan that it was in: where its extents and jobs begin, and how many. */
	uint64_t plan;
	size_t extent, job, n_extents, n_jobs;
	uint64_t planned_bytes, planned_pages; /* size and data that it found */
	bool quiet; /* set by passes, until the next plan: since before the last one it was changed through mappings only */
};

/* A part of a cell that is to be copied, one extent of the view. */
struct copy_job {
	struct copied_file *file;
	struct cell *cell;
	const struct memory_item *item;
	uint64_t first_page, pages;
};

/* Pages that could not be had. */
struct bad_pages {
	const struct copied_file *file;
	uint64_t first_page, pages;
};

/* Extents and jobs, as in the copy. */
struct copy_plan {
	struct memory_extent *extents;
	size_t extents_room;
	struct copy_job *jobs;
	size_t jobs_room;
};

struct live_copy {
	struct live_copy_opts opts;
	struct live_arena *arena;
	struct copied_file **files; /* by dev and ino */
	size_t n_files, files_room;

	const struct memory_items *items; /* of the last look */
	struct memory_extent *extents;
	size_t n_extents, extents_room;
	struct copy_job *jobs; /* of the extents with data, in their order */
	size_t n_jobs, jobs_room;
	struct copy_plan last; /* the one before */
	uint64_t plans;
	const struct copy_job **todo; /* jobs with anything to be copied */
	size_t n_todo, todo_room;
	size_t *groups; /* of them, what a thread takes at a time: where each begins */
	size_t n_groups, groups_room;
	struct memory_view view;

	struct wait_lock bad_lock;
	struct bad_pages *bad; /* while copying: under bad_lock */
	size_t n_bad;
	struct live_copy_counts counts;
	uint64_t expected; /* bytes */
	_Atomic uint64_t looked, copied; /* pages, while copying */
	bool prepared;
};

/* Makes room for one more in a growing array.  -ENOMEM. */
int copy_room(void **list, size_t n, size_t *room, size_t bytes);

/* The file of an item, opened and mapped as large as it is now. */
int copy_file_find(struct live_copy *c, const struct memory_items *items, uint64_t item, struct copied_file **ret,
		   struct err *e);
void copy_file_free(struct copied_file *f);

/* A file that is known already; NULL: it is not. */
struct copied_file *copy_file_known(const struct live_copy *c, uint64_t dev, uint64_t ino);

/* The first cell that ends behind `page`. */
size_t copy_cell_after(const struct copied_file *f, uint64_t page);

/* Lists all extents and jobs of `items`, with a cell for every page of data. */
int copy_plan(struct live_copy *c, const struct memory_items *items, struct err *e);

/* Copies what is stale of all jobs. */
int copy_run(struct live_copy *c, struct err *e);

#endif
