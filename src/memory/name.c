// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The end of a target: metadata, then names.  All roots get their names or none: what was there
 * is exchanged for the new, and exchanged back when a later root fails.  Of a root that stays
 * all that lies in it is named so, one by one.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/target-priv.h"
#include "os/rename.h"

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

		/*
		 * fchmodat() knows no AT_EMPTY_PATH: a nameless file is reached through /proc.
		 */
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

	/*
	 * From the end: what lies in a folder comes before it, since it changes the folder's
	 * time.
	 */
	for (i = t->items->count; i-- > 0;) {
		const struct root *root = &t->roots[t->root_of[i]];

		if (root->inside && i == root->first)
			continue; /* it is there, and done at the very end */
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

/*
 * A folder that changes its parent has to be writable, which those of other users than root may
 * not be. Returns the mode to be given back, or -1.
 */
static int make_writable(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) || (st.st_mode & S_IWUSR))
		return -1;
	return fchmodat(dir, name, (st.st_mode & 07777) | S_IWUSR, 0) < 0 ? -1 : (int)(st.st_mode & 07777);
}

static void give_mode(int dir, const char *name, int mode)
{
	if (mode >= 0)
		fchmodat(dir, name, (mode_t)mode, 0);
}

static int move_plain(const char *name, int from, int to, bool exchange)
{
	return exchange ? os_rename_exchange(from, name, to, name) : os_rename_new(from, name, to, name);
}

/* Moves what has `name` from one folder to another, in exchange for what has it there. */
static int move_child(const char *name, int from, int to, bool exchange)
{
	int rc = move_plain(name, from, to, exchange);
	int mode, mode_there;

	if (rc != -EACCES)
		return rc;
	mode = make_writable(from, name);
	mode_there = exchange ? make_writable(to, name) : -1;
	rc = move_plain(name, from, to, exchange);
	give_mode(rc < 0 ? from : to, name, mode);
	give_mode(rc < 0 ? to : from, name, mode_there);
	return rc;
}

/* Names what lies in a root that stays. */
static int move_in(struct memory_target *t, struct root *root, struct err *e)
{
	uint64_t i;
	int rc;

	for (i = root->first; i < t->items->count; i++) {
		const char *name = place_child(t, root, i);

		if (!name)
			continue;
		rc = move_child(name, root->lock, root->parent, false);
		if (rc == -EEXIST && t->opts.force)
			rc = move_child(name, root->lock, root->parent, true);
		if (rc < 0)
			return err_sys(e, rc, "cannot restore %s/%s", root->path, name);
		root->moved = i + 1;
	}
	root->named = true;
	return 0;
}

static void move_out(const struct memory_target *t, struct root *root)
{
	struct stat st;

	while (root->moved-- > 0) {
		const char *name = place_child(t, root, root->moved);

		/* What was exchanged is there in its place. */
		if (name)
			move_child(name, root->parent, root->lock,
				   fstatat(root->lock, name, &st, AT_SYMLINK_NOFOLLOW) == 0);
	}
	root->moved = 0;
}

/*
 * Puts a root in the place of what has its name: anything with `force`, else an empty folder.
 */
static int exchange_root(const struct memory_target *t, struct root *root)
{
	bool folder = t->items->list[root->first].kind == MEMORY_DIRECTORY;
	int rc;

	if (!t->opts.force && !(folder && occupied_by_nothing(root->parent, root->name)))
		return -EEXIST;
	if (root - t->roots < LOCKED_ROOTS)
		root->old = os_hidden_hold(root->parent, root->name);
	rc = os_rename_exchange(root->parent, root->tmp, root->parent, root->name);
	if (rc < 0)
		return rc;
	root->exchanged = true;
	/* It may have been filled meanwhile. */
	if (t->opts.force || occupied_by_nothing(root->parent, root->tmp))
		return 0;
	return -EEXIST;
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
		tmpname_make(root->name, TMPNAME_NEW, tmp);
		rc = link_nameless(root, tmp);
		if (rc < 0)
			return rc;
		memcpy(root->tmp, tmp, sizeof(tmp));
	}
	rc = os_rename_new(root->parent, root->tmp, root->parent, root->name);
	if (!rc)
		root->tmp[0] = '\0';
	else if (rc == -EEXIST)
		rc = exchange_root(t, root);
	root->named = !rc;
	return rc;
}

/* What was there before cannot have its name back: it gets one that nothing tidies away, and the user is told. */
static void keep_old(const struct memory_target *t, struct root *root)
{
	char aside[NAME_MAX + 1];

	snprintf(aside, sizeof(aside), "%.200s.before-load-%s", root->name, root->tmp + strlen(root->tmp) - 8);
	if (os_rename_new(root->parent, root->tmp, root->parent, aside) < 0)
		snprintf(aside, sizeof(aside), "%s", root->tmp);
	memory_warn(t->opts.warnings, "%s could not be put back as it was: what was there before lies beside it as %s",
		    root->path, aside);
	root->tmp[0] = '\0';
}

/* Takes back what naming a root has done, all of it or in part. */
static void unname_root(const struct memory_target *t, struct root *root)
{
	if (root->inside)
		move_out(t, root);
	else if (root->exchanged && os_rename_exchange(root->parent, root->tmp, root->parent, root->name) < 0)
		keep_old(t, root);
	else if (root->named && !root->exchanged)
		os_hidden_remove(root->parent, root->name);
	root->exchanged = root->named = false;
}

/* Before something old goes, the new has to be on the disk. */
static int flush_before_replacing(const struct memory_target *t, struct err *e)
{
	uint64_t i;

	for (i = 0; t->opts.force && i < t->n_roots; i++) {
		const struct root *root = &t->roots[i];
		struct stat st;

		if (!root->fs.memory && !root->shares_parent &&
		    (root->inside || fstatat(root->parent, root->name, &st, AT_SYMLINK_NOFOLLOW) == 0) &&
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
	for (i = 0; i < t->n_roots && !rc; i++) {
		struct root *root = &t->roots[i];

		if (root->inside)
			rc = move_in(t, root, e);
		else if ((rc = name_root(t, root)) < 0)
			err_sys(e, rc, "cannot restore %s", root->path);
	}
	while (rc < 0 && i-- > 0)
		unname_root(t, &t->roots[i]);
	return rc;
}

void name_finish(struct memory_target *t)
{
	uint64_t i;

	for (i = 0; i < t->n_roots; i++) {
		struct root *root = &t->roots[i];

		if (!root->inside)
			continue;
		/* First, since it changes the folder's time. */
		place_remove(t, root);
		set_metadata(t, &t->items->list[root->first], root->parent, "", AT_EMPTY_PATH);
	}
}
