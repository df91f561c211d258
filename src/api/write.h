/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writing an image from a source of pages: what every save ends with, wherever its pages come from.
 */
#ifndef TORPOR_API_WRITE_H
#define TORPOR_API_WRITE_H

#include "api/context.h"
#include "api/pack.h"
#include "image/writer.h"

struct write_job {
	struct torpor *ctx;
	struct torpor_save_opts opts;
	struct memory_items *items;   /* borrowed, as the source */
	struct memory_source *source;
	uint64_t compatible;          /* feature bits of the image */
	struct err *e; /* the context's, unless that is in other hands when it is written */

	/* The rest is its own. */
	struct image_segment *segments;
	struct store *store;
	struct image_writer *writer;
	struct pack_plan plan;
	unsigned int threads;
	uint64_t jobs; /* taken */
	struct image_totals totals;
};

/* Takes the caller's options and checks them.  `image`: NULL with TORPOR_IMAGE_FD. */
int write_options(struct write_job *w, struct torpor *ctx, const struct torpor_save_opts *opts, const char *image);

/* Opens the place the image goes to. */
int write_open(struct write_job *w, const char *image);

/* Takes room for an image of about `memory_bytes` before anything stands still; too little is a warning. */
void write_reserve(struct write_job *w, uint64_t memory_bytes);

/* Writes all of the source, but does not commit: the source is not needed any more afterwards. */
int write_pages(struct write_job *w);

/* Makes the image be there. */
int write_commit(struct write_job *w);

/* Both, by a thread at idle CPU and I/O priority that this one waits for. */
int write_in_background(struct write_job *w);

void write_report(const struct write_job *w, struct torpor_report *report);

/* Frees all that is its own; the totals stay for the report.  May be called again. */
void write_cleanup(struct write_job *w);

#endif
