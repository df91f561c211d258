/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages of items that somebody holds: a copy that was taken in the critical section, or memory of this process that is
 * read by a function.  What a save reads in place of files.
 */
#ifndef TORPOR_MEMORY_VIEW_H
#define TORPOR_MEMORY_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Consecutive pages of one item. */
struct memory_extent {
	uint32_t item;
	bool hole;
	uint64_t first_page, pages;
	const uint8_t *at;    /* data: where it lies; NULL: to be read */
	const uint64_t *zero; /* bitmap of pages known to be zero, which then need not lie at `at`; NULL: not known */
	unsigned int zero_at; /* bit of the first page */
};

struct memory_view {
	const struct memory_extent *list; /* by item and page; each item is tiled whole */
	size_t n;
	void *ctx;
	/* Reads pages of an extent without `at`.  Any thread.  May be NULL when there is none. */
	int (*read)(void *ctx, uint32_t item, uint64_t first_page, uint64_t pages, void *buf, struct err *e);
	/* Pages at `at` are not needed any more.  Any thread.  May be NULL. */
	void (*release)(void *ctx, const uint8_t *at, uint64_t pages);
};

#endif
