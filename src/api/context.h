/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What every operation of the public interface shares: the context, the sized options, the
 * latency guard, and the glue between the store's and the image's view of bytes.
 */
#ifndef TORPOR_API_CONTEXT_H
#define TORPOR_API_CONTEXT_H

#include <stdatomic.h>
#include <torpor.h>

#include "base/err.h"
#include "image/io.h"
#include "image/tile.h"
#include "live/find.h"
#include "memory/item.h"
#include "store/store.h"

#define API __attribute__((visibility("default")))

struct torpor {
	struct err e;
	struct memory_warnings *warnings;
	atomic_bool cancel;
	_Atomic uint64_t done_bytes, total_bytes;
	struct live_memories found; /* by the last save, of processes that it stopped */
};

/* Forgets the last operation. */
void context_begin(struct torpor *ctx);

/* Ends an operation: a cancel that was obeyed is used up.  Returns `rc`, or -EIO for an EINVAL of the system's. */
int context_end(struct torpor *ctx, int rc);

/* -ECANCELED, with a message, when that was asked for. */
int context_cancelled(struct torpor *ctx);

/*
 * Copies the caller's sized options (or NULL) over the zeroed `dst`.  -EINVAL for a size that
 * cannot be, or for an option that is set and that this library does not know.
 */
int options_take(void *dst, size_t bytes, const void *src, struct err *e);

/* Can this be a caller's sized result (or NULL)?  To be asked before there is a result: -EINVAL. */
int options_check_result(const void *dst, struct err *e);

/* Fills the caller's sized result (or NULL) from `src`, as much as it has room for.  -EINVAL. */
int options_give(void *dst, const void *src, size_t bytes, struct err *e);

/* The number of workers: what was asked for, else what is allowed.  -EINVAL. */
int options_threads(uint32_t asked, unsigned int *ret, struct err *e);

/*
 * Holds the latency guard.  *ret_fd is -1 when it is not held, and `reason` then says why.  An error only for
 * TORPOR_GUARD_ON.
 */
int guard_hold(uint32_t mode, int *ret_fd, char *reason, size_t reason_bytes, struct err *e);
void guard_release(int *fd);

/* The store's bytes as the image room sees them; what they point to is borrowed. */
struct image_sink glue_sink(struct store *store);
struct image_input glue_input(struct store_input *in);

/* A one-pass view of a descriptor or of an input. */
struct glue_feed {
	int fd; /* -1: the input */
	struct store_input *in;
	uint64_t at; /* of the input */
	const atomic_bool *cancel;
};

struct image_feed glue_feed(struct glue_feed *feed);

/* Opens the place an image is written to.  -EEXIST, ... */
int glue_create(struct torpor *ctx, const char *image, uint32_t flags, int fd, struct store **ret);

/*
 * Looks whether the image would replace what it is made from.  A source that is the image is -EINVAL; what lies in a
 * source and is the image, or an unfinished one for it, is taken out of the list, with a warning.
 */
int glue_spare_sources(const char *image, uint32_t flags, int fd, struct memory_items *items,
		       struct memory_warnings *warnings, struct err *e);

/* -EINVAL when `target` is the image that is open, under whatever name. */
int glue_check_other(const struct store_input *in, const char *target, struct err *e);

/* Commits; `header` is what the image began with, for stores that want it last. */
int glue_commit(struct store *store, const struct image_header *header, uint64_t image_bytes, struct err *e);

void report_totals(struct torpor_report *report, const struct image_totals *totals);

#endif
