/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The reader of an image that comes in one pass, and the strictest one: it sees every byte, so
 * it also checks that no byte is unaccounted for.  Memory: one record, and the segments.
 *
 * A stream is used by one thread at a time.
 */
#ifndef TORPOR_IMAGE_STREAM_H
#define TORPOR_IMAGE_STREAM_H

#include "image/io.h"
#include "image/segment.h"
#include "image/tile.h"

struct image_stream;

/* Reads header and segments.  -EBADMSG, -EOPNOTSUPP, -ENOMEM, or what the feed gave. */
int image_stream_open(const struct image_feed *feed, struct image_stream **ret, struct err *e);
void image_stream_free(struct image_stream *s);

const struct image_header *image_stream_header(const struct image_stream *s);
const struct image_segments *image_stream_segments(const struct image_stream *s);
const struct image_frame *image_stream_frame(const struct image_stream *s);

/*
 * The length of the next CHUNK record.  1: *ret_bytes and *ret_offset tell of it, and
 * image_stream_read() must follow; 0: the image is complete, and every check passed; -EBADMSG.
 */
int image_stream_next(struct image_stream *s, size_t *ret_bytes, uint64_t *ret_offset,
		      struct err *e);

/* Reads the record into `buf`. */
int image_stream_read(struct image_stream *s, void *buf, struct err *e);

/* After image_stream_next() returned 0. */
const struct image_totals *image_stream_totals(const struct image_stream *s);

#endif
