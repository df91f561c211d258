// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Who else could write a file: everybody's maps and descriptors are gone through; see find.h.
 *
 * There may be thousands of processes that have nothing to do with it, so what is done for each
 * is one reading of its maps and one statx(2) for each of its descriptors; no file is opened.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "live/find.h"
#include "live/find-priv.h"

struct target {
	struct live_file_id id;
	size_t file; /* index into what was asked for */
	size_t seen; /* the last process, counted from 1, that was found to write it */
};

struct scan {
	struct target *targets; /* sorted, each file once */
	size_t n_targets;
	pid_t *except; /* sorted */
	size_t n_except;
	dev_t kernel_dev;
	struct live_writers found;
	size_t room, hidden;
	size_t process; /* the one being looked at, counted from 1 */
	struct os_proc_stat stat; /* its, from before: it may end while it is looked at */
};

static int by_id(const void *a, const void *b)
{
	const struct live_file_id *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static int by_id_and_file(const void *a, const void *b)
{
	const struct target *x = a, *y = b;
	int order = by_id(&x->id, &y->id);

	return order ? order : x->file < y->file ? -1 : x->file > y->file;
}

static int by_pid(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return x < y ? -1 : x > y;
}

static int scan_new(struct scan *s, const struct live_file_id *files, size_t n_files,
		    const pid_t *except, size_t n_except, struct err *e)
{
	size_t i, n = 0;

	s->targets = calloc(n_files + 1, sizeof(*s->targets));
	s->except = calloc(n_except + 1, sizeof(*s->except));
	if (!s->targets || !s->except)
		return err_sys(e, -ENOMEM, "cannot look for writers");
	for (i = 0; i < n_files; i++)
		s->targets[i] = (struct target){.id = files[i], .file = i};
	qsort(s->targets, n_files, sizeof(*s->targets), by_id_and_file);
	for (i = 0; i < n_files; i++) {
		if (!n || by_id(&s->targets[n - 1].id, &s->targets[i].id))
			s->targets[n++] = s->targets[i];
	}
	s->n_targets = n;
	for (i = 0; i < n_except; i++)
		s->except[i] = except[i];
	s->except[n_except] = getpid();
	s->n_except = n_except + 1;
	qsort(s->except, s->n_except, sizeof(*s->except), by_pid);
	return find_kernel_dev(&s->kernel_dev, e);
}

static void scan_free(struct scan *s)
{
	free(s->targets);
	free(s->except);
	live_writers_free(&s->found);
}

/* NULL: none of ours, or known of this process already. */
static struct target *wanted(const struct scan *s, dev_t dev, ino_t ino)
{
	struct live_file_id id = {dev, ino};
	struct target *t = bsearch(&id, s->targets, s->n_targets, sizeof(*t), by_id);

	return t && t->seen != s->process ? t : NULL;
}

static int add_writer(struct scan *s, struct target *t, pid_t pid, bool maps)
{
	struct live_writer w = {.pid = pid, .maps = maps, .file = t->file};
	size_t room = s->room ? 2 * s->room : 16;
	struct live_writer *more;

	if (s->found.count == s->room) {
		more = reallocarray(s->found.list, room, sizeof(*more));
		if (!more)
			return -ENOMEM;
		s->found.list = more;
		s->room = room;
	}
	snprintf(w.comm, sizeof(w.comm), "%.15s", s->stat.comm);
	w.origin = (struct live_origin){pid, s->stat.ppid, s->stat.start_ticks};
	t->seen = s->process;
	s->found.list[s->found.count++] = w;
	return 0;
}

/* A writable shared mapping of one of the files? */
static struct target *mapped(const struct scan *s, pid_t tid, const struct os_proc_map *map)
{
	char link[OS_PROC_PATH_BYTES];
	struct target *t;
	dev_t dev;
	ino_t ino;

	if (!map->shared || !map->write || find_is_sysv(map, s->kernel_dev))
		return NULL;
	t = wanted(s, map->dev, map->ino);
	if (t || map->dev == s->kernel_dev)
		return t;
	/*
	 * On btrfs and overlayfs the numbers in maps are others; such mappings are few, so all
	 * are asked.
	 */
	os_proc_map_link(tid, map->start, map->end, link);
	if (os_proc_identify(AT_FDCWD, link, true, &dev, &ino) < 0)
		return NULL;
	return wanted(s, dev, ino);
}

/* How many mappings there are: none is a kernel thread, or a thread that has ended. */
static int scan_maps(struct scan *s, pid_t pid, pid_t tid, size_t *ret_maps)
{
	struct os_proc_maps *maps;
	struct os_proc_map map;
	size_t n = 0;
	int rc = os_proc_maps_open(tid, &maps);

	if (rc < 0)
		return rc;
	while ((rc = os_proc_maps_next(maps, &map)) > 0) {
		struct target *t = mapped(s, tid, &map);

		n++;
		rc = t ? add_writer(s, t, pid, true) : 0;
		if (rc < 0)
			break;
	}
	os_proc_maps_close(maps);
	*ret_maps = n;
	return rc;
}

static bool is_for_writing(int flags)
{
	int mode = flags & O_ACCMODE;

	return !(flags & O_PATH) && (mode == O_WRONLY || mode == O_RDWR);
}

static int scan_fds(struct scan *s, pid_t pid, pid_t tid)
{
	struct os_proc_fds *fds;
	struct os_proc_fd fd;
	int rc = os_proc_fds_open(tid, &fds), flags;

	if (rc < 0)
		return rc;
	while ((rc = os_proc_fds_next(fds, &fd)) > 0) {
		struct target *t = wanted(s, fd.dev, fd.ino);

		rc = t ? os_proc_fd_flags(tid, fd.fd, &flags) : -ENOENT;
		if (rc == -ENOENT)
			continue;
		if (!rc && is_for_writing(flags))
			rc = add_writer(s, t, pid, false);
		if (rc < 0)
			break;
	}
	os_proc_fds_close(fds);
	return rc;
}

static int scan_thread(struct scan *s, pid_t pid, pid_t tid, size_t *ret_maps)
{
	int rc = scan_maps(s, pid, tid, ret_maps);

	return rc < 0 ? rc : scan_fds(s, pid, tid);
}

/* A kernel thread may not be looked at, and has nothing to hide. */
static bool has_no_memory(pid_t pid, pid_t *ret_tid)
{
	struct os_proc_stat stat;

	return os_proc_living(pid, ret_tid, &stat) < 0 || stat.kernel_thread;
}

static bool is_hidden(int rc)
{
	return rc == -EACCES || rc == -EPERM;
}

static int scan_process(struct scan *s, pid_t pid)
{
	size_t maps = 0;
	pid_t tid = pid;
	int rc;

	s->process++;
	if (os_proc_stat(pid, pid, &s->stat) < 0 || s->stat.kernel_thread)
		return 0;
	rc = scan_thread(s, pid, pid, &maps);
	if (!rc && maps)
		return 0;
	/*
	 * The first thread may have ended before the others: kernels differ in what they say
	 * then.
	 */
	if ((!rc || is_hidden(rc) || rc == -ESRCH) && has_no_memory(pid, &tid))
		return 0;
	if (tid != pid)
		rc = scan_thread(s, pid, tid, &maps);
	s->hidden += is_hidden(rc);
	return is_hidden(rc) || rc == -ESRCH ? 0 : rc;
}

int live_find_writers(const struct live_file_id *files, size_t n_files, const pid_t *except,
		      size_t n_except, struct live_writers *ret, size_t *ret_hidden,
		      struct err *e)
{
	CLEANUP_FREE pid_t *pids = NULL;
	struct scan s = {.hidden = 0};
	size_t n = 0, i;
	int rc = scan_new(&s, files, n_files, except, n_except, e);

	if (!rc) {
		rc = os_proc_list(&pids, &n);
		if (rc < 0)
			err_sys(e, rc, "cannot list the processes");
	}
	for (i = 0; !rc && i < n; i++) {
		if (bsearch(&pids[i], s.except, s.n_except, sizeof(*s.except), by_pid))
			continue;
		rc = scan_process(&s, pids[i]);
		if (rc < 0)
			err_sys(e, rc, "cannot look for writers in process %d", pids[i]);
	}
	if (!rc) {
		*ret = s.found;
		*ret_hidden = s.hidden;
		s.found = (struct live_writers){.count = 0};
	}
	scan_free(&s);
	return rc;
}

void live_writers_free(struct live_writers *w)
{
	free(w->list);
	*w = (struct live_writers){.count = 0};
}
