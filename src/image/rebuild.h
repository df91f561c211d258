/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A whole image from one whose index or end is lost; see docs/format.md, section 9.3.  Needs 72 bytes of
 * memory for each chunk, in an array that doubles: up to 144, and up to 216 while it grows.
 */
#ifndef TORPOR_IMAGE_REBUILD_H
#define TORPOR_IMAGE_REBUILD_H

#include <stdatomic.h>

#include "image/io.h"
#include "image/tile.h"

struct image_rebuild {
	struct image_header header;  /* of both images */
	struct image_totals totals;  /* of the new one */
	uint64_t lost_bytes;         /* in pages that no record tells of */
	/* Set by the caller; may be NULL. */
	const atomic_bool *cancel;
	_Atomic uint64_t *done_bytes; /* gets how much of the input was read; all of it is read twice */
};

/* Reads `input` by scanning and writes the new image to `sink`, all but its commit.  -EBADMSG. */
int image_rebuild(const struct image_input *input, const struct image_sink *sink,
		  struct image_rebuild *rebuild, struct err *e);

#endif
