// SPDX-License-Identifier: LGPL-2.1-or-later
/* Reading pagemaps, by all threads: which pages are what they were. */
#include <errno.h>
#include <string.h>

#include "base/num.h"
#include "live/each.h"
#include "live/passes-priv.h"
#include "os/pagemap.h"

/* Cells that are no further apart are read at once, with what lies between them. */
#define GAP_PAGES 128u

static int add_look(struct live_passes *p, const struct mapper *m, const struct shared_map *map,
		    uint64_t page, uint64_t end)
{
	int rc = copy_room((void **)&p->looks, p->n_looks, &p->looks_room, sizeof(*p->looks));

	if (rc < 0)
		return rc;
	p->looks[p->n_looks++] = (struct look){
		.pagemap = m->pagemap,
		.address = map->start + page * MEMORY_PAGE_BYTES - map->offset,
		.file = map->file,
		.first_page = page,
		.pages = (unsigned int)(end - page),
	};
	return 0;
}

/* Where a look ends that begins in this cell: it goes on as long as the next one is near. */
static uint64_t look_end(const struct copied_file *f, size_t i, uint64_t from, uint64_t most)
{
	uint64_t end = from;

	for (; i < f->n_cells && end < most && f->cells[i]->first_page < end + GAP_PAGES; i++)
		end = num_min(most, f->cells[i]->first_page + f->cells[i]->pages);
	return end;
}

/* Covers all cells that a mapping shows, in as few looks as there may be. */
static int add_looks(struct live_passes *p, const struct mapper *m,
		     const struct shared_map *map)
{
	uint64_t page = map->offset / MEMORY_PAGE_BYTES;
	uint64_t last = page + (map->end - map->start) / MEMORY_PAGE_BYTES, from;
	const struct copied_file *f = map->file;
	int rc = 0;

	while (page < last && !rc) {
		size_t i = copy_cell_after(f, page);

		if (i == f->n_cells || f->cells[i]->first_page >= last)
			break;
		from = num_max(page, f->cells[i]->first_page);
		page = look_end(f, i, from, num_min(last, from + LOOK_PAGES));
		rc = add_look(p, m, map, from, page);
	}
	return rc;
}

static int note_present(void *arg, size_t i, struct err *e)
{
	struct look *look = &((struct live_passes *)arg)->looks[i];
	uint64_t entries[LOOK_PAGES];
	unsigned int j;

	/* What cannot be read was there, perhaps: that makes it stale if it is not, later. */
	if (os_pagemap_read(look->pagemap, look->address, look->pages, entries) < 0) {
		memset(look->present, 0xff, sizeof(look->present));
		return 0;
	}
	for (j = 0; j < look->pages; j++)
		look->present[j / 64] |= entries[j] >> 63 << (j % 64);
	return 0;
}

int passes_look_begin(struct live_passes *p, struct err *e)
{
	size_t i, j;

	p->n_looks = 0;
	for (i = 0; i < p->n_mappers; i++) {
		for (j = 0; j < p->mappers[i].maps.n; j++) {
			/* What is no memory is dropped from page tables all the time, and huge
			 * pages are not tracked. */
			if (p->mappers[i].maps.list[j].file->in_memory &&
			    add_looks(p, &p->mappers[i], &p->mappers[i].maps.list[j]) < 0)
				return err_sys(e, -ENOMEM, "cannot copy in passes");
		}
	}
	return live_each(p->copy->opts.threads, p->n_looks, note_present, p,
			 p->copy->opts.cancel, e);
}

/* n bits from `at` on. */
static uint64_t take_bits(const uint64_t *words, unsigned int at, unsigned int n)
{
	uint64_t bits = words[at / 64] >> (at % 64);

	if (at % 64 + n > 64)
		bits |= words[at / 64 + 1] << (64 - at % 64);
	return n < 64 ? bits & ((UINT64_C(1) << n) - 1) : bits;
}

/* Bits of `clean`, which begin with page `base`, come to a cell: those that are set as seen,
 * the others as stale. */
static void note_cell(struct cell *cell, const uint64_t *clean, uint64_t base, uint64_t first,
		      uint64_t end)
{
	unsigned int n;

	for (; first < end; first += n) {
		unsigned int at = (unsigned int)(first - cell->first_page);
		uint64_t seen, all;

		n = (unsigned int)num_min(end - first, 64 - at % 64);
		all = n < 64 ? (UINT64_C(1) << n) - 1 : UINT64_MAX;
		seen = take_bits(clean, (unsigned int)(first - base), n);
		atomic_fetch_or_explicit(&cell->seen[at / 64], seen << (at % 64),
					 memory_order_relaxed);
		if (seen != all)
			atomic_fetch_or_explicit(&cell->stale[at / 64],
						 (all & ~seen) << (at % 64),
						 memory_order_relaxed);
	}
}

/*
 * Clean is what is there and has its bit cleared, or was never there.  What was there and is
 * not has lost its bit with its page table entry.
 */
static int look_again(void *arg, size_t i, struct err *e)
{
	const struct look *look = &((struct live_passes *)arg)->looks[i];
	uint64_t entries[LOOK_PAGES], clean[LOOK_PAGES / 64 + 1] = {0};
	uint64_t first, end, last = look->first_page + look->pages;
	const struct copied_file *f = look->file;
	int rc = os_pagemap_read(look->pagemap, look->address, look->pages, entries);
	unsigned int j;
	size_t k;

	for (j = 0; !rc && j < look->pages; j++) {
		uint64_t known = entries[j] >> 63 | (~look->present[j / 64] >> (j % 64) & 1);
		bool changed = entries[j] & (OS_PAGEMAP_SOFT_DIRTY | OS_PAGEMAP_SWAPPED);

		clean[j / 64] |= (known & !changed) << (j % 64);
	}
	for (k = copy_cell_after(f, look->first_page);
	     k < f->n_cells && f->cells[k]->first_page < last; k++) {
		first = num_max(f->cells[k]->first_page, look->first_page);
		end = num_min(f->cells[k]->first_page + f->cells[k]->pages, last);
		note_cell(f->cells[k], clean, look->first_page, first, end);
	}
	return 0;
}

/* What no mapping showed may have been changed through one that has come and gone. */
static void fold(const struct copied_file *f)
{
	size_t i, w;

	for (i = 0; i < f->n_cells; i++) {
		for (w = 0; w < CELL_PAGES / 64; w++) {
			uint64_t seen = atomic_load_explicit(&f->cells[i]->seen[w],
							     memory_order_relaxed);

			atomic_fetch_or_explicit(&f->cells[i]->stale[w], ~seen,
						 memory_order_relaxed);
			atomic_store_explicit(&f->cells[i]->seen[w], 0, memory_order_relaxed);
		}
	}
}

int passes_look_again(struct live_passes *p, struct err *e)
{
	size_t i;
	int rc = live_each(p->copy->opts.threads, p->n_looks, look_again, p,
			   p->copy->opts.cancel, e);

	for (i = 0; i < p->copy->n_files && !rc; i++)
		fold(p->copy->files[i]);
	return rc;
}

void passes_stale(struct copied_file *f, uint64_t first, uint64_t end)
{
	static const uint64_t none[CELL_PAGES / 64 + 1];
	size_t i;

	for (i = copy_cell_after(f, first); i < f->n_cells && f->cells[i]->first_page < end;
	     i++) {
		struct cell *cell = f->cells[i];

		note_cell(cell, none, num_max(first, cell->first_page),
			  num_max(first, cell->first_page),
			  num_min(end, cell->first_page + cell->pages));
	}
}
