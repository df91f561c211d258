// SPDX-License-Identifier: LGPL-2.1-or-later
/* Looking into an image without restoring it: torpor_image_*(). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/context.h"
#include "image/reader.h"

struct torpor_image {
	struct torpor *ctx;
	struct store_input in;
	struct image_reader *reader;
	struct image_decoders decoders;
	/* The chunk decoded last, so that reading on in small steps decodes it once. */
	uint8_t *record, *raw;
	struct image_chunk chunk;
	bool have_chunk;
	/* Where its map was left, so that reading on goes through it once. */
	struct image_map_iter iter;
	struct image_run run;
	uint64_t data_before; /* pages of data before the run */
};

API int torpor_image_open(struct torpor *ctx, const char *path, uint32_t flags,
			  struct torpor_image **ret_image)
{
	struct torpor_image *image = calloc(1, sizeof(*image));
	struct image_input input;
	int rc = image ? 0 : -ENOMEM;

	context_begin(ctx);
	if (rc < 0)
		return err_sys(&ctx->e, rc, "cannot open %s", path);
	image->ctx = ctx;
	image->in.fd = -1;
	if (flags)
		rc = err_set(&ctx->e, -EINVAL, "no flags are known");
	if (!rc)
		rc = store_input_open(path, &image->in, &ctx->e);
	if (!rc) {
		input = glue_input(&image->in);
		rc = image_reader_open(&input, &image->reader, &ctx->e);
		if (rc < 0)
			err_wrap(&ctx->e, rc, "cannot open %s", path);
	}
	if (rc < 0) {
		torpor_image_close(image);
		return rc;
	}
	*ret_image = image;
	return 0;
}

API void torpor_image_close(struct torpor_image *image)
{
	if (!image)
		return;
	image_decoders_free(&image->decoders);
	image_reader_free(image->reader);
	store_input_close(&image->in);
	free(image->record);
	free(image->raw);
	free(image);
}

API int torpor_image_info(struct torpor_image *image, struct torpor_image_info *ret_info)
{
	const struct image_header *h = image_reader_header(image->reader);
	const struct image_totals *t = image_reader_totals(image->reader);
	struct torpor_image_info info = {
		.version = h->version,
		.chunk_bytes = h->chunk_bytes,
		.incompatible = h->incompatible,
		.compatible = h->compatible,
		.id = h->id,
		.created_ns = h->created_ns,
		.segments = t->segments,
		.chunks = t->chunks,
		.data_bytes = t->data_bytes,
		.zero_bytes = t->zero_bytes,
		.hole_bytes = t->hole_bytes,
		.unpreserved_bytes = t->unpreserved_bytes,
		.stored_bytes = t->stored_bytes,
		.image_bytes = t->image_bytes,
	};

	snprintf(info.codec, sizeof(info.codec), "%.15s", h->codec);
	return options_give(ret_info, &info, sizeof(info), &image->ctx->e);
}

static int no_segment(struct torpor_image *image, uint64_t i)
{
	if (i < image_reader_segments(image->reader)->count)
		return 0;
	return err_set(&image->ctx->e, -ENOENT, "the image has no segment number %" PRIu64, i);
}

API int torpor_image_segment(struct torpor_image *image, uint64_t i,
			     struct torpor_segment_info *ret_info)
{
	const struct image_segment *seg;
	struct torpor_segment_info info;
	int rc = no_segment(image, i);

	if (rc < 0)
		return rc;
	seg = &image_reader_segments(image->reader)->items[i];
	info = (struct torpor_segment_info){
		.kind = seg->kind,
		.mode = seg->mode,
		.uid = seg->uid,
		.gid = seg->gid,
		.bytes = seg->bytes,
		.page_bytes = seg->page_bytes,
		.huge_page_bytes = seg->huge_page_bytes,
		.mtime_ns = seg->mtime_ns,
		.name = seg->name,
		.origin = seg->origin,
		.link = seg->link,
	};
	return options_give(ret_info, &info, sizeof(info), &image->ctx->e);
}

API int torpor_image_find(struct torpor_image *image, const char *name, uint64_t *ret_i)
{
	if (image_segments_find(image_reader_segments(image->reader), name, strlen(name), ret_i) == 0)
		return 0;
	return err_set(&image->ctx->e, -ENOENT, "the image has no segment \"%s\"", name);
}

/* Decodes the chunk that holds a page, unless it is the one at hand. */
static int decode_page(struct torpor_image *image, uint32_t segment, uint64_t page)
{
	struct image_chunk *chunk = &image->chunk;
	struct err *e = &image->ctx->e;
	uint32_t chunk_bytes = image_reader_header(image->reader)->chunk_bytes;
	struct image_entry entry;
	int rc;

	if (image->have_chunk && chunk->entry.segment == segment && page >= chunk->entry.first_page &&
	    page - chunk->entry.first_page < chunk->entry.pages)
		return 0;
	image->have_chunk = false;
	image->iter.at = NULL;
	if (!image->record)
		image->record = malloc(image_chunk_record_max(chunk_bytes));
	if (!image->raw)
		image->raw = malloc(chunk_bytes);
	if (!image->record || !image->raw)
		return err_sys(e, -ENOMEM, "cannot read a chunk");
	rc = image_reader_find(image->reader, segment, page, &entry, e);
	if (!rc)
		rc = store_input_read(&image->in, image->record, entry.record_bytes, entry.offset, e);
	if (!rc)
		rc = image_chunk_parse(image->record, entry.record_bytes, entry.offset,
				       image_reader_frame(image->reader), chunk, e);
	if (!rc && !image_entry_same(&entry, &chunk->entry))
		rc = image_chunk_wrap(chunk, err_set(e, -EBADMSG, "it is not the one that the index tells of"), e);
	if (!rc)
		rc = image_chunk_decode(chunk, &image->decoders, image->raw, e);
	image->have_chunk = !rc;
	return rc;
}

/* Goes to the run that holds a page of the chunk at hand, counted from its first. */
static void seek_run(struct torpor_image *image, uint64_t page)
{
	const struct image_chunk *chunk = &image->chunk;

	if (!image->iter.at || page < image->run.first_page) {
		image->iter = (struct image_map_iter){.at = chunk->map, .end = chunk->map + chunk->map_bytes};
		image->run = (struct image_run){.pages = 0};
		image->data_before = 0;
	}
	while (page - image->run.first_page >= image->run.pages) {
		if (image->run.kind == IMAGE_RUN_DATA)
			image->data_before += image->run.pages;
		if (image_map_next(&image->iter, &image->run) <= 0)
			return;
	}
}

/*
 * Copies from the run of the chunk at hand that holds `page`: at most `bytes`, from `within` the page
 * on.  Returns how many.
 */
static size_t copy_run(struct torpor_image *image, uint64_t page, size_t within, void *buf, size_t bytes)
{
	const struct image_chunk *chunk = &image->chunk;
	const struct image_run *run = &image->run;
	uint64_t relative = page - chunk->entry.first_page, in_run, n;

	seek_run(image, relative);
	in_run = relative - run->first_page;
	/* A run may be longer than any buffer: no multiplication before the comparison. */
	n = run->pages - in_run > bytes / chunk->seg->page_bytes + 1
		    ? bytes
		    : num_min(bytes, (run->pages - in_run) * chunk->seg->page_bytes - within);
	if (run->kind == IMAGE_RUN_DATA)
		memcpy(buf, image->raw + (image->data_before + in_run) * chunk->seg->page_bytes + within, n);
	else
		memset(buf, 0, n);
	return n;
}

API int torpor_image_read(struct torpor_image *image, uint64_t i, uint64_t offset, void *buf,
			  size_t bytes)
{
	const struct image_segment *seg;
	uint8_t *at = buf;
	size_t n;
	int rc = no_segment(image, i);

	if (rc < 0)
		return rc;
	seg = &image_reader_segments(image->reader)->items[i];
	if (offset > seg->bytes || bytes > seg->bytes - offset)
		return err_set(&image->ctx->e, -ERANGE,
			       "segment \"%s\" ends at offset %" PRIu64, seg->name, seg->bytes);
	for (; bytes; bytes -= n, offset += n, at += n) {
		rc = decode_page(image, (uint32_t)i, offset / seg->page_bytes);
		if (rc < 0)
			return rc;
		n = copy_run(image, offset / seg->page_bytes, offset % seg->page_bytes, at, bytes);
	}
	return 0;
}
