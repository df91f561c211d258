/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The worker of a load: records in a buffer are checked, decoded and put into the target's pages.
 */
#ifndef TORPOR_API_UNPACK_H
#define TORPOR_API_UNPACK_H

#include <stdatomic.h>

#include "image/tile.h"
#include "memory/target.h"

/* Records of a job: read together, of about UNPACK_BYTES, or a single larger one. */
#define UNPACK_RECORDS_MAX 64u
#define UNPACK_BYTES KIB(512)

struct unpack_record {
	uint32_t at, bytes; /* in the buffer */
	uint64_t offset;    /* in the image */
	struct image_entry told; /* by the index; only when `indexed` */
};

struct unpack_job {
	uint64_t offset; /* of all of them in the image */
	uint32_t bytes;
	unsigned int n_records;
	bool indexed; /* the index told of the records, and they are still to be read */
	struct unpack_record records[UNPACK_RECORDS_MAX];
};

/* What all workers share. */
struct unpack_plan {
	const struct image_frame *frame;
	struct memory_target *target; /* NULL: only check */
	_Atomic uint64_t *done_bytes;
};

struct unpack_worker {
	uint8_t *in;  /* unpack_in_bytes() */
	uint8_t *raw; /* a chunk */
	struct image_decoders decoders;
};

size_t unpack_in_bytes(uint32_t chunk_bytes);
int unpack_worker_new(uint32_t chunk_bytes, struct unpack_worker **ret, struct err *e);
void unpack_worker_free(struct unpack_worker *w);

/* Takes the records in w->in apart.  -EBADMSG, -EOPNOTSUPP, or what the target gave. */
int unpack_records(struct unpack_plan *plan, struct unpack_worker *w, const struct unpack_job *job,
		   struct err *e);

#endif
