// SPDX-License-Identifier: LGPL-2.1-or-later
/* The reader; see reader.h. */
#include "image/reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

#include "image/record.h"

#define NO_BLOCK UINT64_MAX

/* The root is read in pieces; whole entries of its list. */
#define ROOT_PIECE_BLOCKS ((uint64_t)MIB(1) / IMAGE_ROOT_BLOCK_BYTES)

struct image_reader {
	struct image_input input;
	struct image_header header;
	struct image_footer footer;
	struct image_totals totals;
	struct image_segments segments;
	struct image_frame frame;
	uint8_t *root;
	const uint8_t *index_blocks; /* in root */
	uint64_t n_index_blocks;

	/* The INDEX record in memory. */
	uint8_t *block;
	uint64_t block_number;
	uint32_t block_entries;
};

struct block {
	uint64_t offset, hash, first_page;
	uint32_t bytes, type, segment, reserved;
};

static struct block block_decode(const uint8_t *at)
{
	return (struct block){
		.offset = num_get64(at),
		.bytes = num_get32(at + 8),
		.type = num_get32(at + 12),
		.hash = num_get64(at + 16),
		.segment = num_get32(at + 24),
		.reserved = num_get32(at + 28),
		.first_page = num_get64(at + 32),
	};
}

/* Reads a block that the root lists, and checks that it is that one. */
static int read_block(struct image_reader *r, const struct block *b, void *buf,
		      struct image_record *ret_head, struct err *e)
{
	int rc = r->input.read_at(r->input.ctx, buf, b->bytes, b->offset, e);

	if (!rc)
		rc = image_record_head(buf, r->header.id, r->header.chunk_bytes, b->bytes, ret_head, e);
	if (!rc && (ret_head->type != b->type || ret_head->bytes != b->bytes || ret_head->hash != b->hash))
		rc = err_set(e, -EBADMSG, "it is not what the root says");
	if (!rc && !image_record_sound(buf, b->bytes, b->hash))
		rc = err_set(e, -EBADMSG, "hash differs");
	return rc < 0 ? err_wrap(e, rc, "%s block at offset %" PRIu64, image_record_name(b->type), b->offset)
		      : 0;
}

static int read_segments(struct image_reader *r, const struct block *b, struct err *e)
{
	CLEANUP_FREE uint8_t *buf = malloc(b->bytes);
	struct image_record head;
	int rc;

	if (!buf)
		return err_sys(e, -ENOMEM, "cannot read the segments");
	rc = read_block(r, b, buf, &head, e);
	return rc < 0 ? rc : image_segments_add(&r->segments, buf, b->bytes, r->header.chunk_bytes, e);
}

static int bad_list(const struct image_reader *r, struct err *e)
{
	return err_set(e, -EBADMSG, "root at offset %" PRIu64 ": its list of blocks is damaged", r->footer.root_offset);
}

/* Where blocks may lie and in which order they stand. */
static bool block_fits(const struct image_reader *r, const struct block *b, const struct block *last)
{
	bool order = b->type == last->type ? b->segment > last->segment ||
						     (b->segment == last->segment && b->first_page > last->first_page)
					   : last->type != IMAGE_INDEX;

	return (b->type == IMAGE_SEGMENTS || b->type == IMAGE_INDEX) && order && !b->reserved &&
	       b->offset >= IMAGE_HEADER_BYTES && b->bytes >= IMAGE_INDEX_HEAD_BYTES &&
	       b->bytes <= IMAGE_BLOCK_MAX_BYTES && b->offset <= r->footer.root_offset &&
	       b->bytes <= r->footer.root_offset - b->offset;
}

/* Grows the root by `bytes` from the file. */
static int read_piece(struct image_reader *r, uint64_t used, uint64_t bytes, XXH3_state_t *whole, struct err *e)
{
	uint8_t *root = realloc(r->root, used + bytes);
	int rc;

	if (!root)
		return err_sys(e, -ENOMEM, "cannot read the root of %" PRIu64 " bytes", r->footer.root_bytes);
	r->root = root;
	rc = r->input.read_at(r->input.ctx, root + used, bytes, r->footer.root_offset + used, e);
	if (!rc)
		XXH3_128bits_update(whole, root + used, bytes);
	return rc;
}

/*
 * Each piece of the list is looked at before there is memory for the next, twice as large: a file may be as long as it likes, and
 * all of it a hole, but each block in the list takes its 40 bytes on the disk.
 */
static int read_list(struct image_reader *r, XXH3_state_t *whole, struct err *e)
{
	uint64_t left = num_get64(r->root + 112), done = 0, n, end;
	struct block last = {.type = 0};
	int rc;

	for (; left; left -= n) {
		uint64_t used = IMAGE_ROOT_HEAD_BYTES + done * IMAGE_ROOT_BLOCK_BYTES;

		n = num_min(left, num_max(done, ROOT_PIECE_BLOCKS));
		rc = read_piece(r, used, n * IMAGE_ROOT_BLOCK_BYTES, whole, e);
		if (rc < 0)
			return rc;
		for (end = done + n; done < end; done++, used += IMAGE_ROOT_BLOCK_BYTES) {
			struct block b = block_decode(r->root + used);

			if (!block_fits(r, &b, &last))
				return bad_list(r, e);
			last = b;
		}
	}
	return 0;
}

static int read_whole_root(struct image_reader *r, XXH3_state_t *whole, struct err *e)
{
	const struct image_footer *f = &r->footer;
	struct image_record head;
	XXH128_hash_t hash;
	int rc = read_piece(r, 0, IMAGE_ROOT_HEAD_BYTES, whole, e);

	if (rc < 0)
		return rc;
	rc = image_record_head(r->root, r->header.id, r->header.chunk_bytes, f->root_bytes, &head, e);
	if (rc < 0)
		return err_wrap(e, rc, "root at offset %" PRIu64, f->root_offset);
	if (head.type != IMAGE_ROOT || head.bytes != f->root_bytes || num_get64(r->root + 120) ||
	    num_get64(r->root + 104) != r->header.hash ||
	    (f->root_bytes - IMAGE_ROOT_HEAD_BYTES) % IMAGE_ROOT_BLOCK_BYTES ||
	    (f->root_bytes - IMAGE_ROOT_HEAD_BYTES) / IMAGE_ROOT_BLOCK_BYTES != num_get64(r->root + 112))
		return err_set(e, -EBADMSG, "root at offset %" PRIu64 ": it does not fit this image", f->root_offset);
	rc = read_list(r, whole, e);
	if (rc < 0)
		return rc;
	hash = XXH3_128bits_digest(whole);
	if (hash.low64 != f->root_hash_low || hash.high64 != f->root_hash_high ||
	    !image_record_sound(r->root, head.bytes, head.hash))
		return err_set(e, -EBADMSG, "root at offset %" PRIu64 ": hash differs", f->root_offset);
	return 0;
}

static int read_root(struct image_reader *r, struct err *e)
{
	XXH3_state_t *whole = XXH3_createState();
	int rc;

	if (!whole)
		return err_sys(e, -ENOMEM, "cannot read the root");
	XXH3_128bits_reset(whole);
	rc = read_whole_root(r, whole, e);
	XXH3_freeState(whole);
	if (rc < 0)
		return rc;
	image_totals_decode(r->root, &r->totals);
	r->totals.image_bytes = r->footer.image_bytes;
	return 0;
}

static int walk_blocks(struct image_reader *r, struct err *e)
{
	uint64_t i, n = num_get64(r->root + 112);
	int rc;

	for (i = 0; i < n; i++) {
		const uint8_t *at = r->root + IMAGE_ROOT_HEAD_BYTES + i * IMAGE_ROOT_BLOCK_BYTES;
		struct block b = block_decode(at);

		if (b.type == IMAGE_SEGMENTS && (b.segment != r->segments.count || b.first_page))
			return bad_list(r, e);
		rc = b.type == IMAGE_SEGMENTS ? read_segments(r, &b, e) : 0;
		if (rc < 0)
			return rc;
		if (b.type == IMAGE_INDEX && !r->n_index_blocks++)
			r->index_blocks = at;
	}
	return image_segments_seal(&r->segments, e);
}

static int read_ends(struct image_reader *r, struct err *e)
{
	uint8_t header[IMAGE_HEADER_BYTES], footer[IMAGE_FOOTER_BYTES];
	uint64_t bytes = r->input.bytes;
	int rc;

	if (bytes < IMAGE_HEADER_BYTES)
		return err_set(e, -EBADMSG, "not a torpor image (only %" PRIu64 " bytes)", bytes);
	rc = r->input.read_at(r->input.ctx, header, sizeof(header), 0, e);
	if (!rc)
		rc = image_header_decode(header, &r->header, e);
	if (rc < 0)
		return rc;
	if (r->header.image_bytes)
		bytes = num_min(bytes, r->header.image_bytes);
	if (bytes < IMAGE_HEADER_BYTES + IMAGE_ROOT_HEAD_BYTES + IMAGE_FOOTER_BYTES)
		return err_set(e, -EBADMSG, "image is not complete: it ends at offset %" PRIu64, bytes);
	rc = r->input.read_at(r->input.ctx, footer, sizeof(footer), bytes - sizeof(footer), e);
	return rc < 0 ? rc : image_footer_decode(footer, r->header.id, bytes, &r->footer, e);
}

int image_reader_open(const struct image_input *input, struct image_reader **ret, struct err *e)
{
	struct image_reader *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return err_sys(e, -ENOMEM, "cannot make an image reader");
	r->input = *input;
	r->block_number = NO_BLOCK;
	rc = read_ends(r, e);
	if (!rc)
		rc = read_root(r, e);
	if (!rc)
		rc = walk_blocks(r, e);
	if (!rc && r->segments.count != r->totals.segments)
		rc = err_set(e, -EBADMSG, "root: its number of segments is wrong");
	if (rc < 0) {
		image_reader_free(r);
		return rc;
	}
	r->frame = (struct image_frame){&r->header, r->segments.items, r->segments.count};
	*ret = r;
	return 0;
}

void image_reader_free(struct image_reader *r)
{
	if (!r)
		return;
	image_segments_free(&r->segments);
	free(r->root);
	free(r->block);
	free(r);
}

static int load_index(struct image_reader *r, uint64_t number, struct err *e)
{
	struct block b = block_decode(r->index_blocks + number * IMAGE_ROOT_BLOCK_BYTES);
	struct image_entry first;
	struct image_record head;
	int rc;

	if (number == r->block_number)
		return 0;
	r->block_number = NO_BLOCK;
	free(r->block);
	r->block = malloc(b.bytes);
	if (!r->block)
		return err_sys(e, -ENOMEM, "cannot read an index block");
	rc = read_block(r, &b, r->block, &head, e);
	if (!rc)
		rc = image_index_check(r->block, &head, b.offset, &r->block_entries, e);
	if (rc < 0)
		return rc;
	image_entry_decode(r->block + IMAGE_INDEX_HEAD_BYTES, &first);
	if (first.segment != b.segment || first.first_page != b.first_page)
		return err_set(e, -EBADMSG,
			       "index block at offset %" PRIu64 ": it begins elsewhere than the root says",
			       b.offset);
	r->block_number = number;
	return 0;
}

static int get_entry(const struct image_reader *r, uint32_t i, struct image_entry *ret, struct err *e)
{
	struct image_entry entry;

	image_entry_decode(r->block + IMAGE_INDEX_HEAD_BYTES + i * IMAGE_ENTRY_BYTES, &entry);
	if (entry.offset < IMAGE_HEADER_BYTES || entry.offset % 8 ||
	    entry.record_bytes < IMAGE_CHUNK_HEAD_BYTES ||
	    entry.record_bytes > image_chunk_record_max(r->header.chunk_bytes) ||
	    entry.offset > r->footer.root_offset ||
	    entry.record_bytes > r->footer.root_offset - entry.offset ||
	    entry.segment >= r->segments.count)
		return err_set(e, -EBADMSG,
			       "index: the place of segment %u page %" PRIu64 " is impossible",
			       entry.segment, entry.first_page);
	*ret = entry;
	return 0;
}

static bool before(uint32_t segment, uint64_t page, uint32_t other_segment, uint64_t other_page)
{
	return segment < other_segment || (segment == other_segment && page < other_page);
}

int image_reader_find(struct image_reader *r, uint32_t segment, uint64_t page,
		      struct image_entry *ret, struct err *e)
{
	uint64_t low = 0, high = r->n_index_blocks;
	struct image_entry entry;
	uint32_t first = 0, end;
	int rc;

	/* The last block, then the last entry in it, that does not begin after the page. */
	while (high - low > 1) {
		uint64_t mid = low + (high - low) / 2;
		struct block b = block_decode(r->index_blocks + mid * IMAGE_ROOT_BLOCK_BYTES);

		if (before(segment, page, b.segment, b.first_page))
			high = mid;
		else
			low = mid;
	}
	rc = high ? load_index(r, low, e) : err_set(e, -EBADMSG, "index is empty");
	if (rc < 0)
		return rc;
	for (end = r->block_entries; end - first > 1;) {
		uint32_t mid = first + (end - first) / 2;

		image_entry_decode(r->block + IMAGE_INDEX_HEAD_BYTES + mid * IMAGE_ENTRY_BYTES, &entry);
		if (before(segment, page, entry.segment, entry.first_page))
			end = mid;
		else
			first = mid;
	}
	rc = get_entry(r, first, &entry, e);
	if (rc < 0)
		return rc;
	if (entry.segment != segment || page < entry.first_page || page - entry.first_page >= entry.pages)
		return err_set(e, -EBADMSG, "index: segment %u page %" PRIu64 " is not told of", segment,
			       page);
	*ret = entry;
	return 0;
}

int image_cursor_next(struct image_cursor *cursor, struct image_entry *ret, struct err *e)
{
	struct image_reader *r = cursor->reader;
	int rc;

	cursor->tile.frame = &r->frame;
	if (cursor->i == cursor->count) {
		if (cursor->block == r->n_index_blocks) {
			rc = image_tile_end(&cursor->tile, e);
			return rc < 0 ? rc : image_totals_compare(&cursor->tile.totals, &r->totals, e);
		}
		rc = load_index(r, cursor->block, e);
		if (rc < 0)
			return rc;
		cursor->block++;
		cursor->i = 0;
		cursor->count = r->block_entries;
	}
	rc = get_entry(r, cursor->i++, ret, e);
	if (!rc)
		rc = image_tile_add(&cursor->tile, ret, e);
	return rc < 0 ? rc : 1;
}

const struct image_header *image_reader_header(const struct image_reader *r)
{
	return &r->header;
}

const struct image_totals *image_reader_totals(const struct image_reader *r)
{
	return &r->totals;
}

const struct image_segments *image_reader_segments(const struct image_reader *r)
{
	return &r->segments;
}

const struct image_frame *image_reader_frame(const struct image_reader *r)
{
	return &r->frame;
}
