/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The writer: everything of an image but its chunks.  It writes header and segments first, keeps
 * the index as chunks are reported to it in order, and ends the image with root and footer.
 *
 * Chunks with data are made and appended to the sink by their workers (image_chunk_encode()); the
 * writer is told of them, in the order of segments and pages, by one thread at a time.
 */
#ifndef TORPOR_IMAGE_WRITER_H
#define TORPOR_IMAGE_WRITER_H

#include "image/chunk.h"
#include "image/io.h"

struct image_writer;

/*
 * Starts an image: header and SEGMENTS go to the sink.  `segments` is borrowed until
 * image_writer_free().  Takes version, hash and nothing else of `header` itself.
 */
int image_writer_new(const struct image_sink *sink, const struct image_header *header,
		     const struct image_segment *segments, uint64_t n_segments,
		     struct image_writer **ret, struct err *e);

/* Reports a chunk that lies in the image already (entry complete with offset). */
int image_writer_chunk(struct image_writer *w, const struct image_entry *entry, struct err *e);

/* Reports pages without data; neighbours become one record. */
int image_writer_run(struct image_writer *w, uint32_t segment, uint64_t first_page, uint64_t pages,
		     enum image_run_kind kind, struct err *e);

/*
 * Before the first run: chunks that are copied from another image have numbers up to `number`, which
 * those of runs must not repeat.
 */
void image_writer_number_from(struct image_writer *w, uint64_t number);

/* Index, root, flush, footer, flush.  The image is then complete. */
int image_writer_finish(struct image_writer *w, struct image_totals *ret, struct err *e);

/* The header as it stands in the image. */
const struct image_header *image_writer_header(const struct image_writer *w);

void image_writer_free(struct image_writer *w);

#endif
