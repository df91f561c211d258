// SPDX-License-Identifier: LGPL-2.1-or-later
/* The worker of a load; see unpack.h. */
#include "api/unpack.h"

#include <stdlib.h>

size_t unpack_in_bytes(uint32_t chunk_bytes)
{
	return UNPACK_BYTES + image_chunk_record_max(chunk_bytes);
}

int unpack_worker_new(uint32_t chunk_bytes, struct unpack_worker **ret, struct err *e)
{
	struct unpack_worker *w = calloc(1, sizeof(*w));

	if (w) {
		w->in = malloc(unpack_in_bytes(chunk_bytes));
		/* Pages are handed to the kernel from here: whole ones, aligned. */
		w->raw = aligned_alloc(IMAGE_PAGE_MIN_BYTES, chunk_bytes);
	}
	if (!w || !w->in || !w->raw) {
		unpack_worker_free(w);
		return err_sys(e, -ENOMEM, "cannot make a worker");
	}
	*ret = w;
	return 0;
}

void unpack_worker_free(struct unpack_worker *w)
{
	if (!w)
		return;
	image_decoders_free(&w->decoders);
	free(w->in);
	free(w->raw);
	free(w);
}

/* Writes each run of data pages where it belongs. */
static int scatter(const struct image_chunk *chunk, const uint8_t *raw, struct memory_target_file *file,
		   struct err *e)
{
	struct image_map_iter iter = {.at = chunk->map, .end = chunk->map + chunk->map_bytes};
	struct image_run run;
	int rc = 0;

	while (!rc && image_map_next(&iter, &run) > 0) {
		if (run.kind != IMAGE_RUN_DATA)
			continue;
		rc = memory_target_write(file, chunk->entry.first_page + run.first_page, run.pages, raw, e);
		raw += run.pages * chunk->seg->page_bytes;
	}
	return rc;
}

/* The place for all of a chunk's data, when that is one run and can be decoded in place. */
static void *place(const struct image_chunk *chunk, struct memory_target_file *file)
{
	if (chunk->entry.data_pages != chunk->entry.pages)
		return NULL;
	return memory_target_place(file, chunk->entry.first_page, chunk->entry.pages);
}

static int unpack(struct unpack_plan *plan, struct unpack_worker *w, const struct image_chunk *chunk,
		  struct err *e)
{
	struct memory_target_file *file = NULL;
	void *in_place = NULL;
	int rc = 0;

	if (!chunk->raw_bytes)
		return 0;
	if (plan->target) {
		rc = memory_target_open(plan->target, chunk->entry.segment, &file, e);
		if (rc < 0)
			return rc;
		in_place = place(chunk, file);
	}
	rc = image_chunk_decode(chunk, &w->decoders, in_place ? in_place : w->raw, e);
	if (!rc && plan->target && !in_place)
		rc = scatter(chunk, w->raw, file, e);
	if (file)
		memory_target_close(plan->target, file);
	return rc;
}

int unpack_records(struct unpack_plan *plan, struct unpack_worker *w, const struct unpack_job *job,
		   struct err *e)
{
	struct image_chunk chunk;
	unsigned int i;

	for (i = 0; i < job->n_records; i++) {
		const struct unpack_record *record = &job->records[i];
		int rc = image_chunk_parse(w->in + record->at, record->bytes, record->offset, plan->frame,
					   &chunk, e);

		/* The index tiles every segment; so do the chunks when each is the one that the index tells of. */
		if (!rc && job->indexed && !image_entry_same(&record->told, &chunk.entry))
			rc = image_chunk_wrap(&chunk, err_set(e, -EBADMSG, "it is not the one that the index tells of"), e);
		if (!rc)
			rc = unpack(plan, w, &chunk, e);
		if (rc < 0)
			return rc;
		atomic_fetch_add_explicit(plan->done_bytes, chunk.entry.pages * chunk.seg->page_bytes,
					  memory_order_relaxed);
	}
	return 0;
}
