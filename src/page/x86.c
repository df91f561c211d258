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
 * How far ahead a zero test fetches.  Its reads are one stream only until a page ends it, so
 * the hardware's prefetcher starts anew at every page and, unlike this, does not cross into the
 * next.  One small page ahead was best of 0.25 to 8 KiB at 50 and 90 % zero pages.  A prefetch
 * where there is no memory does nothing.
 */
#define TEST_AHEAD_BYTES 4096

/*
 * What a copy fetches of the page behind, for the test that comes next; the rest of its reads
 * are left to the hardware.  More than six lines, or fetching all along, slows the copy down.
 */
#define COPY_AHEAD_BYTES 256

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

AVX2 static bool avx2_is_zero(const void *page, size_t bytes)
{
	const unsigned char *src = page;

	for (size_t i = 0; i < bytes; i += STEP_BYTES) {
		step_prefetch(src + i + TEST_AHEAD_BYTES);
		if (!step_is_zero(step_load(src + i)))
			return false;
	}
	return true;
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

AVX2 static void avx2_copy_stream(void *dst, const void *src, size_t bytes)
{
	if ((uintptr_t)dst % VEC_BYTES) {
		stream_unaligned(dst, src, bytes);
	} else {
		for (size_t i = 0; i < bytes; i += STEP_BYTES)
			step_stream((unsigned char *)dst + i,
				    step_load((const unsigned char *)src + i));
	}
	_mm_sfence();
}

/*
 * Test and copy in one loop around one set of load instructions.  Two loops read the same, but
 * the hardware's prefetcher tells streams apart by the instruction that reads: with a test of
 * its own the first line of every page belonged to another stream, and copying pages that are
 * not zero lost up to a fifth of its speed.  Nothing is read twice either: what precedes the
 * first step with a bit set is known to be zero and is stored as such.
 *
 * The empty asm statement keeps the compiler from splitting the loop in two again.
 */
AVX2 static bool avx2_copy_unless_zero_unordered(void *dst_page, const void *src_page,
						 size_t bytes)
{
	const __m256i none = _mm256_setzero_si256();
	const struct step zero = {none, none, none, none};
	const unsigned char *src = src_page;
	unsigned char *dst = dst_page;
	bool copying = false;

	if ((uintptr_t)dst % VEC_BYTES) {
		if (avx2_is_zero(src, bytes))
			return true;
		stream_unaligned(dst, src, bytes);
		return false;
	}
	for (size_t i = 0; i < bytes; i += STEP_BYTES) {
		struct step s = step_load(src + i);

		__asm__("" : "+x"(s.a), "+x"(s.b), "+x"(s.c), "+x"(s.d), "+r"(copying));
		if (!copying) {
			if (step_is_zero(s)) {
				step_prefetch(src + i + TEST_AHEAD_BYTES);
				continue;
			}
			copying = true;
			for (size_t j = 0; j < COPY_AHEAD_BYTES; j += STEP_BYTES)
				step_prefetch(src + bytes + j);
			for (size_t j = 0; j < i; j += STEP_BYTES)
				step_stream(dst + j, zero);
		}
		step_stream(dst + i, s);
	}
	return !copying;
}

static void avx2_order_stores(void)
{
	_mm_sfence();
}

static bool avx2_copy_unless_zero(void *dst, const void *src, size_t bytes)
{
	bool zero = avx2_copy_unless_zero_unordered(dst, src, bytes);

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
	.copy_unless_zero_unordered = avx2_copy_unless_zero_unordered,
	.order_stores = avx2_order_stores,
};

#endif
