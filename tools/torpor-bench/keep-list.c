// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The linked list of KHO v1: for each order an xarray of bitmaps of 512 bytes; at the end a
 * list of page-sized chunks that point to them, which the successor reads bit by bit, with a
 * reservation for each page.  Once with the rw_semaphore that it had when the table was
 * proposed, once without any lock, as it was merged (Linux 6.16).
 */
#include <errno.h>
#include <stdlib.h>

#include "bench.h"
#include "keep.h"

#define MAP_BITS 4096u
#define MAP_BYTES (MAP_BITS / 8)
#define CHUNK_MAPS 255u
#define ORDER_MAX 51u

struct map_of {
	uint64_t start; /* an address */
	_Atomic uint64_t *bits;
};

struct chunk {
	struct chunk *next;
	uint32_t order, n;
	struct map_of maps[CHUNK_MAPS];
};

_Static_assert(sizeof(struct chunk) == TRACK_PAGE_BYTES, "a chunk is a page");

struct list {
	struct track_sem sem;
	bool finished;
	struct track_xarray orders; /* of struct track_xarray, of bitmaps */
	struct track_arena arena;
	struct chunk *first;
};

static void *create(uint64_t pages)
{
	struct list *t = calloc(1, sizeof(*t));

	if (!t)
		bench_die("no memory");
	track_arena_new(&t->arena, pages);
	return t;
}

static void preserve_order(struct list *t, uint64_t pfn, unsigned int order)
{
	struct track_xarray *maps =
		track_xa_load_or_make(&t->orders, &t->arena, order, sizeof(*maps));
	uint64_t bit = pfn >> order;

	track_set_bit(track_xa_load_or_make(maps, &t->arena, bit / MAP_BITS, MAP_BYTES),
		      bit % MAP_BITS);
}

static int preserve_bare(void *p, uint64_t pfn)
{
	struct list *t = p;

	if (t->finished)
		return -EBUSY;
	preserve_order(t, pfn, 0);
	return 0;
}

static int preserve(void *p, uint64_t pfn)
{
	struct list *t = p;
	int rc;

	track_sem_read(&t->sem);
	rc = preserve_bare(t, pfn);
	track_sem_unread(&t->sem);
	return rc;
}

static void preserve_range_bare(void *p, uint64_t pfn, uint64_t pages)
{
	const uint64_t end = pfn + pages;
	struct list *t = p;
	unsigned int order;

	for (; pfn < end; pfn += UINT64_C(1) << order) {
		order = track_order(pfn, end, ORDER_MAX);
		preserve_order(t, pfn, order);
	}
}

static void preserve_range(void *p, uint64_t pfn, uint64_t pages)
{
	struct list *t = p;

	track_sem_read(&t->sem);
	preserve_range_bare(t, pfn, pages);
	track_sem_unread(&t->sem);
}

struct making {
	struct list *t;
	struct chunk *chunk;
	uint32_t order;
};

static void next_chunk(struct making *m)
{
	struct chunk *chunk = track_alloc(&m->t->arena, sizeof(*chunk));

	chunk->order = m->order;
	if (m->chunk)
		m->chunk->next = chunk;
	else
		m->t->first = chunk;
	m->chunk = chunk;
}

static void add_map(void *ctx, uint64_t index, void *bits)
{
	struct making *m = ctx;

	if (m->chunk->n == CHUNK_MAPS)
		next_chunk(m);
	m->chunk->maps[m->chunk->n++] = (struct map_of){
		.start = index * MAP_BITS * TRACK_PAGE_BYTES << m->order,
		.bits = bits,
	};
}

static void add_order(void *ctx, uint64_t order, void *maps)
{
	struct making *m = ctx;

	m->order = (uint32_t)order;
	next_chunk(m);
	track_xa_each(maps, add_map, m);
}

static void serialize(void *p)
{
	struct list *t = p;
	struct making m = {.t = t};

	track_sem_write(&t->sem);
	t->finished = true;
	track_sem_unwrite(&t->sem);
	track_xa_each(&t->orders, add_order, &m);
}

static void walk(void *p, track_run_fn run, void *ctx)
{
	const struct list *t = p;
	const struct chunk *c;
	uint32_t i;

	for (c = t->first; c; c = c->next) {
		for (i = 0; i < c->n; i++)
			track_each_bit(c->maps[i].bits, MAP_BITS,
				       c->maps[i].start / TRACK_PAGE_BYTES, c->order, run, ctx);
	}
}

static void attach(void *p)
{
	track_read_back(p, walk);
}

static size_t bytes(void *p)
{
	struct list *t = p;

	return atomic_load(&t->arena.bytes);
}

static void destroy(void *p)
{
	struct list *t = p;

	track_arena_free(&t->arena);
	free(t);
}

const struct track_ops track_list = {
	.name = "list, rw_semaphore",
	.create = create,
	.preserve = preserve,
	.preserve_range = preserve_range,
	.serialize = serialize,
	.attach = attach,
	.walk = walk,
	.bytes = bytes,
	.destroy = destroy,
};

const struct track_ops track_list_bare = {
	.name = "list, as merged",
	.create = create,
	.preserve = preserve_bare,
	.preserve_range = preserve_range_bare,
	.serialize = serialize,
	.attach = attach,
	.walk = walk,
	.bytes = bytes,
	.destroy = destroy,
};
