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
#include "base/clock.h"
#include "base/num.h"
#include "memory/source.h"
#include "os/filesystem.h"

#define DEPTH_MAX 512 /* as deep as descriptors reach anyway */

/* Smaller blocks are no huge pages. */
#define HUGE_MIN_BYTES MIB(2)

struct scan {
	const struct memory_scan_opts *opts;
	struct memory_items *items;
	uint64_t huge_dev; /* the file system that was asked last for its huge pages */
	uint32_t huge_page_bytes;
};

/* One of the sources.  The name points into the path. */
struct source {
	char *origin;
	const char *name;
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

/* Of a file on hugetlbfs; a tmpfs may have blocks as large. */
static uint32_t huge_page_bytes(struct scan *scan, const struct stat *st, int dir, const char *entry)
{
	CLEANUP_CLOSE int fd = -1;
	struct os_filesystem fs;

	if (!S_ISREG(st->st_mode) || (uint64_t)st->st_blksize < HUGE_MIN_BYTES)
		return 0;
	if (scan->huge_dev != st->st_dev) {
		fd = openat(dir, entry, O_PATH | O_CLOEXEC);
		scan->huge_page_bytes = fd >= 0 && os_filesystem_of(fd, &fs) == 0 ? fs.huge_page_bytes : 0;
		scan->huge_dev = st->st_dev;
	}
	return scan->huge_page_bytes;
}

static int64_t mtime_ns(const struct scan *scan, const struct stat *st, const char *name)
{
	int64_t ns = clock_timespec_ns(&st->st_mtim);

	if (ns == INT64_MIN || ns == INT64_MAX)
		memory_warn(scan->opts->warnings, "%s: its time is %s than an image can tell, and was made the %s one",
			    name, ns < 0 ? "earlier" : "later", ns < 0 ? "first" : "last");
	return ns;
}

static int add_item(struct scan *scan, const struct stat *st, uint32_t huge_bytes, const char *name, const char *origin,
		    char *link, struct err *e)
{
	struct memory_item item = {
		.kind = S_ISDIR(st->st_mode)   ? MEMORY_DIRECTORY
			: S_ISLNK(st->st_mode) ? MEMORY_SYMLINK
					       : MEMORY_FILE,
		.bytes = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0,
		.page_bytes = MEMORY_PAGE_BYTES,
		.huge_page_bytes = huge_bytes,
		.mode = st->st_mode & 07777,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.data_bytes = S_ISREG(st->st_mode) ? (uint64_t)st->st_blocks * 512 : 0,
		.dev = st->st_dev,
		.ino = st->st_ino,
		.mtime_ns = mtime_ns(scan, st, name),
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
	rc = add_item(scan, &st, huge_page_bytes(scan, &st, dir, entry), name, origin, link, e);
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

/* The absolute path of a source and the name it gets. */
static int resolve(const char *path, struct source *ret, struct err *e)
{
	char *origin = realpath(path, NULL);

	if (!origin)
		return err_sys(e, -errno, "cannot find %s", path);
	*ret = (struct source){origin, strrchr(origin, '/') + 1};
	return *ret->name ? 0 : err_set(e, -EINVAL, "the root folder cannot be saved");
}

static int by_source_name(const void *a, const void *b)
{
	const struct source *x = *(struct source *const *)a, *y = *(struct source *const *)b;
	int order = strcmp(x->name, y->name);

	return order ? order : (x > y) - (x < y);
}

static int check_names(const struct source *sources, size_t n, struct err *e)
{
	CLEANUP_FREE const struct source **sorted = calloc(n, sizeof(*sorted));
	size_t i;

	if (!sorted)
		return err_sys(e, -ENOMEM, "cannot hold %zu sources", n);
	for (i = 0; i < n; i++)
		sorted[i] = &sources[i];
	qsort(sorted, n, sizeof(*sorted), by_source_name);
	for (i = 1; i < n; i++) {
		if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
			return err_set(e, -EINVAL, "two sources are named \"%s\": %s and %s; save them apart",
				       sorted[i]->name, sorted[i - 1]->origin, sorted[i]->origin);
	}
	return 0;
}

static int scan_sources(const struct source *sources, size_t n, const struct memory_scan_opts *opts,
			struct memory_items *ret, struct err *e)
{
	struct memory_items items = {.count = 0};
	struct scan scan = {.opts = opts, .items = &items};
	size_t i;
	int rc = check_names(sources, n, e);

	for (i = 0; i < n && !rc; i++)
		rc = scan_entry(&scan, AT_FDCWD, sources[i].origin, sources[i].name, sources[i].origin, 0, e);
	if (rc < 0)
		memory_items_free(&items);
	else
		*ret = items;
	return rc;
}

int memory_scan(const char *const *paths, size_t n, const struct memory_scan_opts *opts,
		struct memory_items *ret, struct err *e)
{
	struct source *sources = calloc(n + 1, sizeof(*sources));
	size_t i;
	int rc = !sources ? err_sys(e, -ENOMEM, "cannot hold %zu sources", n)
		 : n	  ? 0
			  : err_set(e, -EINVAL, "no sources");

	for (i = 0; i < n && !rc; i++)
		rc = resolve(paths[i], &sources[i], e);
	if (!rc)
		rc = scan_sources(sources, n, opts, ret, e);
	for (i = 0; sources && i < n; i++)
		free(sources[i].origin);
	free(sources);
	return rc;
}
