/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The page kernels in plain C, for every CPU.  They are what the other paths are tested
 * against, so they stay simple; the plain copy is the C library's.  There are no non-temporal
 * stores here: C has none.
 */
#include "page/page-path.h"

#include <string.h>

/* One cache line a step: enough for the compiler to vectorise, little to read in vain. */
#define STEP_WORDS 8

static bool generic_is_zero(const void *page, size_t bytes)
{
	const unsigned char *at = page;
	const unsigned char *end = at + bytes;
	uint64_t words[STEP_WORDS];

	for (; at < end; at += sizeof(words)) {
		uint64_t any = 0;

		/* Not a cast: `page` may have any alignment. */
		memcpy(words, at, sizeof(words));
		for (size_t i = 0; i < STEP_WORDS; i++)
			any |= words[i];
		if (any)
			return false;
	}
	return true;
}

static void generic_copy(void *dst, const void *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}

static bool generic_copy_unless_zero(void *dst, const void *src, size_t bytes)
{
	if (generic_is_zero(src, bytes))
		return true;
	memcpy(dst, src, bytes);
	return false;
}

/* Fetching ahead is left to the hardware. */
static bool generic_is_zero_in_span(const void *page, size_t bytes, size_t behind)
{
	return generic_is_zero(page, bytes);
}

static bool generic_copy_unless_zero_in_span(void *dst, const void *src, size_t bytes, size_t behind)
{
	return generic_copy_unless_zero(dst, src, bytes);
}

static bool generic_is_supported(void)
{
	return true;
}

static void generic_order_stores(void)
{
	/* Plain stores need nothing. */
}

const struct page_path page_path_generic = {
	.ops =
		{
			.name = "generic",
			.is_zero = generic_is_zero,
			.copy = generic_copy,
			.copy_stream = generic_copy,
			.copy_unless_zero = generic_copy_unless_zero,
		},
	.is_supported = generic_is_supported,
	.is_zero_in_span = generic_is_zero_in_span,
	.copy_unless_zero_in_span = generic_copy_unless_zero_in_span,
	.order_stores = generic_order_stores,
};
