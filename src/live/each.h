/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Doing one thing to many parts, on all threads, in no order. */
#ifndef TORPOR_LIVE_EACH_H
#define TORPOR_LIVE_EACH_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/err.h"

/* Calls fn(ctx, i) for each i below `n`, on up to `threads` threads, this one included.  The first error ends it. */
int live_each(unsigned int threads, size_t n, int (*fn)(void *ctx, size_t i, struct err *e), void *ctx,
	      const atomic_bool *cancel, struct err *e);

#endif
