// SPDX-License-Identifier: LGPL-2.1-or-later
/* The copy of the critical section; see copy.h and docs/design/live.md. */
#include "live/copy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/num.h"
#include "live/copy-priv.h"
#include "live/each.h"
#include "os/extent.h"
#include "os/memory.h"
#include "page/page.h"

/* Left free beside the copy: the pipeline that saves it, and everybody else. */
#define SPARE_BYTES MIB(64)

static void release(void *ctx, const uint8_t *at, uint64_t pages)
{
	struct live_copy *c = ctx;

	live_arena_release(c->arena, at, pages);
}

/* The data of all files as it is now, in whole pages. */
static int count_data(struct live_copy *c, const struct memory_items *items, uint64_t *ret_bytes, struct err *e)
{
	uint64_t i, pages = 0, offset, start, end;
	struct copied_file *f;
	int rc;

	for (i = 0; i < items->count; i++) {
		const struct memory_item *item = &items->list[i];

		if (item->kind != MEMORY_FILE || !item->bytes)
			continue;
		rc = copy_file_find(c, items, i, &f, e);
		for (offset = 0; !rc && offset < item->bytes; offset = end) {
			rc = os_next_data(f->fd, offset, item->bytes, &start, &end);
			if (rc < 0)
				err_sys(e, rc, "cannot find the data of %s", item->name);
			else
				pages += num_pages(end, MEMORY_PAGE_BYTES) - start / MEMORY_PAGE_BYTES;
		}
		if (rc < 0)
			return rc;
	}
	*ret_bytes = pages * MEMORY_PAGE_BYTES;
	return 0;
}

static int check_fits(uint64_t bytes, struct err *e)
{
	uint64_t available = os_memory_available();

	if (bytes + SPARE_BYTES <= available)
		return 0;
	return err_set(e, -ENOMEM,
		       "a copy of the memory does not fit: it needs %" PRIu64 " MiB, and %" PRIu64 " MiB are available",
		       (bytes + SPARE_BYTES) >> 20, available >> 20);
}

static int map_pages(void *arg, size_t i, struct err *e)
{
	const struct copy_job *job = &((struct live_copy *)arg)->jobs[i];

	if (job->file->map)
		os_memory_map_pages(job->file->map + job->first_page * MEMORY_PAGE_BYTES,
				    job->pages * MEMORY_PAGE_BYTES);
	return 0;
}

static int prepare(struct live_copy *c, const struct memory_items *items, struct err *e)
{
	uint64_t bytes = 0;
	int rc;

	c->arena = live_arena_new();
	if (!c->arena)
		return err_sys(e, -ENOMEM, "cannot prepare a copy");
	rc = count_data(c, items, &bytes, e);
	if (!rc)
		rc = check_fits(bytes, e);
	c->expected = bytes;
	/* A cell takes what lies together, so none is cut but where the memory ends. */
	if (!rc)
		rc = live_arena_grow(c->arena, bytes, c->opts.threads, c->opts.cancel, e);
	if (!rc)
		rc = copy_plan(c, items, e);
	if (!rc)
		rc = live_each(c->opts.threads, c->n_jobs, map_pages, c, c->opts.cancel, e);
	c->prepared = true;
	return rc;
}

int live_copy_new(const struct memory_items *items, const struct live_copy_opts *opts, struct live_copy **ret,
		  struct err *e)
{
	struct live_copy *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return err_sys(e, -ENOMEM, "cannot prepare a copy");
	c->opts = *opts;
	if (!c->opts.copy_span)
		c->opts.copy_span = page_span_copy_find_zero;
	c->view.ctx = c;
	c->view.release = release;
	rc = prepare(c, items, e);
	if (rc < 0) {
		live_copy_free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

/* Their extents become holes; a bad range may begin and end within some. */
static int cut(struct live_copy *c, const struct bad_pages *bad)
{
	size_t i, n = c->n_extents;

	for (i = 0; i < n; i++) {
		struct memory_extent x = c->extents[i], tail = x, hole;
		const struct memory_item *item = &c->items->list[x.item];
		uint64_t first = num_max(x.first_page, bad->first_page);
		uint64_t end = num_min(x.first_page + x.pages, bad->first_page + bad->pages);

		if (x.hole || item->dev != bad->file->dev || item->ino != bad->file->ino || first >= end)
			continue;
		hole = (struct memory_extent){.item = x.item, .hole = true, .first_page = first, .pages = end - first};
		tail.first_page = end;
		tail.pages = x.first_page + x.pages - end;
		tail.at += (end - x.first_page) * MEMORY_PAGE_BYTES;
		tail.zero_at += (unsigned int)(end - x.first_page);
		x.pages = first - x.first_page;
		c->extents[i] = x;
		if (copy_room((void **)&c->extents, c->n_extents + 1, &c->extents_room, sizeof(x)) < 0)
			return -ENOMEM;
		c->extents[c->n_extents++] = hole;
		if (copy_room((void **)&c->extents, c->n_extents + 1, &c->extents_room, sizeof(x)) < 0)
			return -ENOMEM;
		c->extents[c->n_extents++] = tail;
		c->counts.unreadable += hole.pages * MEMORY_PAGE_BYTES;
	}
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct memory_extent *x = a, *y = b;

	if (x->item != y->item)
		return x->item < y->item ? -1 : 1;
	return x->first_page < y->first_page ? -1 : x->first_page > y->first_page;
}

/* Empty extents go, the others come into order. */
static void tidy(struct live_copy *c)
{
	size_t i, n = 0;

	for (i = 0; i < c->n_extents; i++) {
		if (c->extents[i].pages)
			c->extents[n++] = c->extents[i];
	}
	c->n_extents = n;
	qsort(c->extents, n, sizeof(*c->extents), by_place);
	c->view.list = c->extents;
	c->view.n = n;
}

/* Whose pages they are, in the words of the user. */
static const char *name_of(const struct live_copy *c, const struct copied_file *f)
{
	uint64_t i;

	for (i = 0; i < c->items->count; i++) {
		if (c->items->list[i].dev == f->dev && c->items->list[i].ino == f->ino)
			return c->items->list[i].name;
	}
	return "?";
}

static int handle_bad(struct live_copy *c, struct err *e)
{
	size_t i;

	for (i = 0; i < c->n_bad; i++) {
		const struct bad_pages *b = &c->bad[i];

		if (!c->opts.skip_unreadable)
			return err_set(e, -EIO, "%s: pages %" PRIu64 " to %" PRIu64 " cannot be read",
				       name_of(c, b->file), b->first_page, b->first_page + b->pages - 1);
		memory_warn(c->opts.warnings, "%s: pages %" PRIu64 " to %" PRIu64 " cannot be read and are saved as a hole",
			    name_of(c, b->file), b->first_page, b->first_page + b->pages - 1);
		if (cut(c, b) < 0)
			return err_sys(e, -ENOMEM, "cannot note unreadable pages");
	}
	if (c->n_bad)
		tidy(c);
	return 0;
}

int live_copy_pass(struct live_copy *c, const struct memory_items *items, struct err *e)
{
	size_t i, j;
	int rc = copy_plan(c, items, e);

	if (!rc)
		rc = copy_run(c, e);
	if (rc < 0)
		return rc;
	/* What could not be had may be there, or gone, when it counts. */
	for (i = 0; i < c->n_bad; i++) {
		for (j = 0; j < c->bad[i].file->n_cells; j++)
			memset(c->bad[i].file->cells[j]->stale, 0xff, sizeof(c->bad[i].file->cells[j]->stale));
	}
	c->counts.precopied += c->looked * MEMORY_PAGE_BYTES;
	c->counts.late = 0;
	return 0;
}

int live_copy_take(struct live_copy *c, const struct memory_items *items, struct err *e)
{
	int rc = copy_plan(c, items, e);

	if (!rc)
		rc = copy_run(c, e);
	if (rc < 0)
		return rc;
	c->counts.looked = c->looked * MEMORY_PAGE_BYTES;
	c->counts.copied = c->copied * MEMORY_PAGE_BYTES;
	return handle_bad(c, e);
}

int live_copy_check(struct live_copy *c, struct err *e)
{
	struct stat st;
	size_t i;

	for (i = 0; i < c->n_jobs; i++) {
		const struct copy_job *job = &c->jobs[i];

		if (i && job->file == c->jobs[i - 1].file)
			continue;
		if (fstat(job->file->fd, &st) < 0)
			return err_sys(e, -errno, "cannot look at %s", job->item->name);
		if (clock_timespec_ns(&st.st_mtim) != job->item->mtime_ns ||
		    (uint64_t)st.st_size != job->item->bytes)
			return err_set(e, -ESTALE, "%s was written while it was being copied, by a process that was not stopped",
				       job->item->name);
	}
	return 0;
}

const struct memory_view *live_copy_view(const struct live_copy *c)
{
	return &c->view;
}

uint64_t live_copy_expected(const struct live_copy *c)
{
	return c->expected;
}

void live_copy_counts(const struct live_copy *c, struct live_copy_counts *ret)
{
	*ret = c->counts;
}

void live_copy_free(struct live_copy *c)
{
	size_t i;

	if (!c)
		return;
	for (i = 0; i < c->n_files; i++)
		copy_file_free(c->files[i]);
	free(c->files);
	free(c->extents);
	free(c->jobs);
	free(c->last.extents);
	free(c->last.jobs);
	free(c->todo);
	free(c->groups);
	free(c->bad);
	live_arena_free(c->arena);
	free(c);
}
