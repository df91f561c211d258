// SPDX-License-Identifier: LGPL-2.1-or-later
/* Handing out spans of the sources in order; see source.h. */
#include "memory/source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/num.h"
#include "memory/open.h"
#include "os/extent.h"

struct memory_source_file {
	int fd;
	atomic_uint users;
	const struct memory_item *item;
	struct memory_warnings *warnings;
	int64_t ctime_ns; /* when it was opened */
};

struct memory_source {
	const struct memory_items *items;
	struct memory_warnings *warnings;
	const struct memory_view *view; /* in place of files */
	size_t extent;                  /* of the view; `page` counts within it */
	struct memory_open open;
	uint64_t item; /* the next to be opened, or the open one */
	struct memory_source_file *file;
	uint64_t page, pages; /* where the open file stands, and its end */
	uint64_t data_start, data_end; /* the last extent that was found, in pages */
};

static int shrank(const struct memory_item *item, uint64_t bytes, struct err *e)
{
	return err_set(e, -ESTALE,
		       "%s shrank while it was being saved: it ends at offset %" PRIu64 " instead of %" PRIu64,
		       item->name, bytes, item->bytes);
}

/* What was cut off looks like a hole, so holes count only when the file is still as long. */
static int check_length(const struct memory_source_file *file, struct stat *ret_st, struct err *e)
{
	const struct memory_item *item = file->item;

	if (fstat(file->fd, ret_st) < 0)
		return err_sys(e, -errno, "cannot look at %s", item->name);
	return (uint64_t)ret_st->st_size < item->bytes ? shrank(item, (uint64_t)ret_st->st_size, e) : 0;
}

static int check_unchanged(const struct memory_source_file *file, struct err *e)
{
	const struct memory_item *item = file->item;
	struct stat st;
	int rc = check_length(file, &st, e);

	if (rc < 0)
		return rc;
	if (clock_timespec_ns(&st.st_mtim) != item->mtime_ns || clock_timespec_ns(&st.st_ctim) != file->ctime_ns)
		memory_warn(file->warnings,
			    "%s was changed while it was being saved: the image may hold some of it as it was, and some as it became",
			    item->name);
	return 0;
}

/* The last one to let go looks whether it is still what was scanned. */
static int file_release(struct memory_source_file *file, struct err *e)
{
	int rc;

	if (!file || atomic_fetch_sub(&file->users, 1) > 1)
		return 0;
	rc = check_unchanged(file, e);
	close(file->fd);
	free(file);
	return rc;
}

int memory_source_new(const struct memory_items *items, struct memory_warnings *warnings, struct memory_source **ret,
		      struct err *e)
{
	struct memory_source *s = calloc(1, sizeof(*s));

	if (!s)
		return err_sys(e, -ENOMEM, "cannot read the sources");
	s->items = items;
	s->warnings = warnings;
	memory_open_begin(&s->open, items);
	*ret = s;
	return 0;
}

int memory_source_new_view(const struct memory_items *items, const struct memory_view *view,
			   struct memory_source **ret, struct err *e)
{
	int rc = memory_source_new(items, NULL, ret, e);

	if (!rc)
		(*ret)->view = view;
	return rc;
}

void memory_source_free(struct memory_source *s)
{
	if (!s)
		return;
	file_release(s->file, NULL);
	memory_open_end(&s->open);
	free(s);
}

static int open_item(struct memory_source *s, const struct memory_item *item, struct err *e)
{
	CLEANUP_CLOSE int fd = -1;
	struct memory_source_file file = {.item = item, .warnings = s->warnings};
	struct stat st;
	int rc = memory_open_file(&s->open, s->item, &fd, &st, e);

	if (rc < 0)
		return rc;
	if ((uint64_t)st.st_size < item->bytes)
		return shrank(item, (uint64_t)st.st_size, e);
	s->file = malloc(sizeof(*s->file));
	if (!s->file)
		return err_sys(e, -ENOMEM, "cannot open %s", item->name);
	file.fd = take_fd(&fd);
	file.ctime_ns = clock_timespec_ns(&st.st_ctim);
	atomic_init(&file.users, 1);
	*s->file = file;
	s->page = s->data_start = s->data_end = 0;
	s->pages = num_pages(item->bytes, item->page_bytes);
	return 0;
}

/* Goes on to the next file that has pages.  1: there is one. */
static int next_file(struct memory_source *s, struct err *e)
{
	int rc = file_release(s->file, e);

	s->file = NULL;
	if (rc < 0)
		return rc;
	for (; s->item < s->items->count; s->item++) {
		const struct memory_item *item = &s->items->list[s->item];

		if (item->kind != MEMORY_FILE || !item->bytes)
			continue;
		rc = open_item(s, item, e);
		return rc < 0 ? rc : 1;
	}
	return 0;
}

/* The extent at or after the current page, in whole pages: a page with any data is data. */
static int find_extent(struct memory_source *s, struct err *e)
{
	const struct memory_item *item = s->file->item;
	uint64_t start, end;
	struct stat st;
	int rc;

	if (s->page < s->data_end)
		return 0;
	rc = os_next_data(s->file->fd, s->page * item->page_bytes, item->bytes, &start, &end);
	if (rc < 0)
		return err_sys(e, rc, "cannot find the data of %s", item->name);
	rc = start == item->bytes ? check_length(s->file, &st, e) : 0;
	if (rc < 0)
		return rc;
	s->data_start = start < item->bytes ? start / item->page_bytes : s->pages;
	s->data_end = end < item->bytes ? num_pages(end, item->page_bytes) : s->pages;
	/* A hole behind a partial page may end in the same page again. */
	s->data_start = num_max(s->data_start, s->page);
	return 0;
}

static void add_piece(struct memory_span *span, bool hole, uint64_t pages)
{
	if (span->n_pieces && span->pieces[span->n_pieces - 1].hole == hole)
		span->pieces[span->n_pieces - 1].pages += pages;
	else
		span->pieces[span->n_pieces++] = (struct memory_piece){.hole = hole, .pages = pages};
}

static int fill_span(struct memory_source *s, struct memory_span *span, struct err *e)
{
	uint64_t room = MEMORY_SPAN_PAGES, n;
	int rc;

	while (room && s->page < s->pages && span->n_pieces < MEMORY_SPAN_PIECES) {
		rc = find_extent(s, e);
		if (rc < 0)
			return rc;
		if (s->page < s->data_start) {
			add_piece(span, true, s->data_start - s->page);
			s->page = s->data_start;
			continue;
		}
		n = num_min(room, s->data_end - s->page);
		add_piece(span, false, n);
		s->page += n;
		room -= n;
	}
	return 0;
}

static void add_extent(struct memory_span *span, const struct memory_extent *x, uint64_t from, uint64_t pages)
{
	struct memory_piece *last = span->n_pieces ? &span->pieces[span->n_pieces - 1] : NULL;

	if (last && x->hole && last->hole) {
		last->pages += pages;
		return;
	}
	span->pieces[span->n_pieces++] = (struct memory_piece){
		.hole = x->hole,
		.pages = pages,
		.at = x->at ? x->at + from * MEMORY_PAGE_BYTES : NULL,
		.zero = x->zero,
		.zero_at = x->zero_at + (unsigned int)from,
	};
}

/* A span of the view: extents of one item, data cut to size. */
static int next_of_view(struct memory_source *s, struct memory_span *ret)
{
	uint64_t room = MEMORY_SPAN_PAGES, n;
	const struct memory_extent *x = &s->view->list[s->extent];

	if (s->extent == s->view->n)
		return 0;
	*ret = (struct memory_span){.view = s->view, .item = x->item, .first_page = x->first_page + s->page};
	for (; s->extent < s->view->n && x->item == ret->item; s->extent++, x++, s->page = 0) {
		if (ret->n_pieces == MEMORY_SPAN_PIECES || !room)
			return 1;
		n = x->hole ? x->pages - s->page : num_min(room, x->pages - s->page);
		add_extent(ret, x, s->page, n);
		if (!x->hole)
			room -= n;
		s->page += n;
		if (s->page < x->pages)
			return 1;
	}
	return 1;
}

int memory_source_next(struct memory_source *s, struct memory_span *ret, struct err *e)
{
	int rc;

	if (s->view)
		return next_of_view(s, ret);
	if (!s->file || s->page == s->pages) {
		if (s->file)
			s->item++;
		rc = next_file(s, e);
		if (rc <= 0)
			return rc;
	}
	ret->file = s->file;
	ret->view = NULL;
	ret->item = (uint32_t)s->item;
	ret->first_page = s->page;
	ret->n_pieces = 0;
	rc = fill_span(s, ret, e);
	if (rc < 0)
		return rc;
	atomic_fetch_add(&s->file->users, 1);
	return 1;
}

int memory_span_read(const struct memory_span *span, uint64_t first_page, uint64_t pages, void *buf,
		     struct err *e)
{
	const struct memory_item *item = span->view ? NULL : span->file->item;
	uint64_t offset, whole;
	size_t bytes, got;
	int rc;

	if (span->view)
		return span->view->read(span->view->ctx, span->item, first_page, pages, buf, e);
	offset = first_page * item->page_bytes;
	whole = pages * item->page_bytes;
	bytes = num_min(whole, item->bytes - offset);
	rc = io_pread(span->file->fd, buf, bytes, offset, &got);
	if (rc < 0)
		return err_sys(e, rc, "cannot read %s at offset %" PRIu64, item->name, offset);
	if (got < bytes)
		return shrank(item, offset + got, e);
	memset((char *)buf + bytes, 0, whole - bytes);
	return 0;
}

int memory_span_release(struct memory_span *span, struct err *e)
{
	const struct memory_view *view = span->view;
	unsigned int i;
	int rc;

	for (i = 0; view && view->release && i < span->n_pieces; i++) {
		if (span->pieces[i].at)
			view->release(view->ctx, span->pieces[i].at, span->pieces[i].pages);
	}
	rc = file_release(span->file, e);
	span->file = NULL;
	span->view = NULL;
	return rc;
}
