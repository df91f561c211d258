/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The 32 bytes that every record begins with, the header block and the footer: encoding,
 * decoding, hashes.  Pure functions on buffers.
 */
#ifndef TORPOR_IMAGE_RECORD_H
#define TORPOR_IMAGE_RECORD_H

#include "base/err.h"
#include "image/format.h"

/*
 * Writes the first 32 bytes of the record in `buf`, of `bytes` bytes, whose first `checked` are
 * covered by the hash.  Everything else must be in place.  Returns the hash field.
 */
uint64_t image_record_seal(void *buf, enum image_record_type type, uint64_t bytes, size_t checked,
			   uint64_t id);

/*
 * Reads the first 32 bytes of a record and checks magic, identity, type and limits.  -EBADMSG.
 * `chunk_bytes` is the image's; `left` is how much of the image there is from here.
 */
int image_record_head(const void *buf, uint64_t id, uint32_t chunk_bytes, uint64_t left,
		      struct image_record *ret, struct err *e);

/* Does the hash field fit the first `checked` bytes?  Zeroes the field in `buf` on the way. */
bool image_record_sound(void *buf, size_t checked, uint64_t hash);

/* "CHUNK", for messages. */
const char *image_record_name(enum image_record_type type);

/* True when all `bytes` bytes are zero. */
bool image_all_zero(const void *buf, size_t bytes);

void image_header_encode(void *buf, struct image_header *header); /* fills in header->hash */

/* -EBADMSG damaged or no image, -EOPNOTSUPP newer or unknown feature. */
int image_header_decode(const void *buf, struct image_header *ret, struct err *e);

void image_footer_encode(void *buf, const struct image_footer *footer);

/* -EBADMSG.  `id` is the header's, `image_bytes` how long the image really is. */
int image_footer_decode(const void *buf, uint64_t id, uint64_t image_bytes,
			struct image_footer *ret, struct err *e);

#endif
