/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Numbers from outside: overflow-checked arithmetic, rounding, and the little-endian fields of
 * the image.  Every function here is pure.
 */
#ifndef TORPOR_BASE_NUM_H
#define TORPOR_BASE_NUM_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

/* True when the result does not fit; *ret is then not to be used. */
static inline bool num_add_overflows(uint64_t a, uint64_t b, uint64_t *ret)
{
	return __builtin_add_overflow(a, b, ret);
}

static inline bool num_mul_overflows(uint64_t a, uint64_t b, uint64_t *ret)
{
	return __builtin_mul_overflow(a, b, ret);
}

static inline bool num_is_pow2(uint64_t n)
{
	return n && !(n & (n - 1));
}

/* Rounds up to a multiple of `to`, a power of two; the caller knows that it fits. */
static inline uint64_t num_round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) & ~(to - 1);
}

static inline uint64_t num_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t num_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Pages needed for `bytes`, the last one perhaps not whole. */
static inline uint64_t num_pages(uint64_t bytes, uint64_t page_bytes)
{
	return bytes / page_bytes + (bytes % page_bytes != 0);
}

static inline void num_put16(void *at, uint16_t v)
{
	v = htole16(v);
	memcpy(at, &v, sizeof(v));
}

static inline void num_put32(void *at, uint32_t v)
{
	v = htole32(v);
	memcpy(at, &v, sizeof(v));
}

static inline void num_put64(void *at, uint64_t v)
{
	v = htole64(v);
	memcpy(at, &v, sizeof(v));
}

static inline uint16_t num_get16(const void *at)
{
	uint16_t v;

	memcpy(&v, at, sizeof(v));
	return le16toh(v);
}

static inline uint32_t num_get32(const void *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return le32toh(v);
}

static inline uint64_t num_get64(const void *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return le64toh(v);
}

#endif
