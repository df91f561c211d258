// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Copying: what is stale of each job, from the mapping of its file, by all threads.  A file that has no mapping is read.
 * Pages that cannot be had are noted, and copying goes on: what to make of them is decided when the owners of the memory go on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/io.h"
#include "base/num.h"
#include "base/wait.h"
#include "live/copy-priv.h"
#include "live/each.h"
#include "page/page.h"

static bool bit_of(const _Atomic uint64_t *words, unsigned int i)
{
	return atomic_load_explicit(&words[i / 64], memory_order_relaxed) >> (i % 64) & 1;
}

static void set_bit(_Atomic uint64_t *words, unsigned int i, bool value)
{
	uint64_t mask = UINT64_C(1) << (i % 64);

	if (value == bit_of(words, i))
		return;
	if (value)
		atomic_fetch_or_explicit(&words[i / 64], mask, memory_order_relaxed);
	else
		atomic_fetch_and_explicit(&words[i / 64], ~mask, memory_order_relaxed);
}

static int note_bad(struct live_copy *c, const struct copied_file *f, uint64_t page, uint64_t pages)
{
	struct bad_pages *last, *more;
	int rc = 0;

	wait_lock_acquire(&c->bad_lock);
	last = c->n_bad ? &c->bad[c->n_bad - 1] : NULL;
	if (last && last->file == f && last->first_page + last->pages == page) {
		last->pages += pages;
	} else {
		more = reallocarray(c->bad, c->n_bad + 1, sizeof(*more));
		if (more) {
			c->bad = more;
			more[c->n_bad++] = (struct bad_pages){f, page, pages};
		}
		rc = more ? 0 : -ENOMEM;
	}
	wait_lock_release(&c->bad_lock);
	return rc;
}

/* Without a mapping.  What cannot be read is noted and zero: a page at a time, or all behind the end of the file. */
static int read_pages(struct live_copy *c, const struct copy_job *job, uint8_t *dst, uint64_t page, uint64_t pages)
{
	uint64_t offset, bytes, bad;
	size_t got;
	int rc;

	while (pages) {
		offset = page * MEMORY_PAGE_BYTES;
		bytes = num_min(pages * MEMORY_PAGE_BYTES, job->item->bytes - offset);
		got = 0;
		rc = io_pread(job->file->fd, dst, bytes, offset, &got);
		memset(dst + got, 0, pages * MEMORY_PAGE_BYTES - got);
		if (!rc && got == bytes)
			return 0;
		bad = rc < 0 ? 1 : pages - got / MEMORY_PAGE_BYTES;
		page += got / MEMORY_PAGE_BYTES;
		rc = note_bad(c, job->file, page, bad);
		if (rc < 0)
			return rc;
		page += bad;
		pages -= got / MEMORY_PAGE_BYTES + bad;
		dst += (got / MEMORY_PAGE_BYTES + bad) * MEMORY_PAGE_BYTES;
	}
	return 0;
}

/* The last page of a file is filled up with zeros: through a mapping, somebody may have stored there. */
static void clear_tail(const struct copy_job *job, uint64_t page, uint64_t pages, uint8_t *dst, uint64_t *zero)
{
	uint64_t last = page + pages - 1, bytes = job->item->bytes - last * MEMORY_PAGE_BYTES;
	uint8_t *at = dst + (pages - 1) * MEMORY_PAGE_BYTES;

	if (bytes >= MEMORY_PAGE_BYTES || page_bitmap_test(zero, pages - 1))
		return;
	memset(at + bytes, 0, MEMORY_PAGE_BYTES - bytes);
	if (page_ops()->is_zero(at, MEMORY_PAGE_BYTES))
		zero[(pages - 1) / 64] |= UINT64_C(1) << ((pages - 1) % 64);
}

/* Copies a run; *ret_zero has the pages that were found to be zero. */
static int copy_pages(struct live_copy *c, const struct copy_job *job, uint64_t page, uint64_t pages,
		      uint8_t *dst, uint64_t *ret_zero)
{
	const uint8_t *src = job->file->map ? job->file->map + page * MEMORY_PAGE_BYTES : NULL;
	int rc = 0;

	memset(ret_zero, 0, page_bitmap_words(pages) * sizeof(*ret_zero));
	if (!src) {
		rc = read_pages(c, job, dst, page, pages);
		if (!c->opts.no_zero_check)
			page_span_find_zero(dst, pages, MEMORY_PAGE_BYTES, ret_zero);
	} else if (c->opts.no_zero_check) {
		page_ops()->copy_stream(dst, src, pages * MEMORY_PAGE_BYTES);
	} else {
		c->opts.copy_span(dst, src, pages, MEMORY_PAGE_BYTES, ret_zero);
	}
	clear_tail(job, page, pages, dst, ret_zero);
	return rc;
}

static int copy_job(struct live_copy *c, const struct copy_job *job, struct err *e)
{
	struct cell *cell = job->cell;
	uint64_t zero[CELL_PAGES / 64], copied = 0, looked = 0;
	unsigned int from = (unsigned int)(job->first_page - cell->first_page), end = from + (unsigned int)job->pages;
	unsigned int n, j;

	for (; from < end; from += n) {
		bool stale = bit_of(cell->stale, from);

		for (n = 1; from + n < end && bit_of(cell->stale, from + n) == stale; n++)
			;
		if (!stale)
			continue;
		if (copy_pages(c, job, cell->first_page + from, n, cell->at + from * MEMORY_PAGE_BYTES, zero) < 0)
			return err_sys(e, -ENOMEM, "cannot note unreadable pages");
		for (j = 0; j < n; j++) {
			set_bit(cell->zero, from + j, page_bitmap_test(zero, j));
			set_bit(cell->stale, from + j, false);
			copied += !page_bitmap_test(zero, j);
		}
		looked += n;
	}
	atomic_fetch_add_explicit(&c->looked, looked, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->copied, copied, memory_order_relaxed);
	return 0;
}

static int copy_group(void *arg, size_t i, struct err *e)
{
	struct live_copy *c = arg;
	size_t j = c->groups[i], end = i + 1 < c->n_groups ? c->groups[i + 1] : c->n_todo;
	int rc = 0;

	for (; j < end && !rc; j++)
		rc = copy_job(c, c->todo[j], e);
	return rc;
}

static bool is_stale(const struct copy_job *job)
{
	unsigned int from = (unsigned int)(job->first_page - job->cell->first_page);
	unsigned int end = from + (unsigned int)job->pages, w;

	for (w = from / 64; w < (end + 63) / 64; w++) {
		if (atomic_load_explicit(&job->cell->stale[w], memory_order_relaxed))
			return true;
	}
	return false;
}

/*
 * After passes most jobs have nothing to do, and in a file with many holes they are small: to hand out each would take
 * as long as all else.
 */
static int list_stale(struct live_copy *c)
{
	uint64_t pages = CELL_PAGES;
	size_t i;

	c->n_todo = c->n_groups = 0;
	for (i = 0; i < c->n_jobs; i++) {
		if (!is_stale(&c->jobs[i]))
			continue;
		if (copy_room((void **)&c->todo, c->n_todo, &c->todo_room, sizeof(*c->todo)) < 0)
			return -ENOMEM;
		if (pages >= CELL_PAGES) {
			if (copy_room((void **)&c->groups, c->n_groups, &c->groups_room, sizeof(*c->groups)) < 0)
				return -ENOMEM;
			c->groups[c->n_groups++] = c->n_todo;
			pages = 0;
		}
		pages += c->jobs[i].pages;
		c->todo[c->n_todo++] = &c->jobs[i];
	}
	return 0;
}

static int hold_guard(struct live_copy *c, struct os_guarded **ret_list, struct err *e)
{
	struct os_guarded *list = calloc(c->n_files + 1, sizeof(*list));
	size_t i, n = 0;
	int rc;

	if (!list)
		return err_sys(e, -ENOMEM, "cannot guard the copy");
	for (i = 0; i < c->n_files; i++) {
		const struct copied_file *f = c->files[i];

		if (f->map)
			list[n++] = (struct os_guarded){f->map, f->map_bytes, f->fd};
	}
	rc = os_busguard_hold(list, n, e);
	if (rc < 0)
		free(list);
	else
		*ret_list = list;
	return rc;
}

/* Ranges of addresses become pages of files; what is mapped there now is not the file any more. */
static int note_ranges(struct live_copy *c, const struct os_bad_range *ranges, size_t n)
{
	size_t i, j;
	int rc;

	for (i = 0; i < c->n_files; i++) {
		struct copied_file *f = c->files[i];
		bool spoiled = false;

		for (j = 0; j < n; j++) {
			if (!f->map || ranges[j].at < f->map || ranges[j].at >= f->map + f->map_bytes)
				continue;
			rc = note_bad(c, f, (uint64_t)(ranges[j].at - f->map) / MEMORY_PAGE_BYTES,
				      ranges[j].bytes / MEMORY_PAGE_BYTES);
			if (rc < 0)
				return rc;
			spoiled = true;
		}
		if (spoiled) {
			munmap(f->map, f->map_bytes);
			f->map = NULL;
		}
	}
	return 0;
}

int copy_run(struct live_copy *c, struct err *e)
{
	struct os_bad_range *ranges = calloc(OS_BUSGUARD_RANGES, sizeof(*ranges));
	struct os_guarded *guarded = NULL;
	size_t n;
	int rc = ranges && list_stale(c) == 0 ? hold_guard(c, &guarded, e)
					      : err_sys(e, -ENOMEM, "cannot guard the copy");

	if (rc < 0) {
		free(ranges);
		return rc;
	}
	c->n_bad = 0;
	atomic_store(&c->looked, 0);
	atomic_store(&c->copied, 0);
	rc = live_each(c->opts.threads, c->n_groups, copy_group, c, c->opts.cancel, e);
	n = os_busguard_release(ranges, OS_BUSGUARD_RANGES);
	free(guarded);
	if (!rc && n > OS_BUSGUARD_RANGES)
		rc = err_set(e, -EIO, "more than %u places of the memory cannot be read", OS_BUSGUARD_RANGES);
	else if (!rc && note_ranges(c, ranges, n) < 0)
		rc = err_sys(e, -ENOMEM, "cannot note unreadable pages");
	free(ranges);
	return rc;
}
