/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What one path (generic, AVX2, NEON) gives to the resolver and to the span functions; seen by
 * this room alone.  A path is one constant table in one file; a file whose path is for another
 * architecture compiles to nothing.
 */
#ifndef TORPOR_PAGE_PAGE_PATH_H
#define TORPOR_PAGE_PAGE_PATH_H

#include "page/page.h"

struct page_path {
	struct page_ops ops;

	/* True when this CPU, and the system on it, can run the path. */
	bool (*is_supported)(void);

	/*
	 * ops.is_zero() and ops.copy_unless_zero() for a page of a span.  `behind` is how much of
	 * the span lies behind the page: so far a path may fetch ahead.
	 *
	 * The copy's stores are not ordered.  A span orders once, at its end: a fence after every
	 * page waits each time until the write-combining buffers are empty, which was measured to
	 * cost a third of the copy's speed.
	 */
	bool (*is_zero_in_span)(const void *page, size_t bytes, size_t behind);
	bool (*copy_unless_zero_in_span)(void *dst, const void *src, size_t bytes,
					 size_t behind);

	/* Makes up for that: one call orders all that was copied before. */
	void (*order_stores)(void);
};

extern const struct page_path page_path_generic;

#if defined(__x86_64__)
extern const struct page_path page_path_avx2;
#define PAGE_PATH_NATIVE (&page_path_avx2)
#elif defined(__aarch64__)
extern const struct page_path page_path_neon;
#define PAGE_PATH_NATIVE (&page_path_neon)
#endif

#endif
