/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * CHUNK records: made from a map and its data pages, taken apart and decoded.  Works on buffers
 * of its caller; functions may run in many threads on different buffers.
 */
#ifndef TORPOR_IMAGE_CHUNK_H
#define TORPOR_IMAGE_CHUNK_H

#include "codec/codec.h"
#include "image/map.h"

/* A chunk to be written.  `map` must be closed and have at least one page. */
struct image_chunk_spec {
	uint64_t id;     /* of the image */
	uint64_t number; /* unique in the image */
	uint32_t segment;
	uint64_t first_page;
	const struct image_map *map;
	const void *raw; /* the data pages, in order */
	size_t raw_bytes;
};

/*
 * Makes the record in `out`, which has room for image_chunk_record_max() bytes.  *ret_entry is
 * complete but for `offset`.  Cannot fail: what does not compress is stored as it is.
 */
void image_chunk_encode(const struct image_chunk_spec *spec, const struct codec *codec,
			struct codec_state *state, void *out, struct image_entry *ret_entry);

/* A chunk that was read; points into the record's buffer. */
struct image_chunk {
	struct image_entry entry; /* `offset` as handed in */
	uint64_t number;
	const struct image_segment *seg;
	uint8_t codec;
	const uint8_t *map;
	size_t map_bytes;
	const uint8_t *payload;
	size_t raw_bytes;
	uint64_t raw_hash;
};

/* What a chunk is read against. */
struct image_frame {
	const struct image_header *header;
	const struct image_segment *segments;
	uint64_t n_segments;
};

/*
 * Checks the record of `bytes` bytes in `buf`, read at `offset` of the image, but for its payload.
 * -EBADMSG with a message that begins with the place.
 */
int image_chunk_parse(void *buf, size_t bytes, uint64_t offset, const struct image_frame *frame,
		      struct image_chunk *ret, struct err *e);

/* A worker's decoders, made when first needed.  Zero it before use. */
struct image_decoders {
	struct codec_state *state[4];
	bool made[4];
};

void image_decoders_free(struct image_decoders *decoders);

/*
 * Decodes the data pages to `dst` (raw_bytes) and checks their hash.  -EBADMSG, -EOPNOTSUPP with
 * a message that begins with the place; `dst` then holds anything.
 */
int image_chunk_decode(const struct image_chunk *chunk, struct image_decoders *decoders, void *dst,
		       struct err *e);

/* Prepends the chunk's place: segment, page range, file offset. */
int image_chunk_wrap(const struct image_chunk *chunk, int code, struct err *e);

#endif
