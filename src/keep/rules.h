/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What page.c and range.c share: how orders stand to each other.  Private to the room. */
#ifndef TORPOR_KEEP_RULES_H
#define TORPOR_KEEP_RULES_H

#include "keep/table.h"

/* 0, or -EBUSY when pages [start, end) overlap with a block of another order than this. */
int keep_busy(struct keep_hand *hand, unsigned int order, uint64_t start, uint64_t end);

/*
 * Takes pages [lo, hi) out of the block of this order in which they lie (and which they are not
 * the whole of); the rest of it stays, as the largest aligned blocks.  -ENOENT when somebody
 * took the block out meanwhile; other errors as in keep.h.  Nothing was changed then.
 */
int keep_split(struct keep_hand *hand, unsigned int order, uint64_t lo, uint64_t hi);

/* A run of blocks of one order: pages [start, end). */
struct keep_piece {
	unsigned int order;
	uint64_t start, end;
};

/*
 * The first piece of [start, end), start < end: the largest aligned blocks, at most of the
 * order given, as many as are alike.  A pure function, so that what was cut once can be cut
 * again.
 */
struct keep_piece keep_cut(uint64_t start, uint64_t end, unsigned int order_max);

#endif
