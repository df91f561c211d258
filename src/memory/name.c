// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The end of a target: metadata, then names.  All roots get their names or none: what was there is
 * exchanged for the new, and exchanged back when a later root fails.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "memory/target-priv.h"

/* Everything in a folder, by its descriptor, which is taken over. */
static void empty_folder(int fd)
{
	DIR *d = fdopendir(fd);
	struct dirent *entry;

	if (!d) {
		close(fd);
		return;
	}
	while ((entry = readdir(d))) {
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			remove_tree(dirfd(d), entry->d_name);
	}
	closedir(d);
}

void remove_tree(int dir, const char *name)
{
	int fd;

	if (unlinkat(dir, name, 0) == 0 || (errno != EISDIR && errno != EPERM))
		return;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == EACCES && fchmodat(dir, name, 0700, 0) == 0)
		fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0) {
		fchmod(fd, 0700);
		empty_folder(fd);
	}
	unlinkat(dir, name, AT_REMOVEDIR);
}

/* What does not come back is a warning; set-id bits never go to another owner. */
static void set_metadata(struct memory_target *t, const struct memory_item *item, int dir,
			 const char *path, int flags)
{
	int64_t ns = item->mtime_ns % 1000000000, s = item->mtime_ns / 1000000000;
	struct timespec times[2];
	mode_t mode = item->mode;
	struct stat st;

	if (ns < 0) {
		ns += 1000000000;
		s--;
	}
	times[0] = times[1] = (struct timespec){.tv_sec = s, .tv_nsec = ns};
	times[0].tv_nsec = UTIME_OMIT;
	if (fstatat(dir, path, &st, flags | AT_SYMLINK_NOFOLLOW) < 0 ||
	    ((st.st_uid != item->uid || st.st_gid != item->gid) &&
	     fchownat(dir, path, item->uid, item->gid, flags | AT_SYMLINK_NOFOLLOW) < 0)) {
		memory_warn(t->opts.warnings, "%s: owner %u:%u could not be restored: %s", item->name,
			    item->uid, item->gid, strerror(errno));
		mode &= 01777;
	}
	if (item->kind != MEMORY_SYMLINK) {
		char self[64];
		int rc;

		/* fchmodat() knows no AT_EMPTY_PATH: a nameless file is reached through /proc. */
		snprintf(self, sizeof(self), "/proc/self/fd/%d", dir);
		rc = flags ? chmod(self, mode) : fchmodat(dir, path, mode, 0);
		if (rc < 0)
			memory_warn(t->opts.warnings, "%s: mode %04o could not be restored: %s",
				    item->name, mode, strerror(errno));
	}
	if (utimensat(dir, path, times, flags | AT_SYMLINK_NOFOLLOW) < 0)
		memory_warn(t->opts.warnings, "%s: time could not be restored: %s", item->name,
			    strerror(errno));
}

void name_metadata(struct memory_target *t)
{
	char path[PATH_MAX];
	uint64_t i;

	/* From the end: what lies in a folder comes before it, since it changes the folder's time. */
	for (i = t->items->count; i-- > 0;) {
		const struct root *root = &t->roots[t->root_of[i]];

		if (root->nameless >= 0)
			set_metadata(t, &t->items->list[i], root->nameless, "", AT_EMPTY_PATH);
		else if (place_path(t, i, path, sizeof(path)) == 0)
			set_metadata(t, &t->items->list[i], root->parent, path, 0);
	}
}

static int link_nameless(struct root *root, const char *name)
{
	char self[64];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", root->nameless);
	return linkat(AT_FDCWD, self, root->parent, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* Gives one root its name. */
static int name_root(struct memory_target *t, struct root *root)
{
	char tmp[TMPNAME_BYTES];
	int rc;

	if (root->nameless >= 0) {
		rc = link_nameless(root, root->name);
		if (!rc)
			root->named = true;
		if (rc != -EEXIST || !t->opts.force)
			return rc;
		tmpname_make(root->name, tmp);
		rc = link_nameless(root, tmp);
		if (rc < 0)
			return rc;
		memcpy(root->tmp, tmp, sizeof(tmp));
	}
	rc = renameat2(root->parent, root->tmp, root->parent, root->name, RENAME_NOREPLACE) < 0 ? -errno : 0;
	if (!rc) {
		root->tmp[0] = '\0';
	} else if (rc == -EEXIST && t->opts.force) {
		rc = renameat2(root->parent, root->tmp, root->parent, root->name, RENAME_EXCHANGE) < 0
			     ? -errno
			     : 0;
		root->exchanged = !rc;
	}
	root->named = !rc;
	return rc;
}

static void unname_root(struct root *root)
{
	if (root->exchanged) {
		renameat2(root->parent, root->tmp, root->parent, root->name, RENAME_EXCHANGE);
		root->exchanged = false;
	} else {
		remove_tree(root->parent, root->name);
	}
	root->named = false;
}

/* Before something old goes, the new has to be on the disk. */
static int flush_before_replacing(const struct memory_target *t, struct err *e)
{
	uint64_t i;

	for (i = 0; t->opts.force && i < t->n_roots; i++) {
		const struct root *root = &t->roots[i];
		struct stat st;

		if (!root->fs.memory && !root->shares_parent &&
		    fstatat(root->parent, root->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    syncfs(root->parent) < 0)
			return err_sys(e, -errno, "cannot flush %s", root->path);
	}
	return 0;
}

int name_all(struct memory_target *t, struct err *e)
{
	int rc = flush_before_replacing(t, e);
	uint64_t i;

	if (rc < 0)
		return rc;
	for (i = 0; i < t->n_roots; i++) {
		rc = name_root(t, &t->roots[i]);
		if (rc < 0) {
			err_sys(e, rc, "cannot restore %s", t->roots[i].path);
			break;
		}
	}
	if (rc < 0) {
		while (i-- > 0)
			unname_root(&t->roots[i]);
	}
	return rc;
}
