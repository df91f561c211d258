/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A whole image from one whose index or end is lost; see docs/format.md, section 9.3.  Needs about
 * 100 bytes of memory for each chunk.
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
	const atomic_bool *cancel;   /* set by the caller; may be NULL */
};

/* Reads `input` by scanning and writes the new image to `sink`, all but its commit.  -EBADMSG. */
int image_rebuild(const struct image_input *input, const struct image_sink *sink,
		  struct image_rebuild *rebuild, struct err *e);

#endif
