/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The map of a chunk: runs of pages of one kind, each a LEB128 number.  A builder that merges
 * neighbours, and an iterator over a checked map.  Pure, no allocation.
 */
#ifndef TORPOR_IMAGE_MAP_H
#define TORPOR_IMAGE_MAP_H

#include "base/err.h"
#include "image/format.h"

struct image_run {
	enum image_run_kind kind;
	uint64_t first_page; /* counted from the chunk's first page */
	uint64_t pages;
};

struct image_map {
	uint8_t bytes[IMAGE_MAP_MAX_BYTES];
	size_t used;
	enum image_run_kind kind; /* the open run, not encoded yet */
	uint64_t open_pages;      /* 0: no open run */
	uint64_t pages[IMAGE_RUN_KINDS];
};

void image_map_reset(struct image_map *map);

/* Appends pages.  False, with nothing changed, when the map is full. */
bool image_map_add(struct image_map *map, enum image_run_kind kind, uint64_t pages);

/* Encodes the open run; the map is then complete, `used` bytes. */
void image_map_close(struct image_map *map);

uint64_t image_map_pages(const struct image_map *map);

/* Iterates over the runs of a map; start with {map, map + bytes, 0}. */
struct image_map_iter {
	const uint8_t *at, *end;
	uint64_t next_page;
};

/* 1: *ret is the next run, 0: no more, -EBADMSG: no such map. */
int image_map_next(struct image_map_iter *iter, struct image_run *ret);

/* Checks all of a map against the number of pages; fills in pages by kind.  -EBADMSG. */
int image_map_check(const uint8_t *map, size_t bytes, uint64_t pages,
		    uint64_t ret_pages[IMAGE_RUN_KINDS]);

#endif
