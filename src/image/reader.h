/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The reader of an image that can be read at random: footer, root and segments when it is opened,
 * INDEX records when they are needed, one at a time.
 *
 * A reader is used by one thread at a time.  What it hands out lives as long as it does.
 */
#ifndef TORPOR_IMAGE_READER_H
#define TORPOR_IMAGE_READER_H

#include "image/io.h"
#include "image/segment.h"
#include "image/tile.h"

struct image_reader;

/* -EBADMSG, -EOPNOTSUPP, -ENOMEM, or what the input gave. */
int image_reader_open(const struct image_input *input, struct image_reader **ret, struct err *e);
void image_reader_free(struct image_reader *r);

const struct image_header *image_reader_header(const struct image_reader *r);
const struct image_totals *image_reader_totals(const struct image_reader *r);
const struct image_segments *image_reader_segments(const struct image_reader *r);
const struct image_frame *image_reader_frame(const struct image_reader *r);

/* Finds the chunk that holds a page of a segment.  -EBADMSG.  The page must exist. */
int image_reader_find(struct image_reader *r, uint32_t segment, uint64_t page,
		      struct image_entry *ret, struct err *e);

/* Goes through the index in order.  Zero it, set `reader`. */
struct image_cursor {
	struct image_reader *reader;
	uint64_t block; /* the next to be loaded */
	uint32_t i, count;
	struct image_tile tile;
};

/*
 * 1: *ret is the next entry; 0: there are no more, and all of them tile the segments and add up
 * to the root's totals; -EBADMSG.
 */
int image_cursor_next(struct image_cursor *cursor, struct image_entry *ret, struct err *e);

#endif
