/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How the image room reaches bytes: three small vtables that a store (or a test) fills in.  A
 * whole read or write, or an error; there are no short results.
 */
#ifndef TORPOR_IMAGE_IO_H
#define TORPOR_IMAGE_IO_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* Where an image is written. */
struct image_sink {
	void *ctx;
	/*
	 * Gives `bytes` bytes the next place of the image and writes them there; *ret_offset is
	 * that place.  May block; called by many threads at once.  Never NULL.
	 */
	int (*append)(void *ctx, const void *data, size_t bytes, uint64_t *ret_offset, struct err *e);
	/* Everything appended so far is durable when it returns.  Called by one thread. */
	int (*flush)(void *ctx, struct err *e);
};

/* An image that can be read at random. */
struct image_input {
	void *ctx;
	uint64_t bytes; /* how long it is */
	/* Reads exactly `bytes`.  -EBADMSG beyond the end.  May block; called by many threads. */
	int (*read_at)(void *ctx, void *buf, size_t bytes, uint64_t offset, struct err *e);
};

/* An image that comes in one pass. */
struct image_feed {
	void *ctx;
	/* Reads exactly `bytes`.  -EBADMSG when it ends before.  May block; one thread at a time. */
	int (*read)(void *ctx, void *buf, size_t bytes, struct err *e);
};

#endif
