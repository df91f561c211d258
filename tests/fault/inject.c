// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A library to be preloaded: makes the Nth of some system calls fail, or kills or stops the
 * process right before it, and takes abilities away that some file systems do not have.  The
 * environment says what:
 *
 *   INJECT_CALLS    names from the table below, with commas: calls that count
 *   INJECT_AT       which of them, from 1; 0 or nothing: none
 *   INJECT_DO       a number, the errno of it; or "kill"; or "stop", also with an errno: "stop,5"
 *   INJECT_TOLD     a file that is made when it has happened
 *   INJECT_WITHOUT  tmpfile, rename-flags, links, locks, openat2
 *
 * Functions that libc calls within itself do not come through here: what torpor prints is not
 * in the way.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long counted;

static bool listed(const char *variable, const char *word)
{
	const char *list = getenv(variable), *at = list;
	size_t n = strlen(word);

	while (at && (at = strstr(at, word))) {
		if ((at == list || at[-1] == ',') && (!at[n] || at[n] == ','))
			return true;
		at += n;
	}
	return false;
}

/* 0: the call is to be made; else it fails with this errno. */
static int due(const char *call)
{
	const char *at = getenv("INJECT_AT"), *what = getenv("INJECT_DO"),
		   *told = getenv("INJECT_TOLD");

	if (!at || !what || !listed("INJECT_CALLS", call) ||
	    atomic_fetch_add(&counted, 1) + 1 != atol(at))
		return 0;
	if (told)
		syscall(SYS_close,
			syscall(SYS_openat, AT_FDCWD, told, O_CREAT | O_WRONLY, 0600));
	if (!strcmp(what, "kill"))
		kill(getpid(), SIGKILL);
	if (!strncmp(what, "stop", 4)) {
		kill(getpid(), SIGSTOP);
		return what[4] ? atoi(what + 5) : 0;
	}
	return atoi(what);
}

static bool without(const char *ability)
{
	return listed("INJECT_WITHOUT", ability);
}

#define FAIL_WITH(code)         \
	do {                    \
		errno = (code); \
		return -1;      \
	} while (0)

#define FAIL_IF_DUE(call)                \
	do {                             \
		int due_ = due(call);    \
		if (due_)                \
			FAIL_WITH(due_); \
	} while (0)

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int open_any(int dir, const char *path, int flags, mode_t mode)
{
	if ((flags & O_TMPFILE) == O_TMPFILE && without("tmpfile"))
		FAIL_WITH(EOPNOTSUPP);
	FAIL_IF_DUE("open");
	return (int)syscall(SYS_openat, dir, path, flags, mode);
}

/* As libc: there is a mode only when something is made. */
#define OPEN_MODE(flags)                         \
	mode_t mode = 0;                         \
	if ((flags) & (O_CREAT | __O_TMPFILE)) { \
		va_list ap;                      \
		va_start(ap, flags);             \
		mode = va_arg(ap, mode_t);       \
		va_end(ap);                      \
	}

int open(const char *path, int flags, ...)
{
	OPEN_MODE(flags)
	return open_any(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	OPEN_MODE(flags)
	return open_any(AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	OPEN_MODE(flags)
	return open_any(dir, path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...)
{
	OPEN_MODE(flags)
	return open_any(dir, path, flags, mode);
}

/* openat2(2) has no function of its own. */
long syscall(long number, ...)
{
	static __typeof__(&syscall) next;
	long args[6];
	va_list ap;
	int i;

	va_start(ap, number);
	for (i = 0; i < 6; i++)
		args[i] = va_arg(ap, long);
	va_end(ap);
	if (!next)
		next = NEXT(syscall);
	if (number == SYS_openat2) {
		if (without("openat2"))
			FAIL_WITH(ENOSYS);
		FAIL_IF_DUE("open");
	}
	return next(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}

ssize_t pread(int fd, void *buf, size_t n, off_t offset)
{
	FAIL_IF_DUE("read");
	return NEXT(pread)(fd, buf, n, offset);
}

ssize_t pread64(int fd, void *buf, size_t n, off64_t offset)
{
	FAIL_IF_DUE("read");
	return NEXT(pread64)(fd, buf, n, offset);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t offset)
{
	FAIL_IF_DUE("write");
	return NEXT(pwrite)(fd, buf, n, offset);
}

ssize_t pwrite64(int fd, const void *buf, size_t n, off64_t offset)
{
	FAIL_IF_DUE("write");
	return NEXT(pwrite64)(fd, buf, n, offset);
}

ssize_t write(int fd, const void *buf, size_t n)
{
	FAIL_IF_DUE("write");
	return NEXT(write)(fd, buf, n);
}

/* Pages of a load on tmpfs are written by an ioctl. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (request == UFFDIO_COPY)
		FAIL_IF_DUE("write");
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

int ftruncate(int fd, off_t bytes)
{
	FAIL_IF_DUE("truncate");
	return NEXT(ftruncate)(fd, bytes);
}

int ftruncate64(int fd, off64_t bytes)
{
	FAIL_IF_DUE("truncate");
	return NEXT(ftruncate64)(fd, bytes);
}

int fsync(int fd)
{
	FAIL_IF_DUE("sync");
	return NEXT(fsync)(fd);
}

int fdatasync(int fd)
{
	FAIL_IF_DUE("sync");
	return NEXT(fdatasync)(fd);
}

int syncfs(int fd)
{
	FAIL_IF_DUE("sync");
	return NEXT(syncfs)(fd);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	FAIL_IF_DUE("rename");
	return NEXT(renameat)(from_dir, from, to_dir, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned int flags)
{
	if (flags && without("rename-flags"))
		FAIL_WITH(EINVAL);
	FAIL_IF_DUE("rename");
	return NEXT(renameat2)(from_dir, from, to_dir, to, flags);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	if (without("links"))
		FAIL_WITH(EPERM);
	FAIL_IF_DUE("link");
	return NEXT(linkat)(from_dir, from, to_dir, to, flags);
}

int symlinkat(const char *text, int dir, const char *name)
{
	FAIL_IF_DUE("symlink");
	return NEXT(symlinkat)(text, dir, name);
}

int mkdirat(int dir, const char *name, mode_t mode)
{
	FAIL_IF_DUE("mkdir");
	return NEXT(mkdirat)(dir, name, mode);
}

int unlinkat(int dir, const char *name, int flags)
{
	FAIL_IF_DUE("unlink");
	return NEXT(unlinkat)(dir, name, flags);
}

int flock(int fd, int how)
{
	if (without("locks"))
		FAIL_WITH(ENOLCK);
	FAIL_IF_DUE("lock");
	return NEXT(flock)(fd, how);
}

int fchmodat(int dir, const char *name, mode_t mode, int flags)
{
	FAIL_IF_DUE("metadata");
	return NEXT(fchmodat)(dir, name, mode, flags);
}

int fchownat(int dir, const char *name, uid_t uid, gid_t gid, int flags)
{
	FAIL_IF_DUE("metadata");
	return NEXT(fchownat)(dir, name, uid, gid, flags);
}

int utimensat(int dir, const char *name, const struct timespec times[2], int flags)
{
	FAIL_IF_DUE("metadata");
	return NEXT(utimensat)(dir, name, times, flags);
}
