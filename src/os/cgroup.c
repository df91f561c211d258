// SPDX-License-Identifier: LGPL-2.1-or-later
/* Control groups of version 2; see cgroup.h. */
#include "os/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/still.h"

/* Deeper trees are somebody's mistake or malice: each level holds a descriptor while it is
 * walked. */
#define DEPTH_MAX 128

/* Space, tab, newline and backslash stand in mountinfo as a backslash and three octal digits.
 */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* "36 35 98:0 ROOT POINT OPTIONS FIELD... - TYPE SOURCE OPTIONS" (proc(5)); is it cgroup2? */
static bool parse_mount(char *line, char **ret_root, char **ret_point)
{
	char *type = strstr(line, " - "), *fields[5];
	size_t i;

	if (!type || strncmp(type + 3, "cgroup2 ", 8) != 0)
		return false;
	*type = '\0';
	for (i = 0; i < 5; i++) {
		fields[i] = strsep(&line, " ");
		if (!fields[i])
			return false;
	}
	*ret_root = fields[3];
	*ret_point = fields[4];
	unescape(*ret_point);
	return true;
}

int os_cgroup_mount(const char *mountinfo, char *ret, size_t bytes)
{
	CLEANUP_FREE char *copy = strdup(mountinfo);
	char *line, *next = copy, *root, *point, *best = NULL;
	bool whole = false;

	if (!copy)
		return -ENOMEM;
	/* A part of the tree may be mounted elsewhere too; names are below the whole. */
	while (!whole && (line = strsep(&next, "\n"))) {
		if (!parse_mount(line, &root, &point))
			continue;
		whole = strcmp(root, "/") == 0;
		if (whole || !best)
			best = point;
	}
	if (!best)
		return -ENODEV;
	return (size_t)snprintf(ret, bytes, "%s", best) < bytes ? 0 : -ENAMETOOLONG;
}

static bool is_cgroup2(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

static int open_mount(void)
{
	CLEANUP_FREE char *text = NULL;
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char point[PATH_MAX];
	size_t room = 0;
	int fd, rc;

	if (!f)
		return -errno;
	/* To the end: there is no NUL in it. */
	rc = getdelim(&text, &room, '\0', f) < 0 ? -EIO : 0;
	fclose(f);
	if (!rc)
		rc = os_cgroup_mount(text, point, sizeof(point));
	if (rc < 0)
		return rc;
	fd = open(point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* Something else may be mounted over it. */
	if (!is_cgroup2(fd)) {
		close(fd);
		return -ENODEV;
	}
	return fd;
}

int os_cgroup_open_root(void)
{
	CLEANUP_CLOSE int mount = open_mount();
	int fd;

	if (mount < 0)
		return mount;
	/* In a container what is mounted may be a group as any other, and the very one that is
	 * to be frozen. */
	if (faccessat(mount, "cgroup.events", F_OK, 0) == 0)
		return -EPERM;
	fd = openat(mount, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* The folder of the group. */
static int open_folder(const char *name, struct err *e)
{
	const char *below = name + strspn(name, "/");
	CLEANUP_CLOSE int mount = -1;
	int fd;

	if (name[0] == '/') {
		fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0)
			return fd;
		if (errno != ENOENT)
			return err_sys(e, -errno, "cannot open control group %s", name);
	}
	mount = open_mount();
	if (mount == -ENODEV)
		return err_set(e, -ENODEV, "no control groups of version 2 are mounted");
	if (mount < 0)
		return err_sys(e, mount, "cannot find where control groups are mounted");
	fd = openat(mount, *below ? below : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return err_set(e, -ENOENT, "there is no control group %s", name);
	return fd < 0 ? err_sys(e, -errno, "cannot open control group %s", name) : fd;
}

/* A small file of the kernel's, from its beginning; the text ends with a NUL.  Bytes or a
 * negative errno. */
static ssize_t read_text(int fd, char *buf, size_t bytes)
{
	ssize_t n;

	do {
		n = pread(fd, buf, bytes - 1, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return n;
}

/* A threaded group has threads of a process, others of which may lie elsewhere: there is no
 * list of processes. */
static bool is_threaded(int dir_fd)
{
	CLEANUP_CLOSE int fd = openat(dir_fd, "cgroup.type", O_RDONLY | O_CLOEXEC);
	char text[64];

	return fd >= 0 && read_text(fd, text, sizeof(text)) > 0 &&
	       strcmp(text, "threaded\n") == 0;
}

static int open_files(const char *name, struct os_cgroup *g, struct err *e)
{
	if (!is_cgroup2(g->dir_fd))
		return err_set(e, -EINVAL, "%s is no folder of a cgroup2 file system", name);
	if (faccessat(g->dir_fd, "cgroup.events", F_OK, 0) < 0)
		return err_set(e, -EINVAL,
			       "%s is the root of all control groups, which has no freezer",
			       name);
	if (is_threaded(g->dir_fd))
		return err_set(
			e, -EINVAL,
			"control group %s is threaded; name the group of whole processes above",
			name);
	g->freeze_fd = openat(g->dir_fd, "cgroup.freeze", O_RDWR | O_CLOEXEC);
	if (g->freeze_fd < 0)
		return err_sys(e, -errno, "cannot open cgroup.freeze of control group %s",
			       name);
	return 0;
}

int os_cgroup_open(const char *name, struct os_cgroup *ret, struct err *e)
{
	struct os_cgroup g = {-1, -1};
	int rc;

	if (!*name)
		return err_set(e, -EINVAL, "a control group's name is empty");
	g.dir_fd = open_folder(name, e);
	if (g.dir_fd < 0)
		return g.dir_fd;
	rc = open_files(name, &g, e);
	if (rc < 0)
		os_cgroup_close(&g);
	else
		*ret = g;
	return rc;
}

void os_cgroup_close(struct os_cgroup *g)
{
	if (g->dir_fd >= 0)
		close(g->dir_fd);
	if (g->freeze_fd >= 0)
		close(g->freeze_fd);
	g->dir_fd = g->freeze_fd = -1;
}

int os_cgroup_freezes(const struct os_cgroup *g)
{
	char text[16];
	ssize_t n = read_text(g->freeze_fd, text, sizeof(text));

	return n < 0 ? (int)n : text[0] == '1';
}

int os_cgroup_set_freeze(int freeze_fd, bool frozen)
{
	ssize_t n;

	do {
		n = pwrite(freeze_fd, frozen ? "1" : "0", 1, 0);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static bool is_gone(int rc)
{
	return rc == -ENOENT || rc == -ENODEV;
}

/*
 * Calls `visit` for a group and all below, parents first, until one does not return 0.  A group
 * below that is removed meanwhile had no processes; that the top one was is -ENODEV.
 */
static int walk(int dir_fd, unsigned int depth, int (*visit)(int dir_fd, void *arg), void *arg)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		rc = is_gone(-errno) ? -ENODEV : -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	rc = depth < DEPTH_MAX ? visit(dir_fd, arg) : -ELOOP;
	while (!rc && (entry = readdir(dir))) {
		CLEANUP_CLOSE int below = -1;

		if (entry->d_type != DT_DIR || !strcmp(entry->d_name, ".") ||
		    !strcmp(entry->d_name, ".."))
			continue;
		below = openat(dir_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = below < 0 ? -errno : walk(below, depth + 1, visit, arg);
		if (is_gone(rc))
			rc = 0;
	}
	closedir(dir);
	return is_gone(rc) ? -ENODEV : rc;
}

/* Calls `each` for every number in a file of the group's, until one does not return 0. */
static int each_number(int dir_fd, const char *file, int (*each)(pid_t id, void *arg),
		       void *arg)
{
	int fd = openat(dir_fd, file, O_RDONLY | O_CLOEXEC), rc = 0, id;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

	if (!f) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	errno = 0;
	while (!rc && fscanf(f, "%d", &id) == 1) {
		/* 0 is one of another PID namespace. */
		rc = id > 0 ? each(id, arg) : 0;
	}
	if (!rc && ferror(f))
		rc = errno ? -errno : -EIO;
	fclose(f);
	return rc;
}

static int moves(pid_t tid, void *arg)
{
	(void)arg;
	return !os_still(tid);
}

/*
 * The kernel's "frozen" is right for a group without groups below.  Of others it speaks as soon
 * as the groups below are frozen, or its own processes are, whichever is later seen (Linux 5.2
 * to 6.18): there we look at each thread.  Mostly there is none, since groups that limit
 * anything for groups below have no processes.
 */
static bool is_leaf(int dir_fd)
{
	struct stat st;

	return fstat(dir_fd, &st) == 0 && st.st_nlink <= 2;
}

/* 1 when it is not frozen; `arg` is then its cgroup.events, open, and read up to what was seen.
 */
static int find_unfrozen(int dir_fd, void *arg)
{
	int fd = openat(dir_fd, "cgroup.events", O_RDONLY | O_CLOEXEC), rc;
	char text[256];
	ssize_t n = fd < 0 ? -errno : read_text(fd, text, sizeof(text));

	if (n < 0)
		rc = (int)n;
	else if (is_leaf(dir_fd))
		rc = !strstr(text, "frozen 1");
	else
		rc = each_number(dir_fd, "cgroup.threads", moves, NULL);
	if (rc > 0)
		*(int *)arg = fd;
	else if (fd >= 0)
		close(fd);
	return rc;
}

int os_cgroup_wait_frozen(const struct os_cgroup *g, int timeout_ms)
{
	CLEANUP_CLOSE int events = -1;
	struct pollfd change = {.events = POLLPRI};
	int rc = walk(g->dir_fd, 0, find_unfrozen, &events);

	if (rc <= 0)
		return rc < 0 ? rc : 1;
	change.fd = events;
	poll(&change, 1, timeout_ms);
	return 0;
}

struct pid_list {
	pid_t *pids;
	size_t n, room;
};

static int add_pid(pid_t pid, void *arg)
{
	struct pid_list *list = arg;

	if (list->n == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		pid_t *more = reallocarray(list->pids, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		list->pids = more;
		list->room = room;
	}
	list->pids[list->n++] = pid;
	return 0;
}

/* The processes of one group.  A threaded group has none, its threads' processes stand in the
 * group above. */
static int add_pids(int dir_fd, void *arg)
{
	int rc = each_number(dir_fd, "cgroup.procs", add_pid, arg);

	return rc == -EOPNOTSUPP ? 0 : rc;
}

static int by_number(const void *a, const void *b)
{
	const pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

int os_cgroup_pids(const struct os_cgroup *g, pid_t **ret, size_t *ret_n)
{
	struct pid_list list = {NULL, 0, 0};
	size_t i, n = 0;
	int rc = walk(g->dir_fd, 0, add_pids, &list);

	if (rc < 0) {
		free(list.pids);
		return rc;
	}
	/* One that was moved while we looked was seen twice. */
	if (list.n)
		qsort(list.pids, list.n, sizeof(*list.pids), by_number);
	for (i = 0; i < list.n; i++) {
		if (!i || list.pids[i] != list.pids[i - 1])
			list.pids[n++] = list.pids[i];
	}
	*ret = list.pids;
	*ret_n = n;
	return 0;
}

static void folder_path(int fd, char *ret, size_t bytes)
{
	char link[64], path[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	snprintf(ret, bytes, "%.*s", n < 0 ? 1 : (int)n, n < 0 ? "?" : path);
}

int os_cgroup_frozen_above(const struct os_cgroup *g, char *ret_path, size_t bytes)
{
	CLEANUP_CLOSE int dir = openat(g->dir_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* The mount's own folder is the last; what it lies in is another file system. */
	while (dir >= 0 && is_cgroup2(dir)) {
		CLEANUP_CLOSE int freeze = openat(dir, "cgroup.freeze", O_RDONLY | O_CLOEXEC);
		const struct os_cgroup above = {dir, freeze};
		int up, rc = freeze < 0 ? -errno : os_cgroup_freezes(&above);

		if (is_gone(rc))
			return 0;
		if (rc > 0)
			folder_path(dir, ret_path, bytes);
		if (rc)
			return rc;
		up = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(dir);
		dir = up;
	}
	return dir < 0 ? -errno : 0;
}
