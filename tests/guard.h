/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Buffers at the edge of memory: the byte behind the last one, or before the first one, cannot
 * be touched, and the bytes on the other side are watched.  Finds what uninstrumented libraries
 * read or write out of bounds, which a sanitizer does not see.
 */
#ifndef TORPOR_TESTS_GUARD_H
#define TORPOR_TESTS_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GUARD_PAGE_BYTES ((size_t)65536) /* a multiple of every page size in use */
#define GUARD_WATCH_BYTES ((size_t)64)
#define GUARD_FILL 0xa5

struct guard {
	uint8_t *map;
	size_t map_bytes;
	uint8_t *start, *end; /* what can be touched */
	/* The buffer handed out last, and where it is watched. */
	uint8_t *buffer;
	uint8_t *watch;
};

/* Room for buffers of up to `max_bytes`; ends the process when there is no memory. */
static inline struct guard guard_new(size_t max_bytes)
{
	const size_t bytes =
		((max_bytes + GUARD_WATCH_BYTES) / GUARD_PAGE_BYTES + 1) * GUARD_PAGE_BYTES;
	struct guard g = {.map_bytes = bytes + 2 * GUARD_PAGE_BYTES};

	g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (g.map == MAP_FAILED)
		abort();
	g.start = g.map + GUARD_PAGE_BYTES;
	g.end = g.start + bytes;
	if (mprotect(g.start, bytes, PROT_READ | PROT_WRITE))
		abort();
	return g;
}

static inline void guard_free(struct guard *g)
{
	munmap(g->map, g->map_bytes);
}

/* A buffer of `bytes` whose end is the edge; the one before is no longer valid. */
static inline uint8_t *guard_at_end(struct guard *g, size_t bytes)
{
	g->buffer = g->end - bytes;
	g->watch = g->buffer - GUARD_WATCH_BYTES;
	memset(g->watch, GUARD_FILL, GUARD_WATCH_BYTES);
	return g->buffer;
}

/* As guard_at_end(), with the beginning at the edge. */
static inline uint8_t *guard_at_start(struct guard *g, size_t bytes)
{
	g->buffer = g->start;
	g->watch = g->start + bytes;
	memset(g->watch, GUARD_FILL, GUARD_WATCH_BYTES);
	return g->buffer;
}

/* As guard_at_end(), holding a copy of `src`. */
static inline uint8_t *guard_copy(struct guard *g, const void *src, size_t bytes)
{
	uint8_t *at = guard_at_end(g, bytes);

	if (bytes)
		memcpy(at, src, bytes);
	return at;
}

/* Nothing was written on the side that is watched. */
static inline bool guard_intact(const struct guard *g)
{
	for (size_t i = 0; i < GUARD_WATCH_BYTES; i++)
		if (g->watch[i] != GUARD_FILL)
			return false;
	return true;
}

#endif
