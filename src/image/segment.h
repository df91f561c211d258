/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * SEGMENTS records, and the table of segments that a reader makes from them.  Names are checked
 * here, once, so that whoever restores may rely on them: relative, no `..`, parents first.
 */
#ifndef TORPOR_IMAGE_SEGMENT_H
#define TORPOR_IMAGE_SEGMENT_H

#include "image/chunk.h"

/* Bytes of a segment's descriptor in a record. */
size_t image_segment_bytes(const struct image_segment *segment);

/* Writes a descriptor; `buf` has room for image_segment_bytes(). */
void image_segment_encode(void *buf, const struct image_segment *segment);

/* A growing table that owns its segments.  Zero it before use. */
struct image_segments {
	struct image_segment *items;
	uint64_t count, room;
	uint64_t *by_name; /* after image_segments_seal(): numbers in the order of names */
};

/*
 * Adds what a SEGMENTS record of `bytes` bytes holds; its hash was checked.  -EBADMSG, -EOPNOTSUPP
 * with a message, -ENOMEM.
 */
int image_segments_add(struct image_segments *table, const void *record, size_t bytes,
		       uint32_t chunk_bytes, struct err *e);

/* After the last one: names differ, and every parent is an earlier folder.  -EBADMSG. */
int image_segments_seal(struct image_segments *table, struct err *e);

/* Finds a segment by name; -ENOENT.  Only after image_segments_seal(). */
int image_segments_find(const struct image_segments *table, const char *name, size_t name_bytes,
			uint64_t *ret);

void image_segments_free(struct image_segments *table);

/* True for a name that docs/format.md, section 4, allows. */
bool image_name_valid(const char *name);

#endif
