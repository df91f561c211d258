// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What stands where a target is to go, and whether it may be replaced.  It only looks; what it
 * permits is done at the end, in name.c.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "memory/target-priv.h"

bool occupied_by_nothing(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	bool empty = true;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (empty && (entry = readdir(d)))
		empty = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
	closedir(d);
	return empty;
}

bool occupied_stays(int dir, const char *name)
{
	return os_is_mount_point(dir, name) ||
	       (faccessat(dir, ".", W_OK, AT_EACCESS) < 0 && occupied_by_nothing(dir, name));
}

/* The folder that holds an open file, by its present name; -1 when it has none any more. */
static int folder_of(int fd, const struct stat *st)
{
	char self[64], path[PATH_MAX];
	struct stat named;
	ssize_t n;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	n = readlink(self, path, sizeof(path) - 1);
	if (n <= 0 || path[0] != '/')
		return -1;
	path[n] = '\0';
	if (stat(path, &named) < 0 || named.st_dev != st->st_dev || named.st_ino != st->st_ino)
		return -1;
	*(strrchr(path, '/') + 1) = '\0';
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Is the image this file, or does it lie in this folder at any depth? */
static bool holds_image(const struct memory_target *t, const struct stat *what)
{
	CLEANUP_CLOSE int dir = -1;
	struct stat st, above;
	int up;

	if (!t->opts.has_image || fstat(t->opts.image_fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	if (st.st_dev == what->st_dev && st.st_ino == what->st_ino)
		return true;
	dir = S_ISDIR(what->st_mode) ? folder_of(t->opts.image_fd, &st) : -1;
	if (dir < 0 || fstat(dir, &st) < 0)
		return false;
	for (;;) {
		if (st.st_dev == what->st_dev && st.st_ino == what->st_ino)
			return true;
		up = openat(dir, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (up < 0 || fstat(up, &above) < 0 ||
		    (above.st_dev == st.st_dev && above.st_ino == st.st_ino)) {
			if (up >= 0)
				close(up);
			return false;
		}
		close(dir);
		dir = up;
		st = above;
	}
}

static int check_name(const struct memory_target *t, int dir, const char *name, bool folder,
		      const char *path, struct err *e)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (holds_image(t, &st))
		return err_set(e, -EBUSY,
			       "cannot restore %s: the image lies %s and would be lost; move "
			       "it elsewhere",
			       path, S_ISDIR(st.st_mode) ? "in this folder" : "there");
	if (!t->opts.force)
		return folder && occupied_by_nothing(dir, name)
			       ? 0
			       : err_sys(e, -EEXIST, "cannot restore %s", path);
	if (S_ISDIR(st.st_mode) && os_mounted_below(path))
		return err_set(e, -EBUSY,
			       "cannot replace %s: another file system is mounted below it",
			       path);
	return 0;
}

int occupied_check(const struct memory_target *t, const struct root *root, struct err *e)
{
	bool folder = t->items->list[root->first].kind == MEMORY_DIRECTORY;
	uint64_t i;
	int rc = 0;

	if (!root->inside)
		return check_name(t, root->parent, root->name, folder, root->path, e);
	for (i = root->first; i < t->items->count && !rc; i++) {
		const char *child = place_child(t, root, i);
		CLEANUP_FREE char *path = NULL;

		if (!child)
			continue;
		if (asprintf(&path, "%s/%s", root->path, child) < 0)
			return err_sys(e, -ENOMEM, "cannot restore %s", root->path);
		rc = check_name(t, root->parent, child, false, path, e);
	}
	return rc;
}
