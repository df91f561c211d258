// SPDX-License-Identifier: LGPL-2.1-or-later
/* Copying in passes; see passes.h. */
#include "live/passes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "live/copy-priv.h"
#include "live/each.h"
#include "os/pagemap.h"
#include "os/proc.h"
#include "os/watch.h"

/* The part of a cell that one mapping shows. */
struct look {
	int pagemap;
	uint64_t address;
	struct cell *cell;
	unsigned int from, pages;
};

struct live_passes {
	struct live_copy *copy;
	pid_t *pids; /* whose bits were cleared */
	size_t n_pids;
	int watch;
	int *watched; /* number of each file of the copy, in their order when the pass began */
	const struct copied_file **files;
	size_t n_files;
	struct look *looks;
	size_t n_looks, looks_room;
	int *pagemaps;
	size_t n_pagemaps;
};

int live_passes_new(struct live_copy *copy, struct live_passes **ret, struct err *e)
{
	struct live_passes *p;

	if (!os_soft_dirty_works())
		return err_set(e, -EOPNOTSUPP,
			       "passes need soft-dirty bits, which this kernel does not keep (CONFIG_MEM_SOFT_DIRTY)");
	p = calloc(1, sizeof(*p));
	if (!p)
		return err_sys(e, -ENOMEM, "cannot copy in passes");
	p->copy = copy;
	p->watch = -1;
	*ret = p;
	return 0;
}

static void mark_file(struct copied_file *f)
{
	size_t i;

	for (i = 0; i < f->n_cells; i++)
		memset(f->cells[i]->stale, 0xff, sizeof(f->cells[i]->stale));
}

static void mark_all(struct live_passes *p)
{
	size_t i;

	for (i = 0; i < p->copy->n_files; i++)
		mark_file(p->copy->files[i]);
}

/* A new watch: what happened before is known already. */
static int watch_files(struct live_passes *p, struct err *e)
{
	size_t i;

	if (p->watch >= 0)
		close(p->watch);
	p->watch = os_watch_open();
	free(p->watched);
	free(p->files);
	p->n_files = p->copy->n_files;
	p->watched = calloc(p->n_files + 1, sizeof(*p->watched));
	p->files = calloc(p->n_files + 1, sizeof(*p->files));
	if (p->watch < 0 || !p->watched || !p->files)
		return err_sys(e, p->watch < 0 ? p->watch : -ENOMEM, "cannot watch the memory for writes");
	for (i = 0; i < p->n_files; i++) {
		p->files[i] = p->copy->files[i];
		p->watched[i] = os_watch_add(p->watch, p->files[i]->fd);
		if (p->watched[i] < 0)
			return err_sys(e, p->watched[i], "cannot watch %zu files for writes", p->n_files);
	}
	return 0;
}

int live_passes_begin(struct live_passes *p, const pid_t *pids, size_t n, struct err *e)
{
	size_t i;
	int rc = watch_files(p, e);

	if (rc < 0)
		return rc;
	free(p->pids);
	p->pids = calloc(n + 1, sizeof(*p->pids));
	if (!p->pids)
		return err_sys(e, -ENOMEM, "cannot copy in passes");
	memcpy(p->pids, pids, n * sizeof(*pids));
	p->n_pids = n;
	for (i = 0; i < n; i++) {
		rc = os_soft_dirty_clear(pids[i]);
		if (rc < 0)
			return err_sys(e, rc, "cannot clear the soft-dirty bits of process %d", pids[i]);
	}
	return 0;
}

/* Files that were changed past all mappings are copied anew. */
static void mark_watched(struct live_passes *p)
{
	size_t i;
	int number;

	while ((number = os_watch_next(p->watch)) != -EAGAIN) {
		if (number < 0) {
			mark_all(p);
			return;
		}
		for (i = 0; i < p->n_files; i++) {
			if (p->watched[i] == number)
				mark_file((struct copied_file *)p->files[i]);
		}
	}
}

static int add_looks(struct live_passes *p, const struct os_proc_map *map, int pagemap)
{
	uint64_t first = map->offset / MEMORY_PAGE_BYTES, end = first + (map->end - map->start) / MEMORY_PAGE_BYTES;
	struct copied_file *f = NULL;
	size_t i;

	for (i = 0; i < p->copy->n_files && !f; i++) {
		if (p->copy->files[i]->dev == map->dev && p->copy->files[i]->ino == map->ino)
			f = p->copy->files[i];
	}
	for (i = 0; f && i < f->n_cells; i++) {
		struct cell *cell = f->cells[i];
		uint64_t from = num_max(first, cell->first_page), to = num_min(end, cell->first_page + cell->pages);

		if (from >= to)
			continue;
		if (copy_room((void **)&p->looks, p->n_looks, &p->looks_room, sizeof(*p->looks)) < 0)
			return -ENOMEM;
		p->looks[p->n_looks++] = (struct look){
			.pagemap = pagemap,
			.address = map->start + (from - first) * MEMORY_PAGE_BYTES,
			.cell = cell,
			.from = (unsigned int)(from - cell->first_page),
			.pages = (unsigned int)(to - from),
		};
	}
	return 0;
}

/*
 * Clean is what is there and has its bit cleared.  What is not there may have been: the kernel forgets
 * the bit with the page table entry.
 */
static int look_at(void *arg, size_t i, struct err *e)
{
	const struct look *look = &((struct live_passes *)arg)->looks[i];
	uint64_t entries[CELL_PAGES];
	unsigned int j;
	int rc = os_pagemap_read(look->pagemap, look->address, look->pages, entries);

	for (j = 0; j < look->pages; j++) {
		unsigned int bit = look->from + j;

		if (rc < 0 || !(entries[j] & OS_PAGEMAP_PRESENT) || (entries[j] & OS_PAGEMAP_SOFT_DIRTY))
			atomic_fetch_or_explicit(&look->cell->stale[bit / 64], UINT64_C(1) << (bit % 64),
						 memory_order_relaxed);
	}
	return 0;
}

static int add_process(struct live_passes *p, pid_t pid)
{
	struct os_proc_maps *maps;
	struct os_proc_map map;
	int pagemap = os_pagemap_open(pid), rc;

	if (pagemap < 0)
		return pagemap;
	p->pagemaps[p->n_pagemaps++] = pagemap;
	rc = os_proc_maps_open(pid, &maps);
	if (rc < 0)
		return rc;
	while ((rc = os_proc_maps_next(maps, &map)) > 0) {
		if (map.shared && map.ino && add_looks(p, &map, pagemap) < 0) {
			rc = -ENOMEM;
			break;
		}
	}
	os_proc_maps_close(maps);
	return rc;
}

/* Is everybody still there whose bits were cleared? */
static bool all_there(const struct live_passes *p, const pid_t *pids, size_t n)
{
	size_t i, j;

	for (i = 0; i < p->n_pids; i++) {
		for (j = 0; j < n && pids[j] != p->pids[i]; j++)
			;
		if (j == n)
			return false;
	}
	return true;
}

int live_passes_mark(struct live_passes *p, const pid_t *pids, size_t n, struct err *e)
{
	size_t i;
	int rc = 0;

	mark_watched(p);
	if (!all_there(p, pids, n)) {
		mark_all(p);
		return 0;
	}
	p->n_looks = p->n_pagemaps = 0;
	p->pagemaps = calloc(n + 1, sizeof(*p->pagemaps));
	if (!p->pagemaps)
		return err_sys(e, -ENOMEM, "cannot look at what changed");
	for (i = 0; i < n && !rc; i++) {
		rc = add_process(p, pids[i]);
		if (rc < 0)
			err_sys(e, rc, "cannot look at what process %d changed", pids[i]);
	}
	if (!rc)
		rc = live_each(p->copy->opts.threads, p->n_looks, look_at, p, p->copy->opts.cancel, e);
	for (i = 0; i < p->n_pagemaps; i++)
		close(p->pagemaps[i]);
	free(p->pagemaps);
	p->pagemaps = NULL;
	return rc;
}

void live_passes_free(struct live_passes *p)
{
	if (!p)
		return;
	if (p->watch >= 0)
		close(p->watch);
	free(p->watched);
	free(p->files);
	free(p->pids);
	free(p->looks);
	free(p);
}
