// SPDX-License-Identifier: LGPL-2.1-or-later
/* Processes, threads and descriptors; see proc.h. */
#include "os/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/num.h"

/* The kernel's include/linux/sched.h; fixed by what reads /proc. */
#define PF_EXITING 0x00000004u
#define PF_KTHREAD 0x00200000u

/* ---- lists of numbers ---- */

struct pids {
	pid_t *list;
	size_t n, room;
};

static int pids_add(struct pids *p, pid_t pid)
{
	size_t room = p->room ? 2 * p->room : 64;
	pid_t *more;

	if (p->n == p->room) {
		more = reallocarray(p->list, room, sizeof(*more));
		if (!more)
			return -ENOMEM;
		p->list = more;
		p->room = room;
	}
	p->list[p->n++] = pid;
	return 0;
}

/* The list is the caller's on success, and gone otherwise. */
static int pids_give(struct pids *p, int rc, pid_t **ret, size_t *ret_n)
{
	if (rc < 0) {
		free(p->list);
		return rc;
	}
	*ret = p->list;
	*ret_n = p->n;
	return 0;
}

/* A decimal number and nothing else; -1 for what is none. */
static int parse_number(const char *text)
{
	uint64_t n = 0;

	if (!*text)
		return -1;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -1;
		n = 10 * n + (uint64_t)(*text - '0');
		if (n > INT32_MAX)
			return -1;
	}
	return (int)n;
}

/* What a file or folder of a process that is not there says. */
static int gone(int code)
{
	return code == ENOENT ? -ESRCH : -code;
}

static int list_numbers(const char *path, struct pids *ret)
{
	DIR *d = opendir(path);
	struct dirent *entry;
	int rc = 0;

	if (!d)
		return gone(errno);
	do {
		errno = 0;
		entry = readdir(d);
		if (!entry)
			rc = gone(errno);
		else if (parse_number(entry->d_name) >= 0)
			rc = pids_add(ret, parse_number(entry->d_name));
	} while (entry && !rc);
	closedir(d);
	return rc;
}

int os_proc_list(pid_t **ret_pids, size_t *ret_n)
{
	struct pids p = {.n = 0};

	return pids_give(&p, list_numbers("/proc", &p), ret_pids, ret_n);
}

int os_proc_tasks(pid_t pid, pid_t **ret_tids, size_t *ret_n)
{
	struct pids p = {.n = 0};
	char path[64];
	int rc;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	rc = list_numbers(path, &p);
	/* The folder of a process that ends while it is read is empty. */
	if (!rc && !p.n)
		rc = -ESRCH;
	return pids_give(&p, rc, ret_tids, ret_n);
}

/* ---- small files ---- */

/* A file that tells all in one read, with a zero at its end. */
static int read_small(const char *path, char *buf, size_t bytes)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return gone(errno);
	do {
		n = read(fd, buf, bytes - 1);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return gone(errno);
	buf[n] = '\0';
	return 0;
}

int os_proc_stat(pid_t pid, pid_t tid, struct os_proc_stat *ret)
{
	struct os_proc_stat stat = {.ppid = 0};
	char path[64], text[1024], *open, *close;
	unsigned int flags;
	int rc;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	rc = read_small(path, text, sizeof(text));
	if (rc < 0)
		return rc;
	/*
	 * "PID (COMM) STATE PPID PGRP SESSION TTY TPGID FLAGS ..."; the name may hold anything,
	 * and is told as it is.
	 */
	open = strchr(text, '(');
	close = strrchr(text, ')');
	if (!open || !close || close < open ||
	    sscanf(close + 1,
		   " %c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %u %*d %" SCNu64,
		   &stat.state, &stat.ppid, &flags, &stat.threads, &stat.start_ticks) != 5)
		return -EIO;
	snprintf(stat.comm, sizeof(stat.comm), "%.*s", (int)(close - open - 1), open + 1);
	stat.kernel_thread = flags & PF_KTHREAD;
	stat.ending = flags & PF_EXITING;
	*ret = stat;
	return 0;
}

int os_proc_now(struct os_proc_moment *ret)
{
	uint64_t ns_a_tick = 1000000000 / (uint64_t)sysconf(_SC_CLK_TCK);
	struct os_proc_moment now;
	char text[128], *last;
	int rc = read_small("/proc/loadavg", text, sizeof(text));

	if (rc < 0)
		return rc;
	last = strrchr(text, ' ');
	if (!last || sscanf(last, "%d", &now.last_pid) != 1)
		return -EIO;
	/* In this order: one that is made in between has a larger number, and is not taken for an older one. */
	now.ticks = clock_read_ns(CLOCK_BOOTTIME) / ns_a_tick;
	*ret = now;
	return 0;
}

static bool has_ended(const struct os_proc_stat *stat)
{
	return stat->state == 'Z' || stat->state == 'X' || stat->state == 'x';
}

int os_proc_living(pid_t pid, pid_t *ret_tid, struct os_proc_stat *ret)
{
	CLEANUP_FREE pid_t *tids = NULL;
	struct os_proc_stat stat;
	size_t n = 0, i;
	int rc = os_proc_stat(pid, pid, &stat);
	pid_t tid = pid;

	if (rc < 0)
		return rc;
	if (has_ended(&stat)) {
		rc = os_proc_tasks(pid, &tids, &n);
		for (i = 0; !rc && i < n; i++) {
			tid = tids[i];
			if (os_proc_stat(pid, tid, &stat) == 0 && !has_ended(&stat))
				break;
		}
		if (!rc && i == n)
			rc = -ESRCH;
	}
	if (rc < 0)
		return rc;
	*ret_tid = tid;
	*ret = stat;
	return 0;
}

int os_proc_tracer(pid_t tid, pid_t *ret_tracer)
{
	char path[64], text[8192], *at;
	int rc, tracer;

	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	rc = read_small(path, text, sizeof(text));
	if (rc < 0)
		return rc;
	/*
	 * The name comes first, and a newline in it is escaped: it cannot pretend to be this
	 * line.
	 */
	at = strstr(text, "\nTracerPid:");
	if (!at || sscanf(at, " TracerPid: %d", &tracer) != 1)
		return -EIO;
	*ret_tracer = tracer;
	return 0;
}

/* ---- children ---- */

static int read_children(pid_t pid, pid_t tid, struct pids *ret)
{
	CLEANUP_FREE char *word = NULL;
	size_t room = 0;
	char path[64];
	int rc = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, tid);
	f = fopen(path, "re");
	if (!f)
		return gone(errno);
	while (!rc && getdelim(&word, &room, ' ', f) > 0) {
		word[strcspn(word, " ")] = '\0';
		if (parse_number(word) > 0)
			rc = pids_add(ret, parse_number(word));
	}
	if (!rc && ferror(f))
		rc = -EIO;
	fclose(f);
	return rc;
}

/*
 * The kernel finds its place in the list by counting, so that one that is missing behind a
 * child that ended between two reads is a matter of luck: what two rounds agree on is believed.
 */
static int read_children_twice(pid_t pid, pid_t tid, struct pids *ret)
{
	struct pids last = {.n = 0}, now = {.n = 0};
	int rc = read_children(pid, tid, &last), rounds;
	bool agree = false;
	size_t i;

	for (rounds = 0; !rc && !agree && rounds < 8; rounds++) {
		now.n = 0;
		rc = read_children(pid, tid, &now);
		agree = now.n == last.n &&
			(!now.n || !memcmp(now.list, last.list, now.n * sizeof(*now.list)));
		if (!agree) {
			struct pids swap = last;

			last = now;
			now = swap;
		}
	}
	for (i = 0; !rc && i < last.n; i++)
		rc = pids_add(ret, last.list[i]);
	free(last.list);
	free(now.list);
	return rc;
}

int os_proc_children_scan(pid_t pid, pid_t **ret_pids, size_t *ret_n)
{
	CLEANUP_FREE pid_t *all = NULL;
	struct pids p = {.n = 0};
	struct os_proc_stat stat;
	size_t n = 0, i;
	int rc = os_proc_list(&all, &n);

	for (i = 0; !rc && i < n; i++) {
		if (os_proc_stat(all[i], all[i], &stat) == 0 && stat.ppid == pid)
			rc = pids_add(&p, all[i]);
	}
	return pids_give(&p, rc, ret_pids, ret_n);
}

int os_proc_children(pid_t pid, pid_t **ret_pids, size_t *ret_n)
{
	CLEANUP_FREE pid_t *tids = NULL;
	struct pids p = {.n = 0};
	size_t n = 0, i;
	int rc = os_proc_tasks(pid, &tids, &n);
	char path[64];

	if (rc < 0)
		return rc;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", getpid(), getpid());
	if (access(path, R_OK) < 0)
		return os_proc_children_scan(pid, ret_pids, ret_n);
	for (i = 0; !rc && i < n; i++) {
		rc = read_children_twice(pid, tids[i], &p);
		/*
		 * A thread that ended left its children to the others; they are found in the
		 * next look.
		 */
		if (rc == -ESRCH)
			rc = 0;
	}
	return pids_give(&p, rc, ret_pids, ret_n);
}

int os_proc_waited_for(pid_t pid, uint64_t *ret_faults, bool *ret_forgets)
{
	char path[64], text[8192], *at;
	uint64_t ignored;
	int rc;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	rc = read_small(path, text, sizeof(text));
	if (rc < 0)
		return rc;
	at = strrchr(text, ')');
	if (!at || sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %" SCNu64, ret_faults) != 1)
		return -EIO;
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	rc = read_small(path, text, sizeof(text));
	if (rc < 0)
		return rc;
	at = strstr(text, "\nSigIgn:");
	if (!at || sscanf(at, " SigIgn: %" SCNx64, &ignored) != 1)
		return -EIO;
	*ret_forgets = ignored >> (SIGCHLD - 1) & 1;
	return 0;
}

/* ---- descriptors ---- */

struct os_proc_fds {
	DIR *dir;
};

int os_proc_fds_open(pid_t pid, struct os_proc_fds **ret)
{
	struct os_proc_fds *f = malloc(sizeof(*f));
	char path[64];
	int rc;

	if (!f)
		return -ENOMEM;
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	f->dir = opendir(path);
	if (!f->dir) {
		rc = gone(errno);
		free(f);
		return rc;
	}
	*ret = f;
	return 0;
}

int os_proc_fds_next(struct os_proc_fds *f, struct os_proc_fd *ret)
{
	struct dirent *entry;
	int rc;

	while (errno = 0, (entry = readdir(f->dir))) {
		int fd = parse_number(entry->d_name);

		if (fd < 0)
			continue;
		rc = os_proc_identify(dirfd(f->dir), entry->d_name, true, &ret->dev, &ret->ino);
		/*
		 * Closed meanwhile, or it has no identity, such as a server that is gone: none
		 * of ours.
		 */
		if (rc < 0 && rc != -EACCES && rc != -EPERM)
			continue;
		ret->fd = fd;
		return rc < 0 ? rc : 1;
	}
	return gone(errno);
}

void os_proc_fds_close(struct os_proc_fds *f)
{
	if (!f)
		return;
	closedir(f->dir);
	free(f);
}

int os_proc_fd_flags(pid_t pid, int fd, int *ret_flags)
{
	char path[64], text[4096], *at;
	unsigned int flags;
	int rc;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", pid, fd);
	rc = read_small(path, text, sizeof(text));
	if (rc < 0)
		return rc == -ESRCH ? -ENOENT : rc;
	at = strstr(text, "flags:");
	if (!at || sscanf(at, "flags: %o", &flags) != 1)
		return -EIO;
	*ret_flags = (int)flags;
	return 0;
}

/* ---- files ---- */

int os_proc_identify(int dir, const char *path, bool follow, dev_t *ret_dev, ino_t *ret_ino)
{
	int flags = AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC | (follow ? 0 : AT_SYMLINK_NOFOLLOW);
	struct statx stx;

	if (statx(dir, path, flags, STATX_INO, &stx) < 0)
		return -errno;
	*ret_dev = makedev(stx.stx_dev_major, stx.stx_dev_minor);
	*ret_ino = stx.stx_ino;
	return 0;
}
