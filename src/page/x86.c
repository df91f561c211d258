/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The page kernels with AVX2, for x86-64.  The functions carry their target themselves, so the
 * file needs no compiler flags and the rest of the program stays runnable on any x86-64; the
 * resolver never calls them where the CPU or the system lacks AVX2.
 */
#include "page/page-path.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE static inline __attribute__((always_inline, target("avx2")))

#define VEC_BYTES sizeof(__m256i)
#define LINE_BYTES 64

/* Four vectors, two cache lines a step: divides PAGE_UNIT_BYTES. */
#define STEP_BYTES (4 * VEC_BYTES)

/* Four members rather than an array: gcc keeps an array in memory below -O3. */
struct step {
	__m256i a, b, c, d;
};

/*
 * How far ahead of what is read now is fetched, in tests and copies alike, so that a page's end,
 * and whether it was zero, do not interrupt the reading.  Left to itself the hardware's
 * prefetcher starts anew where zero pages begin and end: with half of the pages zero, scattered,
 * copying lost a fifth.  8 to 32 KiB are alike within 3 %; less is slower for pages that are not
 * zero, by up to a fifth at 1 KiB.  It must be one distance: with a shorter one in tests than
 * in copies, lines in between are fetched twice or never, which cost a quarter.
 *
 * What was no better, on Zen 5: vectors of 64 bytes (1 to 2 % faster, 5 where nine of ten pages
 * are zero), prefetching past the cache, fetching and storing in bursts of a page (a fifth
 * slower), and several streams at once (4 % faster, but only when megabytes long).
 */
#define AHEAD_BYTES 16384

AVX2_INLINE struct step step_load(const unsigned char *src)
{
	const __m256i *from = (const __m256i *)src;

	return (struct step){
		_mm256_loadu_si256(from),
		_mm256_loadu_si256(from + 1),
		_mm256_loadu_si256(from + 2),
		_mm256_loadu_si256(from + 3),
	};
}

AVX2_INLINE void step_stream(unsigned char *dst, struct step s)
{
	__m256i *to = (__m256i *)dst;

	_mm256_stream_si256(to, s.a);
	_mm256_stream_si256(to + 1, s.b);
	_mm256_stream_si256(to + 2, s.c);
	_mm256_stream_si256(to + 3, s.d);
}

AVX2_INLINE bool step_is_zero(struct step s)
{
	__m256i any = _mm256_or_si256(_mm256_or_si256(s.a, s.b), _mm256_or_si256(s.c, s.d));

	return _mm256_testz_si256(any, any);
}

AVX2_INLINE void step_prefetch(const unsigned char *src)
{
	_mm_prefetch((const char *)src, _MM_HINT_T0);
	_mm_prefetch((const char *)src + LINE_BYTES, _MM_HINT_T0);
}

/*
 * Where to fetch: not beyond the span.  At its end the distance shrinks, and lines are fetched
 * that are there already, which costs nothing.
 */
static inline size_t ahead_within(size_t behind)
{
	return behind < AHEAD_BYTES ? behind : AHEAD_BYTES;
}

/* Bytes at the start of a page that are zero, in whole steps. */
AVX2_INLINE size_t zero_prefix(const unsigned char *src, size_t bytes, size_t ahead)
{
	size_t i;

	for (i = 0; i < bytes; i += STEP_BYTES) {
		if (!step_is_zero(step_load(src + i)))
			break;
		step_prefetch(src + i + ahead);
	}
	return i;
}

AVX2 static bool avx2_is_zero_in_span(const void *page, size_t bytes, size_t behind)
{
	return zero_prefix(page, bytes, ahead_within(behind)) == bytes;
}

static bool avx2_is_zero(const void *page, size_t bytes)
{
	return avx2_is_zero_in_span(page, bytes, 0);
}

static void avx2_copy(void *dst, const void *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}

/*
 * Streaming stores must be aligned.  A target that is not gets one unaligned plain vector at
 * either end, which overlaps the aligned ones between them:
 *
 *     dst      +--------+--------+ ... +--------+--------+      vectors of the page
 *              [ head   ]                       [ tail   ]      plain stores
 *                  [ stream ][ stream ] ... [ stream ]          aligned
 *
 * Both ends are loaded first and stored last, so that no line is written by turns.
 */
AVX2 static void stream_unaligned(unsigned char *dst, const unsigned char *src, size_t bytes)
{
	size_t skip = -(uintptr_t)dst % VEC_BYTES;
	size_t last = bytes - VEC_BYTES;
	__m256i head = _mm256_loadu_si256((const __m256i *)src);
	__m256i tail = _mm256_loadu_si256((const __m256i *)(src + last));

	for (size_t i = skip; i <= last; i += VEC_BYTES) {
		__m256i v = _mm256_loadu_si256((const __m256i *)(src + i));

		_mm256_stream_si256((__m256i *)(dst + i), v);
	}
	_mm256_storeu_si256((__m256i *)dst, head);
	_mm256_storeu_si256((__m256i *)(dst + last), tail);
}

/* `dst` is a multiple of a vector. */
AVX2_INLINE void stream_aligned(unsigned char *dst, const unsigned char *src, size_t bytes,
				size_t ahead)
{
	for (size_t i = 0; i < bytes; i += STEP_BYTES) {
		step_prefetch(src + i + ahead);
		step_stream(dst + i, step_load(src + i));
	}
}

AVX2 static void avx2_copy_stream(void *dst_start, const void *src_start, size_t bytes)
{
	const size_t ahead = ahead_within(bytes);
	const unsigned char *src = src_start;
	unsigned char *dst = dst_start;

	if ((uintptr_t)dst % VEC_BYTES) {
		stream_unaligned(dst, src, bytes);
	} else {
		stream_aligned(dst, src, bytes - ahead, ahead);
		stream_aligned(dst + bytes - ahead, src + bytes - ahead, ahead, 0);
	}
	_mm_sfence();
}

/*
 * What precedes the first step with a bit set is known to be zero and is stored as such: it is
 * not read again.
 */
AVX2 static bool avx2_copy_unless_zero_in_span(void *dst_page, const void *src_page,
					       size_t bytes, size_t behind)
{
	const __m256i none = _mm256_setzero_si256();
	const struct step zero = {none, none, none, none};
	const size_t ahead = ahead_within(behind);
	const unsigned char *src = src_page;
	unsigned char *dst = dst_page;
	const size_t skip = zero_prefix(src, bytes, ahead);

	if (skip == bytes)
		return true;
	if ((uintptr_t)dst % VEC_BYTES) {
		stream_unaligned(dst, src, bytes);
		return false;
	}
	for (size_t i = 0; i < skip; i += STEP_BYTES)
		step_stream(dst + i, zero);
	stream_aligned(dst + skip, src + skip, bytes - skip, ahead);
	return false;
}

static void avx2_order_stores(void)
{
	_mm_sfence();
}

static bool avx2_copy_unless_zero(void *dst, const void *src, size_t bytes)
{
	bool zero = avx2_copy_unless_zero_in_span(dst, src, bytes, 0);

	if (!zero)
		avx2_order_stores();
	return zero;
}

static bool avx2_is_supported(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2");
}

const struct page_path page_path_avx2 = {
	.ops =
		{
			.name = "avx2",
			.is_zero = avx2_is_zero,
			.copy = avx2_copy,
			.copy_stream = avx2_copy_stream,
			.copy_unless_zero = avx2_copy_unless_zero,
		},
	.is_supported = avx2_is_supported,
	.is_zero_in_span = avx2_is_zero_in_span,
	.copy_unless_zero_in_span = avx2_copy_unless_zero_in_span,
	.order_stores = avx2_order_stores,
};

#endif
