/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Made-up memory for tests, the same at every run: zero, noise, text, counters. */
#ifndef TORPOR_TESTS_PATTERN_H
#define TORPOR_TESTS_PATTERN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum pattern {
	PATTERN_ZERO,
	PATTERN_NOISE,   /* does not compress */
	PATTERN_TEXT,    /* compresses to about a third */
	PATTERN_COUNTER, /* 32-bit, rising: short matches far apart */
	PATTERN_COUNT,
};

static inline uint64_t pattern_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static inline void pattern_fill_noise(uint8_t *at, size_t bytes, uint64_t seed)
{
	seed = seed * 2654435761u + 88172645463325252u;
	for (size_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)(pattern_random(&seed) >> 32);
}

static inline void pattern_fill_text(uint8_t *at, size_t bytes, uint64_t seed)
{
	static const char *const words[] = {"page ",  "order ",  "preserve ", "snapshot ",
					    "image ", "freeze ", "thaw ",     "resume\n"};
	size_t used = 0;

	seed = seed * 2654435761u + 362436069362436069u;
	while (used < bytes) {
		const char *word = words[pattern_random(&seed) >> 32 & 7];
		const size_t n = strlen(word);

		memcpy(at + used, word, n < bytes - used ? n : bytes - used);
		used += n;
	}
}

static inline void pattern_fill(uint8_t *at, size_t bytes, enum pattern pattern, uint64_t seed)
{
	switch (pattern) {
	case PATTERN_NOISE:
		pattern_fill_noise(at, bytes, seed);
		break;
	case PATTERN_TEXT:
		pattern_fill_text(at, bytes, seed);
		break;
	case PATTERN_COUNTER:
		for (size_t i = 0; i < bytes; i++)
			at[i] = (uint8_t)((i / 4 + seed) >> (i % 4 * 8));
		break;
	default:
		memset(at, 0, bytes);
	}
}

#endif
