// SPDX-License-Identifier: LGPL-2.1-or-later
/* Memory for the copy; see arena.h. */
#include "live/arena.h"

#include <stdlib.h>

#include "base/num.h"
#include "live/each.h"
#include "memory/item.h"
#include "os/memory.h"

#define BLOCK_PAGES (OS_HUGE_BYTES / MEMORY_PAGE_BYTES)

/* What one thread populates at a time. */
#define POPULATE_BYTES MIB(32)

/* What is added when more is needed than was prepared: it has no pages yet, each comes by a fault. */
#define LATE_BYTES MIB(64)

struct piece {
	uint8_t *at;
	size_t bytes, used;
	atomic_uint *left; /* pages of each block that are not released */
};

struct live_arena {
	struct piece *pieces;
	size_t n, first_free;
};

struct live_arena *live_arena_new(void)
{
	return calloc(1, sizeof(struct live_arena));
}

void live_arena_free(struct live_arena *a)
{
	size_t i;

	if (!a)
		return;
	for (i = 0; i < a->n; i++) {
		os_memory_unreserve(a->pieces[i].at, a->pieces[i].bytes);
		free(a->pieces[i].left);
	}
	free(a->pieces);
	free(a);
}

static int add_piece(struct live_arena *a, uint64_t bytes)
{
	struct piece *more = reallocarray(a->pieces, a->n + 1, sizeof(*more));
	struct piece *p;
	size_t i;

	if (!more)
		return -ENOMEM;
	a->pieces = more;
	p = &more[a->n];
	*p = (struct piece){.bytes = num_round_up(bytes, OS_HUGE_BYTES)};
	p->left = calloc(p->bytes / OS_HUGE_BYTES, sizeof(*p->left));
	p->at = p->left ? os_memory_reserve(p->bytes) : NULL;
	if (!p->at) {
		free(p->left);
		return -ENOMEM;
	}
	for (i = 0; i < p->bytes / OS_HUGE_BYTES; i++)
		atomic_init(&p->left[i], BLOCK_PAGES);
	a->n++;
	return 0;
}

static int populate(void *arg, size_t i, struct err *e)
{
	const struct piece *p = arg;
	size_t at = i * POPULATE_BYTES, bytes = num_min(POPULATE_BYTES, p->bytes - at);
	int rc = os_memory_populate(p->at + at, bytes);

	return rc < 0 ? err_sys(e, -ENOMEM, "cannot allocate memory for the copy") : 0;
}

int live_arena_grow(struct live_arena *a, uint64_t bytes, unsigned int threads, const atomic_bool *cancel, struct err *e)
{
	struct piece *p;

	if (!bytes)
		return 0;
	if (add_piece(a, bytes) < 0)
		return err_sys(e, -ENOMEM, "cannot allocate memory for the copy");
	p = &a->pieces[a->n - 1];
	return live_each(threads, (p->bytes + POPULATE_BYTES - 1) / POPULATE_BYTES, populate, p, cancel, e);
}

uint8_t *live_arena_take(struct live_arena *a, uint64_t pages, uint64_t *ret_pages)
{
	struct piece *p;
	uint64_t n;

	while (a->first_free < a->n && a->pieces[a->first_free].used == a->pieces[a->first_free].bytes)
		a->first_free++;
	if (a->first_free == a->n && add_piece(a, num_max(LATE_BYTES, pages * MEMORY_PAGE_BYTES)) < 0)
		return NULL;
	p = &a->pieces[a->first_free];
	n = num_min(pages, (p->bytes - p->used) / MEMORY_PAGE_BYTES);
	*ret_pages = n;
	p->used += n * MEMORY_PAGE_BYTES;
	return p->at + p->used - n * MEMORY_PAGE_BYTES;
}

static void release_in(struct piece *p, size_t page, uint64_t pages)
{
	uint64_t n;

	for (; pages; pages -= n, page += n) {
		size_t block = page / BLOCK_PAGES;

		n = num_min(pages, BLOCK_PAGES - page % BLOCK_PAGES);
		if (atomic_fetch_sub(&p->left[block], (unsigned int)n) == n)
			os_memory_discard(p->at + block * OS_HUGE_BYTES, OS_HUGE_BYTES);
	}
}

void live_arena_release(struct live_arena *a, const uint8_t *at, uint64_t pages)
{
	size_t i;

	for (i = 0; i < a->n; i++) {
		struct piece *p = &a->pieces[i];

		if (at >= p->at && at < p->at + p->bytes) {
			release_in(p, (size_t)(at - p->at) / MEMORY_PAGE_BYTES, pages);
			return;
		}
	}
}
