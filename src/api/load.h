/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What load and verify share: an image at random or in one pass, through the pipeline, to a target or nowhere.
 */
#ifndef TORPOR_API_LOAD_H
#define TORPOR_API_LOAD_H

#include "api/context.h"
#include "api/readahead.h"
#include "api/unpack.h"
#include "image/reader.h"
#include "image/stream.h"

struct load {
	struct torpor *ctx;
	struct torpor_load_opts opts;
	unsigned int threads;

	/* The image: either is set. */
	struct store_input in;
	struct image_reader *reader;
	struct image_stream *stream;
	struct glue_feed feed;
	int fd; /* that was opened here for a stream, or -1 */

	/* Going through the index. */
	struct image_cursor cursor;
	struct image_entry held; /* taken from the cursor, not in a job yet */
	bool have_held, end;
	struct readahead ahead;

	struct unpack_plan plan;
	int guard;
	struct torpor_report report;
	struct image_totals totals;
};

/* Checks options, and the size of the result, and opens the image: from a pipe, or `in_one_pass`, as a stream. */
int load_open(struct load *l, const char *image, const struct torpor_load_opts *opts,
	      const struct torpor_report *ret_report, bool in_one_pass);

/* Segments of the image that is open. */
const struct image_segments *load_segments(const struct load *l);

/* Decodes everything, under the latency guard. */
int load_run(struct load *l);

/* Fills in the report; frees.  Returns `rc`. */
int load_close(struct load *l, int rc, uint64_t wall_ns, uint64_t cpu_ns,
	       struct torpor_report *ret_report);

#endif
