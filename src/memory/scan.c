// SPDX-License-Identifier: LGPL-2.1-or-later
/* Listing what the sources hold; see source.h. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "memory/source.h"
#include "os/filesystem.h"

#define DEPTH_MAX 512 /* as deep as descriptors reach anyway */

struct scan {
	const struct memory_scan_opts *opts;
	struct memory_items *items;
};

static const char *special_name(mode_t mode)
{
	return S_ISSOCK(mode) ? "a socket" : S_ISFIFO(mode) ? "a fifo" : "a device";
}

/* The text of the symlink `name` in `dir`. */
static char *read_link(int dir, const char *name)
{
	char buf[PATH_MAX];
	ssize_t n = readlinkat(dir, name, buf, sizeof(buf));

	if (n <= 0 || n == (ssize_t)sizeof(buf))
		return NULL;
	return strndup(buf, (size_t)n);
}

static int add_item(struct scan *scan, const struct stat *st, const char *name, const char *origin,
		    char *link, struct err *e)
{
	struct memory_item item = {
		.kind = S_ISDIR(st->st_mode)   ? MEMORY_DIRECTORY
			: S_ISLNK(st->st_mode) ? MEMORY_SYMLINK
					       : MEMORY_FILE,
		.bytes = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0,
		.page_bytes = MEMORY_PAGE_BYTES,
		/* Of files, hugetlbfs alone has blocks this large. */
		.huge_page_bytes = S_ISREG(st->st_mode) && st->st_blksize >= (2 << 20) ? (uint32_t)st->st_blksize : 0,
		.mode = st->st_mode & 07777,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
		.name = strdup(name),
		.origin = strdup(origin),
		.link = link ? link : strdup(""),
	};

	return memory_items_add(scan->items, &item, e);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names in a folder, sorted.  Takes over `dir`. */
static int list_folder(int dir, char ***ret_names, size_t *ret_n)
{
	DIR *d = fdopendir(dir);
	char **names = NULL, **more;
	struct dirent *entry;
	size_t n = 0;
	int rc = 0;

	if (!d) {
		close(dir);
		return -ENOMEM;
	}
	while (errno = 0, (entry = readdir(d))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		more = num_is_pow2(n + 1) || !n ? reallocarray(names, 2 * (n + 1), sizeof(*names)) : names;
		if (more)
			names = more;
		if (!more || !(names[n] = strdup(entry->d_name))) {
			rc = -ENOMEM;
			break;
		}
		n++;
	}
	if (!rc && errno)
		rc = -errno;
	closedir(d);
	if (n)
		qsort(names, n, sizeof(*names), by_name);
	*ret_names = names;
	*ret_n = n;
	return rc;
}

static int scan_folder(struct scan *scan, int dir, const char *name, unsigned int depth, struct err *e);

/* One entry of a folder (or a root: then `origin` is its path, and it is no symlink). */
static int scan_entry(struct scan *scan, int dir, const char *entry, const char *name,
		      const char *origin, unsigned int depth, struct err *e)
{
	struct stat st;
	char *link = NULL;
	int rc, fd;

	if (fstatat(dir, entry, &st, *origin ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, -errno, "cannot look at %s", *origin ? origin : name);
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode)) {
		if (!scan->opts->skip_special)
			return err_set(e, -ENOTSUP, "%s is %s, which cannot be saved",
				       *origin ? origin : name, special_name(st.st_mode));
		memory_warn(scan->opts->warnings, "%s is %s and was skipped", *origin ? origin : name,
			    special_name(st.st_mode));
		return 0;
	}
	if (S_ISLNK(st.st_mode)) {
		link = read_link(dir, entry);
		if (!link)
			return err_sys(e, errno ? -errno : -ENAMETOOLONG, "cannot read the symlink %s", name);
	}
	rc = add_item(scan, &st, name, origin, link, e);
	if (rc < 0 || !S_ISDIR(st.st_mode))
		return rc;
	fd = openat(dir, entry, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (*origin ? 0 : O_NOFOLLOW));
	if (fd < 0)
		return err_sys(e, -errno, "cannot open the folder %s", *origin ? origin : name);
	return scan_folder(scan, fd, name, depth + 1, e);
}

/* Takes over `dir`. */
static int scan_folder(struct scan *scan, int dir, const char *name, unsigned int depth, struct err *e)
{
	CLEANUP_CLOSE int again = fcntl(dir, F_DUPFD_CLOEXEC, 0);
	char **names = NULL;
	size_t i, n = 0;
	int rc = again < 0 ? -errno : 0;

	if (rc < 0)
		close(dir);
	else
		rc = list_folder(dir, &names, &n);
	if (rc < 0)
		err_sys(e, rc, "cannot list the folder %s", name);
	else if (depth > DEPTH_MAX)
		rc = err_set(e, -ELOOP, "%s: folders are nested more than %d deep", name, DEPTH_MAX);
	for (i = 0; i < n && !rc; i++) {
		CLEANUP_FREE char *path = NULL;

		if (asprintf(&path, "%s/%s", name, names[i]) < 0)
			rc = -ENOMEM;
		else if (strlen(path) >= PATH_MAX - 1)
			rc = err_sys(e, -ENAMETOOLONG, "cannot save %s", name);
		else
			rc = scan_entry(scan, again, names[i], path, "", depth, e);
	}
	for (i = 0; i < n; i++)
		free(names[i]);
	free(names);
	return rc;
}

/* The absolute path of a source and the name it gets.  The name points into the path. */
static int resolve(const char *path, char **ret_origin, const char **ret_name, struct err *e)
{
	char *origin = realpath(path, NULL);

	if (!origin)
		return err_sys(e, -errno, "cannot find %s", path);
	*ret_name = strrchr(origin, '/') + 1;
	if (!**ret_name) {
		free(origin);
		return err_set(e, -EINVAL, "the root folder cannot be saved");
	}
	*ret_origin = origin;
	return 0;
}

int memory_scan(const char *const *paths, size_t n, const struct memory_scan_opts *opts,
		struct memory_items *ret, struct err *e)
{
	struct memory_items items = {.count = 0};
	struct scan scan = {.opts = opts, .items = &items};
	uint64_t j;
	size_t i;
	int rc = n ? 0 : err_set(e, -EINVAL, "no sources");

	for (i = 0; i < n && !rc; i++) {
		CLEANUP_FREE char *origin = NULL;
		const char *name = "";

		rc = resolve(paths[i], &origin, &name, e);
		for (j = 0; !rc && j < items.count; j++) {
			if (!strcmp(items.list[j].name, name))
				rc = err_set(e, -EINVAL,
					     "two sources are named \"%s\": %s and %s; save them apart", name,
					     items.list[j].origin, origin);
		}
		if (!rc)
			rc = scan_entry(&scan, AT_FDCWD, origin, name, origin, 0, e);
	}
	if (rc < 0) {
		memory_items_free(&items);
		return rc;
	}
	*ret = items;
	return 0;
}
