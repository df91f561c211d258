// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The copy of regions; see regions.h.  What is prepared is memory for each cell that has a
 * page; one that got its first page since takes memory that has to be faulted in.
 */
#include "live/regions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "live/each.h"
#include "live/regions-priv.h"
#include "os/memory.h"
#include "page/page.h"

static bool is_empty(const struct cell *cell)
{
	uint64_t any = 0;
	size_t i;

	for (i = 0; i < ARRAY_LEN(cell->there); i++)
		any |= cell->there[i];
	return !any;
}

/* Pages from `i` on that exist, or do not, as it does. */
static uint64_t run_at(const struct cell *cell, uint64_t i)
{
	bool there = page_bitmap_test(cell->there, i);
	uint64_t n = 1;

	while (i + n < cell->pages && page_bitmap_test(cell->there, i + n) == there)
		n++;
	return n;
}

static int make_cells(struct live_regions *r, struct err *e)
{
	uint64_t n = 0, page;
	size_t i;

	for (i = 0; i < r->n_pieces; i++)
		n += num_pages(r->pieces[i].pages, CELL_PAGES);
	r->cells = calloc(n, sizeof(*r->cells));
	if (!r->cells)
		return err_sys(e, -ENOMEM, "cannot prepare a copy");
	for (i = 0; i < r->n_pieces; i++) {
		const struct piece *p = &r->pieces[i];

		for (page = 0; page < p->pages; page += CELL_PAGES) {
			r->cells[r->n_cells++] = (struct cell){
				.src = p->at + page * MEMORY_PAGE_BYTES,
				.piece = i,
				.region = p->region,
				.pages = (uint32_t)num_min(p->pages - page, CELL_PAGES),
				.first_page = p->first_page + page,
			};
		}
	}
	return 0;
}

static int find_existing(void *arg, size_t i, struct err *e)
{
	struct live_regions *r = arg;

	regions_map_look_cell(r, &r->cells[i]);
	return 0;
}

/* A cell's memory lies together; what is left over at the end of a piece of the arena is not
 * used. */
static uint8_t *take_memory(struct live_regions *r, uint64_t pages)
{
	uint8_t *at;
	uint64_t n;

	do {
		at = live_arena_take(r->arena, pages, &n);
	} while (at && n < pages);
	return at;
}

static int make_room(struct live_regions *r, struct err *e)
{
	uint64_t bytes = 0, available = os_memory_available();
	size_t i;
	int rc;

	for (i = 0; i < r->n_cells; i++)
		bytes += is_empty(&r->cells[i])
				 ? 0
				 : r->cells[i].pages * (uint64_t)MEMORY_PAGE_BYTES;
	if (bytes > available)
		return err_set(e, -ENOMEM,
			       "a copy of the memory does not fit: it needs %" PRIu64
			       " MiB, and %" PRIu64 " MiB are available",
			       bytes >> 20, available >> 20);
	r->arena = live_arena_new();
	if (!r->arena)
		return err_sys(e, -ENOMEM, "cannot prepare a copy");
	rc = live_arena_grow(r->arena, bytes, r->opts.threads, r->opts.cancel, e);
	for (i = 0; i < r->n_cells && !rc; i++) {
		if (is_empty(&r->cells[i]))
			continue;
		r->cells[i].at = take_memory(r, r->cells[i].pages);
		if (!r->cells[i].at)
			rc = err_sys(e, -ENOMEM, "cannot prepare a copy");
	}
	return rc;
}

static void release(void *ctx, const uint8_t *at, uint64_t pages)
{
	struct live_regions *r = ctx;

	live_arena_release(r->arena, at, pages);
}

int live_regions_new(const struct live_region *regions, size_t n,
		     const struct live_copy_opts *opts, struct live_regions **ret,
		     struct err *e)
{
	struct live_regions *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return err_sys(e, -ENOMEM, "cannot prepare a copy");
	r->opts = *opts;
	r->pagemap = -1;
	r->view = (struct memory_view){.ctx = r, .release = release};
	rc = regions_map_find(r, regions, n, e);
	if (!rc)
		rc = make_cells(r, e);
	if (!rc) {
		regions_map_look(r);
		rc = live_each(r->opts.threads, r->n_cells, find_existing, r, r->opts.cancel,
			       e);
	}
	if (!rc)
		rc = make_room(r, e);
	if (rc < 0) {
		live_regions_free(r);
		return rc;
	}
	*ret = r;
	return 0;
}

/* ---- the critical section ---- */

/* A run of pages that exist. */
static uint64_t copy_run(const struct live_regions *r, struct cell *cell, uint64_t from,
			 uint64_t pages)
{
	uint64_t zero[CELL_PAGES / 64], i, found;
	const uint8_t *src = cell->src + from * MEMORY_PAGE_BYTES;
	uint8_t *dst = cell->at + from * MEMORY_PAGE_BYTES;

	if (r->opts.no_zero_check) {
		page_ops()->copy_stream(dst, src, pages * MEMORY_PAGE_BYTES);
		return pages;
	}
	found = page_span_copy_find_zero(dst, src, pages, MEMORY_PAGE_BYTES, zero);
	for (i = 0; i < pages && found; i++)
		cell->zero[(from + i) / 64] |= (uint64_t)page_bitmap_test(zero, i)
					       << ((from + i) % 64);
	return pages - found;
}

static int copy_cell(void *arg, size_t number, struct err *e)
{
	struct live_regions *r = arg;
	struct cell *cell = &r->cells[number];
	uint64_t i, n, copied = 0, looked = 0;

	regions_map_look_cell(r, cell);
	if (is_empty(cell))
		return 0;
	if (!cell->at) {
		wait_lock_acquire(&r->late);
		cell->at = take_memory(r, cell->pages);
		wait_lock_release(&r->late);
		if (!cell->at)
			return err_sys(e, -ENOMEM, "cannot allocate memory for the copy");
	}
	for (i = 0; i < cell->pages; i += n) {
		n = run_at(cell, i);
		if (!page_bitmap_test(cell->there, i))
			continue;
		copied += copy_run(r, cell, i, n);
		looked += n;
	}
	atomic_fetch_add_explicit(&r->looked, looked, memory_order_relaxed);
	atomic_fetch_add_explicit(&r->copied, copied, memory_order_relaxed);
	return 0;
}

/* Holes that touch become one. */
static bool joins(const struct memory_extent *last, const struct memory_extent *x)
{
	return last && last->hole && x->hole && last->item == x->item;
}

/* Lists the extents, or with NULL counts them; memory of pages that do not exist is given back.
 */
static size_t list_extents(struct live_regions *r, struct memory_extent *list)
{
	size_t count = 0, c;
	uint64_t i, n;

	for (c = 0; c < r->n_cells; c++) {
		const struct cell *cell = &r->cells[c];

		for (i = 0; i < cell->pages; i += n) {
			bool there = page_bitmap_test(cell->there, i);
			struct memory_extent x = {
				.item = cell->region,
				.hole = !there,
				.first_page = cell->first_page + i,
				.pages = n = run_at(cell, i),
			};
			uint8_t *at = cell->at ? cell->at + i * MEMORY_PAGE_BYTES : NULL;

			if (there) {
				x.at = at;
				x.zero = r->opts.no_zero_check ? NULL : cell->zero;
				x.zero_at = (unsigned int)i;
			} else if (list && at) {
				live_arena_release(r->arena, at, n);
			}
			if (list && joins(count ? &list[count - 1] : NULL, &x))
				list[count - 1].pages += n;
			else if (list)
				list[count++] = x;
			else
				count++;
		}
	}
	return count;
}

int live_regions_take(struct live_regions *r, struct err *e)
{
	int rc;

	regions_map_look(r);
	rc = live_each(r->opts.threads, r->n_cells, copy_cell, r, r->opts.cancel, e);
	regions_map_close(r);
	if (rc < 0)
		return rc;
	r->extents = calloc(list_extents(r, NULL), sizeof(*r->extents));
	if (!r->extents)
		return err_sys(e, -ENOMEM, "cannot list what was copied");
	r->n_extents = list_extents(r, r->extents);
	r->view.list = r->extents;
	r->view.n = r->n_extents;
	return 0;
}

const struct memory_view *live_regions_view(const struct live_regions *r)
{
	return &r->view;
}

void live_regions_counts(const struct live_regions *r, struct live_copy_counts *ret)
{
	*ret = (struct live_copy_counts){
		.looked = r->looked * MEMORY_PAGE_BYTES,
		.copied = r->copied * MEMORY_PAGE_BYTES,
	};
}

void live_regions_free(struct live_regions *r)
{
	if (!r)
		return;
	regions_map_close(r);
	live_arena_free(r->arena);
	free(r->pieces);
	free(r->cells);
	free(r->extents);
	free(r);
}
