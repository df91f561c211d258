// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The shared memory of processes, found in their maps; see find.h.
 *
 * What a mapping shows is looked at through a descriptor that can do nothing else (O_PATH):
 * opening a device has consequences.  It is had through /proc/PID/map_files, and where that is
 * refused by the path or by a descriptor of the process that has the same numbers.
 */
#include "live/find.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "live/find-priv.h"
#include "os/proc.h"

/* Readings of the maps of a process that maps and unmaps meanwhile. */
#define FIND_TRIES 32

/*
 * The inode of a SysV segment is its identifier, and another file of the kernel's mount may
 * have the same.
 */
struct found_key {
	struct live_file_id id;
	bool sysv;
};

/* The key comes first: a pointer to it is one to the entry, for the tree. */
struct found {
	struct found_key key;
	struct live_memory m;
	struct found *next;
};

struct finder {
	struct found *first, **last;
	size_t count;
	void *by_key;
	struct find_names names;
	dev_t kernel_dev;
};

/* One mapping that is being looked at. */
struct look {
	pid_t pid, tid; /* the thread through which the process is seen */
	const struct os_proc_map *map;
	char *path; /* of the file, as far as the kernel tells */
	int fd;
	char open_path[OS_PROC_PATH_BYTES]; /* "" : the path */
	struct stat st;
	bool sysv, huge;
	bool unseen; /* it could not be opened and need not be: the rest is what the maps say */
};

static int by_key(const void *a, const void *b)
{
	const struct found_key *x = a, *y = b;

	if (x->id.dev != y->id.dev)
		return x->id.dev < y->id.dev ? -1 : 1;
	if (x->id.ino != y->id.ino)
		return x->id.ino < y->id.ino ? -1 : 1;
	return x->sysv - y->sysv;
}

static void memory_free(struct live_memory *m)
{
	free(m->name);
	free(m->origin);
	free(m->open_path);
}

static void keep_node(void *node)
{
}

static void finder_free(struct finder *f)
{
	struct found *next;

	tdestroy(f->by_key, keep_node);
	find_names_free(&f->names);
	for (; f->first; f->first = next) {
		next = f->first->next;
		memory_free(&f->first->m);
		free(f->first);
	}
}

int find_kernel_dev(dev_t *ret, struct err *e)
{
	CLEANUP_CLOSE int fd = memfd_create("torpor", MFD_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, -errno, "cannot make a memory file");
	*ret = st.st_dev;
	return 0;
}

static bool same_file(const struct look *l, dev_t dev, ino_t ino)
{
	return dev == l->map->dev && ino == l->map->ino;
}

/* ---- opening what is mapped ---- */

/* Is it on a mount that is known to be something else than memory? */
static bool on_other_mount(const struct look *l)
{
	static const char *const memory[] = {"tmpfs", "devtmpfs", "ramfs", "hugetlbfs"};
	char type[32];
	size_t i;

	if (os_proc_mount_type(l->tid, l->map->dev, type, sizeof(type)) < 0)
		return false;
	for (i = 0; i < ARRAY_LEN(memory); i++) {
		if (!strcmp(type, memory[i]))
			return false;
	}
	return true;
}

/* No way to open it: what is no memory, or is only listed, need not be opened. */
static int no_way(struct look *l, int code, struct err *e)
{
	struct os_proc_stat stat = {.comm = "?"};

	if (code == -ENOENT)
		return -EAGAIN;
	l->huge = !strcmp(l->path, "/anon_hugepage (deleted)");
	if (l->sysv || l->huge) {
		l->unseen = true;
		l->st = (struct stat){
			.st_dev = l->map->dev,
			.st_ino = l->map->ino,
			.st_size = (off_t)(l->map->offset + l->map->end - l->map->start),
		};
		return 1;
	}
	if (on_other_mount(l))
		return 0;
	os_proc_stat(l->pid, l->tid, &stat);
	return err_sys(e, code,
		       "cannot open \"%s\" (inode %" PRIu64
		       ") of process %d (%s): it has no path to "
		       "be found by, and /proc/%d/map_files needs CAP_CHECKPOINT_RESTORE",
		       l->path, (uint64_t)l->map->ino, l->pid, stat.comm, l->pid);
}

/* A descriptor of the process itself that is the same file. */
static int open_from_fds(struct look *l)
{
	struct os_proc_fds *fds;
	struct os_proc_fd fd;
	int rc = os_proc_fds_open(l->tid, &fds);

	if (rc < 0)
		return rc;
	do {
		rc = os_proc_fds_next(fds, &fd);
	} while (rc > 0 && !same_file(l, fd.dev, fd.ino));
	os_proc_fds_close(fds);
	if (rc <= 0)
		return rc;
	snprintf(l->open_path, sizeof(l->open_path), "/proc/%d/fd/%d", l->tid, fd.fd);
	l->fd = open(l->open_path, O_PATH | O_CLOEXEC);
	return l->fd >= 0;
}

/* By its path, or the one that it had and has again. */
static int open_from_path(struct look *l)
{
	CLEANUP_FREE char *path = strdup(l->path);
	dev_t dev;
	ino_t ino;

	if (!path || path[0] != '/')
		return 0;
	while (os_proc_identify(AT_FDCWD, path, false, &dev, &ino) < 0 ||
	       !same_file(l, dev, ino)) {
		if (!find_name_cut_deleted(path))
			return 0;
	}
	l->open_path[0] = '\0';
	l->fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return l->fd >= 0;
}

/* 1: it is open.  0: it is no memory.  -EAGAIN: the mapping is not there any more. */
static int open_mapped(struct look *l, struct err *e)
{
	int code;

	os_proc_map_link(l->tid, l->map->start, l->map->end, l->open_path);
	l->fd = open(l->open_path, O_PATH | O_CLOEXEC);
	if (l->fd >= 0)
		return 1;
	code = -errno;
	if (code != -EPERM && code != -EACCES && code != -ENOENT)
		return err_sys(e, code, "cannot open %s", l->open_path);
	if (!l->sysv && (open_from_path(l) > 0 || open_from_fds(l) > 0))
		return 1;
	return no_way(l, code, e);
}

/* 1: it is memory. */
static int examine(struct look *l, struct err *e)
{
	struct statfs fs;

	if (l->unseen)
		return 1;
	if (fstat(l->fd, &l->st) < 0 || fstatfs(l->fd, &fs) < 0)
		return err_sys(e, -errno, "cannot look at \"%s\" of process %d", l->path,
			       l->pid);
	l->huge = fs.f_type == HUGETLBFS_MAGIC;
	return S_ISREG(l->st.st_mode) &&
	       (l->huge || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

/* ---- what it is ---- */

/* Is it found by that path, as seen from here? */
static bool leads_to(const struct look *l, const char *path)
{
	dev_t dev;
	ino_t ino;

	return path[0] == '/' && os_proc_identify(AT_FDCWD, path, false, &dev, &ino) == 0 &&
	       dev == l->st.st_dev && ino == l->st.st_ino;
}

/*
 * The kind.  Where there is a path it is in l->path afterwards, *ret_named, else the text
 * without " (deleted)".  A file may be called so, and one that was deleted may have come back
 * by another link.
 */
static enum live_memory_kind classify(const struct finder *f, struct look *l, bool *ret_named)
{
	bool kernels = l->st.st_dev == f->kernel_dev, deleted;

	*ret_named = false;
	if (l->sysv)
		return LIVE_MEMORY_SYSV;
	*ret_named = !kernels && leads_to(l, l->path);
	if (*ret_named)
		return l->huge ? LIVE_MEMORY_HUGETLB : LIVE_MEMORY_FILE;
	deleted = find_name_cut_deleted(l->path);
	*ret_named = !kernels && deleted && leads_to(l, l->path);
	if (l->huge)
		return LIVE_MEMORY_HUGETLB;
	if (kernels)
		return LIVE_MEMORY_MEMFD;
	return *ret_named ? LIVE_MEMORY_FILE : LIVE_MEMORY_DELETED;
}

static int name_memory(struct finder *f, const struct look *l, bool named,
		       struct live_memory *m)
{
	CLEANUP_FREE char *wish = NULL;
	int rc = 0;

	if (m->kind == LIVE_MEMORY_SYSV)
		rc = asprintf(&wish, "sysv-%" PRIu64, (uint64_t)m->id.ino) < 0 ? -ENOMEM : 0;
	else
		rc = find_name_wish(l->path,
				    !named && (l->huge || m->kind == LIVE_MEMORY_MEMFD), &wish);
	if (!rc)
		rc = find_name_take(&f->names, wish, &m->name);
	if (rc < 0)
		return rc;
	/* It was opened by a path that is gone meanwhile. */
	if (!named && !l->open_path[0])
		return -EAGAIN;
	m->origin = strdup(named ? l->path : "");
	m->open_path = strdup(named ? l->path : l->open_path);
	return m->origin && m->open_path ? 0 : -ENOMEM;
}

static int add_memory(struct finder *f, struct look *l)
{
	struct found *new = calloc(1, sizeof(*new));
	struct live_memory *m;
	bool named;
	int rc;

	if (!new)
		return -ENOMEM;
	m = &new->m;
	*m = (struct live_memory){
		.kind = classify(f, l, &named),
		.id = {l->st.st_dev, l->st.st_ino},
		.pid = l->pid,
		.bytes = (uint64_t)l->st.st_size,
		.data_bytes = (uint64_t)l->st.st_blocks * 512,
	};
	m->carried = !live_memory_reason(m->kind)[0];
	new->key = (struct found_key){m->id, l->sysv};
	rc = name_memory(f, l, named, m);
	if (!rc && !tsearch(new, &f->by_key, by_key))
		rc = -ENOMEM;
	if (rc < 0) {
		memory_free(m);
		free(new);
		return rc;
	}
	*f->last = new;
	f->last = &new->next;
	f->count++;
	return 0;
}

/* ---- going through the maps ---- */

/*
 * The text of maps cannot be told from its escapes; that of the link can, but does not show a
 * name given by prctl(2).
 */
static int take_path(struct look *l)
{
	int rc = -ENOENT;

	if (l->map->name[0] != '[')
		rc = os_proc_map_path(l->tid, l->map->start, l->map->end, &l->path);
	if (rc < 0) {
		l->path = strdup(l->map->name);
		rc = l->path ? 0 : -ENOMEM;
	}
	return rc;
}

static int look_at(struct finder *f, pid_t pid, pid_t tid, const struct os_proc_map *map,
		   struct err *e)
{
	struct look l = {.pid = pid, .tid = tid, .map = map, .fd = -1};
	int rc = take_path(&l);

	l.sysv = find_is_sysv(map, f->kernel_dev);
	if (!rc)
		rc = open_mapped(&l, e);
	if (rc > 0)
		rc = examine(&l, e);
	if (rc > 0) {
		struct found_key key = {{l.st.st_dev, l.st.st_ino}, l.sysv};

		rc = tfind(&key, &f->by_key, by_key) ? 0 : add_memory(f, &l);
	}
	if (rc == -ENOMEM)
		err_sys(e, rc, "cannot hold a list of memory");
	if (l.fd >= 0)
		close(l.fd);
	free(l.path);
	return rc;
}

/*
 * Every shared mapping has a file, if only of the kernel's.  File systems of memory have no
 * block device, and so no major number.
 */
static bool is_new(const struct finder *f, const struct os_proc_map *map)
{
	struct found_key key = {{map->dev, map->ino}, false};

	if (!map->shared || major(map->dev))
		return false;
	key.sysv = find_is_sysv(map, f->kernel_dev);
	return !tfind(&key, &f->by_key, by_key);
}

/* One reading of all mappings. */
static int find_mapped(struct finder *f, pid_t pid, pid_t tid, struct err *e)
{
	struct os_proc_maps *maps;
	struct os_proc_map map;
	int rc = os_proc_maps_open(tid, &maps), next;

	if (rc < 0)
		return err_sys(e, rc, "cannot read the maps of process %d", pid);
	while (!rc && (next = os_proc_maps_next(maps, &map)) != 0) {
		if (next < 0)
			rc = err_sys(e, next, "cannot read the maps of process %d", pid);
		else if (is_new(f, &map))
			rc = look_at(f, pid, tid, &map, e);
	}
	os_proc_maps_close(maps);
	return rc;
}

/* A thread of the process that lives: the first one may have ended before the others. */
static int living_thread(pid_t pid, pid_t *ret, struct err *e)
{
	struct os_proc_stat stat;
	int rc = os_proc_living(pid, ret, &stat);

	if (rc == -ESRCH)
		return err_set(e, rc, "process %d has ended", pid);
	if (rc < 0)
		return err_sys(e, rc, "cannot look at process %d", pid);
	if (stat.kernel_thread)
		return err_set(e, -EINVAL,
			       "process %d (%s) is a kernel thread: it has no memory", pid,
			       stat.comm);
	return 0;
}

static int find_in_process(struct finder *f, pid_t pid, struct err *e)
{
	int tries = 0, rc;
	pid_t tid, after;

	do {
		rc = living_thread(pid, &tid, e);
		if (!rc)
			rc = find_mapped(f, pid, tid, e);
	} while (rc == -EAGAIN && ++tries < FIND_TRIES);
	if (rc == -EAGAIN)
		return err_set(e, rc, "the mappings of process %d change all the time", pid);
	/* The maps of one that ended while they were read just end. */
	if (!rc)
		rc = living_thread(pid, &after, e);
	return !rc && after != tid ? find_mapped(f, pid, after, e) : rc;
}

int live_find(const pid_t *pids, size_t n, struct live_memories *ret, struct err *e)
{
	struct live_memory *list;
	struct found *at;
	struct finder f = {.count = 0};
	size_t i;
	int rc = find_kernel_dev(&f.kernel_dev, e);

	f.last = &f.first;
	for (i = 0; !rc && i < n; i++)
		rc = find_in_process(&f, pids[i], e);
	list = !rc ? calloc(f.count + 1, sizeof(*list)) : NULL;
	if (!rc && !list)
		rc = err_sys(e, -ENOMEM, "cannot hold a list of memory");
	for (at = f.first, i = 0; !rc && at; at = at->next) {
		list[i++] = at->m;
		at->m = (struct live_memory){.pid = 0};
	}
	if (!rc)
		*ret = (struct live_memories){list, f.count};
	finder_free(&f);
	return rc;
}

void live_memories_free(struct live_memories *m)
{
	size_t i;

	for (i = 0; i < m->count; i++)
		memory_free(&m->list[i]);
	free(m->list);
	*m = (struct live_memories){.count = 0};
}

const char *live_memory_reason(enum live_memory_kind kind)
{
	if (kind == LIVE_MEMORY_SYSV)
		return "System V segments are not carried yet";
	if (kind == LIVE_MEMORY_HUGETLB)
		return "memory on hugetlbfs is not carried yet";
	return "";
}
