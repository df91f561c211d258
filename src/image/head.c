// SPDX-License-Identifier: LGPL-2.1-or-later
/* The header block and the footer.  See docs/format.md, sections 2 and 8. */
#include <inttypes.h>
#include <xxhash.h>

#include "image/record.h"

#define HEADER_HASH_AT (IMAGE_HEADER_BYTES - 8)
#define HEADER_IMAGE_BYTES_AT 56
#define FOOTER_HASH_AT (IMAGE_FOOTER_BYTES - 8)

/* The root vouches for the header as it was before a block device's length was put in. */
static uint64_t header_hash_without_length(const void *buf)
{
	unsigned char copy[IMAGE_HEADER_BYTES];

	memcpy(copy, buf, sizeof(copy));
	num_put64(copy + HEADER_IMAGE_BYTES_AT, 0);
	return XXH3_64bits(copy, HEADER_HASH_AT);
}

void image_header_encode(void *buf, struct image_header *header)
{
	unsigned char *at = buf;

	memset(at, 0, IMAGE_HEADER_BYTES);
	memcpy(at, IMAGE_MAGIC, IMAGE_MAGIC_BYTES);
	num_put32(at + 8, IMAGE_VERSION);
	num_put32(at + 12, IMAGE_HEADER_BYTES);
	num_put64(at + 16, header->incompatible);
	num_put64(at + 24, header->compatible);
	num_put64(at + 32, header->id);
	num_put64(at + 40, (uint64_t)header->created_ns);
	num_put32(at + 48, header->chunk_bytes);
	num_put32(at + 52, (uint32_t)header->level);
	num_put64(at + HEADER_IMAGE_BYTES_AT, header->image_bytes);
	memcpy(at + 64, header->codec, 16);
	num_put64(at + HEADER_HASH_AT, XXH3_64bits(at, HEADER_HASH_AT));
	header->hash = header_hash_without_length(at);
}

static int header_supported(const unsigned char *at, struct err *e)
{
	uint64_t incompatible = num_get64(at + 16);

	if (memcmp(at, IMAGE_MAGIC, IMAGE_MAGIC_BYTES) != 0)
		return err_set(e, -EBADMSG, "not a torpor image (no magic at offset 0)");
	if (XXH3_64bits(at, HEADER_HASH_AT) != num_get64(at + HEADER_HASH_AT))
		return err_set(e, -EBADMSG, "header (offset 0): hash differs");
	if (num_get32(at + 8) > IMAGE_VERSION)
		return err_set(e, -EOPNOTSUPP,
			       "image has format version %u, newer than this program's %u",
			       num_get32(at + 8), IMAGE_VERSION);
	if (incompatible)
		return err_set(e, -EOPNOTSUPP,
			       "image needs feature bit %d, which this program does not know",
			       __builtin_ctzll(incompatible));
	return 0;
}

int image_header_decode(const void *buf, struct image_header *ret, struct err *e)
{
	const unsigned char *at = buf;
	struct image_header h = {.version = num_get32(at + 8)};
	int rc = header_supported(at, e);

	if (rc < 0)
		return rc;
	h.incompatible = num_get64(at + 16);
	h.compatible = num_get64(at + 24);
	h.id = num_get64(at + 32);
	h.created_ns = (int64_t)num_get64(at + 40);
	h.chunk_bytes = num_get32(at + 48);
	h.level = (int32_t)num_get32(at + 52);
	h.image_bytes = num_get64(at + HEADER_IMAGE_BYTES_AT);
	memcpy(h.codec, at + 64, 16);
	h.hash = header_hash_without_length(at);
	if (h.version < 1 || num_get32(at + 12) != IMAGE_HEADER_BYTES ||
	    h.chunk_bytes < IMAGE_CHUNK_MIN_BYTES || h.chunk_bytes > IMAGE_CHUNK_MAX_BYTES ||
	    !num_is_pow2(h.chunk_bytes))
		return err_set(e, -EBADMSG, "header (offset 0): impossible version, length or chunk size");
	if (!(h.compatible & ~IMAGE_COMPATIBLE_KNOWN) && !image_all_zero(at + 80, HEADER_HASH_AT - 80))
		return err_set(e, -EBADMSG, "header (offset 0): reserved field is not zero");
	*ret = h;
	return 0;
}

void image_footer_encode(void *buf, const struct image_footer *footer)
{
	unsigned char *at = buf;

	memcpy(at, IMAGE_END_MAGIC, IMAGE_MAGIC_BYTES);
	num_put64(at + 8, footer->root_offset);
	num_put64(at + 16, footer->root_bytes);
	num_put64(at + 24, footer->image_bytes);
	num_put64(at + 32, footer->id);
	num_put64(at + 40, footer->root_hash_low);
	num_put64(at + 48, footer->root_hash_high);
	num_put64(at + FOOTER_HASH_AT, XXH3_64bits(at, FOOTER_HASH_AT));
}

int image_footer_decode(const void *buf, uint64_t id, uint64_t image_bytes,
			struct image_footer *ret, struct err *e)
{
	const unsigned char *at = buf;
	struct image_footer f = {
		.root_offset = num_get64(at + 8),
		.root_bytes = num_get64(at + 16),
		.image_bytes = num_get64(at + 24),
		.id = num_get64(at + 32),
		.root_hash_low = num_get64(at + 40),
		.root_hash_high = num_get64(at + 48),
	};

	if (memcmp(at, IMAGE_END_MAGIC, IMAGE_MAGIC_BYTES) != 0)
		return err_set(e, -EBADMSG, "image is not complete: no footer at offset %" PRIu64,
			       image_bytes - IMAGE_FOOTER_BYTES);
	if (XXH3_64bits(at, FOOTER_HASH_AT) != num_get64(at + FOOTER_HASH_AT))
		return err_set(e, -EBADMSG, "footer at offset %" PRIu64 ": hash differs",
			       image_bytes - IMAGE_FOOTER_BYTES);
	if (f.id != id || f.image_bytes != image_bytes || f.root_offset < IMAGE_HEADER_BYTES ||
	    f.root_bytes < IMAGE_ROOT_HEAD_BYTES || f.root_offset > image_bytes ||
	    f.root_bytes > image_bytes ||
	    f.root_offset + f.root_bytes + IMAGE_FOOTER_BYTES != image_bytes)
		return err_set(e, -EBADMSG,
			       "footer at offset %" PRIu64 ": it does not describe this image",
			       image_bytes - IMAGE_FOOTER_BYTES);
	*ret = f;
	return 0;
}
