/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Makes every hash of an image right again after its fields were changed, so that a test or a
 * fuzzer gets behind the hashes.  Follows record lengths as far as they make sense and believes
 * nothing else; never writes outside of the image.
 */
#ifndef TORPOR_TESTS_RESEAL_H
#define TORPOR_TESTS_RESEAL_H

#include <xxhash.h>

#include "image/format.h"
#include "image/record.h"

static inline void reseal_header(uint8_t *image)
{
	num_put64(image + IMAGE_HEADER_BYTES - 8, XXH3_64bits(image, IMAGE_HEADER_BYTES - 8));
}

/* What the root holds as the header's hash. */
static inline uint64_t reseal_header_hash(const uint8_t *image)
{
	uint8_t copy[IMAGE_HEADER_BYTES];

	memcpy(copy, image, sizeof(copy));
	num_put64(copy + 56, 0);
	return XXH3_64bits(copy, IMAGE_HEADER_BYTES - 8);
}

/* Seals one record; of a chunk stored without a codec the raw hash as well. */
static inline uint64_t reseal_record(uint8_t *at, uint64_t bytes)
{
	unsigned int type = num_get16(at + 4);
	uint64_t checked = bytes;

	if (type == IMAGE_CHUNK && bytes >= IMAGE_CHUNK_HEAD_BYTES) {
		checked = num_min(bytes, IMAGE_CHUNK_HEAD_BYTES + (uint64_t)num_get16(at + 62));
		if (!at[60] && num_get32(at + 68) <= bytes - checked)
			num_put64(at + 72, XXH3_64bits(at + checked, num_get32(at + 68)));
	}
	num_put64(at + 24, 0);
	num_put64(at + 24, XXH3_64bits(at, checked));
	return num_get64(at + 24);
}

/* Has an INDEX entry or a root's block name the hash that its record has. */
static inline void reseal_reference(const uint8_t *image, size_t bytes,
				    const uint8_t *offset_at, uint8_t *hash_at)
{
	uint64_t offset = num_get64(offset_at);

	if (offset <= bytes && bytes - offset >= IMAGE_RECORD_HEAD_BYTES)
		num_put64(hash_at, num_get64(image + offset + 24));
}

static inline void reseal_index(uint8_t *image, size_t bytes, uint8_t *at,
				uint64_t record_bytes)
{
	uint64_t used;

	for (used = IMAGE_INDEX_HEAD_BYTES; used + IMAGE_ENTRY_BYTES <= record_bytes;
	     used += IMAGE_ENTRY_BYTES)
		reseal_reference(image, bytes, at + used + 32, at + used + 40);
}

static inline void reseal_root(uint8_t *image, size_t bytes, uint8_t *at, uint64_t record_bytes,
			       uint64_t digest)
{
	uint64_t used;

	if (record_bytes < IMAGE_ROOT_HEAD_BYTES)
		return;
	num_put64(at + 96, digest);
	num_put64(at + 104, reseal_header_hash(image));
	for (used = IMAGE_ROOT_HEAD_BYTES; used + IMAGE_ROOT_BLOCK_BYTES <= record_bytes;
	     used += IMAGE_ROOT_BLOCK_BYTES)
		reseal_reference(image, bytes, at + used, at + used + 16);
}

static inline void reseal_footer(uint8_t *at, const uint8_t *root, uint64_t root_bytes)
{
	XXH128_hash_t hash = XXH3_128bits(root, root_bytes);

	num_put64(at + 40, hash.low64);
	num_put64(at + 48, hash.high64);
	num_put64(at + 56, XXH3_64bits(at, 56));
}

/* Offset of the first record of a type, from `from` on; `bytes` when there is none. */
static inline size_t reseal_find(const uint8_t *image, size_t bytes, size_t from,
				 unsigned int type)
{
	size_t at = from;

	while (bytes - at >= IMAGE_RECORD_HEAD_BYTES) {
		uint64_t n = num_get64(image + at + 8);

		if (num_get32(image + at) != IMAGE_RECORD_MAGIC)
			break;
		if (num_get16(image + at + 4) == type)
			return at;
		if (n < IMAGE_RECORD_HEAD_BYTES || n > bytes - at)
			break;
		at += n;
	}
	return bytes;
}

static inline void reseal_image(uint8_t *image, size_t bytes)
{
	size_t at = IMAGE_HEADER_BYTES;
	uint64_t digest = 0, n;

	if (bytes < IMAGE_HEADER_BYTES)
		return;
	reseal_header(image);
	for (; bytes - at >= IMAGE_RECORD_HEAD_BYTES; at += n) {
		uint8_t *record = image + at;
		unsigned int type = num_get16(record + 4);

		n = num_get64(record + 8);
		if (num_get32(record) != IMAGE_RECORD_MAGIC || n < IMAGE_RECORD_HEAD_BYTES ||
		    n > bytes - at)
			return;
		if (type == IMAGE_INDEX)
			reseal_index(image, bytes, record, n);
		if (type == IMAGE_ROOT)
			reseal_root(image, bytes, record, n, digest);
		reseal_record(record, n);
		if (type == IMAGE_CHUNK)
			digest += num_get64(record + 24);
		if (type == IMAGE_ROOT && bytes - at - n >= IMAGE_FOOTER_BYTES)
			reseal_footer(record + n, record, n);
		if (type == IMAGE_ROOT)
			return;
	}
}

#endif
