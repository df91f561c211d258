/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Images in memory: a sink that can run full at any byte, an input and a feed over bytes, and
 * one number for all that an image holds, taken through either reader.
 */
#ifndef TORPOR_TESTS_MEMORY_IMAGE_H
#define TORPOR_TESTS_MEMORY_IMAGE_H

#include <stdlib.h>
#include <xxhash.h>

#include "image/reader.h"
#include "image/stream.h"

struct memory_image {
	uint8_t *data;
	size_t used, room;
	size_t limit; /* no append beyond it: -ENOSPC */
	unsigned int flushes, flush_limit;
	size_t fed; /* by the feed */
};

#define MEMORY_IMAGE_NEW                                     \
	{                                                    \
		.limit = SIZE_MAX, .flush_limit = UINT32_MAX \
	}

static inline int memory_image_append(void *ctx, const void *data, size_t bytes,
				      uint64_t *ret_offset, struct err *e)
{
	struct memory_image *m = ctx;

	if (bytes > m->limit - m->used)
		return err_set(e, -ENOSPC, "memory image is full");
	if (m->room - m->used < bytes) {
		m->room = 2 * m->room + bytes;
		m->data = realloc(m->data, m->room);
		if (!m->data)
			abort();
	}
	memcpy(m->data + m->used, data, bytes);
	*ret_offset = m->used;
	m->used += bytes;
	return 0;
}

static inline int memory_image_flush(void *ctx, struct err *e)
{
	struct memory_image *m = ctx;

	return m->flushes++ < m->flush_limit ? 0
					     : err_set(e, -EIO, "memory image does not flush");
}

static inline struct image_sink memory_image_sink(struct memory_image *m)
{
	return (struct image_sink){m, memory_image_append, memory_image_flush};
}

static inline int memory_image_read_at(void *ctx, void *buf, size_t bytes, uint64_t offset,
				       struct err *e)
{
	const struct memory_image *m = ctx;

	if (offset > m->used || bytes > m->used - offset)
		return err_set(e, -EBADMSG, "image ends at offset %zu", m->used);
	if (bytes)
		memcpy(buf, m->data + offset, bytes);
	return 0;
}

static inline struct image_input memory_image_input(struct memory_image *m)
{
	return (struct image_input){m, m->used, memory_image_read_at};
}

static inline int memory_image_read(void *ctx, void *buf, size_t bytes, struct err *e)
{
	struct memory_image *m = ctx;
	int rc = memory_image_read_at(m, buf, bytes, m->fed, e);

	m->fed += rc ? 0 : bytes;
	return rc;
}

static inline struct image_feed memory_image_feed(struct memory_image *m)
{
	m->fed = 0;
	return (struct image_feed){m, memory_image_read};
}

/* ---- the number ---- */

static inline uint64_t content_mix(uint64_t segment, uint64_t kind, uint64_t salt)
{
	uint64_t in[3] = {segment, kind, salt};

	return XXH3_64bits(in, sizeof(in));
}

/*
 * Linear in the pages, so that it is no matter how runs are cut; data pages add their content.
 * `pages` times the mean page number may wrap, and that is the same for everybody.
 */
static inline uint64_t content_run(uint64_t segment, uint64_t kind, uint64_t first,
				   uint64_t pages)
{
	uint64_t last = first + pages - 1, sum;

	/* (first + last) * pages / 2 without losing the half. */
	sum = pages % 2 ? (first + (last - first) / 2) * pages : (first + last) * (pages / 2);
	return content_mix(segment, kind, 1) * pages + content_mix(segment, kind, 2) * sum;
}

static inline uint64_t content_page(uint64_t segment, uint64_t page, const void *data,
				    size_t bytes)
{
	return XXH3_64bits_withSeed(data, bytes, content_mix(segment, page, 3));
}

static inline uint64_t content_segment(uint64_t number, const struct image_segment *s)
{
	uint64_t fields[8] = {s->kind, s->bytes, s->page_bytes, s->huge_page_bytes,
			      s->mode, s->uid,   s->gid,        (uint64_t)s->mtime_ns};

	return XXH3_64bits_withSeed(fields, sizeof(fields), number) +
	       XXH3_64bits_withSeed(s->name, strlen(s->name), number + 1) +
	       XXH3_64bits_withSeed(s->origin, strlen(s->origin), number + 2) +
	       XXH3_64bits_withSeed(s->link, strlen(s->link), number + 3);
}

static inline uint64_t content_segments(const struct image_segments *segs)
{
	uint64_t i, sum = 0;

	for (i = 0; i < segs->count; i++)
		sum += content_segment(i, &segs->items[i]);
	return sum;
}

/* Parses and decodes a record, and adds what it holds. */
static inline int content_chunk(uint8_t *record, size_t bytes, uint64_t offset,
				const uint64_t *hash, const struct image_frame *frame,
				struct image_decoders *decoders, uint64_t *sum, struct err *e)
{
	CLEANUP_FREE uint8_t *raw = NULL;
	struct image_chunk chunk;
	struct image_map_iter iter;
	struct image_run run;
	const uint8_t *at;
	uint64_t i;
	int rc = image_chunk_parse(record, bytes, offset, frame, &chunk, e);

	if (!rc && hash && chunk.entry.hash != *hash)
		rc = err_set(e, -EBADMSG, "not the chunk of the index");
	if (rc)
		return rc;
	/* No byte more than it needs, for a sanitizer to see one. */
	at = raw = malloc(chunk.raw_bytes + !chunk.raw_bytes);
	rc = image_chunk_decode(&chunk, decoders, raw, e);
	if (rc)
		return rc;
	iter = (struct image_map_iter){.at = chunk.map, .end = chunk.map + chunk.map_bytes};
	while (image_map_next(&iter, &run) > 0) {
		uint64_t first = chunk.entry.first_page + run.first_page;

		*sum += content_run(chunk.entry.segment, run.kind, first, run.pages);
		for (i = 0; run.kind == IMAGE_RUN_DATA && i < run.pages; i++) {
			*sum += content_page(chunk.entry.segment, first + i, at,
					     chunk.seg->page_bytes);
			at += chunk.seg->page_bytes;
		}
	}
	return 0;
}

/* All of an image by its index. */
static inline int content_indexed(struct memory_image *m, uint64_t *ret, struct err *e)
{
	struct image_input input = memory_image_input(m);
	struct image_decoders decoders = {.made = {false}};
	struct image_cursor cursor = {.i = 0};
	struct image_entry entry;
	uint64_t sum;
	int rc = image_reader_open(&input, &cursor.reader, e);

	if (rc)
		return rc;
	sum = content_segments(image_reader_segments(cursor.reader));
	while ((rc = image_cursor_next(&cursor, &entry, e)) > 0) {
		CLEANUP_FREE uint8_t *record = malloc(entry.record_bytes);

		rc = memory_image_read_at(m, record, entry.record_bytes, entry.offset, e);
		if (!rc)
			rc = content_chunk(record, entry.record_bytes, entry.offset,
					   &entry.hash, image_reader_frame(cursor.reader),
					   &decoders, &sum, e);
		if (rc)
			break;
	}
	if (!rc)
		*ret = sum;
	image_decoders_free(&decoders);
	image_reader_free(cursor.reader);
	return rc;
}

/* All of an image in one pass. */
static inline int content_streamed(struct memory_image *m, uint64_t *ret, struct err *e)
{
	struct image_feed feed = memory_image_feed(m);
	struct image_decoders decoders = {.made = {false}};
	struct image_stream *stream;
	uint64_t sum, offset;
	size_t bytes;
	int rc = image_stream_open(&feed, &stream, e);

	if (rc)
		return rc;
	sum = content_segments(image_stream_segments(stream));
	while ((rc = image_stream_next(stream, &bytes, &offset, e)) > 0) {
		CLEANUP_FREE uint8_t *record = malloc(bytes);

		rc = image_stream_read(stream, record, e);
		if (!rc)
			rc = content_chunk(record, bytes, offset, NULL,
					   image_stream_frame(stream), &decoders, &sum, e);
		if (rc)
			break;
	}
	if (!rc)
		*ret = sum;
	image_decoders_free(&decoders);
	image_stream_free(stream);
	return rc;
}

#endif
