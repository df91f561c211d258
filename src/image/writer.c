// SPDX-License-Identifier: LGPL-2.1-or-later
/* The writer; see writer.h.  Memory: one INDEX record, one map, 40 bytes for each block. */
#include "image/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

#include "image/record.h"
#include "image/segment.h"
#include "image/tile.h"

#define INDEX_BYTES (IMAGE_INDEX_HEAD_BYTES + IMAGE_INDEX_ENTRIES * IMAGE_ENTRY_BYTES)
#define SEGMENTS_BYTES KIB(64)

/* Numbers of chunks without data have this bit, those of workers do not. */
#define RUN_NUMBER_BIT ((uint64_t)1 << 63)

struct image_writer {
	struct image_sink sink;
	struct image_header header;
	struct image_frame frame;
	struct image_tile tile;

	/* The INDEX record being filled. */
	uint8_t *index;
	uint32_t entries;
	struct image_entry first; /* of it */

	/* Pages without data that are not written yet. */
	struct image_map map;
	uint32_t map_segment;
	uint64_t map_first_page;
	uint64_t runs;

	/* The root's list of blocks, as it will stand there. */
	uint8_t *blocks;
	uint64_t n_blocks, room;
};

static int list_block(struct image_writer *w, enum image_record_type type, uint64_t offset,
		      uint64_t bytes, uint64_t hash, uint32_t segment, uint64_t first_page,
		      struct err *e)
{
	uint8_t *at;

	if (w->n_blocks == w->room) {
		uint64_t room = w->room ? 2 * w->room : 64;

		at = reallocarray(w->blocks, room, IMAGE_ROOT_BLOCK_BYTES);
		if (!at)
			return err_sys(e, -ENOMEM, "cannot hold the list of %" PRIu64 " blocks", room);
		w->blocks = at;
		w->room = room;
	}
	at = w->blocks + w->n_blocks++ * IMAGE_ROOT_BLOCK_BYTES;
	num_put64(at, offset);
	num_put32(at + 8, (uint32_t)bytes);
	num_put32(at + 12, type);
	num_put64(at + 16, hash);
	num_put32(at + 24, segment);
	num_put32(at + 28, 0);
	num_put64(at + 32, first_page);
	return 0;
}

/* Seals a block that begins with 32 free bytes, writes it and lists it. */
static int put_block(struct image_writer *w, void *buf, enum image_record_type type, uint64_t bytes,
		     uint32_t segment, uint64_t first_page, struct err *e)
{
	uint64_t hash = image_record_seal(buf, type, bytes, bytes, w->header.id);
	uint64_t offset;
	int rc = w->sink.append(w->sink.ctx, buf, bytes, &offset, e);

	return rc < 0 ? rc : list_block(w, type, offset, bytes, hash, segment, first_page, e);
}

static int put_segments(struct image_writer *w, struct err *e)
{
	CLEANUP_FREE uint8_t *buf = malloc(IMAGE_BLOCK_MAX_BYTES);
	const struct image_segment *segs = w->frame.segments;
	uint64_t first = 0, i = 0;
	int rc;

	if (!buf)
		return err_sys(e, -ENOMEM, "cannot encode the segments");
	while (i < w->frame.n_segments) {
		size_t used = IMAGE_RECORD_HEAD_BYTES + 8;

		/* A descriptor has at most 12.1 KiB, so what is over the mark still fits. */
		for (; i < w->frame.n_segments && used < SEGMENTS_BYTES; i++) {
			image_segment_encode(buf + used, &segs[i]);
			used += image_segment_bytes(&segs[i]);
		}
		num_put32(buf + 32, (uint32_t)first);
		num_put32(buf + 36, (uint32_t)(i - first));
		rc = put_block(w, buf, IMAGE_SEGMENTS, used, (uint32_t)first, 0, e);
		if (rc < 0)
			return rc;
		first = i;
	}
	return 0;
}

static int put_header(struct image_writer *w, struct err *e)
{
	uint8_t buf[IMAGE_HEADER_BYTES];
	uint64_t offset;

	image_header_encode(buf, &w->header);
	return w->sink.append(w->sink.ctx, buf, sizeof(buf), &offset, e);
}

int image_writer_new(const struct image_sink *sink, const struct image_header *header,
		     const struct image_segment *segments, uint64_t n_segments,
		     struct image_writer **ret, struct err *e)
{
	struct image_writer *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return err_sys(e, -ENOMEM, "cannot make an image writer");
	w->sink = *sink;
	w->header = *header;
	w->frame = (struct image_frame){&w->header, segments, n_segments};
	w->tile.frame = &w->frame;
	w->index = malloc(INDEX_BYTES);
	rc = !w->index		     ? err_sys(e, -ENOMEM, "cannot make an image writer")
	     : n_segments > UINT32_MAX ? err_set(e, -E2BIG, "too many segments")
				     : put_header(w, e);
	if (!rc)
		rc = put_segments(w, e);
	if (rc < 0) {
		image_writer_free(w);
		return rc;
	}
	*ret = w;
	return 0;
}

static int put_index(struct image_writer *w, struct err *e)
{
	uint64_t bytes = IMAGE_INDEX_HEAD_BYTES + (uint64_t)w->entries * IMAGE_ENTRY_BYTES;

	if (!w->entries)
		return 0;
	num_put32(w->index + 32, w->entries);
	num_put32(w->index + 36, 0);
	w->entries = 0;
	return put_block(w, w->index, IMAGE_INDEX, bytes, w->first.segment, w->first.first_page, e);
}

static int add_entry(struct image_writer *w, const struct image_entry *entry, struct err *e)
{
	int rc = image_tile_add(&w->tile, entry, e);

	if (rc < 0)
		return rc;
	if (!w->entries)
		w->first = *entry;
	image_entry_encode(w->index + IMAGE_INDEX_HEAD_BYTES + w->entries * IMAGE_ENTRY_BYTES, entry);
	if (++w->entries == IMAGE_INDEX_ENTRIES)
		return put_index(w, e);
	return 0;
}

/* Writes the pages without data that have come together. */
static int put_runs(struct image_writer *w, struct err *e)
{
	struct image_chunk_spec spec = {
		.id = w->header.id,
		.number = RUN_NUMBER_BIT | w->runs,
		.segment = w->map_segment,
		.first_page = w->map_first_page,
		.map = &w->map,
	};
	const struct codec *none;
	struct image_entry entry;
	CLEANUP_FREE uint8_t *buf = NULL;
	int rc;

	if (!image_map_pages(&w->map))
		return 0;
	image_map_close(&w->map);
	buf = malloc(IMAGE_CHUNK_HEAD_BYTES + w->map.used + 8);
	if (!buf)
		return err_sys(e, -ENOMEM, "cannot write a run of pages");
	rc = codec_by_id(CODEC_NONE, &none, e);
	if (rc < 0)
		return rc;
	image_chunk_encode(&spec, none, NULL, buf, &entry);
	image_map_reset(&w->map);
	w->runs++;
	rc = w->sink.append(w->sink.ctx, buf, entry.record_bytes, &entry.offset, e);
	return rc < 0 ? rc : add_entry(w, &entry, e);
}

int image_writer_chunk(struct image_writer *w, const struct image_entry *entry, struct err *e)
{
	int rc = put_runs(w, e);

	return rc < 0 ? rc : add_entry(w, entry, e);
}

int image_writer_run(struct image_writer *w, uint32_t segment, uint64_t first_page, uint64_t pages,
		     enum image_run_kind kind, struct err *e)
{
	bool follows = image_map_pages(&w->map) && w->map_segment == segment;
	int rc;

	if (!follows || !image_map_add(&w->map, kind, pages)) {
		rc = put_runs(w, e);
		if (rc < 0)
			return rc;
		w->map_segment = segment;
		w->map_first_page = first_page;
		image_map_add(&w->map, kind, pages);
	}
	return 0;
}

void image_writer_number_from(struct image_writer *w, uint64_t number)
{
	if (number & RUN_NUMBER_BIT)
		w->runs = (number & ~RUN_NUMBER_BIT) + 1;
}

static int put_root(struct image_writer *w, struct image_footer *ret_footer, struct err *e)
{
	uint64_t bytes = IMAGE_ROOT_HEAD_BYTES + w->n_blocks * IMAGE_ROOT_BLOCK_BYTES;
	CLEANUP_FREE uint8_t *buf = calloc(1, bytes);
	XXH128_hash_t hash;
	uint64_t offset;
	int rc;

	if (!buf)
		return err_sys(e, -ENOMEM, "cannot write the root");
	image_totals_encode(buf, &w->tile.totals);
	num_put64(buf + 104, w->header.hash);
	num_put64(buf + 112, w->n_blocks);
	if (w->n_blocks)
		memcpy(buf + IMAGE_ROOT_HEAD_BYTES, w->blocks, w->n_blocks * IMAGE_ROOT_BLOCK_BYTES);
	image_record_seal(buf, IMAGE_ROOT, bytes, bytes, w->header.id);
	hash = XXH3_128bits(buf, bytes);
	rc = w->sink.append(w->sink.ctx, buf, bytes, &offset, e);
	if (rc < 0)
		return rc;
	*ret_footer = (struct image_footer){
		.root_offset = offset,
		.root_bytes = bytes,
		.image_bytes = offset + bytes + IMAGE_FOOTER_BYTES,
		.id = w->header.id,
		.root_hash_low = hash.low64,
		.root_hash_high = hash.high64,
	};
	return 0;
}

int image_writer_finish(struct image_writer *w, struct image_totals *ret, struct err *e)
{
	uint8_t buf[IMAGE_FOOTER_BYTES];
	struct image_footer footer;
	uint64_t offset;
	int rc;

	rc = put_runs(w, e);
	if (!rc)
		rc = put_index(w, e);
	if (!rc)
		rc = image_tile_end(&w->tile, e);
	if (!rc)
		rc = put_root(w, &footer, e);
	if (!rc)
		rc = w->sink.flush(w->sink.ctx, e);
	if (rc < 0)
		return rc;
	image_footer_encode(buf, &footer);
	rc = w->sink.append(w->sink.ctx, buf, sizeof(buf), &offset, e);
	if (!rc)
		rc = w->sink.flush(w->sink.ctx, e);
	if (rc < 0)
		return rc;
	*ret = w->tile.totals;
	ret->image_bytes = footer.image_bytes;
	return 0;
}

const struct image_header *image_writer_header(const struct image_writer *w)
{
	return &w->header;
}

void image_writer_free(struct image_writer *w)
{
	if (!w)
		return;
	free(w->index);
	free(w->blocks);
	free(w);
}
