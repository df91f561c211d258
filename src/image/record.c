// SPDX-License-Identifier: LGPL-2.1-or-later
/* What all records share.  See docs/format.md, section 3. */
#include "image/record.h"

#include <inttypes.h>
#include <xxhash.h>

bool image_all_zero(const void *buf, size_t bytes)
{
	const unsigned char *at = buf;
	size_t i;

	for (i = 0; i < bytes; i++) {
		if (at[i])
			return false;
	}
	return true;
}

const char *image_record_name(enum image_record_type type)
{
	static const char *const names[] = {
		[IMAGE_SEGMENTS] = "SEGMENTS", [IMAGE_CHUNK] = "CHUNK", [IMAGE_INDEX] = "INDEX",
		[IMAGE_ROOT] = "ROOT",         [IMAGE_PAD] = "PAD",
	};

	if ((size_t)type >= ARRAY_LEN(names) || !names[type])
		return "unknown";
	return names[type];
}

uint64_t image_record_seal(void *buf, enum image_record_type type, uint64_t bytes, size_t checked,
			   uint64_t id)
{
	unsigned char *at = buf;
	uint64_t hash;

	num_put32(at, IMAGE_RECORD_MAGIC);
	num_put16(at + 4, type);
	num_put16(at + 6, 0);
	num_put64(at + 8, bytes);
	num_put64(at + 16, id);
	num_put64(at + 24, 0);
	hash = XXH3_64bits(at, checked);
	num_put64(at + 24, hash);
	return hash;
}

bool image_record_sound(void *buf, size_t checked, uint64_t hash)
{
	num_put64((unsigned char *)buf + 24, 0);
	return XXH3_64bits(buf, checked) == hash;
}

static uint64_t record_limit(unsigned int type, uint32_t chunk_bytes)
{
	switch (type) {
	case IMAGE_CHUNK:
		return image_chunk_record_max(chunk_bytes);
	case IMAGE_SEGMENTS:
	case IMAGE_INDEX:
	case IMAGE_PAD:
		return IMAGE_BLOCK_MAX_BYTES;
	case IMAGE_ROOT:
		return UINT64_MAX;
	default:
		return 0;
	}
}

int image_record_head(const void *buf, uint64_t id, uint32_t chunk_bytes, uint64_t left,
		      struct image_record *ret, struct err *e)
{
	const unsigned char *at = buf;
	unsigned int type = num_get16(at + 4);
	uint64_t bytes = num_get64(at + 8);

	if (num_get32(at) != IMAGE_RECORD_MAGIC)
		return err_set(e, -EBADMSG, "no record begins here");
	if (num_get64(at + 16) != id)
		return err_set(e, -EBADMSG, "record belongs to another image");
	if (!record_limit(type, chunk_bytes) || num_get16(at + 6))
		return err_set(e, -EBADMSG, "record of unknown type %u", type);
	if (bytes < IMAGE_RECORD_HEAD_BYTES || bytes % 8 || bytes > record_limit(type, chunk_bytes) ||
	    bytes > left)
		return err_set(e, -EBADMSG, "%s record has an impossible length of %" PRIu64 " bytes",
			       image_record_name(type), bytes);
	*ret = (struct image_record){
		.type = type, .bytes = bytes, .id = id, .hash = num_get64(at + 24)};
	return 0;
}
