// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Hidden things and their locks; see hidden.h.
 *
 * Why both sides look at the name again once they hold the lock:
 *
 *   maker:  make, open, lock, still there?         remover:  open, lock, still there?  remove, unlock
 *
 * Whoever locks second fails, or finds, when the first has let go, that the name is gone (the
 * remover was first) or that it was renamed (the maker was).  Hidden names are random, so that
 * none comes back as something else.
 */
#include "os/hidden.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/rename.h"

/* A remover that comes between is rare; so many of them are none. */
#define ATTEMPTS 32

/* Does the name stand for what is open? */
static bool names(int dir, const char *name, int fd)
{
	struct stat a, b;

	return fstatat(dir, name, &a, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &b) == 0 &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* 0: locked, or there are no locks here; -EAGAIN: somebody has it, or has removed it. */
static int lock_made(int dir, const char *name, int fd)
{
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return -EAGAIN;
	return names(dir, name, fd) ? 0 : -EAGAIN;
}

static int make(int dir, const char *name, bool folder, char ret_tmp[TMPNAME_BYTES],
		int *ret_fd)
{
	int i, fd, rc = -EBUSY;

	for (i = 0; i < ATTEMPTS; i++) {
		tmpname_make(name, TMPNAME_NEW, ret_tmp);
		if (folder && mkdirat(dir, ret_tmp, 0700) < 0) {
			rc = -errno;
			break;
		}
		fd = folder ? openat(dir, ret_tmp,
				     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
			    : openat(dir, ret_tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		rc = fd < 0 ? -errno : lock_made(dir, ret_tmp, fd);
		if (!rc) {
			*ret_fd = fd;
			return 0;
		}
		if (folder || fd >= 0)
			unlinkat(dir, ret_tmp, folder ? AT_REMOVEDIR : 0);
		if (fd >= 0)
			close(fd);
		/* A folder that was removed before it was opened was made in vain, too. */
		if (rc != -EAGAIN && !(folder && rc == -ENOENT))
			break;
	}
	ret_tmp[0] = '\0';
	return rc;
}

int os_hidden_file(int dir, const char *name, char ret_tmp[TMPNAME_BYTES], int *ret_fd)
{
	return make(dir, name, false, ret_tmp, ret_fd);
}

int os_hidden_folder(int dir, const char *name, char ret_tmp[TMPNAME_BYTES], int *ret_fd)
{
	return make(dir, name, true, ret_tmp, ret_fd);
}

void os_hidden_lock(int fd)
{
	flock(fd, LOCK_EX | LOCK_NB);
}

static int open_any(int dir, const char *name, mode_t mode)
{
	/* NFS locks files only for those who may write them. */
	int fd = S_ISREG(mode) ? openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
			       : -1;

	return fd >= 0 ? fd : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

static bool lockable(int dir, const char *name, struct stat *ret_st)
{
	return fstatat(dir, name, ret_st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (S_ISDIR(ret_st->st_mode) || S_ISREG(ret_st->st_mode));
}

int os_hidden_hold(int dir, const char *name)
{
	struct stat st;
	int fd = lockable(dir, name, &st) ? open_any(dir, name, st.st_mode) : -1;

	if (fd >= 0)
		flock(fd, LOCK_EX | LOCK_NB);
	return fd;
}

/* Empties a folder by its descriptor, which is taken over. */
static int empty_folder(int fd)
{
	DIR *d = fdopendir(fd);
	struct dirent *entry;
	int rc = 0, one;

	if (!d) {
		rc = -errno;
		close(fd);
		return rc;
	}
	while ((entry = readdir(d))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		one = os_hidden_remove(dirfd(d), entry->d_name);
		rc = rc ? rc : one;
	}
	closedir(d);
	return rc;
}

int os_hidden_remove(int dir, const char *name)
{
	int fd, rc = 0;

	if (unlinkat(dir, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == EACCES && fchmodat(dir, name, 0700, 0) == 0)
		fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		rc = -errno;
	} else {
		fchmod(fd, 0700);
		rc = empty_folder(fd);
	}
	if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
		return 0;
	return rc ? rc : -errno;
}

/*
 * Only with its lock is something left behind.  root finds what has got its owner already, too.
 */
static bool abandoned(int dir, const char *name, int *ret_fd)
{
	CLEANUP_CLOSE int fd = -1;
	struct stat st;

	if (!lockable(dir, name, &st) || (st.st_uid != geteuid() && geteuid() != 0))
		return false;
	fd = open_any(dir, name, st.st_mode);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || !names(dir, name, fd))
		return false;
	*ret_fd = take_fd(&fd);
	return true;
}

static void tidy_entry(int dir, const char *entry, const char *name)
{
	CLEANUP_CLOSE int lock = -1;
	bool old = tmpname_is(entry, name, TMPNAME_OLD);

	if (!old && !tmpname_is(entry, name, TMPNAME_NEW))
		return;
	/* Of a name that was cut it is not known whose it is. */
	if ((old && strlen(name) > TMPNAME_KEPT_BYTES) || !abandoned(dir, entry, &lock))
		return;
	if (!old || os_rename_new(dir, entry, dir, name) == -EEXIST)
		os_hidden_remove(dir, entry);
}

void os_hidden_tidy(int dir, const char *name)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(d)))
		tidy_entry(dir, entry->d_name, name);
	closedir(d);
}
