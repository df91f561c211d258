/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The page kernels with NEON, for aarch64, where every CPU that runs Linux has it.  Streaming
 * is STNP, a hint that the lines are not read soon; its stores are ordered as plain ones are,
 * so nothing has to be made up for at the end.
 */
#include "page/page-path.h"

#if defined(__aarch64__)

#include <arm_neon.h>
#include <string.h>

/* Four vectors, one cache line of most cores: divides PAGE_UNIT_BYTES. */
#define STEP_BYTES 64

static bool neon_is_zero(const void *page, size_t bytes)
{
	const uint8_t *src = page;

	for (size_t i = 0; i < bytes; i += STEP_BYTES) {
		uint8x16x4_t v = vld1q_u8_x4(src + i);
		uint64x2_t any = vreinterpretq_u64_u8(
			vorrq_u8(vorrq_u8(v.val[0], v.val[1]), vorrq_u8(v.val[2], v.val[3])));

		/* Two moves to general registers; a maximum across the vector takes longer. */
		if (vgetq_lane_u64(any, 0) | vgetq_lane_u64(any, 1))
			return false;
	}
	return true;
}

static void neon_copy(void *dst, const void *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}

/* There is no intrinsic for STNP.  Any alignment is allowed for both sides. */
static void neon_copy_stream(void *dst_page, const void *src_page, size_t bytes)
{
	const uint8_t *src = src_page;
	uint8_t *dst = dst_page;

	for (size_t i = 0; i < bytes; i += STEP_BYTES) {
		uint8x16x4_t v = vld1q_u8_x4(src + i);
		uint8_t(*to)[STEP_BYTES] = (uint8_t(*)[STEP_BYTES])(dst + i);

		__asm__("stnp %q1, %q2, [%5]\n\t"
			"stnp %q3, %q4, [%5, #32]"
			: "=m"(*to)
			: "w"(v.val[0]), "w"(v.val[1]), "w"(v.val[2]), "w"(v.val[3]), "r"(to));
	}
}

static bool neon_copy_unless_zero(void *dst, const void *src, size_t bytes)
{
	if (neon_is_zero(src, bytes))
		return true;
	neon_copy_stream(dst, src, bytes);
	return false;
}

/* Fetching ahead is left to the hardware. */
static bool neon_is_zero_in_span(const void *page, size_t bytes, size_t behind)
{
	return neon_is_zero(page, bytes);
}

static bool neon_copy_unless_zero_in_span(void *dst, const void *src, size_t bytes, size_t behind)
{
	return neon_copy_unless_zero(dst, src, bytes);
}

static bool neon_is_supported(void)
{
	return true;
}

static void neon_order_stores(void)
{
	/* STNP needs nothing. */
}

const struct page_path page_path_neon = {
	.ops =
		{
			.name = "neon",
			.is_zero = neon_is_zero,
			.copy = neon_copy,
			.copy_stream = neon_copy_stream,
			.copy_unless_zero = neon_copy_unless_zero,
		},
	.is_supported = neon_is_supported,
	.is_zero_in_span = neon_is_zero_in_span,
	.copy_unless_zero_in_span = neon_copy_unless_zero_in_span,
	.order_stores = neon_order_stores,
};

#endif
