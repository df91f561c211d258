// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * An image in a file: written without a name (O_TMPFILE) or under a hidden one, renamed when it
 * is complete.  Places are handed out by one atomic addition, and every thread writes its own.
 * Writing to disk is started at once, so that the flush at the end finds little left to do.
 *
 * Only regular files are ever replaced; a symlink to one stays, and what it leads to is
 * replaced.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "os/filesystem.h"
#include "os/hidden.h"
#include "os/rename.h"
#include "store/store.h"

struct file_store {
	struct store base;
	_Atomic uint64_t end;
	int fd, dir;
	bool replace, on_disk;
	bool reserved; /* more than what is written, perhaps */
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

static int file_reserve(struct store *s, uint64_t bytes, struct err *e)
{
	struct file_store *f = file_of(s);
	int rc;

	if (fallocate(f->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) == 0) {
		f->reserved = true;
		return 0;
	}
	rc = -errno;
	/* Part of it may have been taken. */
	if (ftruncate(f->fd, 0) < 0)
		return err_sys(e, -errno, "cannot reserve room for the image");
	return rc == -EOPNOTSUPP ? 0 : err_sys(e, rc, "cannot reserve %llu bytes for the image", (unsigned long long)bytes);
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
		tmpname_make(f->name, TMPNAME_NEW, f->tmp);
		rc = link_as(f, f->tmp);
		if (rc < 0) {
			f->tmp[0] = '\0';
			return rc;
		}
	}
	if (f->replace)
		rc = renameat(f->dir, f->tmp, f->dir, f->name) < 0 ? -errno : 0;
	else
		rc = os_rename_new(f->dir, f->tmp, f->dir, f->name);
	if (!rc)
		f->tmp[0] = '\0';
	return rc;
}

static int file_commit(struct store *s, const void *head, struct err *e)
{
	struct file_store *f = file_of(s);
	int rc;

	if (f->reserved && ftruncate(f->fd, (off_t)f->end) < 0)
		return err_sys(e, -errno, "cannot give back what was reserved for the image");
	rc = give_name(f);
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
	.reserve = file_reserve,
	.append = file_append,
	.flush = file_flush,
	.commit = file_commit,
	.free = file_free,
};

static int open_new(struct file_store *f)
{
	os_hidden_tidy(f->dir, f->name);
	f->fd = openat(f->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (f->fd < 0 && errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
		return -errno;
	if (f->fd < 0)
		return os_hidden_file(f->dir, f->name, f->tmp, &f->fd);
	os_hidden_lock(f->fd); /* it may get a hidden name on its way to its own */
	return 0;
}

/*
 * Takes `path`, which is not empty and does not end with a slash, apart and opens its folder.
 */
static int open_folder(struct file_store *f, const char *path)
{
	const char *slash = strrchr(path, '/');
	CLEANUP_FREE char *dir = slash ? strndup(path, (size_t)(slash + 1 - path)) : strdup(".");

	f->path = strdup(path);
	f->name = strdup(slash ? slash + 1 : path);
	if (!dir || !f->path || !f->name)
		return -ENOMEM;
	f->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return f->dir < 0 ? -errno : 0;
}

static const char *kind_name(mode_t mode)
{
	return S_ISFIFO(mode)	? "a fifo"
	       : S_ISSOCK(mode) ? "a socket"
	       : S_ISCHR(mode)	? "a device"
				: "a block device";
}

/*
 * What may stand at `path`: nothing, or a regular file that may be replaced.  *ret_real is the
 * path without a symlink at its end; on success to be freed.
 */
static int check_target(const char *path, bool replace, char **ret_real, struct err *e)
{
	size_t bytes = strlen(path);
	bool exists, is_link;
	struct stat st;

	if (!bytes || path[bytes - 1] == '/')
		return err_sys(e, bytes ? -EISDIR : -ENOENT, "cannot write the image \"%s\"", path);
	exists = lstat(path, &st) == 0;
	is_link = exists && S_ISLNK(st.st_mode);
	if (is_link && stat(path, &st) < 0)
		return err_sys(e, -errno, "cannot write the image %s, a symlink", path);
	if (exists && S_ISDIR(st.st_mode))
		return err_sys(e, -EISDIR, "cannot write the image %s", path);
	if (exists && !S_ISREG(st.st_mode))
		return err_set(e, -ENOTBLK, "cannot write the image %s: it is %s", path, kind_name(st.st_mode));
	if (exists && !replace)
		return err_sys(e, -EEXIST, "cannot write the image %s", path);
	*ret_real = is_link ? realpath(path, NULL) : strdup(path);
	return *ret_real ? 0 : err_sys(e, -errno, "cannot write the image %s", path);
}

int store_create_file(const char *path, bool replace, struct store **ret, struct err *e)
{
	CLEANUP_FREE char *real = NULL;
	struct os_filesystem fs;
	struct file_store *f;
	int rc = check_target(path, replace, &real, e);

	if (rc < 0)
		return rc;
	f = calloc(1, sizeof(*f));
	if (!f)
		return err_sys(e, -ENOMEM, "cannot write the image %s", path);
	f->base.ops = &file_ops;
	f->fd = f->dir = -1;
	f->replace = replace;
	rc = open_folder(f, real);
	if (!rc)
		rc = open_new(f);
	if (rc < 0) {
		file_free(&f->base);
		return err_sys(e, rc, "cannot write the image %s", path);
	}
	f->on_disk = os_filesystem_of(f->fd, &fs) == 0 && !fs.memory;
	*ret = &f->base;
	return 0;
}
