/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inside of copying in passes, shared by its files; see passes.h. */
#ifndef TORPOR_LIVE_PASSES_PRIV_H
#define TORPOR_LIVE_PASSES_PRIV_H

#include "live/copy-priv.h"
#include "live/passes.h"

/* What one reading of a pagemap covers: many pages, since a system call takes as long as some
 * hundreds of them. */
#define LOOK_PAGES 2048u

/* A shared mapping of a file of the copy. */
struct shared_map {
	uint64_t start, end, offset;
	struct copied_file *file;
};

struct shared_maps {
	struct shared_map *list; /* by address */
	size_t n, room;
};

/* A process, as it was when its bits were cleared. */
struct mapper {
	pid_t pid, tid; /* the thread through which it is seen */
	int pagemap;    /* bound to the memory that it had then */
	struct shared_maps maps;
	pid_t *children;
	size_t n_children;
	uint64_t waited_for; /* grows with children that ended */
	bool forgets;
};

/* A part of a mapping. */
struct look {
	int pagemap;
	uint64_t address;
	struct copied_file *file;
	uint64_t first_page;
	unsigned int pages;
	uint64_t present[LOOK_PAGES / 64]; /* when the bits were cleared */
};

struct live_passes {
	struct live_copy *copy;
	struct mapper *mappers;
	size_t n_mappers;
	struct look *looks;
	size_t n_looks, looks_room;
	uint64_t dropped; /* os_vmstat_dropped() */
	const char *lost; /* why nothing can be told of what changes; NULL: it can */
	int watch;
	int *watched; /* number of each of the files */
	struct copied_file **files;
	size_t n_files;
};

/* Looks at a process from here on: clears its bits, then notes all else.  -ESRCH it has ended.
 */
int passes_mapper_new(struct mapper *m, const struct live_copy *c, pid_t pid, struct err *e);
void passes_mapper_free(struct mapper *m);

/*
 * It stands still: what it has mapped or unmapped since becomes stale.  *ret_lost, if it is not
 * NULL then, says why the bits of the processes that there are do not tell all.
 */
int passes_mapper_compare(const struct mapper *m, const struct live_copy *c,
			  const char **ret_lost);

/* Reads which pages all mappings show. */
int passes_look_begin(struct live_passes *p, struct err *e);

/* Whatever is not known to be what it was becomes stale. */
int passes_look_again(struct live_passes *p, struct err *e);

/* Pages of a file, from `first` up to `end`, are stale. */
void passes_stale(struct copied_file *f, uint64_t first, uint64_t end);

#endif
