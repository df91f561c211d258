// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The worker of a save; see pack.h.
 *
 * The buffer `raw` is two chunks long.  Pages are read behind the data gathered so far, at most a chunk of
 * them at a time, so that they stay in the cache; zero pages are then squeezed out by moving what
 * follows down.  When a chunk is full it is compressed from where it lies, and gathering begins
 * at the front again.  Without zero pages nothing is ever moved.
 *
 *     raw:  | gathered .......... | just read: D D 0 0 D D D 0 D |
 *           ^                     ^ used
 */
#include "api/pack.h"

#include <stdlib.h>

#include "page/page.h"

/* Records go to the image together, in writes of about this size. */
#define OUT_BYTES KIB(512)

struct pack_worker {
	const struct pack_plan *plan;
	struct codec_state *state;
	struct pack_job *job;
	uint8_t *raw, *out;
	size_t raw_used, out_used;
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

int pack_worker_new(const struct pack_plan *plan, struct pack_worker **ret, struct err *e)
{
	struct pack_worker *w = calloc(1, sizeof(*w));
	int rc = -ENOMEM;

	if (w) {
		w->plan = plan;
		w->raw = aligned_alloc(64, 2 * (size_t)plan->chunk_bytes);
		w->out = malloc(OUT_BYTES + image_chunk_record_max(plan->chunk_bytes));
		rc = w->raw && w->out ? plan->codec->state_new(plan->level, false, &w->state) : -ENOMEM;
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
		.raw = w->raw,
		.raw_bytes = w->raw_used,
	};
	struct image_entry *entry = &job->entries[job->n_entries];

	image_map_close(&w->map);
	image_chunk_encode(&spec, w->plan->codec, w->state, w->out + w->out_used, entry);
	job->n_entries++;
	w->out_used += entry->record_bytes;
	w->chunk_page += entry->pages;
	w->raw_used = 0;
	image_map_reset(&w->map);
	return w->out_used < OUT_BYTES ? 0 : flush(w, e);
}

/* Gathers a run of data pages that lie at `at`, in `raw`, at or behind what is gathered. */
static int gather(struct pack_worker *w, const uint8_t *at, uint64_t pages, struct err *e)
{
	while (pages) {
		uint64_t n = num_min(pages, (w->plan->chunk_bytes - w->raw_used) / MEMORY_PAGE_BYTES);
		size_t bytes = n * MEMORY_PAGE_BYTES;
		int rc;

		if (at != w->raw + w->raw_used)
			memmove(w->raw + w->raw_used, at, bytes);
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

/* One reading: at most a chunk's worth of pages. */
static int pack_pages(struct pack_worker *w, uint64_t first_page, uint64_t pages, struct err *e)
{
	uint64_t zero[IMAGE_CHUNK_MAX_BYTES / MEMORY_PAGE_BYTES / 64];
	const uint8_t *at = w->raw + w->raw_used;
	uint64_t i, run;
	int rc = memory_span_read(&w->job->span, first_page, pages, w->raw + w->raw_used, e);

	if (rc < 0)
		return rc;
	page_span_find_zero(at, pages, MEMORY_PAGE_BYTES, zero);
	for (i = 0; i < pages; i += run) {
		bool is_zero = page_bitmap_test(zero, i);

		for (run = 1; i + run < pages && page_bitmap_test(zero, i + run) == is_zero; run++)
			;
		if (is_zero)
			image_map_add(&w->map, IMAGE_RUN_ZERO, run);
		else
			rc = gather(w, at + i * MEMORY_PAGE_BYTES, run, e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static void progress(struct pack_worker *w, uint64_t pages)
{
	atomic_fetch_add_explicit(w->plan->done_bytes, pages * MEMORY_PAGE_BYTES, memory_order_relaxed);
}

static int pack_piece(struct pack_worker *w, uint64_t page, uint64_t pages, struct err *e)
{
	uint64_t step = w->plan->chunk_bytes / MEMORY_PAGE_BYTES, n;
	int rc;

	for (; pages; pages -= n, page += n) {
		n = num_min(pages, step);
		rc = pack_pages(w, page, n, e);
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
			rc = pack_piece(w, page, piece->pages, e);
		}
		page += piece->pages;
	}
	return rc < 0 ? rc : finish_span(w, e);
}
