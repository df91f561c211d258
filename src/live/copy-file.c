// SPDX-License-Identifier: LGPL-2.1-or-later
/* The files of the copy: known again by device and inode, opened and mapped once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "live/copy-priv.h"
#include "memory/open.h"
#include "os/filesystem.h"

int copy_room(void **list, size_t n, size_t *room, size_t bytes)
{
	size_t more = *room ? 2 * *room : 64;
	void *moved;

	if (n < *room)
		return 0;
	moved = reallocarray(*list, more, bytes);
	if (!moved)
		return -ENOMEM;
	*list = moved;
	*room = more;
	return 0;
}

static int compare(const struct copied_file *f, uint64_t dev, uint64_t ino)
{
	if (f->dev != dev)
		return f->dev < dev ? -1 : 1;
	return f->ino < ino ? -1 : f->ino > ino;
}

/* Where it stands, or where it belongs. */
static bool search(const struct live_copy *c, uint64_t dev, uint64_t ino, size_t *ret_at)
{
	size_t low = 0, high = c->n_files;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (compare(c->files[mid], dev, ino) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	*ret_at = low;
	return low < c->n_files && compare(c->files[low], dev, ino) == 0;
}

struct copied_file *copy_file_known(const struct live_copy *c, uint64_t dev, uint64_t ino)
{
	size_t at;

	return search(c, dev, ino, &at) ? c->files[at] : NULL;
}

static int open_file(const struct memory_items *items, uint64_t i, struct copied_file **ret, struct err *e)
{
	const struct memory_item *item = &items->list[i];
	CLEANUP_CLOSE int fd = -1;
	struct memory_open open;
	struct copied_file *f;
	int rc;

	memory_open_begin(&open, items);
	rc = memory_open_file(&open, i, &fd, NULL, e);
	memory_open_end(&open);
	if (rc < 0)
		return rc;
	f = calloc(1, sizeof(*f));
	if (!f)
		return err_sys(e, -ENOMEM, "cannot open %s", item->name);
	*f = (struct copied_file){.dev = item->dev, .ino = item->ino, .fd = take_fd(&fd)};
	*ret = f;
	return 0;
}

/* A file of huge pages is read: through a mapping its holes would take huge pages, and it does not tell where they are. */
static void map_file(struct copied_file *f, uint64_t bytes)
{
	uint64_t whole = num_round_up(bytes, MEMORY_PAGE_BYTES);
	struct os_filesystem fs;
	void *map;

	if (f->map && f->map_bytes >= whole)
		return;
	if (f->map)
		munmap(f->map, f->map_bytes);
	f->map = NULL;
	if (os_filesystem_of(f->fd, &fs) == 0) {
		if (fs.huge_page_bytes)
			return;
		f->in_memory = fs.memory;
	}
	map = mmap(NULL, whole, PROT_READ, MAP_SHARED, f->fd, 0);
	if (map == MAP_FAILED)
		return;
	f->map = map;
	f->map_bytes = whole;
}

int copy_file_find(struct live_copy *c, const struct memory_items *items, uint64_t i, struct copied_file **ret,
		   struct err *e)
{
	const struct memory_item *item = &items->list[i];
	struct copied_file *f = NULL;
	size_t at;
	int rc;

	if (!search(c, item->dev, item->ino, &at)) {
		if (copy_room((void **)&c->files, c->n_files, &c->files_room, sizeof(struct copied_file *)) < 0)
			return err_sys(e, -ENOMEM, "cannot hold a list of files");
		rc = open_file(items, i, &f, e);
		if (rc < 0)
			return rc;
		memmove(c->files + at + 1, c->files + at, (c->n_files - at) * sizeof(struct copied_file *));
		c->files[at] = f;
		c->n_files++;
	}
	map_file(c->files[at], item->bytes);
	*ret = c->files[at];
	return 0;
}

void copy_file_free(struct copied_file *f)
{
	size_t i;

	for (i = 0; i < f->n_cells; i++)
		free(f->cells[i]);
	free(f->cells);
	if (f->map)
		munmap(f->map, f->map_bytes);
	close(f->fd);
	free(f);
}
