/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where memory goes to.  Everything is built under hidden names beside the targets; commit
 * gives metadata and names to all of it, or, when something fails, to none.  A folder that
 * cannot be replaced, since it is a mount point, stays: what the image has in it is built and
 * named in it, and what else lies there is left alone.
 *
 * Pages are written by the fastest way the file allows (docs/design/load.md):
 *   tmpfs with huge pages   where most of one is data: mapped, populated 2 MiB at a time, decoded in place
 *   tmpfs                   UFFDIO_COPY into a mapping
 *   hugetlbfs               allocated, mapped and decoded in place
 *   anything else           pwrite(2); also whenever one of the above is refused
 */
#ifndef TORPOR_MEMORY_TARGET_H
#define TORPOR_MEMORY_TARGET_H

#include <stdbool.h>

#include "memory/item.h"

/* Pages of a file of which so many have data. */
struct memory_data {
	uint64_t item, first_page, pages, data_pages;
};

struct memory_target_opts {
	const char *to;      /* folder; NULL: where each root came from */
	bool force;          /* replace what is there */
	uint64_t data_bytes; /* that will be written, for a check of the room; 0: not known */
	bool has_image;      /* image_fd is what is loaded: it must not lie in what is replaced */
	int image_fd;
	struct memory_warnings *warnings;
	/*
	 * Tells where all data will be, in order: 1: *ret is the next; 0: no more; negative: an error.  Asked where it matters, before
	 * anything is made.  NULL: that is not known beforehand.
	 */
	int (*next_data)(void *ctx, struct memory_data *ret, struct err *e);
	void *data_ctx;
};

struct memory_target;
struct memory_target_file;

/*
 * Makes hidden folders and files for all items, which are borrowed.  Names must have been
 * checked: relative, no `..`, parents first.  -EEXIST, -EBUSY, -ENOSPC, with a message; nothing
 * is left then.
 */
int memory_target_new(const struct memory_items *items, const struct memory_target_opts *opts,
		      struct memory_target **ret, struct err *e);

/* Undoes what was not committed. */
void memory_target_free(struct memory_target *t);

/* Opens the file of an item; files under way are shared.  Any thread. */
int memory_target_open(struct memory_target *t, uint64_t item, struct memory_target_file **ret,
		       struct err *e);
void memory_target_close(struct memory_target *t, struct memory_target_file *file);

/*
 * Where `pages` pages may be decoded to in place, or NULL: then they have to be written.  Any
 * thread, on pages that nobody else writes.
 */
void *memory_target_place(struct memory_target_file *file, uint64_t first_page, uint64_t pages);

/* Writes pages, each of which must be new.  Any thread. */
int memory_target_write(struct memory_target_file *file, uint64_t first_page, uint64_t pages,
			const void *data, struct err *e);

/* Mode, owner, time; names.  Then the target is complete. */
int memory_target_commit(struct memory_target *t, struct err *e);

#endif
