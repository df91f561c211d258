// SPDX-License-Identifier: LGPL-2.1-or-later
/* Handing out spans of the sources in order; see source.h. */
#include "memory/source.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/num.h"
#include "os/extent.h"

struct memory_source_file {
	int fd;
	atomic_uint users;
	const struct memory_item *item;
};

struct memory_source {
	const struct memory_items *items;
	const char *root; /* origin of the last root passed */
	size_t root_name; /* bytes of its name */
	uint64_t item;    /* the next to be opened, or the open one */
	struct memory_source_file *file;
	uint64_t page, pages; /* where the open file stands, and its end */
	uint64_t data_start, data_end; /* the last extent that was found, in pages */
};

static void file_release(struct memory_source_file *file)
{
	if (!file || atomic_fetch_sub(&file->users, 1) > 1)
		return;
	close(file->fd);
	free(file);
}

int memory_source_new(const struct memory_items *items, struct memory_source **ret, struct err *e)
{
	struct memory_source *s = calloc(1, sizeof(*s));

	if (!s)
		return err_sys(e, -ENOMEM, "cannot read the sources");
	s->items = items;
	*ret = s;
	return 0;
}

void memory_source_free(struct memory_source *s)
{
	if (s)
		file_release(s->file);
	free(s);
}

static int open_item(struct memory_source *s, const struct memory_item *item, struct err *e)
{
	CLEANUP_FREE char *path = NULL;
	CLEANUP_CLOSE int fd = -1;
	struct stat st;

	if (asprintf(&path, "%s%s", s->root, item->name + s->root_name) < 0)
		return err_sys(e, -ENOMEM, "cannot open %s", item->name);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, -errno, "cannot open %s", path);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < item->bytes)
		return err_set(e, -ESTALE, "%s changed while it was being saved", item->name);
	s->file = calloc(1, sizeof(*s->file));
	if (!s->file)
		return err_sys(e, -ENOMEM, "cannot open %s", item->name);
	*s->file = (struct memory_source_file){.fd = take_fd(&fd), .item = item};
	atomic_init(&s->file->users, 1);
	s->page = s->data_start = s->data_end = 0;
	s->pages = num_pages(item->bytes, item->page_bytes);
	return 0;
}

/* Goes on to the next file that has pages.  1: there is one. */
static int next_file(struct memory_source *s, struct err *e)
{
	file_release(s->file);
	s->file = NULL;
	for (; s->item < s->items->count; s->item++) {
		const struct memory_item *item = &s->items->list[s->item];
		int rc;

		if (item->origin[0]) {
			s->root = item->origin;
			s->root_name = strlen(item->name);
		}
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
	int rc;

	if (s->page < s->data_end)
		return 0;
	rc = os_next_data(s->file->fd, s->page * item->page_bytes, item->bytes, &start, &end);
	if (rc < 0)
		return err_sys(e, rc, "cannot find the data of %s", item->name);
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
		span->pieces[span->n_pieces++] = (struct memory_piece){hole, pages};
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

int memory_source_next(struct memory_source *s, struct memory_span *ret, struct err *e)
{
	int rc;

	if (!s->file || s->page == s->pages) {
		if (s->file)
			s->item++;
		rc = next_file(s, e);
		if (rc <= 0)
			return rc;
	}
	ret->file = s->file;
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
	const struct memory_item *item = span->file->item;
	uint64_t offset = first_page * item->page_bytes, whole = pages * item->page_bytes;
	size_t bytes = num_min(whole, item->bytes - offset), got;
	int rc = io_pread(span->file->fd, buf, bytes, offset, &got);

	if (rc < 0)
		return err_sys(e, rc, "cannot read %s at offset %" PRIu64, item->name, offset);
	if (got < bytes)
		return err_set(e, -ESTALE,
			       "%s shrank while it was being saved: it ends at offset %" PRIu64
			       " instead of %" PRIu64,
			       item->name, offset + got, item->bytes);
	memset((char *)buf + bytes, 0, whole - bytes);
	return 0;
}

void memory_span_release(struct memory_span *span)
{
	file_release(span->file);
	span->file = NULL;
}
