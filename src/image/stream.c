// SPDX-License-Identifier: LGPL-2.1-or-later
/* The reader of an image in one pass; see stream.h and docs/format.md, section 9.2. */
#include "image/stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

#include "image/record.h"

struct image_stream {
	struct image_feed feed;
	struct image_header header;
	struct image_segments segments;
	struct image_frame frame;
	struct image_tile tile;
	uint64_t offset; /* of the record that `head` tells of, or of the next byte */

	/* The first bytes of a record, read ahead. */
	uint8_t head[IMAGE_RECORD_HEAD_BYTES];
	struct image_record record;
	bool have_head;

	uint8_t *block; /* IMAGE_BLOCK_MAX_BYTES */

	/* How many CHUNK records were seen, and the sum of their entries' hashes; what INDEX says. */
	uint64_t seen, seen_sum, told_sum;

	/* The root's list of blocks as it has to be, hashed. */
	XXH3_state_t *blocks;
	uint64_t n_blocks;
	struct image_totals totals;
};

static int feed(struct image_stream *s, void *buf, size_t bytes, struct err *e)
{
	int rc = s->feed.read(s->feed.ctx, buf, bytes, e);

	return rc < 0 ? err_wrap(e, rc, "image at offset %" PRIu64, s->offset) : 0;
}

static int peek(struct image_stream *s, struct err *e)
{
	int rc;

	if (s->have_head)
		return 0;
	rc = feed(s, s->head, sizeof(s->head), e);
	if (rc < 0)
		return rc;
	rc = image_record_head(s->head, s->header.id, s->header.chunk_bytes, UINT64_MAX - s->offset,
			       &s->record, e);
	if (rc < 0)
		return err_wrap(e, rc, "image at offset %" PRIu64, s->offset);
	s->have_head = true;
	return 0;
}

/* The rest of the record behind the head; `buf` has room for all of it. */
static int read_record(struct image_stream *s, void *buf, struct err *e)
{
	uint8_t *at = buf;
	int rc;

	memcpy(at, s->head, sizeof(s->head));
	rc = feed(s, at + sizeof(s->head), s->record.bytes - sizeof(s->head), e);
	if (rc < 0)
		return rc;
	s->have_head = false;
	s->offset += s->record.bytes;
	return 0;
}

static int read_block(struct image_stream *s, struct err *e)
{
	uint64_t offset = s->offset;
	int rc = read_record(s, s->block, e);

	if (rc < 0)
		return rc;
	if (!image_record_sound(s->block, s->record.bytes, s->record.hash))
		return err_set(e, -EBADMSG, "%s block at offset %" PRIu64 ": hash differs",
			       image_record_name(s->record.type), offset);
	return 0;
}

static void expect_block(struct image_stream *s, uint64_t offset, uint32_t segment, uint64_t first_page)
{
	uint8_t at[IMAGE_ROOT_BLOCK_BYTES] = {0};

	num_put64(at, offset);
	num_put32(at + 8, (uint32_t)s->record.bytes);
	num_put32(at + 12, s->record.type);
	num_put64(at + 16, s->record.hash);
	num_put32(at + 24, segment);
	num_put64(at + 32, first_page);
	XXH3_64bits_update(s->blocks, at, sizeof(at));
	s->n_blocks++;
}

static int take_segments(struct image_stream *s, struct err *e)
{
	uint64_t offset = s->offset;
	uint32_t first = (uint32_t)s->segments.count;
	int rc = read_block(s, e);

	if (rc < 0)
		return rc;
	rc = image_segments_add(&s->segments, s->block, s->record.bytes, s->header.chunk_bytes, e);
	if (rc < 0)
		return err_wrap(e, rc, "SEGMENTS block at offset %" PRIu64, offset);
	expect_block(s, offset, first, 0);
	return 0;
}

static int take_pad(struct image_stream *s, struct err *e)
{
	uint64_t offset = s->offset;
	int rc = read_block(s, e);

	if (rc < 0)
		return rc;
	if (!image_all_zero(s->block + IMAGE_RECORD_HEAD_BYTES, s->record.bytes - IMAGE_RECORD_HEAD_BYTES))
		return err_set(e, -EBADMSG, "PAD at offset %" PRIu64 " is not zero", offset);
	return 0;
}

/* Of entries that may come in another order than the index has them. */
static uint64_t entry_hash(const struct image_entry *entry)
{
	uint8_t buf[IMAGE_ENTRY_BYTES];

	image_entry_encode(buf, entry);
	return XXH3_64bits(buf, sizeof(buf));
}

static int take_index(struct image_stream *s, struct err *e)
{
	uint64_t offset = s->offset;
	struct image_entry entry, first = {.first_page = 0};
	uint32_t i, count;
	int rc = read_record(s, s->block, e);

	if (!rc)
		rc = image_index_check(s->block, &s->record, offset, &count, e);
	if (rc < 0)
		return rc;
	for (i = 0; i < count; i++) {
		image_entry_decode(s->block + IMAGE_INDEX_HEAD_BYTES + i * IMAGE_ENTRY_BYTES, &entry);
		rc = image_tile_add(&s->tile, &entry, e);
		if (rc < 0)
			return rc;
		s->told_sum += entry_hash(&entry);
		if (!i)
			first = entry;
	}
	expect_block(s, offset, first.segment, first.first_page);
	return 0;
}

static int start(struct image_stream *s, struct err *e)
{
	uint8_t buf[IMAGE_HEADER_BYTES];
	int rc = feed(s, buf, sizeof(buf), e);

	if (!rc)
		rc = image_header_decode(buf, &s->header, e);
	if (rc < 0)
		return rc;
	s->offset = sizeof(buf);
	for (;;) {
		rc = peek(s, e);
		if (!rc && s->record.type == IMAGE_SEGMENTS)
			rc = take_segments(s, e);
		else if (!rc && s->record.type == IMAGE_PAD)
			rc = take_pad(s, e);
		else
			break;
		if (rc < 0)
			break;
	}
	if (!rc)
		rc = image_segments_seal(&s->segments, e);
	s->frame = (struct image_frame){&s->header, s->segments.items, s->segments.count};
	s->tile.frame = &s->frame;
	return rc;
}

int image_stream_open(const struct image_feed *f, struct image_stream **ret, struct err *e)
{
	struct image_stream *s = calloc(1, sizeof(*s));
	int rc = s ? 0 : -ENOMEM;

	if (s) {
		s->feed = *f;
		s->block = malloc(IMAGE_BLOCK_MAX_BYTES);
		s->blocks = XXH3_createState();
		if (!s->block || !s->blocks)
			rc = -ENOMEM;
	}
	if (rc < 0) {
		image_stream_free(s);
		return err_sys(e, rc, "cannot read a stream");
	}
	XXH3_64bits_reset(s->blocks);
	rc = start(s, e);
	if (rc < 0) {
		image_stream_free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

void image_stream_free(struct image_stream *s)
{
	if (!s)
		return;
	image_segments_free(&s->segments);
	if (s->blocks)
		XXH3_freeState(s->blocks);
	free(s->block);
	free(s);
}

/* Reads the root in pieces: its length is that of its list, and the list is only hashed. */
static int read_root(struct image_stream *s, uint8_t head[IMAGE_ROOT_HEAD_BYTES],
		     XXH3_state_t *whole, XXH3_state_t *sealed, XXH3_state_t *list, struct err *e)
{
	uint64_t left = s->record.bytes;
	size_t piece = IMAGE_ROOT_HEAD_BYTES - IMAGE_RECORD_HEAD_BYTES;
	int rc;

	if (left != IMAGE_ROOT_HEAD_BYTES + s->n_blocks * IMAGE_ROOT_BLOCK_BYTES)
		return err_set(e, -EBADMSG, "root at offset %" PRIu64 ": impossible length", s->offset);
	memcpy(head, s->head, sizeof(s->head));
	rc = feed(s, head + sizeof(s->head), piece, e);
	if (rc < 0)
		return rc;
	XXH3_128bits_update(whole, head, IMAGE_ROOT_HEAD_BYTES);
	num_put64(head + 24, 0);
	XXH3_64bits_update(sealed, head, IMAGE_ROOT_HEAD_BYTES);
	for (left -= IMAGE_ROOT_HEAD_BYTES; left; left -= piece) {
		piece = num_min(left, IMAGE_BLOCK_MAX_BYTES);
		rc = feed(s, s->block, piece, e);
		if (rc < 0)
			return rc;
		XXH3_128bits_update(whole, s->block, piece);
		XXH3_64bits_update(sealed, s->block, piece);
		XXH3_64bits_update(list, s->block, piece);
	}
	return 0;
}

static int check_root(struct image_stream *s, const uint8_t *head, uint64_t sealed, uint64_t list,
		      struct err *e)
{
	int rc;

	if (sealed != s->record.hash || list != XXH3_64bits_digest(s->blocks) ||
	    num_get64(head + 104) != s->header.hash || num_get64(head + 112) != s->n_blocks ||
	    num_get64(head + 120))
		return err_set(e, -EBADMSG, "root at offset %" PRIu64 ": it does not fit this image",
			       s->offset);
	rc = image_tile_end(&s->tile, e);
	if (rc < 0)
		return rc;
	image_totals_decode(head, &s->totals);
	if (s->seen != s->tile.totals.records || s->seen_sum != s->told_sum)
		return err_set(e, -EBADMSG, "the index tells of other chunks than the image holds");
	return image_totals_compare(&s->tile.totals, &s->totals, e);
}

static int finish(struct image_stream *s, XXH128_hash_t hash, struct err *e)
{
	uint8_t buf[IMAGE_FOOTER_BYTES];
	uint64_t image_bytes = s->offset + s->record.bytes + sizeof(buf);
	struct image_footer footer;
	int rc = feed(s, buf, sizeof(buf), e);

	if (!rc)
		rc = image_footer_decode(buf, s->header.id, image_bytes, &footer, e);
	if (rc < 0)
		return rc;
	if (footer.root_offset != s->offset || footer.root_bytes != s->record.bytes ||
	    footer.root_hash_low != hash.low64 || footer.root_hash_high != hash.high64 ||
	    (s->header.image_bytes && s->header.image_bytes != image_bytes))
		return err_set(e, -EBADMSG, "footer at offset %" PRIu64 ": it names another root",
			       image_bytes - sizeof(buf));
	s->totals.image_bytes = image_bytes;
	return 0;
}

static int take_root(struct image_stream *s, struct err *e)
{
	XXH3_state_t *whole = XXH3_createState(), *sealed = XXH3_createState();
	XXH3_state_t *list = XXH3_createState();
	uint8_t head[IMAGE_ROOT_HEAD_BYTES];
	int rc = -ENOMEM;

	if (!whole || !sealed || !list) {
		err_sys(e, rc, "cannot read the root");
		goto out;
	}
	XXH3_128bits_reset(whole);
	XXH3_64bits_reset(sealed);
	XXH3_64bits_reset(list);
	rc = read_root(s, head, whole, sealed, list, e);
	if (!rc)
		rc = check_root(s, head, XXH3_64bits_digest(sealed), XXH3_64bits_digest(list), e);
	if (!rc)
		rc = finish(s, XXH3_128bits_digest(whole), e);
out:
	XXH3_freeState(whole);
	XXH3_freeState(sealed);
	XXH3_freeState(list);
	return rc;
}

int image_stream_next(struct image_stream *s, size_t *ret_bytes, uint64_t *ret_offset, struct err *e)
{
	int rc;

	for (;;) {
		rc = peek(s, e);
		if (rc < 0)
			return rc;
		switch (s->record.type) {
		case IMAGE_CHUNK:
			*ret_bytes = s->record.bytes;
			*ret_offset = s->offset;
			return 1;
		case IMAGE_INDEX:
			rc = take_index(s, e);
			break;
		case IMAGE_PAD:
			rc = take_pad(s, e);
			break;
		case IMAGE_ROOT:
			return take_root(s, e);
		default:
			rc = err_set(e, -EBADMSG, "SEGMENTS after a chunk at offset %" PRIu64, s->offset);
		}
		if (rc < 0)
			return rc;
	}
}

/* The entry that INDEX must have for a record that lies at `offset`.  False: its header is damaged. */
static bool expected_entry(uint8_t *at, const struct image_record *head, uint64_t offset,
			   struct image_entry *ret)
{
	uint64_t by_kind[IMAGE_RUN_KINDS];
	size_t map_bytes;
	bool sound;

	if (head->bytes < IMAGE_CHUNK_HEAD_BYTES)
		return false;
	map_bytes = num_get16(at + 62);
	if (map_bytes > head->bytes - IMAGE_CHUNK_HEAD_BYTES)
		return false;
	sound = image_record_sound(at, IMAGE_CHUNK_HEAD_BYTES + map_bytes, head->hash);
	num_put64(at + 24, head->hash); /* whoever decodes the record looks again */
	*ret = (struct image_entry){
		.first_page = num_get64(at + 40),
		.pages = num_get64(at + 48),
		.offset = offset,
		.hash = head->hash,
		.record_bytes = (uint32_t)head->bytes,
		.segment = num_get32(at + 56),
		.stored_bytes = num_get32(at + 68),
	};
	/* A map that is none is for whoever decodes the record to find. */
	if (image_map_check(at + IMAGE_CHUNK_HEAD_BYTES, map_bytes, ret->pages, by_kind) == 0) {
		ret->data_pages = (uint32_t)by_kind[IMAGE_RUN_DATA];
		ret->zero_pages = by_kind[IMAGE_RUN_ZERO];
		ret->unpreserved_pages = by_kind[IMAGE_RUN_UNPRESERVED];
	}
	return sound;
}

int image_stream_read(struct image_stream *s, void *buf, struct err *e)
{
	uint64_t offset = s->offset;
	struct image_entry entry;
	int rc = read_record(s, buf, e);

	if (rc < 0)
		return rc;
	if (!expected_entry(buf, &s->record, offset, &entry))
		return err_set(e, -EBADMSG, "chunk at offset %" PRIu64 ": hash of the chunk's header differs",
			       offset);
	s->seen++;
	s->seen_sum += entry_hash(&entry);
	return 0;
}

const struct image_header *image_stream_header(const struct image_stream *s)
{
	return &s->header;
}

const struct image_segments *image_stream_segments(const struct image_stream *s)
{
	return &s->segments;
}

const struct image_frame *image_stream_frame(const struct image_stream *s)
{
	return &s->frame;
}

const struct image_totals *image_stream_totals(const struct image_stream *s)
{
	return &s->totals;
}
