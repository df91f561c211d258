/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The worker of a save: reads a span, finds its zero pages, gathers the others into chunks, compresses
 * and appends them.  A page is touched once, while it is in the cache.
 */
#ifndef TORPOR_API_PACK_H
#define TORPOR_API_PACK_H

#include <stdatomic.h>

#include "image/chunk.h"
#include "image/io.h"
#include "memory/source.h"

/* Pages without data behind the last chunk of a span. */
struct pack_run {
	enum image_run_kind kind;
	uint64_t pages;
};

/* Zero pages and holes alternate at most once for each piece. */
#define PACK_RUNS_MAX (2 * MEMORY_SPAN_PIECES + 2)

struct pack_job {
	struct memory_span span;
	uint64_t number;
	unsigned int n_runs, n_entries;
	struct pack_run runs[PACK_RUNS_MAX];
	struct image_entry entries[];
};

struct pack_worker;

/* What all workers share; read-only. */
struct pack_plan {
	struct image_sink sink;
	const struct codec *codec;
	int level;
	uint32_t chunk_bytes;
	unsigned int threads; /* as many workers as there may be */
	uint64_t id;
	_Atomic uint64_t *done_bytes; /* for the progress */
};

size_t pack_job_bytes(const struct pack_plan *plan);
int pack_worker_new(const struct pack_plan *plan, struct pack_worker **ret, struct err *e);
void pack_worker_free(struct pack_worker *w);

/* Packs job->span; fills in entries (complete) and runs. */
int pack_span(struct pack_worker *w, struct pack_job *job, struct err *e);

#endif
