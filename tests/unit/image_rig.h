/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Images made from a few words: each segment is a name and a map such as "d3 z2
 * h1099511627776", and the content of a data page follows from its place.  What such an image
 * must read as is computed from the words, never from the image.
 */
#ifndef TORPOR_TESTS_IMAGE_RIG_H
#define TORPOR_TESTS_IMAGE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "../memory_image.h"
#include "../pattern.h"
#include "../reseal.h"
#include "image/writer.h"

#define RIG_PAGE 4096u

struct rig_segment {
	const char *name;
	const char *map;     /* NULL: a folder */
	uint64_t less_bytes; /* the last page is short by this much */
	const char *link;    /* a symlink */
};

struct rig_model {
	const struct rig_segment *segs;
	uint64_t n;
	uint32_t chunk_bytes;
	const char *codec;
};

static inline bool rig_next_run(const char **map, enum image_run_kind *kind, uint64_t *pages)
{
	char *end;

	while (**map == ' ')
		++*map;
	if (!**map)
		return false;
	*kind = **map == 'd'   ? IMAGE_RUN_DATA
		: **map == 'z' ? IMAGE_RUN_ZERO
		: **map == 'h' ? IMAGE_RUN_HOLE
			       : IMAGE_RUN_UNPRESERVED;
	*pages = strtoull(*map + 1, &end, 10);
	*map = end;
	return true;
}

static inline struct image_segment rig_describe(const struct rig_segment *s)
{
	struct image_segment seg = {
		.kind = s->link  ? IMAGE_KIND_SYMLINK
			: s->map ? IMAGE_KIND_FILE
				 : IMAGE_KIND_DIRECTORY,
		.page_bytes = RIG_PAGE,
		.mode = s->map ? 0640 : 0755,
		.uid = 1000,
		.gid = 100,
		.mtime_ns = 1234567890123456789,
		.name = (char *)(uintptr_t)s->name,
		.origin = (char *)(uintptr_t)(strchr(s->name, '/') ? "" : "/dev/shm/origin"),
		.link = (char *)(uintptr_t)(s->link ? s->link : ""),
	};
	enum image_run_kind kind;
	const char *map = s->map;
	uint64_t pages;

	while (map && !s->link && rig_next_run(&map, &kind, &pages))
		seg.bytes += pages * RIG_PAGE;
	seg.bytes -= s->less_bytes;
	return seg;
}

/* Page `page` of a segment; zero beyond the segment's end. */
static inline void rig_page(const struct image_segment *seg, uint64_t number, uint64_t page,
			    uint8_t *at)
{
	uint64_t over =
		(page + 1) * RIG_PAGE > seg->bytes ? (page + 1) * RIG_PAGE - seg->bytes : 0;

	pattern_fill(at, RIG_PAGE, page % 3 ? PATTERN_TEXT : PATTERN_NOISE,
		     number * 1000003 + page);
	memset(at + RIG_PAGE - over, 0, over);
}

static inline uint64_t rig_content(const struct rig_model *model)
{
	uint8_t buf[RIG_PAGE];
	enum image_run_kind kind;
	uint64_t i, j, sum = 0, pages, page;

	for (i = 0; i < model->n; i++) {
		struct image_segment seg = rig_describe(&model->segs[i]);
		const char *map = seg.bytes ? model->segs[i].map : "";

		sum += content_segment(i, &seg);
		for (page = 0; rig_next_run(&map, &kind, &pages); page += pages) {
			sum += content_run(i, kind, page, pages);
			for (j = 0; kind == IMAGE_RUN_DATA && j < pages; j++) {
				rig_page(&seg, i, page + j, buf);
				sum += content_page(i, page + j, buf, RIG_PAGE);
			}
		}
	}
	return sum;
}

struct rig_writer {
	struct image_sink sink;
	struct image_writer *w;
	const struct rig_model *model;
	const struct codec *codec;
	struct codec_state *state;
	uint64_t number;
	uint8_t *raw, *record;
	struct image_map map;
};

static inline int rig_put_chunk(struct rig_writer *rw, uint32_t segment, uint64_t first,
				size_t raw_bytes, struct err *e)
{
	struct image_chunk_spec spec = {.id = image_writer_header(rw->w)->id,
					.number = rw->number++,
					.segment = segment,
					.first_page = first,
					.map = &rw->map,
					.raw = rw->raw,
					.raw_bytes = raw_bytes};
	struct image_entry entry;
	int rc;

	image_map_close(&rw->map);
	image_chunk_encode(&spec, rw->codec, rw->state, rw->record, &entry);
	rc = rw->sink.append(rw->sink.ctx, rw->record, entry.record_bytes, &entry.offset, e);
	return rc ? rc : image_writer_chunk(rw->w, &entry, e);
}

/* Data goes into chunks as it comes, with what stands between in their maps; the rest is runs.
 */
static inline int rig_put_segment(struct rig_writer *rw, uint32_t number, struct err *e)
{
	struct image_segment seg = rig_describe(&rw->model->segs[number]);
	const char *map = seg.bytes ? rw->model->segs[number].map : "", *ahead;
	uint64_t page = 0, first = 0, pages, j, unused;
	enum image_run_kind kind, next = IMAGE_RUN_HOLE;
	size_t used = 0;
	int rc = 0;

	image_map_reset(&rw->map);
	while (!rc && rig_next_run(&map, &kind, &pages)) {
		ahead = map;
		for (j = 0; !rc && kind == IMAGE_RUN_DATA && j < pages; j++) {
			if (!image_map_pages(&rw->map))
				first = page + j;
			rig_page(&seg, number, page + j, rw->raw + used);
			used += RIG_PAGE;
			image_map_add(&rw->map, kind, 1);
			if (used == rw->model->chunk_bytes || (j + 1 == pages && !*ahead)) {
				rc = rig_put_chunk(rw, number, first, used, e);
				image_map_reset(&rw->map);
				used = 0;
			}
		}
		if (kind != IMAGE_RUN_DATA) {
			bool more = rig_next_run(&ahead, &next, &unused);

			if (used && more && next == IMAGE_RUN_DATA) {
				image_map_add(&rw->map, kind, pages);
			} else {
				if (used)
					rc = rig_put_chunk(rw, number, first, used, e);
				image_map_reset(&rw->map);
				used = 0;
				if (!rc)
					rc = image_writer_run(rw->w, number, page, pages, kind,
							      e);
			}
		}
		page += pages;
	}
	return rc;
}

/* Writes the image; what the sink gives is what comes back. */
static inline int rig_write(struct memory_image *m, const struct rig_model *model,
			    struct err *e)
{
	struct image_header header = {
		.id = 0x1122334455667788, .created_ns = 1, .chunk_bytes = model->chunk_bytes};
	CLEANUP_FREE struct image_segment *segs = calloc(model->n + 1, sizeof(*segs));
	struct rig_writer rw = {.sink = memory_image_sink(m), .model = model};
	struct image_totals totals;
	uint64_t i;
	int rc;

	snprintf(header.codec, sizeof(header.codec), "%s", model->codec);
	assert_int_equal(codec_by_name(model->codec, &rw.codec, NULL), 0);
	assert_int_equal(rw.codec->state_new(1, false, &rw.state), 0);
	rw.raw = malloc(model->chunk_bytes);
	rw.record = malloc(image_chunk_record_max(model->chunk_bytes));
	for (i = 0; i < model->n; i++)
		segs[i] = rig_describe(&model->segs[i]);
	rc = image_writer_new(&rw.sink, &header, segs, model->n, &rw.w, e);
	for (i = 0; i < model->n && !rc; i++)
		rc = rig_put_segment(&rw, (uint32_t)i, e);
	if (!rc)
		rc = image_writer_finish(rw.w, &totals, e);
	if (!rc)
		assert_int_equal(totals.image_bytes, m->used);
	if (rw.w)
		image_writer_free(rw.w);
	rw.codec->state_free(rw.state);
	free(rw.raw);
	free(rw.record);
	return rc;
}

/* Exactly as long as it is, so that a sanitizer sees a read beyond. */
static inline struct memory_image rig_copy(const struct memory_image *m, size_t bytes)
{
	struct memory_image copy = MEMORY_IMAGE_NEW;

	copy.data = malloc(bytes ? bytes : 1);
	memcpy(copy.data, m->data, bytes);
	copy.used = copy.room = bytes;
	return copy;
}

/* The two readers agree with the model. */
static inline void rig_expect_good(struct memory_image *m, const struct rig_model *model)
{
	struct err e = {.text = ""};
	uint64_t got = 0, want = rig_content(model);

	if (content_indexed(m, &got, &e))
		fail_msg("indexed: %s", e.text);
	assert_true(got == want);
	got = 0;
	if (content_streamed(m, &got, &e))
		fail_msg("streamed: %s", e.text);
	assert_true(got == want);
}

#define RIG_MODEL(segments, chunk, codec_name)                                        \
	(struct rig_model)                                                            \
	{                                                                             \
		.segs = (segments), .n = ARRAY_LEN(segments), .chunk_bytes = (chunk), \
		.codec = (codec_name)                                                 \
	}

/* Small, and with one of everything. */
static const struct rig_segment rig_small[] = {
	{.name = "mc"},
	{.name = "mc/empty", .map = ""},
	{.name = "mc/byte", .map = "d1", .less_bytes = RIG_PAGE - 1},
	{.name = "mc/link", .map = "", .link = "../elsewhere"},
	{.name = "mc/mixed", .map = "h1 d1 z2 d1 u3 h5", .less_bytes = 5},
};

#endif
