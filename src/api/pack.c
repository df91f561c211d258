// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The worker of a save; see pack.h.
 *
 * The buffer `raw` is a chunk and a step long.  Pages are read behind the data gathered so far, at most a step of
 * them at a time, so that they stay in the cache; zero pages are then squeezed out by moving what
 * follows down.  When a chunk is full it is compressed from where it lies, and gathering begins
 * at the front again.  Without zero pages nothing is ever moved.  Memory that cannot change (our own
 * copy) is not read at all: as long as what is gathered lies together, it is compressed from there.
 *
 *     raw:  | gathered .......... | just read: D D 0 0 D D D 0 D |
 *           ^                     ^ used
 */
#include "api/pack.h"

#include <stdlib.h>
#include <string.h>

#include "page/page.h"

/* Records go to the image together, in writes of at most about this size. */
#define OUT_BYTES KIB(640)

/* Pages are read in steps of at most this size. */
#define STEP_BYTES KIB(128)

/*
 * What a save may take (torpor.h says it): so much for each thread, and so much in all, of which a quarter is
 * kept for what is not a worker's.  Of a thread's share the rest is its stack and its part of the jobs.
 */
#define THREAD_BYTES MIB(4)
#define SHARED_BYTES MIB(48)
#define THREAD_REST_BYTES KIB(256)

struct pack_worker {
	const struct pack_plan *plan;
	struct codec_state *state;
	struct pack_job *job;
	uint8_t *raw, *out;
	const uint8_t *from; /* what is gathered: `raw`, or memory that lies elsewhere */
	size_t raw_used, out_used, step_bytes, out_bytes, record_max;
	unsigned int first_unplaced; /* entry whose record is the first in `out` */
	uint64_t chunk_page;         /* first page of the chunk being gathered */
	struct image_map map;
};

size_t pack_job_bytes(const struct pack_plan *plan)
{
	size_t pages_a_chunk = num_max(plan->chunk_bytes / MEMORY_PAGE_BYTES, 1);

	return sizeof(struct pack_job) +
	       (MEMORY_SPAN_PAGES / pages_a_chunk + 1) * sizeof(struct image_entry);
}

/*
 * A level that wants more memory than is promised gets smaller tables.  With few threads none has to: zstd takes
 * 17 MiB at most, for chunks of 1 MiB at level 22.
 */
static int limit_codec(struct pack_worker *w)
{
	const struct pack_plan *plan = w->plan;
	size_t held = plan->chunk_bytes + w->step_bytes + w->out_bytes + THREAD_REST_BYTES;

	if (!plan->codec->limit)
		return 0;
	return plan->codec->limit(w->state, plan->chunk_bytes,
				  THREAD_BYTES - held + SHARED_BYTES / num_max(plan->threads, 1));
}

int pack_worker_new(const struct pack_plan *plan, struct pack_worker **ret, struct err *e)
{
	struct pack_worker *w = calloc(1, sizeof(*w));
	int rc = -ENOMEM;

	if (w) {
		w->plan = plan;
		w->step_bytes = num_min(plan->chunk_bytes, STEP_BYTES);
		w->record_max = image_chunk_record_max(plan->chunk_bytes);
		w->out_bytes = num_max(OUT_BYTES, w->record_max);
		w->raw = aligned_alloc(64, plan->chunk_bytes + w->step_bytes);
		w->out = malloc(w->out_bytes);
		rc = w->raw && w->out ? plan->codec->state_new(plan->level, false, &w->state) : -ENOMEM;
		if (!rc)
			rc = limit_codec(w);
	}
	if (rc < 0) {
		pack_worker_free(w);
		return err_sys(e, rc, "cannot make a worker");
	}
	*ret = w;
	return 0;
}

void pack_worker_free(struct pack_worker *w)
{
	if (!w)
		return;
	w->plan->codec->state_free(w->state);
	free(w->raw);
	free(w->out);
	free(w);
}

/* Appends the records gathered in `out`, which gives their entries a place. */
static int flush(struct pack_worker *w, struct err *e)
{
	uint64_t offset;
	int rc;

	if (!w->out_used)
		return 0;
	rc = w->plan->sink.append(w->plan->sink.ctx, w->out, w->out_used, &offset, e);
	if (rc < 0)
		return rc;
	for (; w->first_unplaced < w->job->n_entries; w->first_unplaced++) {
		struct image_entry *entry = &w->job->entries[w->first_unplaced];

		entry->offset = offset;
		offset += entry->record_bytes;
	}
	w->out_used = 0;
	return 0;
}

/* Makes a chunk of what is gathered; goes on with the page behind it. */
static int emit(struct pack_worker *w, struct err *e)
{
	struct pack_job *job = w->job;
	struct image_chunk_spec spec = {
		.id = w->plan->id,
		/* A span has at most MEMORY_SPAN_PAGES + 1 chunks, fewer than 2^12. */
		.number = job->number << 12 | job->n_entries,
		.segment = job->span.item,
		.first_page = w->chunk_page,
		.map = &w->map,
		.raw = w->from,
		.raw_bytes = w->raw_used,
	};
	struct image_entry *entry = &job->entries[job->n_entries];

	image_map_close(&w->map);
	image_chunk_encode(&spec, w->plan->codec, w->state, w->out + w->out_used, entry);
	job->n_entries++;
	w->out_used += entry->record_bytes;
	w->chunk_page += entry->pages;
	w->from = w->raw;
	w->raw_used = 0;
	image_map_reset(&w->map);
	return w->out_bytes - w->out_used >= w->record_max ? 0 : flush(w, e);
}

/* Puts a run behind what is gathered, in `raw`. */
static void append(struct pack_worker *w, const uint8_t *at, size_t bytes)
{
	if (w->from != w->raw)
		memcpy(w->raw, w->from, w->raw_used);
	w->from = w->raw;
	if (at != w->raw + w->raw_used)
		memmove(w->raw + w->raw_used, at, bytes);
}

/*
 * Gathers a run of data pages.  They lie in `raw`, at or behind what is gathered, or, when `lies`, somewhere
 * else for long enough.
 */
static int gather(struct pack_worker *w, const uint8_t *at, uint64_t pages, bool lies, struct err *e)
{
	while (pages) {
		uint64_t n = num_min(pages, (w->plan->chunk_bytes - w->raw_used) / MEMORY_PAGE_BYTES);
		size_t bytes = n * MEMORY_PAGE_BYTES;
		int rc;

		if (lies && !w->raw_used)
			w->from = at;
		else if (!lies || at != w->from + w->raw_used)
			append(w, at, bytes);
		w->raw_used += bytes;
		image_map_add(&w->map, IMAGE_RUN_DATA, n);
		at += bytes;
		pages -= n;
		if (w->raw_used == w->plan->chunk_bytes) {
			rc = emit(w, e);
			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

/* Some pages of a piece, of which the zero ones are known. */
static int pack_known(struct pack_worker *w, const uint8_t *at, uint64_t pages, const uint64_t *zero,
		      unsigned int zero_at, bool lies, struct err *e)
{
	uint64_t i, run;
	int rc = 0;

	for (i = 0; i < pages && !rc; i += run) {
		bool is_zero = page_bitmap_test(zero, zero_at + i);

		for (run = 1; i + run < pages && page_bitmap_test(zero, zero_at + i + run) == is_zero; run++)
			;
		if (is_zero)
			image_map_add(&w->map, IMAGE_RUN_ZERO, run);
		else
			rc = gather(w, at + i * MEMORY_PAGE_BYTES, run, lies, e);
	}
	return rc;
}

/* At most a step's worth of pages, `from` pages into a piece. */
static int pack_pages(struct pack_worker *w, const struct memory_piece *piece, uint64_t page, uint64_t from,
		      uint64_t pages, struct err *e)
{
	uint64_t zero[(STEP_BYTES / MEMORY_PAGE_BYTES + 63) / 64];
	const uint8_t *at = piece->at ? piece->at + from * MEMORY_PAGE_BYTES : w->raw + w->raw_used;
	int rc = 0;

	if (!piece->at) {
		/* What lies elsewhere and what is read do not meet in a chunk but by way of `raw`. */
		append(w, w->raw + w->raw_used, 0);
		rc = memory_span_read(&w->job->span, page, pages, w->raw + w->raw_used, e);
	}
	if (rc < 0)
		return rc;
	if (piece->zero)
		return pack_known(w, at, pages, piece->zero, piece->zero_at + (unsigned int)from, piece->at, e);
	page_span_find_zero(at, pages, MEMORY_PAGE_BYTES, zero);
	return pack_known(w, at, pages, zero, 0, piece->at, e);
}

static void progress(struct pack_worker *w, uint64_t pages)
{
	atomic_fetch_add_explicit(w->plan->done_bytes, pages * MEMORY_PAGE_BYTES, memory_order_relaxed);
}

static int pack_piece(struct pack_worker *w, const struct memory_piece *piece, uint64_t page, struct err *e)
{
	uint64_t step = w->step_bytes / MEMORY_PAGE_BYTES, from, n;
	int rc;

	for (from = 0; from < piece->pages; from += n) {
		n = num_min(piece->pages - from, step);
		rc = pack_pages(w, piece, page + from, from, n, e);
		if (rc < 0)
			return rc;
		progress(w, n);
	}
	return 0;
}

/* What is left without data is reported as runs, for the writer to merge across spans. */
static int finish_span(struct pack_worker *w, struct err *e)
{
	struct pack_job *job = w->job;
	struct image_map_iter iter;
	struct image_run run;

	if (w->raw_used) {
		int rc = emit(w, e);

		if (rc < 0)
			return rc;
	}
	image_map_close(&w->map);
	iter = (struct image_map_iter){.at = w->map.bytes, .end = w->map.bytes + w->map.used};
	while (image_map_next(&iter, &run) > 0)
		job->runs[job->n_runs++] = (struct pack_run){run.kind, run.pages};
	return flush(w, e);
}

int pack_span(struct pack_worker *w, struct pack_job *job, struct err *e)
{
	uint64_t page = job->span.first_page;
	unsigned int i;
	int rc = 0;

	w->job = job;
	w->from = w->raw;
	w->raw_used = w->out_used = 0;
	w->first_unplaced = 0;
	w->chunk_page = page;
	image_map_reset(&w->map);
	job->n_entries = job->n_runs = 0;
	for (i = 0; i < job->span.n_pieces && !rc; i++) {
		const struct memory_piece *piece = &job->span.pieces[i];

		if (piece->hole) {
			image_map_add(&w->map, IMAGE_RUN_HOLE, piece->pages);
			progress(w, piece->pages);
		} else {
			rc = pack_piece(w, piece, page, e);
		}
		page += piece->pages;
	}
	return rc < 0 ? rc : finish_span(w, e);
}
