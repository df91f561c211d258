// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * An image in a file: written without a name (O_TMPFILE) or under a hidden one, renamed when it
 * is complete.  Places are handed out by one atomic addition, and every thread writes its own.
 * Writing to disk is started at once, so that the flush at the end finds little left to do.
 */
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/tmpname.h"
#include "os/filesystem.h"
#include "store/store.h"

struct file_store {
	struct store base;
	_Atomic uint64_t end;
	int fd, dir;
	bool replace, on_disk;
	char *path, *name; /* as asked for, and its last part */
	char tmp[TMPNAME_BYTES]; /* "" while it has no name */
};

static struct file_store *file_of(struct store *s)
{
	return (struct file_store *)s;
}

static int file_append(struct store *s, const void *data, size_t bytes, uint64_t *ret_offset,
		       struct err *e)
{
	struct file_store *f = file_of(s);
	uint64_t offset = atomic_fetch_add(&f->end, bytes);
	int rc = io_pwrite(f->fd, data, bytes, offset);

	if (rc < 0)
		return err_sys(e, rc, "cannot write the image at offset %llu", (unsigned long long)offset);
	if (f->on_disk)
		sync_file_range(f->fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
	*ret_offset = offset;
	return 0;
}

static int file_flush(struct store *s, struct err *e)
{
	if (fdatasync(file_of(s)->fd) < 0)
		return err_sys(e, -errno, "cannot flush the image");
	return 0;
}

/* Links a nameless file to `name` in its folder. */
static int link_as(const struct file_store *f, const char *name)
{
	char self[64];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", f->fd);
	return linkat(AT_FDCWD, self, f->dir, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int give_name(struct file_store *f)
{
	int rc;

	if (!f->tmp[0]) {
		if (!f->replace)
			return link_as(f, f->name);
		tmpname_make(f->name, f->tmp);
		rc = link_as(f, f->tmp);
		if (rc < 0) {
			f->tmp[0] = '\0';
			return rc;
		}
	}
	rc = renameat2(f->dir, f->tmp, f->dir, f->name, f->replace ? 0 : RENAME_NOREPLACE);
	if (rc < 0)
		return -errno;
	f->tmp[0] = '\0';
	return 0;
}

static int file_commit(struct store *s, const void *head, struct err *e)
{
	struct file_store *f = file_of(s);
	int rc = give_name(f);

	if (rc < 0)
		return err_sys(e, rc, "cannot name the image %s", f->path);
	/* Some file systems cannot flush a folder; there is nothing more to be done there. */
	if (fsync(f->dir) < 0 && errno != EINVAL && errno != EROFS)
		return err_sys(e, -errno, "cannot flush the folder of %s", f->path);
	return 0;
}

static void file_free(struct store *s)
{
	struct file_store *f = file_of(s);

	if (f->tmp[0])
		unlinkat(f->dir, f->tmp, 0);
	if (f->fd >= 0)
		close(f->fd);
	if (f->dir >= 0)
		close(f->dir);
	free(f->path);
	free(f->name);
	free(f);
}

static const struct store_ops file_ops = {
	.append = file_append,
	.flush = file_flush,
	.commit = file_commit,
	.free = file_free,
};

static int open_nameless(struct file_store *f)
{
	f->fd = openat(f->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (f->fd >= 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
		return -errno;
	tmpname_make(f->name, f->tmp);
	f->fd = openat(f->dir, f->tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (f->fd >= 0)
		return 0;
	f->tmp[0] = '\0';
	return -errno;
}

static int open_folder(struct file_store *f, const char *path)
{
	CLEANUP_FREE char *a = strdup(path), *b = strdup(path);

	f->path = strdup(path);
	if (!a || !b || !f->path)
		return -ENOMEM;
	f->name = strdup(basename(a));
	if (!f->name)
		return -ENOMEM;
	f->dir = open(dirname(b), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return f->dir < 0 ? -errno : 0;
}

static int check_target(const struct file_store *f, struct err *e)
{
	struct stat st;

	if (fstatat(f->dir, f->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (S_ISDIR(st.st_mode))
		return err_sys(e, -EISDIR, "cannot write the image %s", f->path);
	if (!f->replace)
		return err_sys(e, -EEXIST, "cannot write the image %s", f->path);
	return 0;
}

int store_create_file(const char *path, bool replace, struct store **ret, struct err *e)
{
	struct file_store *f = calloc(1, sizeof(*f));
	struct os_filesystem fs;
	int rc;

	if (!f)
		return err_sys(e, -ENOMEM, "cannot write the image %s", path);
	f->base.ops = &file_ops;
	f->fd = f->dir = -1;
	f->replace = replace;
	rc = open_folder(f, path);
	if (rc < 0) {
		err_sys(e, rc, "cannot write the image %s", path);
		goto fail;
	}
	rc = check_target(f, e);
	if (rc < 0)
		goto fail;
	rc = open_nameless(f);
	if (rc < 0) {
		err_sys(e, rc, "cannot write the image %s", path);
		goto fail;
	}
	f->on_disk = os_filesystem_of(f->fd, &fs) == 0 && !fs.memory;
	*ret = &f->base;
	return 0;
fail:
	file_free(&f->base);
	return rc;
}
