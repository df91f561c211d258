/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Regions of this process's own memory: their copy, taken while the program keeps its writers
 * quiet.  (Without keeping them quiet: protect.h.)  Pages that do not exist, of sparse memory,
 * are neither read nor made.
 */
#ifndef TORPOR_LIVE_REGIONS_H
#define TORPOR_LIVE_REGIONS_H

#include "live/copy.h"
#include "live/protect.h"

struct live_regions;

/*
 * Prepares: allocates and populates memory for what of them exists now, in pieces of 2 MiB.
 * Regions are whole pages, and do not overlap; from here to the end of live_regions_take() they
 * stay mapped as they are.  -ENOMEM it does not fit; -EFAULT a part is not mapped, or cannot be
 * read.
 */
int live_regions_new(const struct live_region *regions, size_t n,
		     const struct live_copy_opts *opts, struct live_regions **ret,
		     struct err *e);

/* Copies: the state at the call.  Once. */
int live_regions_take(struct live_regions *r, struct err *e);

/* What was copied, once it was; item i is region i. */
const struct memory_view *live_regions_view(const struct live_regions *r);

void live_regions_counts(const struct live_regions *r, struct live_copy_counts *ret);
void live_regions_free(struct live_regions *r);

#endif
