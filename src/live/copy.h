/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The copy of the critical section: pages of files, as they are at one moment, in memory of our own.  All that can
 * be done before is done in live_copy_new(); live_copy_take() runs while the owners of the memory stand still.
 * Knows files and pages, no processes.
 */
#ifndef TORPOR_LIVE_COPY_H
#define TORPOR_LIVE_COPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory/item.h"
#include "memory/view.h"

struct live_copy_opts {
	unsigned int threads;
	bool no_zero_check;    /* copy zero pages too, and leave finding them to whoever packs */
	bool skip_unreadable;  /* pages that cannot be read become holes, with a warning */
	struct memory_warnings *warnings;
	const atomic_bool *cancel;
	/* Copies a span and finds its zero pages, as page_span_copy_find_zero(), which is what NULL means: benchmarks put rivals here. */
	size_t (*copy_span)(void *dst, const void *src, size_t pages, size_t page_bytes, uint64_t *ret_zero);
};

/* What the last live_copy_take() did, in bytes of whole pages; and what passes did before. */
struct live_copy_counts {
	uint64_t looked;     /* data that was looked at in the critical section */
	uint64_t copied;     /* of it, copied */
	uint64_t precopied;  /* copied by passes, again and again where it changed */
	uint64_t unreadable;
	uint64_t late;       /* memory that was not there when the copy was prepared */
};

struct live_copy;

/*
 * Prepares for the files among `items`: opens and maps them, and allocates and populates memory for all
 * their data.  -ENOMEM when the copy does not fit into available memory, with both figures.
 */
int live_copy_new(const struct memory_items *items, const struct live_copy_opts *opts, struct live_copy **ret,
		  struct err *e);

/* Copies, while their owners run, what was not copied yet or was marked since: see passes.h. */
int live_copy_pass(struct live_copy *c, const struct memory_items *items, struct err *e);

/*
 * Copies the files of `items`, which is the list as it is now, borrowed until the end: files are known again by device and inode, others are
 * new.  -EIO pages could not be read: named; -ECANCELED.
 */
int live_copy_take(struct live_copy *c, const struct memory_items *items, struct err *e);

/* -ESTALE a file was written by somebody since live_copy_take() began: its modification time says so. */
int live_copy_check(struct live_copy *c, struct err *e);

/* What was copied, to be read by memory_source_new_view(); read pages are given back to the system. */
const struct memory_view *live_copy_view(const struct live_copy *c);

/* Data that there was when the copy was prepared, in bytes of whole pages. */
uint64_t live_copy_expected(const struct live_copy *c);

void live_copy_counts(const struct live_copy *c, struct live_copy_counts *ret);
void live_copy_free(struct live_copy *c);

#endif
