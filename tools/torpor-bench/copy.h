/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What torpor-bench copy compares: ways to copy a span of pages, and what no copy can beat. */
#ifndef TORPOR_BENCH_COPY_H
#define TORPOR_BENCH_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COPY_PAGE_BYTES 4096u

/* What one call copies at most: what torpor save --stop gives to a worker at once. */
#define COPY_SPAN_PAGES 512u

enum copy_way { COPY_ONE, COPY_SPLIT, COPY_PIPE };

struct copy_rival {
	const char *name;
	/* Copies all pages, or those that are not zero; returns how many zero ones it found. */
	size_t (*span)(uint8_t *dst, const uint8_t *src, size_t pages);
	bool finds;
	enum copy_way way; /* the calling thread, a static split over all, the pipe with all */
};

enum {
	COPY_LOOP,
	COPY_LOOP_NO_CHECK,
	COPY_COPY_PAGE,
	COPY_COPY_PAGE_CHECK,
	COPY_MEMCPY,
	COPY_DEFAULT,
	COPY_STREAM,
	COPY_DEFAULT_SPLIT,
	COPY_DEFAULT_PIPE,
	COPY_STREAM_SPLIT,
	COPY_STREAM_PIPE,
	COPY_LIMIT_READ,
	COPY_LIMIT_WRITE,
	COPY_LIMIT_CHANGE,
	COPY_LIMIT_READ_ALL,
	COPY_LIMIT_CHANGE_ALL,
	COPY_RIVALS
};

extern const struct copy_rival copy_rivals[COPY_RIVALS];

#endif
