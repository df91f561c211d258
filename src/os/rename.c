// SPDX-License-Identifier: LGPL-2.1-or-later
/* Renaming; see rename.h. */
#include "os/rename.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tmpname.h"

/* Does this say that flags are not to be had, rather than that they were refused? */
static bool without_flags(int rc)
{
	return rc == -EINVAL || rc == -ENOSYS || rc == -EOPNOTSUPP;
}

static bool is_folder(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int rename_plain(int from_dir, const char *from, int to_dir, const char *to)
{
	return renameat(from_dir, from, to_dir, to) < 0 ? -errno : 0;
}

int os_rename_new(int from_dir, const char *from, int to_dir, const char *to)
{
	int rc = renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE) < 0 ? -errno : 0;
	struct stat st;

	if (!without_flags(rc))
		return rc;
	if (!is_folder(from_dir, from)) {
		if (linkat(from_dir, from, to_dir, to, 0) == 0) {
			unlinkat(from_dir, from, 0);
			return 0;
		}
		if (errno == EEXIST)
			return -EEXIST;
	}
	/* A folder, or a file where there are no links. */
	if (fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return rename_plain(from_dir, from, to_dir, to);
}

static int exchange_in_steps(int from_dir, const char *from, int to_dir, const char *to)
{
	char aside[TMPNAME_BYTES];
	bool linked = false;
	int rc = 0;

	tmpname_make(to, TMPNAME_OLD, aside);
	if (!is_folder(from_dir, from) && !is_folder(to_dir, to))
		linked = linkat(to_dir, to, from_dir, aside, 0) == 0;
	if (!linked)
		rc = rename_plain(to_dir, to, from_dir, aside);
	if (rc < 0)
		return rc;
	rc = rename_plain(from_dir, from, to_dir, to);
	if (!rc) {
		rc = rename_plain(from_dir, aside, from_dir, from);
		if (!rc)
			return 0;
		rename_plain(to_dir, to, from_dir, from);
		linked = false;
	}
	if (linked)
		unlinkat(from_dir, aside, 0);
	else
		rename_plain(from_dir, aside, to_dir, to);
	return rc;
}

int os_rename_exchange(int from_dir, const char *from, int to_dir, const char *to)
{
	int rc = renameat2(from_dir, from, to_dir, to, RENAME_EXCHANGE) < 0 ? -errno : 0;

	return without_flags(rc) ? exchange_in_steps(from_dir, from, to_dir, to) : rc;
}
