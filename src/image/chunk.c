// SPDX-License-Identifier: LGPL-2.1-or-later
/* CHUNK records; see docs/format.md, section 5. */
#include "image/chunk.h"

#include <inttypes.h>
#include <xxhash.h>

#include "image/record.h"

/* Compresses into `out` when that makes it shorter; says with which codec it is stored. */
static size_t store_payload(const struct image_chunk_spec *spec, const struct codec *codec,
			    struct codec_state *state, uint8_t *out, uint8_t *ret_codec)
{
	size_t stored;

	if (codec->id != CODEC_NONE && spec->raw_bytes &&
	    codec->compress(state, out, spec->raw_bytes - 1, spec->raw, spec->raw_bytes, &stored) == 0) {
		*ret_codec = codec->id;
		return stored;
	}
	if (spec->raw_bytes)
		memcpy(out, spec->raw, spec->raw_bytes);
	*ret_codec = CODEC_NONE;
	return spec->raw_bytes;
}

void image_chunk_encode(const struct image_chunk_spec *spec, const struct codec *codec,
			struct codec_state *state, void *out, struct image_entry *ret_entry)
{
	const struct image_map *map = spec->map;
	uint8_t *at = out;
	size_t checked = IMAGE_CHUNK_HEAD_BYTES + map->used;
	size_t stored, bytes;
	uint8_t codec_id;

	memcpy(at + IMAGE_CHUNK_HEAD_BYTES, map->bytes, map->used);
	stored = store_payload(spec, codec, state, at + checked, &codec_id);
	bytes = num_round_up(checked + stored, 8);
	memset(at + checked + stored, 0, bytes - checked - stored);
	num_put64(at + 32, spec->number);
	num_put64(at + 40, spec->first_page);
	num_put64(at + 48, image_map_pages(map));
	num_put32(at + 56, spec->segment);
	at[60] = codec_id;
	at[61] = 0;
	num_put16(at + 62, (uint16_t)map->used);
	num_put32(at + 64, (uint32_t)spec->raw_bytes);
	num_put32(at + 68, (uint32_t)stored);
	num_put64(at + 72, XXH3_64bits(spec->raw, spec->raw_bytes));
	*ret_entry = (struct image_entry){
		.first_page = spec->first_page,
		.pages = image_map_pages(map),
		.zero_pages = map->pages[IMAGE_RUN_ZERO],
		.unpreserved_pages = map->pages[IMAGE_RUN_UNPRESERVED],
		.hash = image_record_seal(at, IMAGE_CHUNK, bytes, checked, spec->id),
		.record_bytes = (uint32_t)bytes,
		.segment = spec->segment,
		.data_pages = (uint32_t)map->pages[IMAGE_RUN_DATA],
		.stored_bytes = (uint32_t)stored,
	};
}

int image_chunk_wrap(const struct image_chunk *chunk, int code, struct err *e)
{
	return err_wrap(e, code,
			"chunk at offset %" PRIu64 " (segment \"%s\", pages %" PRIu64 "-%" PRIu64 ")",
			chunk->entry.offset, chunk->seg->name, chunk->entry.first_page,
			chunk->entry.first_page + chunk->entry.pages - 1);
}

/* The fields that are only right together with the segment. */
static int check_fields(struct image_chunk *chunk, const struct image_frame *frame, size_t bytes,
			struct err *e)
{
	struct image_entry *entry = &chunk->entry;
	uint64_t pages = image_segment_pages(chunk->seg), by_kind[IMAGE_RUN_KINDS];
	size_t used = IMAGE_CHUNK_HEAD_BYTES + chunk->map_bytes;

	if (entry->first_page >= pages || entry->pages > pages - entry->first_page || !entry->pages)
		return err_set(e, -EBADMSG, "pages beyond the segment's end");
	if (image_map_check(chunk->map, chunk->map_bytes, entry->pages, by_kind) < 0)
		return err_set(e, -EBADMSG, "map is damaged");
	if (chunk->raw_bytes > frame->header->chunk_bytes ||
	    by_kind[IMAGE_RUN_DATA] * chunk->seg->page_bytes != chunk->raw_bytes ||
	    by_kind[IMAGE_RUN_DATA] > IMAGE_CHUNK_MAX_BYTES)
		return err_set(e, -EBADMSG, "map and raw bytes differ");
	used += entry->stored_bytes;
	if (num_round_up(used, 8) != bytes ||
	    (chunk->codec == CODEC_NONE && entry->stored_bytes != chunk->raw_bytes) ||
	    (!chunk->raw_bytes && chunk->codec != CODEC_NONE))
		return err_set(e, -EBADMSG, "stored bytes and length differ");
	if (!image_all_zero(chunk->payload + entry->stored_bytes, bytes - used))
		return err_set(e, -EBADMSG, "padding is not zero");
	entry->data_pages = (uint32_t)by_kind[IMAGE_RUN_DATA];
	entry->zero_pages = by_kind[IMAGE_RUN_ZERO];
	entry->unpreserved_pages = by_kind[IMAGE_RUN_UNPRESERVED];
	return 0;
}

int image_chunk_parse(void *buf, size_t bytes, uint64_t offset, const struct image_frame *frame,
		      struct image_chunk *ret, struct err *e)
{
	uint8_t *at = buf;
	struct image_record head;
	struct image_chunk chunk = {.map_bytes = 0};
	uint32_t segment;
	size_t checked;
	int rc;

	rc = bytes < IMAGE_CHUNK_HEAD_BYTES
		     ? err_set(e, -EBADMSG, "record is too short")
		     : image_record_head(buf, frame->header->id, frame->header->chunk_bytes, bytes, &head, e);
	if (!rc && (head.type != IMAGE_CHUNK || head.bytes != bytes))
		rc = err_set(e, -EBADMSG, "no chunk of this length");
	checked = IMAGE_CHUNK_HEAD_BYTES + (rc ? 0 : num_get16(at + 62));
	if (!rc && (checked > bytes || !image_record_sound(buf, checked, head.hash)))
		rc = err_set(e, -EBADMSG, "hash of the chunk's header differs");
	segment = rc ? 0 : num_get32(at + 56);
	if (!rc && (segment >= frame->n_segments || at[61]))
		rc = err_set(e, -EBADMSG, "no such segment or reserved field not zero");
	if (rc)
		return err_wrap(e, rc, "chunk at offset %" PRIu64, offset);
	chunk.seg = &frame->segments[segment];
	chunk.entry = (struct image_entry){
		.first_page = num_get64(at + 40),
		.pages = num_get64(at + 48),
		.offset = offset,
		.hash = head.hash,
		.record_bytes = (uint32_t)bytes,
		.segment = segment,
		.stored_bytes = num_get32(at + 68),
	};
	chunk.number = num_get64(at + 32);
	chunk.codec = at[60];
	chunk.map = at + IMAGE_CHUNK_HEAD_BYTES;
	chunk.map_bytes = num_get16(at + 62);
	chunk.payload = chunk.map + chunk.map_bytes;
	chunk.raw_bytes = num_get32(at + 64);
	chunk.raw_hash = num_get64(at + 72);
	rc = check_fields(&chunk, frame, bytes, e);
	if (rc < 0)
		return image_chunk_wrap(&chunk, rc, e);
	*ret = chunk;
	return 0;
}

void image_decoders_free(struct image_decoders *decoders)
{
	const struct codec *codec;
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(decoders->state); i++) {
		if (decoders->made[i] && codec_by_id(i, &codec, NULL) == 0)
			codec->state_free(decoders->state[i]);
	}
	memset(decoders, 0, sizeof(*decoders));
}

static int decode(const struct image_chunk *chunk, struct image_decoders *decoders, void *dst,
		  struct err *e)
{
	const struct codec *codec;
	int rc;

	if (!chunk->raw_bytes)
		return 0;
	rc = codec_by_id(chunk->codec, &codec, e);
	if (rc < 0)
		return rc;
	if (!decoders->made[chunk->codec]) {
		rc = codec->state_new(0, true, &decoders->state[chunk->codec]);
		if (rc < 0)
			return err_sys(e, rc, "cannot make a %s decoder", codec->name);
		decoders->made[chunk->codec] = true;
	}
	rc = codec->decompress(decoders->state[chunk->codec], dst, chunk->raw_bytes, chunk->payload,
			       chunk->entry.stored_bytes);
	if (rc == -EBADMSG)
		return err_set(e, rc, "%s data is damaged", codec->name);
	return rc < 0 ? err_sys(e, rc, "cannot decode %s data", codec->name) : 0;
}

/* The last page of a segment, where it holds data, is zero beyond the segment's end. */
static bool tail_is_zero(const struct image_chunk *chunk, const uint8_t *raw)
{
	struct image_map_iter iter = {.at = chunk->map, .end = chunk->map + chunk->map_bytes};
	uint64_t over = chunk->seg->bytes % chunk->seg->page_bytes;
	struct image_run run = {.kind = IMAGE_RUN_ZERO};

	if (!over ||
	    chunk->entry.first_page + chunk->entry.pages != image_segment_pages(chunk->seg))
		return true;
	while (image_map_next(&iter, &run) > 0)
		;
	if (run.kind != IMAGE_RUN_DATA)
		return true;
	over = chunk->seg->page_bytes - over;
	return image_all_zero(raw + chunk->raw_bytes - over, over);
}

int image_chunk_decode(const struct image_chunk *chunk, struct image_decoders *decoders, void *dst,
		       struct err *e)
{
	int rc = decode(chunk, decoders, dst, e);

	if (!rc && XXH3_64bits(dst, chunk->raw_bytes) != chunk->raw_hash)
		rc = err_set(e, -EBADMSG, "hash differs");
	if (!rc && !tail_is_zero(chunk, dst))
		rc = err_set(e, -EBADMSG, "last page is not zero beyond the segment's end");
	return rc < 0 ? image_chunk_wrap(chunk, rc, e) : 0;
}
