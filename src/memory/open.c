// SPDX-License-Identifier: LGPL-2.1-or-later
/* Opening what was scanned; see open.h. */
#include "memory/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/beneath.h"

void memory_open_begin(struct memory_open *o, const struct memory_items *items)
{
	*o = (struct memory_open){.items = items, .fd = -1};
}

void memory_open_end(struct memory_open *o)
{
	if (o->fd >= 0)
		close(o->fd);
	o->fd = -1;
}

static int exchanged(const struct memory_item *item, struct err *e)
{
	return err_set(e, -ESTALE, "%s was exchanged while it was being saved", item->name);
}

/* Is the descriptor the item that was scanned? */
static int check_same(const struct memory_item *item, int fd, struct stat *ret_st, struct err *e)
{
	if (fstat(fd, ret_st) < 0)
		return err_sys(e, -errno, "cannot look at %s", item->name);
	return ret_st->st_dev == item->dev && ret_st->st_ino == item->ino ? 0 : exchanged(item, e);
}

static bool lies_below(const struct memory_item *root, const char *name)
{
	size_t bytes = strlen(root->name);

	return !strncmp(root->name, name, bytes) && name[bytes] == '/';
}

/* The folder that item `i` lies below.  Roots have no slash in their names and stand before what lies in them. */
static int open_root(struct memory_open *o, uint64_t i, struct err *e)
{
	CLEANUP_CLOSE int fd = -1;
	const struct memory_item *root;
	struct stat st;
	int rc;

	if (o->fd >= 0 && lies_below(&o->items->list[o->root], o->items->list[i].name))
		return 0;
	memory_open_end(o);
	while (i && strchr(o->items->list[i].name, '/'))
		i--;
	root = &o->items->list[i];
	fd = open(root->origin, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "cannot open %s", root->origin);
	rc = check_same(root, fd, &st, e);
	if (rc < 0)
		return rc;
	o->root = i;
	o->fd = take_fd(&fd);
	return 0;
}

int memory_open_file(struct memory_open *o, uint64_t i, int *ret_fd, struct stat *ret_st, struct err *e)
{
	const struct memory_item *item = &o->items->list[i];
	/* O_NONBLOCK: what stands there now may be a fifo. */
	const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
	const char *rest = strchr(item->name, '/'), *path = item->path ? item->path : item->origin;
	CLEANUP_CLOSE int fd = -1;
	struct stat st;
	int rc;

	if (rest) {
		rc = open_root(o, i, e);
		if (rc < 0)
			return rc;
		path = o->items->list[o->root].origin;
		fd = os_open_beneath(o->fd, rest + 1, flags);
		rc = fd;
	} else {
		/* A link of /proc leads to the file itself. */
		fd = open(path, flags | (item->path ? 0 : O_NOFOLLOW));
		rc = fd < 0 ? -errno : 0;
	}
	if (rc == -ELOOP || rc == -EXDEV)
		return exchanged(item, e);
	if (rc < 0)
		return err_sys(e, rc, "cannot open %s%s", path, rest ? rest : "");
	rc = check_same(item, fd, &st, e);
	if (rc < 0)
		return rc;
	if (ret_st)
		*ret_st = st;
	*ret_fd = take_fd(&fd);
	return 0;
}
