/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * INDEX records and what makes an index right: its entries tile every segment.  The same check
 * serves who writes an index, who reads it in order, and who reads it from a pipe.
 */
#ifndef TORPOR_IMAGE_TILE_H
#define TORPOR_IMAGE_TILE_H

#include "image/chunk.h"

void image_entry_encode(void *buf, const struct image_entry *entry);
void image_entry_decode(const void *buf, struct image_entry *ret);

/* Does INDEX tell the truth of a chunk?  All of it: what it hides would come back as a hole. */
bool image_entry_same(const struct image_entry *told, const struct image_entry *seen);

/*
 * Checks an INDEX record read at `offset`, its hash included, and tells how many entries it has;
 * entry i lies at IMAGE_INDEX_HEAD_BYTES + i * IMAGE_ENTRY_BYTES.  -EBADMSG.
 */
int image_index_check(void *record, const struct image_record *head, uint64_t offset,
		      uint32_t *ret_count, struct err *e);

/* Where the next entry has to begin, and what the entries so far add up to. */
struct image_tile {
	const struct image_frame *frame;
	uint64_t segment, next_page;
	struct image_totals totals;
};

/* Takes the next entry.  -EBADMSG when it does not follow the one before, or lies about itself. */
int image_tile_add(struct image_tile *tile, const struct image_entry *entry, struct err *e);

/* After the last entry: every segment was covered.  -EBADMSG. */
int image_tile_end(struct image_tile *tile, struct err *e);

/* The root's body: totals.  image_bytes is not part of it. */
void image_totals_encode(void *root, const struct image_totals *totals);
void image_totals_decode(const void *root, struct image_totals *ret);

/* Are these the same, image_bytes apart?  -EBADMSG. */
int image_totals_compare(const struct image_totals *counted, const struct image_totals *said,
			 struct err *e);

#endif
