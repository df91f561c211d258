/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where memory comes from: files and trees of files.  A scan lists what there is; then spans of
 * it are handed out in order, to be read by any thread.  Reading is by pread(2), never through a mapping:
 * it allocates no holes, and a file that shrinks is an error and not a signal.
 */
#ifndef TORPOR_MEMORY_SOURCE_H
#define TORPOR_MEMORY_SOURCE_H

#include <stdbool.h>

#include "memory/item.h"
#include "memory/view.h"

/* Data pages of a span at most, and pieces of data and holes that it falls into at most. */
#define MEMORY_SPAN_PAGES 512u
#define MEMORY_SPAN_PIECES 64u

struct memory_scan_opts {
	bool skip_special;
	struct memory_warnings *warnings; /* what was skipped; may be NULL */
};

/*
 * Lists the sources and all they hold: parents before what lies in them, the rest in the order of names.  -ENOTSUP for
 * sockets, fifos and devices, named, unless they are skipped; -EINVAL for two sources with one name.
 */
int memory_scan(const char *const *paths, size_t n, const struct memory_scan_opts *opts,
		struct memory_items *ret, struct err *e);

struct memory_source;
struct memory_source_file; /* an open file; counts its users */

struct memory_piece {
	bool hole;
	uint64_t pages;
	const uint8_t *at;    /* data that lies in memory and does not change; NULL: to be read */
	const uint64_t *zero; /* its pages that are known to be zero; NULL: not known */
	unsigned int zero_at; /* bit of the first page */
};

/* Consecutive pages of one file, from `first_page` on; pieces in order. */
struct memory_span {
	struct memory_source_file *file; /* NULL for a view */
	const struct memory_view *view;  /* NULL for files */
	uint32_t item;
	uint64_t first_page;
	unsigned int n_pieces;
	struct memory_piece pieces[MEMORY_SPAN_PIECES];
};

/*
 * Goes through the files of `items`, which is borrowed, as `warnings`, which may be NULL: what was written meanwhile is one, and
 * what became shorter, or another file, an error.
 */
int memory_source_new(const struct memory_items *items, struct memory_warnings *warnings, struct memory_source **ret,
		      struct err *e);

/* Goes through pages that somebody else holds; both are borrowed (see view.h). */
int memory_source_new_view(const struct memory_items *items, const struct memory_view *view,
			   struct memory_source **ret, struct err *e);
void memory_source_free(struct memory_source *s);

/* 1: *ret is the next span, to be released; 0: no more; -ESTALE, ...  One thread at a time. */
int memory_source_next(struct memory_source *s, struct memory_span *ret, struct err *e);

/* Reads pages; the last one of a file is filled up with zeros.  -ESTALE when the file has shrunk.  Any thread. */
int memory_span_read(const struct memory_span *span, uint64_t first_page, uint64_t pages, void *buf,
		     struct err *e);

/* The last one of a file looks whether it is still as long: -ESTALE.  Any thread. */
int memory_span_release(struct memory_span *span, struct err *e);

#endif
