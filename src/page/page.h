/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Page kernels: is a page zero, copy a page, copy a page unless it is zero.  One page or a span
 * of pages.  This room touches memory it is handed and nothing else: no allocation, no system
 * call, no threads.
 *
 * Three bodies (generic C, AVX2, NEON) stand behind one resolver, which picks the best that the
 * CPU has at first use.  TORPOR_CPU in the environment, when set and not empty, names the path
 * to force: generic, avx2 or neon.  A name that is none of these, or that this CPU cannot run,
 * aborts the process with a message on standard error, so that a test cannot silently run
 * another path than it asked for.  A process with raised privileges ignores the variable.
 *
 * All functions are safe to call from many threads at once on memory nobody writes meanwhile.
 * Source and target do not overlap and may have any alignment; a target at a multiple of 32 is
 * copied fastest.  Sizes are in bytes and a multiple of PAGE_UNIT_BYTES.  Nothing outside of
 * the page or span is read or written.
 */
#ifndef TORPOR_PAGE_PAGE_H
#define TORPOR_PAGE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Page sizes are multiples of this (the smallest one in use is 4096). */
#define PAGE_UNIT_BYTES 512

struct page_ops {
	const char *name;

	/* True when all `bytes` are zero; stops at the first vector that is not. */
	bool (*is_zero)(const void *page, size_t bytes);

	/* Copies; for data that is read again soon (stays in the cache). */
	void (*copy)(void *dst, const void *src, size_t bytes);

	/*
	 * Copies past the cache (non-temporal stores where the CPU has them): for data that is
	 * not read soon.  On return the stores are ordered as plain ones are, so that a lock or
	 * an atomic store hands them to another thread.  That waits for them: call it for as
	 * much at once as lies together, not page by page.
	 */
	void (*copy_stream)(void *dst, const void *src, size_t bytes);

	/*
	 * Zero test with early exit, then copy_stream.  Returns true when the page is zero;
	 * `dst` is then left as it was.  For more than a page at a time
	 * page_span_copy_find_zero() is up to half as fast again: it orders stores once.
	 */
	bool (*copy_unless_zero)(void *dst, const void *src, size_t bytes);
};

/* The path in use.  Never NULL. */
const struct page_ops *page_ops(void);

/* The paths this CPU can run, generic first; ends with NULL.  For tests and benchmarks. */
const struct page_ops *const *page_ops_all(void);

/* 64-bit words of a bitmap for `pages` pages. */
static inline size_t page_bitmap_words(size_t pages)
{
	return pages / 64 + (pages % 64 != 0);
}

static inline bool page_bitmap_test(const uint64_t *bitmap, size_t page)
{
	return bitmap[page / 64] >> (page % 64) & 1;
}

/*
 * Zero test over `pages` consecutive pages of `page_bytes` each.  Bit i of `ret_zero` (of
 * page_bitmap_words(pages) words, unused high bits cleared) says that page i is zero.
 * Returns how many are.
 */
size_t page_span_find_zero(const void *src, size_t pages, size_t page_bytes,
			   uint64_t *ret_zero);

/*
 * Copies a span past the cache, page by page, leaving the places of zero pages in `dst`
 * untouched; bitmap and result as page_span_find_zero().
 */
size_t page_span_copy_find_zero(void *dst, const void *src, size_t pages, size_t page_bytes,
				uint64_t *ret_zero);

#endif
