// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The mappings that regions consist of, and which of their pages exist: private ones are told
 * by the page tables, those of files by the file.  Reads no page, and changes nothing.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "live/regions-priv.h"
#include "os/extent.h"
#include "os/filesystem.h"
#include "os/memory.h"
#include "os/pagemap.h"
#include "os/proc.h"
#include "page/page.h"

/* ---- mappings ---- */

struct ordered {
	uint64_t at, end;
	uint32_t region;
};

static int by_address(const void *a, const void *b)
{
	const struct ordered *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static int by_region(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	if (x->region != y->region)
		return x->region < y->region ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

/* The part of a mapping from `at` up to `end`. */
static int add_piece(struct live_regions *r, const struct ordered *o,
		     const struct os_proc_map *m, uint64_t at, uint64_t end)
{
	struct piece *list = r->pieces;

	/* Room for 2^k, made whenever there are as many. */
	if (!(r->n_pieces & (r->n_pieces - 1)))
		list = reallocarray(list, r->n_pieces ? 2 * r->n_pieces : 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	r->pieces = list;
	list[r->n_pieces++] = (struct piece){
		.at = (uint8_t *)(uintptr_t)at,
		.pages = (end - at) / MEMORY_PAGE_BYTES,
		.region = o->region,
		.first_page = (at - o->at) / MEMORY_PAGE_BYTES,
		.private = !m->shared,
		/* A SysV segment may have the number 0. */
		.file = m->ino || m->shared,
		.map_start = m->start,
		.map_end = m->end,
		.offset = m->offset + (at - m->start),
		.dev = m->dev,
		.ino = m->ino,
		.fd = -1,
	};
	return 0;
}

/* Goes through all mappings once, beside the regions in ascending order. */
static int find_pieces(struct live_regions *r, struct os_proc_maps *maps,
		       const struct ordered *o, size_t n, struct err *e)
{
	const struct ordered *last = o + n;
	uint64_t need = o->at, end;
	struct os_proc_map m;
	int rc;

	while (o < last) {
		rc = os_proc_maps_next(maps, &m);
		if (rc < 0)
			return err_sys(e, rc, "cannot read /proc/self/maps");
		if (!rc || m.start > need)
			return err_set(e, -EFAULT, "region %u: nothing is mapped at 0x%llx",
				       o->region, (unsigned long long)need);
		for (; o < last && m.start <= need && need < m.end; need = end) {
			if (!m.read)
				return err_set(
					e, -EFAULT,
					"region %u: the mapping at 0x%llx cannot be read",
					o->region, (unsigned long long)m.start);
			end = num_min(m.end, o->end);
			if (add_piece(r, o, &m, need, end) < 0)
				return err_sys(e, -ENOMEM, "cannot hold the mappings");
			if (end == o->end && ++o < last)
				end = o->at;
		}
	}
	return 0;
}

/*
 * By the link to the mapped file itself, which needs a capability.  What is no regular file, a
 * device that is mapped, is not opened.
 */
static void open_file(struct piece *p, const struct piece *before)
{
	char link[OS_PROC_PATH_BYTES];
	struct stat st;

	if (before && before->fd >= 0 && before->dev == p->dev && before->ino == p->ino) {
		p->fd = before->fd;
		return;
	}
	os_proc_map_link(gettid(), p->map_start, p->map_end, link);
	if (stat(link, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	p->fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	p->owns_fd = p->fd >= 0;
}

int regions_map_find(struct live_regions *r, const struct live_region *regions, size_t n,
		     struct err *e)
{
	CLEANUP_FREE struct ordered *order = calloc(n, sizeof(*order));
	struct os_proc_maps *maps;
	size_t i;
	int rc;

	if (!order)
		return err_sys(e, -ENOMEM, "cannot hold the regions");
	for (i = 0; i < n; i++)
		order[i] = (struct ordered){(uintptr_t)regions[i].at,
					    (uintptr_t)regions[i].at + regions[i].bytes,
					    (uint32_t)i};
	qsort(order, n, sizeof(*order), by_address);
	rc = os_proc_maps_open(gettid(), &maps);
	if (rc < 0)
		return err_sys(e, rc, "cannot read /proc/self/maps");
	rc = find_pieces(r, maps, order, n, e);
	os_proc_maps_close(maps);
	if (rc < 0)
		return rc;
	qsort(r->pieces, r->n_pieces, sizeof(*r->pieces), by_region);
	for (i = 0; i < r->n_pieces; i++) {
		struct piece *p = &r->pieces[i];

		if (p->file)
			open_file(p, i ? p - 1 : NULL);
	}
	/* A process may always look at its own, unless /proc is not there. */
	r->pagemap = os_pagemap_open(gettid());
	return 0;
}

void regions_map_close(struct live_regions *r)
{
	size_t i;

	for (i = 0; i < r->n_pieces; i++) {
		if (r->pieces[i].owns_fd)
			close(r->pieces[i].fd);
		r->pieces[i].fd = -1;
		r->pieces[i].owns_fd = false;
	}
	if (r->pagemap >= 0)
		close(r->pagemap);
	r->pagemap = -1;
}

/* ---- pages that exist ---- */

/*
 * What can be said of a file at once.  Only a tmpfs knows better than that all is data: of a
 * file on disk a store through a mapping may not have reached its file system yet, and reading
 * a hole there takes up nothing.
 */
static void look_at_file(struct piece *p)
{
	uint64_t first = p->offset / MEMORY_PAGE_BYTES, end;
	struct os_filesystem fs;
	struct stat st;

	p->end = p->pages;
	p->whole = true;
	if (p->fd < 0 || fstat(p->fd, &st) < 0)
		return;
	/* Behind the end of the file is nothing but a signal. */
	end = num_pages((uint64_t)st.st_size, MEMORY_PAGE_BYTES);
	p->end = end > first ? num_min(end - first, p->pages) : 0;
	if ((uint64_t)st.st_blocks * 512 >= (uint64_t)st.st_size ||
	    os_filesystem_of(p->fd, &fs) < 0)
		return;
	p->whole = !fs.tmpfs;
	if (fs.huge_page_bytes && !st.st_blocks)
		p->end = 0;
}

void regions_map_look(struct live_regions *r)
{
	size_t i;

	for (i = 0; i < r->n_pieces; i++) {
		if (r->pieces[i].file)
			look_at_file(&r->pieces[i]);
	}
}

static void mark(struct cell *cell, uint64_t i)
{
	cell->there[i / 64] |= UINT64_C(1) << (i % 64);
}

/* False: they all are. */
static bool mark_resident(struct cell *cell)
{
	unsigned char resident[CELL_PAGES];
	uint64_t i, n = 0;

	if (os_memory_resident(cell->src, cell->pages * (size_t)MEMORY_PAGE_BYTES, resident) <
	    0)
		return true;
	for (i = 0; i < cell->pages; i++) {
		if (resident[i] & 1) {
			mark(cell, i);
			n++;
		}
	}
	return n < cell->pages;
}

static void mark_private(const struct live_regions *r, struct cell *cell)
{
	uint64_t entries[CELL_PAGES], i;
	bool known = r->pagemap >= 0 && os_pagemap_read(r->pagemap, (uintptr_t)cell->src,
							cell->pages, entries) == 0;

	for (i = 0; i < cell->pages; i++) {
		if (!known || entries[i] & (OS_PAGEMAP_PRESENT | OS_PAGEMAP_SWAPPED))
			mark(cell, i);
	}
}

/* Asks for one page after the other, since looking for the end of data goes far beyond the
 * cell. */
static void mark_data(const struct piece *p, struct cell *cell, uint64_t first, uint64_t end)
{
	uint64_t file_first = p->offset / MEMORY_PAGE_BYTES + first, i, at;

	for (i = 0; i < end; i++) {
		if (page_bitmap_test(cell->there, i))
			continue;
		if (os_seek_data(p->fd, (file_first + i) * MEMORY_PAGE_BYTES,
				 (file_first + end) * MEMORY_PAGE_BYTES, &at) < 0)
			at = (file_first + i) * MEMORY_PAGE_BYTES;
		i = at / MEMORY_PAGE_BYTES - file_first;
		if (i < end)
			mark(cell, i);
	}
}

void regions_map_look_cell(const struct live_regions *r, struct cell *cell)
{
	const struct piece *p = &r->pieces[cell->piece];
	uint64_t first = cell->first_page - p->first_page, i;
	uint64_t end = p->end > first ? num_min(p->end - first, cell->pages) : 0;

	memset(cell->there, 0, sizeof(cell->there));
	if (p->file && p->whole) {
		for (i = 0; i < end; i++)
			mark(cell, i);
		return;
	}
	/* Most are in memory, and finding that out is cheap; the others may be swapped out. */
	if (!mark_resident(cell))
		return;
	if (p->private)
		mark_private(r, cell);
	if (p->file)
		mark_data(p, cell, first, end);
}
