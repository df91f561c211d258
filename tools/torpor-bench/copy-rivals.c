// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Ways to copy a span of pages: those of the kernel's copy_data_pages(), torpor's, and bare
 * reading and writing.
 */
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "copy.h"
#include "page/page.h"

#define PAGE_WORDS (COPY_PAGE_BYTES / sizeof(unsigned long))
#define LINE_BYTES 64

/*
 * A word that the compiler knows nothing about.  The kernel is compiled without vectors: a loop
 * over such words stays one over words, and is not taken for memcpy().
 */
static inline unsigned long opaque(unsigned long word)
{
	__asm__("" : "+r"(word));
	return word;
}

/* The kernel's do_copy_page(). */
static bool loop_page(void *dst_page, const void *src_page)
{
	const unsigned long *src = src_page;
	unsigned long *dst = dst_page, any = 0;
	size_t n;

	for (n = PAGE_WORDS; n; n--) {
		unsigned long word = opaque(*src++);

		any |= word;
		*dst++ = word;
	}
	return !any;
}

/* The place that a zero page was copied to is taken for the next page, as the kernel does. */
static size_t loop(uint8_t *dst, const uint8_t *src, size_t pages)
{
	size_t i, zero = 0;

	for (i = 0; i < pages; i++)
		zero += loop_page(dst + (i - zero) * COPY_PAGE_BYTES,
				  src + i * COPY_PAGE_BYTES);
	return zero;
}

static size_t loop_no_check(uint8_t *dst_at, const uint8_t *src_at, size_t pages)
{
	const unsigned long *src = (const unsigned long *)src_at;
	unsigned long *dst = (unsigned long *)dst_at;
	size_t n;

	for (n = pages * PAGE_WORDS; n; n--)
		*dst++ = opaque(*src++);
	return 0;
}

/* The kernel's copy_page() where the CPU has fast string operations, which are those of the
 * last ten years. */
static void copy_page(void *dst, const void *src)
{
#if defined(__x86_64__)
	size_t words = PAGE_WORDS;

	__asm__ volatile("rep movsq" : "+D"(dst), "+S"(src), "+c"(words) : : "memory");
#else
	memcpy(dst, src, COPY_PAGE_BYTES);
#endif
}

static size_t copy_pages(uint8_t *dst, const uint8_t *src, size_t pages)
{
	size_t i;

	for (i = 0; i < pages; i++)
		copy_page(dst + i * COPY_PAGE_BYTES, src + i * COPY_PAGE_BYTES);
	return 0;
}

static bool is_zero_by_words(const void *page)
{
	const unsigned long *at = page;
	size_t i;

	for (i = 0; i < PAGE_WORDS; i++) {
		if (opaque(at[i]))
			return false;
	}
	return true;
}

static size_t check_copy_pages(uint8_t *dst, const uint8_t *src, size_t pages)
{
	size_t i, zero = 0;

	for (i = 0; i < pages; i++) {
		if (is_zero_by_words(src + i * COPY_PAGE_BYTES))
			zero++;
		else
			copy_page(dst + i * COPY_PAGE_BYTES, src + i * COPY_PAGE_BYTES);
	}
	return zero;
}

/* Of a size that the compiler does not see, or it would put an instruction of its own choice
 * here. */
static size_t by_memcpy(uint8_t *dst, const uint8_t *src, size_t pages)
{
	size_t i;

	for (i = 0; i < pages; i++)
		memcpy(dst + i * COPY_PAGE_BYTES, src + i * COPY_PAGE_BYTES,
		       opaque(COPY_PAGE_BYTES));
	return 0;
}

static size_t torpor_default(uint8_t *dst, const uint8_t *src, size_t pages)
{
	uint64_t zero[COPY_SPAN_PAGES / 64];

	return page_span_copy_find_zero(dst, src, pages, COPY_PAGE_BYTES, zero);
}

static size_t torpor_stream(uint8_t *dst, const uint8_t *src, size_t pages)
{
	page_ops()->copy_stream(dst, src, pages * COPY_PAGE_BYTES);
	return 0;
}

/*
 * Reads a word of each line, which brings the whole line; four lines a step, or the loop would
 * be the limit.
 */
static size_t only_read(uint8_t *dst, const uint8_t *src, size_t pages)
{
	const size_t step = LINE_BYTES / sizeof(uint64_t);
	const uint64_t *at = (const uint64_t *)src;
	const uint64_t *end = at + pages * COPY_PAGE_BYTES / sizeof(*at);
	uint64_t any = 0;

	for (; at < end; at += 4 * step)
		any |= (at[0] | at[step]) | (at[2 * step] | at[3 * step]);
	__asm__ volatile("" : : "r"(any));
	return 0;
}

/* Writes all past the cache, reads nothing. */
static size_t only_write(uint8_t *dst, const uint8_t *src, size_t pages)
{
#if defined(__x86_64__)
	const __m128i v = _mm_set1_epi64x((long long)(uintptr_t)src);
	size_t i;

	for (i = 0; i < pages * COPY_PAGE_BYTES; i += LINE_BYTES) {
		_mm_stream_si128((__m128i *)(dst + i), v);
		_mm_stream_si128((__m128i *)(dst + i + 16), v);
		_mm_stream_si128((__m128i *)(dst + i + 32), v);
		_mm_stream_si128((__m128i *)(dst + i + 48), v);
	}
	_mm_sfence();
#else
	memset(dst, 1, pages * COPY_PAGE_BYTES);
#endif
	return 0;
}

/* Each line read once and written once, as by a copy, but in one place: one stream, and no
 * work. */
static size_t only_change(uint8_t *dst, const uint8_t *src, size_t pages)
{
	volatile uint8_t *at = dst;
	size_t i;

	for (i = 0; i < pages * COPY_PAGE_BYTES; i += LINE_BYTES)
		at[i] ^= 1;
	return 0;
}

const struct copy_rival copy_rivals[COPY_RIVALS] = {
	[COPY_LOOP] = {"kernel's loop", loop, true, COPY_ONE},
	[COPY_LOOP_NO_CHECK] = {"the same, no check", loop_no_check, false, COPY_ONE},
	[COPY_COPY_PAGE] = {"copy_page", copy_pages, false, COPY_ONE},
	[COPY_COPY_PAGE_CHECK] = {"separate check, copy_page", check_copy_pages, true,
				  COPY_ONE},
	[COPY_MEMCPY] = {"memcpy", by_memcpy, false, COPY_ONE},
	[COPY_DEFAULT] = {"torpor", torpor_default, true, COPY_ONE},
	[COPY_STREAM] = {"torpor, no check", torpor_stream, false, COPY_ONE},
	[COPY_DEFAULT_SPLIT] = {"torpor, all, static split", torpor_default, true, COPY_SPLIT},
	[COPY_DEFAULT_PIPE] = {"torpor, all", torpor_default, true, COPY_PIPE},
	[COPY_STREAM_SPLIT] = {"no check, all, static split", torpor_stream, false, COPY_SPLIT},
	[COPY_STREAM_PIPE] = {"torpor, no check, all", torpor_stream, false, COPY_PIPE},
	[COPY_LIMIT_READ] = {"limit: reading only", only_read, false, COPY_ONE},
	[COPY_LIMIT_WRITE] = {"limit: writing only", only_write, false, COPY_ONE},
	[COPY_LIMIT_CHANGE] = {"limit: changing in place", only_change, false, COPY_ONE},
	[COPY_LIMIT_READ_ALL] = {"limit: reading, all", only_read, false, COPY_SPLIT},
	[COPY_LIMIT_CHANGE_ALL] = {"limit: changing, all", only_change, false, COPY_SPLIT},
};
