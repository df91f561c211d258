// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What killed loads left behind.  A hidden root is locked for as long as its load lives; one that
 * nobody holds is removed by the next load to the same name.  One that is younger than a few
 * seconds is left alone: its maker may be about to lock it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "memory/target-priv.h"

#define YOUNG_S 10

int stale_lock(const struct root *root)
{
	int fd = openat(root->parent, root->tmp, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	/* Without the lock (a symlink has none) all that is lost is that a later load tidies up. */
	if (fd >= 0)
		flock(fd, LOCK_EX | LOCK_NB);
	return fd;
}

static bool abandoned(int dir, const char *name)
{
	CLEANUP_CLOSE int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
	       (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) && st.st_ctime + YOUNG_S < time(NULL) &&
	       flock(fd, LOCK_EX | LOCK_NB) == 0;
}

void stale_remove(const struct root *root)
{
	char prefix[TMPNAME_BYTES];
	int fd = openat(root->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	size_t bytes;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	tmpname_make(root->name, prefix);
	bytes = (size_t)(strrchr(prefix, '-') + 1 - prefix);
	while ((entry = readdir(d))) {
		if (!strncmp(entry->d_name, prefix, bytes) && strlen(entry->d_name) == strlen(prefix) &&
		    abandoned(root->parent, entry->d_name))
			remove_tree(root->parent, entry->d_name);
	}
	closedir(d);
}
