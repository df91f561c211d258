// SPDX-License-Identifier: LGPL-2.1-or-later
/* The map of a chunk; see map.h and docs/format.md, section 5.1. */
#include "image/map.h"

#define RUN_KIND_BITS 3
#define RUN_PAGES_MAX (UINT64_MAX >> RUN_KIND_BITS)
#define NUMBER_MAX_BYTES 10

void image_map_reset(struct image_map *map)
{
	map->used = 0;
	map->open_pages = 0;
	memset(map->pages, 0, sizeof(map->pages));
}

void image_map_close(struct image_map *map)
{
	uint64_t n = map->open_pages << RUN_KIND_BITS | map->kind;

	if (!map->open_pages)
		return;
	while (n >= 0x80) {
		map->bytes[map->used++] = (uint8_t)(n | 0x80);
		n >>= 7;
	}
	map->bytes[map->used++] = (uint8_t)n;
	map->open_pages = 0;
}

bool image_map_add(struct image_map *map, enum image_run_kind kind, uint64_t pages)
{
	if (!pages)
		return true;
	if (!map->open_pages || map->kind != kind) {
		/* Room for the run that closes now and for the one that opens. */
		if (map->used + 2 * NUMBER_MAX_BYTES > sizeof(map->bytes))
			return false;
		image_map_close(map);
		map->kind = kind;
	}
	map->open_pages += pages;
	map->pages[kind] += pages;
	return true;
}

uint64_t image_map_pages(const struct image_map *map)
{
	return map->pages[IMAGE_RUN_DATA] + map->pages[IMAGE_RUN_ZERO] + map->pages[IMAGE_RUN_HOLE] +
	       map->pages[IMAGE_RUN_UNPRESERVED];
}

int image_map_next(struct image_map_iter *iter, struct image_run *ret)
{
	uint64_t n = 0;
	unsigned int shift = 0;
	uint8_t byte;

	if (iter->at == iter->end)
		return 0;
	do {
		if (iter->at == iter->end || shift > 63)
			return -EBADMSG;
		byte = *iter->at++;
		if (shift == 63 && (byte & 0x7e))
			return -EBADMSG;
		n |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	if (!byte && shift > 7)
		return -EBADMSG; /* needless trailing byte */
	ret->kind = n & ((1 << RUN_KIND_BITS) - 1);
	ret->pages = n >> RUN_KIND_BITS;
	ret->first_page = iter->next_page;
	if (ret->kind >= IMAGE_RUN_KINDS || !ret->pages ||
	    num_add_overflows(iter->next_page, ret->pages, &iter->next_page))
		return -EBADMSG;
	return 1;
}

int image_map_check(const uint8_t *map, size_t bytes, uint64_t pages,
		    uint64_t ret_pages[IMAGE_RUN_KINDS])
{
	struct image_map_iter iter = {.at = map, .end = map + bytes};
	uint64_t by_kind[IMAGE_RUN_KINDS] = {0};
	struct image_run run, last = {.kind = IMAGE_RUN_KINDS};
	int rc;

	while ((rc = image_map_next(&iter, &run)) > 0) {
		if (run.kind == last.kind)
			return -EBADMSG;
		by_kind[run.kind] += run.pages;
		last = run;
	}
	if (rc < 0 || iter.next_page != pages)
		return -EBADMSG;
	memcpy(ret_pages, by_kind, sizeof(by_kind));
	return 0;
}
