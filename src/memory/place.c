// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Making the hidden folders and files of a target beside what they become, after checking that
 * nothing is in the way and that there is room.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "memory/target-priv.h"

/* With more roots than this, each one would need a descriptor of its own to have no name. */
#define NAMELESS_ROOTS 4

int place_path(const struct memory_target *t, uint64_t item, char *buf, size_t bytes)
{
	const struct root *root = &t->roots[t->root_of[item]];
	const char *rest = strchr(t->items->list[item].name, '/');

	if ((size_t)snprintf(buf, bytes, "%s%s", root->tmp, rest ? rest : "") >= bytes)
		return -ENAMETOOLONG;
	return 0;
}

const char *place_child(const struct memory_target *t, const struct root *root, uint64_t item)
{
	const char *slash = strchr(t->items->list[item].name, '/');

	return slash && &t->roots[t->root_of[item]] == root && !strchr(slash + 1, '/') ? slash + 1 : NULL;
}

static int remember_made(struct memory_target *t, const char *path)
{
	char **more = reallocarray(t->made_dirs, t->n_made_dirs + 1, sizeof(*more));

	if (!more)
		return -ENOMEM;
	t->made_dirs = more;
	more[t->n_made_dirs] = strdup(path);
	if (!more[t->n_made_dirs])
		return -ENOMEM;
	t->n_made_dirs++;
	return 0;
}

/* Makes a folder and those above it that are missing. */
static int make_folders(struct memory_target *t, const char *path)
{
	CLEANUP_FREE char *copy = strdup(path);
	char *at = copy;
	int rc = copy ? 0 : -ENOMEM;

	while (!rc && at) {
		at = strchr(at + 1, '/');
		if (at)
			*at = '\0';
		if (mkdir(copy, 0755) == 0)
			rc = remember_made(t, copy);
		else if (errno != EEXIST && errno != EISDIR)
			rc = -errno;
		if (at)
			*at = '/';
	}
	return rc;
}

/* Where the origin of an image points must be plain. */
static bool origin_plain(const char *origin)
{
	size_t n = strlen(origin);

	return origin[0] == '/' && n > 1 && strlen(strrchr(origin, '/')) <= NAME_MAX + 1 &&
	       origin[n - 1] != '/' && !strstr(origin, "/../") &&
	       !strstr(origin, "/./") && !(n >= 3 && !strcmp(origin + n - 3, "/..")) &&
	       !(n >= 2 && !strcmp(origin + n - 2, "/."));
}

/* Does a root go to this folder?  `dir` ends with a slash unless all roots go to one. */
static bool goes_to(const struct root *root, const char *dir)
{
	size_t bytes = strlen(dir);

	return root->path && !strncmp(root->path, dir, bytes) && !strchr(root->path + bytes, '/');
}

/*
 * The folder to restore to: roots that go to the same one share it.  Without one for all it is
 * that of the root before, since what was named together mostly lay together.
 */
static int open_folder(struct memory_target *t, struct root *root, const char *dir)
{
	const struct root *before = root;
	int rc;

	while (before-- > t->roots) {
		if (!t->opts.to && (before->inside || !goes_to(before, dir)))
			break;
		if (before->inside)
			continue;
		root->parent = before->parent;
		root->shares_parent = true;
		root->fs = before->fs;
		return 0;
	}
	/*
	 * After a reboot the folders on tmpfs are gone too; one that the user names is theirs
	 * to make.
	 */
	rc = t->opts.to ? 0 : make_folders(t, dir);
	if (rc < 0)
		return rc;
	root->parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return root->parent < 0 ? -errno : os_filesystem_of(root->parent, &root->fs);
}

/* A folder that cannot be replaced is opened, to be filled. */
static int open_inside(const struct memory_target *t, struct root *root)
{
	int fd;

	if (t->items->list[root->first].kind != MEMORY_DIRECTORY || !occupied_stays(root->parent, root->name))
		return 0;
	fd = openat(root->parent, root->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOTDIR || errno == ELOOP ? 0 : -errno; /* a file can be a mount point, too */
	if (!root->shares_parent)
		close(root->parent);
	root->parent = fd;
	root->shares_parent = false;
	root->inside = true;
	return os_filesystem_of(fd, &root->fs);
}

static int open_parent(struct memory_target *t, struct root *root, struct err *e)
{
	const struct memory_item *item = &t->items->list[root->first];
	CLEANUP_FREE char *dir = NULL;
	const char *name = item->name;
	int rc;

	if (!t->opts.to && !origin_plain(item->origin))
		return err_set(e, -EINVAL, "the image does not say where %s came from; name a folder", name);
	if (!t->opts.to)
		name = strrchr(item->origin, '/') + 1;
	dir = t->opts.to ? strdup(t->opts.to) : strndup(item->origin, (size_t)(name - item->origin));
	if (!dir || asprintf(&root->path, "%s%s%s", dir, t->opts.to ? "/" : "", name) < 0)
		return err_sys(e, -ENOMEM, "cannot restore %s", name);
	snprintf(root->name, sizeof(root->name), "%s", name);
	rc = open_folder(t, root, dir);
	if (rc < 0)
		return err_sys(e, rc, "cannot restore to the folder %s", dir);
	rc = open_inside(t, root);
	if (rc < 0)
		return err_sys(e, rc, "cannot restore to the folder %s", root->path);
	os_hidden_tidy(root->parent, root->name);
	return occupied_check(t, root, e);
}

/*
 * Old and new have to fit for a moment: the old one is still there when the new one is
 * complete.
 */
static int check_room(const struct memory_target *t, struct err *e)
{
	uint64_t i, need = t->opts.data_bytes + t->rounding_bytes;
	struct os_filesystem fs;
	struct stat first, st;

	/* Looked at now: what killed loads left behind is gone. */
	if (!t->opts.data_bytes || !t->n_roots || os_filesystem_of(t->roots[0].parent, &fs) < 0 || !fs.free_known)
		return 0;
	/*
	 * Only the sum is known, so it says something only where all goes to one file system.
	 */
	for (i = 0; i < t->n_roots; i++) {
		if (fstat(t->roots[i].parent, i ? &st : &first) < 0 || (i && st.st_dev != first.st_dev))
			return 0;
	}
	if (fs.free_bytes >= need)
		return 0;
	return err_set(e, -ENOSPC,
		       "not enough room for %s: it needs %" PRIu64 " bytes, and %" PRIu64 " are free%s",
		       t->roots[0].path, need, fs.free_bytes,
		       t->opts.force ? " (what it replaces is kept until it is complete)" : "");
}

/* Below a root, or a root without a lock. */
static int make_entry(const struct root *root, const struct memory_item *item, const char *path, int *ret_fd)
{
	switch (item->kind) {
	case MEMORY_DIRECTORY:
		return mkdirat(root->parent, path, 0700) < 0 ? -errno : 0;
	case MEMORY_SYMLINK:
		return symlinkat(item->link, root->parent, path) < 0 ? -errno : 0;
	default:
		*ret_fd = openat(root->parent, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		return *ret_fd < 0 ? -errno : 0;
	}
}

/* *ret_fd is the root's own to close. */
static int make_root(const struct memory_target *t, struct root *root, const struct memory_item *item, int *ret_fd)
{
	bool locked = root - t->roots < LOCKED_ROOTS;
	int rc;

	if (item->kind == MEMORY_FILE && t->n_roots <= NAMELESS_ROOTS) {
		root->nameless = openat(root->parent, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		*ret_fd = root->nameless;
		if (root->nameless >= 0) {
			os_hidden_lock(root->nameless); /* it may get a hidden name on its way to its own */
			return 0;
		}
	}
	if (item->kind == MEMORY_DIRECTORY && (locked || root->inside))
		return os_hidden_folder(root->parent, root->name, root->tmp, &root->lock);
	if (item->kind == MEMORY_FILE && locked) {
		rc = os_hidden_file(root->parent, root->name, root->tmp, &root->lock);
		*ret_fd = root->lock;
		return rc;
	}
	tmpname_make(root->name, TMPNAME_LOOSE, root->tmp);
	rc = make_entry(root, item, root->tmp, ret_fd);
	if (rc < 0)
		root->tmp[0] = '\0';
	return rc;
}

static int make_item(struct memory_target *t, uint64_t i)
{
	struct root *root = &t->roots[t->root_of[i]];
	const struct memory_item *item = &t->items->list[i];
	char path[PATH_MAX];
	int fd = -1, rc;

	if (root->first == i) {
		rc = make_root(t, root, item, &fd);
	} else {
		rc = place_path(t, i, path, sizeof(path));
		if (!rc)
			rc = make_entry(root, item, path, &fd);
	}
	if (!rc && fd >= 0 && item->bytes && ftruncate(fd, (off_t)item->bytes) < 0)
		rc = -errno;
	if (fd >= 0 && fd != root->nameless && fd != root->lock)
		close(fd);
	return rc;
}

/* Of a name the first part: that of a root. */
struct first_part {
	const char *name;
	size_t bytes;
	uint32_t root;
};

static int by_first_part(const void *a, const void *b)
{
	const struct first_part *x = a, *y = b;
	int order = memcmp(x->name, y->name, num_min(x->bytes, y->bytes));

	return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static struct first_part first_part(const struct memory_target *t, uint64_t item, uint32_t root)
{
	const char *name = t->items->list[item].name;

	return (struct first_part){name, (size_t)(strchrnul(name, '/') - name), root};
}

/* Which items belong to which root: a folder's follow it, but hostile images may mix them. */
static int find_roots(struct memory_target *t, struct err *e)
{
	CLEANUP_FREE struct first_part *parts = calloc(t->n_roots + 1, sizeof(*parts));
	const struct first_part *found = parts;
	uint64_t i;
	uint32_t n = 0;

	if (!parts)
		return err_sys(e, -ENOMEM, "cannot restore %" PRIu64 " files", t->items->count);
	for (i = 0; i < t->items->count; i++) {
		if (strchr(t->items->list[i].name, '/'))
			continue;
		t->roots[n].first = i;
		parts[n] = first_part(t, i, n);
		n++;
	}
	qsort(parts, n, sizeof(*parts), by_first_part);
	for (i = 0; i < t->items->count; i++) {
		struct first_part part = first_part(t, i, 0);

		if (!n || by_first_part(&part, found) != 0)
			found = bsearch(&part, parts, n, sizeof(*parts), by_first_part);
		if (!found)
			return err_set(e, -EINVAL, "%s lies in no folder", t->items->list[i].name);
		t->root_of[i] = found->root;
	}
	return 0;
}

int place_all(struct memory_target *t, struct err *e)
{
	uint64_t i;
	int rc = 0;

	rc = find_roots(t, e);
	for (i = 0; i < t->n_roots && !rc; i++)
		rc = open_parent(t, &t->roots[i], e);
	if (!rc)
		rc = fill_plan(t, e);
	if (!rc)
		rc = check_room(t, e);
	for (i = 0; i < t->items->count && !rc; i++) {
		rc = make_item(t, i);
		if (rc < 0)
			err_sys(e, rc, "cannot make %s for %s", t->items->list[i].name,
				t->roots[t->root_of[i]].path);
	}
	return rc;
}

void place_remove(const struct memory_target *t, struct root *root)
{
	int rc = os_hidden_remove(root->parent, root->tmp);

	if (rc < 0 && root->named)
		memory_warn(t->opts.warnings, "%s: what was replaced could not be removed (%s): %s", root->path, root->tmp,
			    strerror(-rc));
	root->tmp[0] = '\0';
}

void place_undo(struct memory_target *t)
{
	bool all_named = true;
	uint64_t i;

	for (i = t->n_roots; i-- > 0;) {
		struct root *root = &t->roots[i];

		all_named = all_named && root->named;
		if (root->tmp[0] && root->parent >= 0)
			place_remove(t, root);
		if (root->nameless >= 0)
			close(root->nameless);
		if (root->lock >= 0)
			close(root->lock);
		if (root->old >= 0)
			close(root->old);
		if (root->parent >= 0 && !root->shares_parent)
			close(root->parent);
		free(root->path);
	}
	while (t->n_made_dirs > 0) {
		char *dir = t->made_dirs[--t->n_made_dirs];

		if (!all_named || !t->n_roots)
			rmdir(dir);
		free(dir);
	}
	free(t->made_dirs);
}
