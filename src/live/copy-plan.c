// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What is to be copied: the data of each file, as its file system tells it now, cut into jobs, each within one cell.
 * Between two plans pages keep their cells; data that is new gets new ones.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/num.h"
#include "live/copy-priv.h"
#include "os/extent.h"

size_t copy_cell_after(const struct copied_file *f, uint64_t page)
{
	size_t low = 0, high = f->n_cells;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (f->cells[mid]->first_page + f->cells[mid]->pages <= page)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static struct cell *add_cell(struct live_copy *c, struct copied_file *f, size_t at, uint64_t page, uint64_t pages)
{
	struct cell *cell;

	if (copy_room((void **)&f->cells, f->n_cells, &f->cells_room, sizeof(struct cell *)) < 0)
		return NULL;
	cell = calloc(1, sizeof(*cell));
	if (!cell)
		return NULL;
	cell->at = live_arena_take(c->arena, num_min(pages, CELL_PAGES), &pages);
	if (!cell->at) {
		free(cell);
		return NULL;
	}
	cell->first_page = page;
	cell->pages = (unsigned int)pages;
	memset(cell->stale, 0xff, sizeof(cell->stale));
	memmove(f->cells + at + 1, f->cells + at, (f->n_cells - at) * sizeof(struct cell *));
	f->cells[at] = cell;
	f->n_cells++;
	if (c->prepared)
		c->counts.late += pages * MEMORY_PAGE_BYTES;
	return cell;
}

static int add_extent(struct live_copy *c, const struct memory_extent *x)
{
	int rc = copy_room((void **)&c->extents, c->n_extents, &c->extents_room, sizeof(*x));

	if (!rc)
		c->extents[c->n_extents++] = *x;
	return rc;
}

static int add_job(struct live_copy *c, uint64_t item, struct copied_file *f, struct cell *cell, uint64_t page,
		   uint64_t pages)
{
	uint64_t from = page - cell->first_page;
	struct memory_extent x = {
		.item = (uint32_t)item,
		.first_page = page,
		.pages = pages,
		.at = cell->at + from * MEMORY_PAGE_BYTES,
		.zero = c->opts.no_zero_check ? NULL : (const uint64_t *)cell->zero,
		.zero_at = (unsigned int)from,
	};
	int rc = copy_room((void **)&c->jobs, c->n_jobs, &c->jobs_room, sizeof(*c->jobs));

	if (rc < 0)
		return rc;
	c->jobs[c->n_jobs++] = (struct copy_job){f, cell, &c->items->list[item], page, pages};
	return add_extent(c, &x);
}

/* Data from `page` up to `end`. */
static int plan_data(struct live_copy *c, uint64_t item, struct copied_file *f, uint64_t page, uint64_t end)
{
	uint64_t n;
	int rc = 0;

	for (; page < end && !rc; page += n) {
		size_t at = copy_cell_after(f, page);
		struct cell *cell = at < f->n_cells ? f->cells[at] : NULL;

		if (!cell || cell->first_page > page)
			cell = add_cell(c, f, at, page, (cell ? num_min(end, cell->first_page) : end) - page);
		if (!cell)
			return -ENOMEM;
		n = num_min(end, cell->first_page + cell->pages) - page;
		rc = add_job(c, item, f, cell, page, n);
	}
	return rc;
}

static int plan_hole(struct live_copy *c, uint64_t item, uint64_t page, uint64_t end)
{
	struct memory_extent x = {.item = (uint32_t)item, .hole = true, .first_page = page, .pages = end - page};

	return page < end ? add_extent(c, &x) : 0;
}

/*
 * Is the file's last plan what it would be now?  With nothing but stores through mappings, what had data has it still; and when
 * no more is allocated than the plan has, there is no other data, nor memory that is allocated and not yet data.
 */
static bool is_planned(const struct live_copy *c, const struct memory_item *item, const struct copied_file *f)
{
	struct stat st;

	return f->quiet && f->plan + 1 == c->plans && f->planned_bytes == item->bytes &&
	       fstat(f->fd, &st) == 0 && (uint64_t)st.st_size == item->bytes &&
	       (uint64_t)st.st_blocks * 512 == f->planned_pages * MEMORY_PAGE_BYTES;
}

/* Takes it over. */
static int plan_again(struct live_copy *c, uint64_t item, const struct copied_file *f)
{
	const struct copy_plan *last = &c->last;
	size_t i;
	int rc = 0;

	for (i = 0; i < f->n_extents && !rc; i++) {
		struct memory_extent x = last->extents[f->extent + i];

		x.item = (uint32_t)item;
		rc = add_extent(c, &x);
	}
	for (i = 0; i < f->n_jobs && !rc; i++) {
		rc = copy_room((void **)&c->jobs, c->n_jobs, &c->jobs_room, sizeof(*c->jobs));
		if (rc < 0)
			break;
		c->jobs[c->n_jobs] = last->jobs[f->job + i];
		c->jobs[c->n_jobs++].item = &c->items->list[item];
	}
	return rc;
}

static int plan_file(struct live_copy *c, uint64_t i, struct copied_file *f, struct err *e)
{
	const struct memory_item *item = &c->items->list[i];
	uint64_t page = 0, pages = num_pages(item->bytes, MEMORY_PAGE_BYTES), start, end;
	int rc = 0;

	f->planned_pages = 0;
	f->planned_bytes = item->bytes;
	while (page < pages && !rc) {
		rc = os_next_data(f->fd, page * MEMORY_PAGE_BYTES, item->bytes, &start, &end);
		if (rc < 0)
			return err_sys(e, rc, "cannot find the data of %s", item->name);
		/* A page with any data is data; a hole behind half a page may begin within it. */
		start = start < item->bytes ? num_max(start / MEMORY_PAGE_BYTES, page) : pages;
		end = end < item->bytes ? num_pages(end, MEMORY_PAGE_BYTES) : pages;
		rc = plan_hole(c, i, page, start);
		if (!rc)
			rc = plan_data(c, i, f, start, end);
		f->planned_pages += start < end ? end - start : 0;
		page = num_max(end, start);
	}
	return rc;
}

static int plan_item(struct live_copy *c, uint64_t i, struct err *e)
{
	const struct memory_item *item = &c->items->list[i];
	size_t extent = c->n_extents, job = c->n_jobs;
	struct copied_file *f;
	int rc = copy_file_find(c, c->items, i, &f, e);

	if (rc < 0)
		return rc;
	rc = is_planned(c, item, f) ? plan_again(c, i, f) : plan_file(c, i, f, e);
	if (rc < 0)
		return err_sys(e, rc, "cannot plan the copy of %s", item->name);
	f->extent = extent;
	f->n_extents = c->n_extents - extent;
	f->job = job;
	f->n_jobs = c->n_jobs - job;
	f->plan = c->plans;
	f->quiet = false;
	return 0;
}
/* The two take turns, so that no memory has to be had for either while anybody stands still. */
static void begin_plan(struct live_copy *c)
{
	struct copy_plan now = c->last;

	c->last = (struct copy_plan){c->extents, c->extents_room, c->jobs, c->jobs_room};
	c->extents = now.extents;
	c->extents_room = now.extents_room;
	c->jobs = now.jobs;
	c->jobs_room = now.jobs_room;
	c->n_extents = c->n_jobs = 0;
	c->plans++;
}

int copy_plan(struct live_copy *c, const struct memory_items *items, struct err *e)
{
	uint64_t i;
	int rc = 0;

	c->items = items;
	begin_plan(c);
	for (i = 0; i < items->count && !rc; i++) {
		if (items->list[i].kind == MEMORY_FILE && items->list[i].bytes)
			rc = plan_item(c, i, e);
	}
	c->view.list = c->extents;
	c->view.n = c->n_extents;
	return rc;
}
