/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Copying in passes: what changed since a pass is known from the soft-dirty bits of all processes that map the memory, and from
 * a watch for changes that go past mappings.  See docs/design/live.md for what neither shows.
 */
#ifndef TORPOR_LIVE_PASSES_H
#define TORPOR_LIVE_PASSES_H

#include <sys/types.h>

#include "live/copy.h"

struct live_passes;

/* -EOPNOTSUPP this kernel keeps no soft-dirty bits. */
int live_passes_new(struct live_copy *copy, struct live_passes **ret, struct err *e);

/*
 * From here on changes by these processes are noted.  For the first pass they may run; later ones stand still
 * from before live_passes_mark() until after this.
 */
int live_passes_begin(struct live_passes *p, const pid_t *pids, size_t n, struct err *e);

/* They stand still: what changed since live_passes_begin() will be copied again.  A process that has gone makes it all of it. */
int live_passes_mark(struct live_passes *p, const pid_t *pids, size_t n, struct err *e);

void live_passes_free(struct live_passes *p);

#endif
