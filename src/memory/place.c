// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Making the hidden folders and files of a target beside what they become, after checking that
 * nothing is in the way and that there is room.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "memory/target-priv.h"

/* With more roots than this, each one would need a descriptor of its own. */
#define NAMELESS_ROOTS 4

int place_path(const struct memory_target *t, uint64_t item, char *buf, size_t bytes)
{
	const struct root *root = &t->roots[t->root_of[item]];
	const char *rest = strchr(t->items->list[item].name, '/');

	if ((size_t)snprintf(buf, bytes, "%s%s", root->tmp, rest ? rest : "") >= bytes)
		return -ENAMETOOLONG;
	return 0;
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
	if (t->opts.to && root > t->roots) {
		root->parent = root[-1].parent;
		root->shares_parent = true;
		root->fs = root[-1].fs;
		return 0;
	}
	/* After a reboot the folders on tmpfs are gone too; one that the user names is theirs to make. */
	rc = t->opts.to ? 0 : make_folders(t, dir);
	if (!rc) {
		root->parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = root->parent < 0 ? -errno : os_filesystem_of(root->parent, &root->fs);
	}
	return rc < 0 ? err_sys(e, rc, "cannot restore to the folder %s", dir) : 0;
}

static int check_absent(const struct memory_target *t, const struct root *root, struct err *e)
{
	struct stat st;

	if (!t->opts.force && fstatat(root->parent, root->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return err_sys(e, -EEXIST, "cannot restore %s", root->path);
	return 0;
}

/* Old and new have to fit for a moment: the old one is still there when the new one is complete. */
static int check_room(const struct memory_target *t, struct err *e)
{
	const struct os_filesystem *fs = &t->roots[0].fs;
	struct stat first, st;
	uint64_t i;

	if (!t->opts.data_bytes || !t->n_roots || !fs->free_known)
		return 0;
	/* Only the sum is known, so it says something only where all goes to one file system. */
	for (i = 0; i < t->n_roots; i++) {
		if (fstat(t->roots[i].parent, i ? &st : &first) < 0 || (i && st.st_dev != first.st_dev))
			return 0;
	}
	if (fs->free_bytes >= t->opts.data_bytes)
		return 0;
	return err_set(e, -ENOSPC,
		       "not enough room for %s: it needs %" PRIu64 " bytes, and %" PRIu64 " are free%s",
		       t->roots[0].path, t->opts.data_bytes, fs->free_bytes,
		       t->opts.force ? " (what it replaces is kept until it is complete)" : "");
}

static int make_file(struct memory_target *t, struct root *root, const struct memory_item *item,
		     const char *path)
{
	bool is_root = item == &t->items->list[root->first];
	int fd = -1, rc = 0;

	if (is_root && t->n_roots <= NAMELESS_ROOTS) {
		fd = openat(root->parent, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		root->nameless = fd;
		if (fd >= 0)
			root->tmp[0] = '\0';
	}
	if (fd < 0)
		fd = openat(root->parent, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (item->bytes && ftruncate(fd, (off_t)item->bytes) < 0)
		rc = -errno;
	if (fd != root->nameless)
		close(fd);
	return rc;
}

static int make_item(struct memory_target *t, uint64_t i)
{
	struct root *root = &t->roots[t->root_of[i]];
	const struct memory_item *item = &t->items->list[i];
	char path[PATH_MAX];
	int rc = place_path(t, i, path, sizeof(path));

	if (rc < 0)
		return rc;
	switch (item->kind) {
	case MEMORY_DIRECTORY:
		return mkdirat(root->parent, path, 0700) < 0 ? -errno : 0;
	case MEMORY_SYMLINK:
		return symlinkat(item->link, root->parent, path) < 0 ? -errno : 0;
	default:
		return make_file(t, root, item, path);
	}
}

/* Which items belong to which root: a folder's follow it, but hostile images may mix them. */
static void find_roots(struct memory_target *t)
{
	uint64_t i, r = 0, n = 0;

	for (i = 0; i < t->items->count; i++) {
		const char *name = t->items->list[i].name, *slash = strchr(name, '/');

		if (!slash) {
			t->roots[n].first = i;
			t->root_of[i] = (uint32_t)n++;
			continue;
		}
		for (r = n; r-- > 0;) {
			const char *root = t->items->list[t->roots[r].first].name;

			if (!strncmp(root, name, (size_t)(slash - name)) && !root[slash - name])
				break;
		}
		t->root_of[i] = (uint32_t)r;
	}
}

int place_all(struct memory_target *t, struct err *e)
{
	uint64_t i;
	int rc = 0;

	find_roots(t);
	for (i = 0; i < t->n_roots && !rc; i++) {
		rc = open_parent(t, &t->roots[i], e);
		if (!rc)
			rc = check_absent(t, &t->roots[i], e);
	}
	if (!rc)
		rc = check_room(t, e);
	for (i = 0; i < t->items->count && !rc; i++) {
		struct root *root = &t->roots[t->root_of[i]];

		if (root->first == i) {
			stale_remove(root);
			tmpname_make(root->name, root->tmp);
		}
		rc = make_item(t, i);
		if (!rc && root->first == i && root->tmp[0])
			root->lock = stale_lock(root);
		if (rc < 0)
			err_sys(e, rc, "cannot make %s for %s", t->items->list[i].name, root->path);
	}
	return rc;
}

void place_undo(struct memory_target *t)
{
	bool all_named = true;
	uint64_t i;

	for (i = t->n_roots; i-- > 0;) {
		struct root *root = &t->roots[i];

		all_named = all_named && root->named;
		if (root->tmp[0] && root->parent >= 0)
			remove_tree(root->parent, root->tmp);
		if (root->nameless >= 0)
			close(root->nameless);
		if (root->lock >= 0)
			close(root->lock);
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
