/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Processes that make memory and hold it until they are ended, a folder on tmpfs and one that
 * is not, for each test of what is found in /proc.
 */
#ifndef TORPOR_TESTS_FIND_RIG_H
#define TORPOR_TESTS_FIND_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "live/find.h"
#include "os/proc.h"

#include <cmocka.h>

#define RIG_PROCESSES 32
#define RIG_BYTES ((size_t)65536)

struct rig {
	char dir[64];  /* on tmpfs */
	char disk[64]; /* not; "" when there is no such place */
	pid_t pids[RIG_PROCESSES];
	size_t n_pids;
	int fds;  /* open at the beginning */
	int told; /* by the process that was started last */
};

/* What a process that makes memory tells. */
struct rig_word {
	bool made;
	int told;
};

static struct rig_word rig_word;

static inline int rig_entries(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static inline int rig_set_up(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct statfs fs;

	snprintf(rig->dir, sizeof(rig->dir), "/dev/shm/torpor-find-XXXXXX");
	snprintf(rig->disk, sizeof(rig->disk), "/var/tmp/torpor-find-XXXXXX");
	*state = rig;
	rig->fds = rig_entries("/proc/self/fd");
	if (!mkdtemp(rig->dir) || !mkdtemp(rig->disk) || statfs(rig->disk, &fs) < 0)
		return -1;
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC) {
		rmdir(rig->disk);
		rig->disk[0] = '\0';
	}
	return chmod(rig->dir, 0777);
}

static inline void rig_end(struct rig *rig, pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (size_t i = 0; i < rig->n_pids; i++) {
		if (rig->pids[i] == pid)
			rig->pids[i] = rig->pids[--rig->n_pids];
	}
}

/* No process and no descriptor stays behind after any test. */
static inline int rig_tear_down(void **state)
{
	struct rig *rig = *state;
	char command[256];
	int leaked;

	while (rig->n_pids)
		rig_end(rig, rig->pids[0]);
	leaked = rig_entries("/proc/self/fd") - rig->fds;
	snprintf(command, sizeof(command), "rm -rf %s %s.shm %s", rig->dir, rig->dir,
		 rig->disk);
	free(rig);
	return system(command) || leaked;
}

/*
 * A process that has run `make`, which returns whether it could, and then waits to be ended; it
 * ends with this one.  0: it could not.
 */
static inline pid_t rig_start(struct rig *rig, bool (*make)(const void *), const void *arg)
{
	pid_t parent = getpid(), pid;
	int ready[2];

	assert_true(rig->n_pids < RIG_PROCESSES);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
			_exit(1);
		rig_word.made = make(arg);
		if (write(ready[1], &rig_word, sizeof(rig_word)) != sizeof(rig_word))
			_exit(1);
		for (;;)
			pause();
	}
	rig->pids[rig->n_pids++] = pid;
	close(ready[1]);
	if (read(ready[0], &rig_word, sizeof(rig_word)) != sizeof(rig_word))
		rig_word.made = false;
	close(ready[0]);
	rig->told = rig_word.told;
	if (!rig_word.made)
		rig_end(rig, pid);
	return rig_word.made ? pid : 0;
}

static inline char *rig_path(const char *dir, const char *name, char buf[PATH_MAX])
{
	if (snprintf(buf, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
		abort();
	return buf;
}

/* A new file with its first page written. */
static inline int rig_make(const char *dir, const char *name)
{
	char path[PATH_MAX];
	int fd = open(rig_path(dir, name, path), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd >= 0 && (ftruncate(fd, RIG_BYTES) < 0 || pwrite(fd, name, 1, 0) != 1)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Maps a descriptor, and closes it. */
static inline bool rig_map(int fd, int prot, int flags)
{
	void *at = mmap(NULL, RIG_BYTES, prot, flags, fd, 0);

	if (fd >= 0)
		close(fd);
	return at != MAP_FAILED;
}

static inline bool rig_map_shared(int fd)
{
	return fd >= 0 && rig_map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
}

static inline int rig_memfd(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	if (fd >= 0 && (ftruncate(fd, RIG_BYTES) < 0 || pwrite(fd, "m", 1, 0) != 1)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* A process that has none. */
static inline bool nothing(const void *arg)
{
	return true;
}

/* A file that is mapped, and has lost its name. */
static inline bool make_gone(const struct rig *rig, const char *name)
{
	char path[PATH_MAX];

	return rig_map_shared(rig_make(rig->dir, name)) &&
	       unlink(rig_path(rig->dir, name, path)) == 0;
}

/* ---- what is found ---- */

/* Can memory without a path be opened, as most of it here? */
static inline bool privileged(void)
{
	char link[OS_PROC_PATH_BYTES];
	void *at = mmap(NULL, RIG_BYTES, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd;

	os_proc_map_link(getpid(), (uintptr_t)at, (uintptr_t)at + RIG_BYTES, link);
	fd = open(link, O_PATH | O_CLOEXEC);
	munmap(at, RIG_BYTES);
	return fd >= 0 && close(fd) == 0;
}

static inline struct live_memories find(const pid_t *pids, size_t n)
{
	struct live_memories m;
	struct err e = {.text = ""};
	int rc = live_find(pids, n, &m, &e);

	if (rc == -EPERM && !privileged())
		skip();
	if (rc < 0)
		print_error("%s\n", e.text);
	assert_int_equal(rc, 0);
	return m;
}

static inline const struct live_memory *by_name(const struct live_memories *m, const char *name)
{
	for (size_t i = 0; i < m->count; i++) {
		if (!strcmp(m->list[i].name, name))
			return &m->list[i];
	}
	return NULL;
}

/* It can be opened, and is the file that it says it is. */
static inline void assert_opens(const struct live_memory *m, char first)
{
	CLEANUP_CLOSE int fd = open(m->open_path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char byte;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_dev, m->id.dev);
	assert_int_equal(st.st_ino, m->id.ino);
	assert_int_equal(st.st_size, m->bytes);
	assert_int_equal(pread(fd, &byte, 1, 0), 1);
	assert_int_equal(byte, first);
}

static inline void assert_memory(const struct live_memories *all, const char *name,
				 enum live_memory_kind kind, const char *origin, char first)
{
	const struct live_memory *m = by_name(all, name);

	assert_non_null(m);
	assert_int_equal(m->kind, kind);
	assert_string_equal(m->origin, origin);
	assert_int_equal(m->bytes, RIG_BYTES);
	assert_int_equal(m->data_bytes, 4096);
	assert_true(m->carried);
	if (origin[0])
		assert_string_equal(m->open_path, origin);
	assert_opens(m, first);
}

#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

#endif
