/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Control groups to freeze, and processes in them whose counters show whether they run.  Needs
 * cgroup2 and the right to make groups; without them rig_new() says why.
 */
#ifndef TORPOR_TESTS_FREEZE_RIG_H
#define TORPOR_TESTS_FREEZE_RIG_H

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/num.h"
#include "os/cgroup.h"
#include "os/proc.h"

#include <cmocka.h>

#define RIG_DEADLINE_NS 20000000000u
#define RIG_WORKERS 8

/* The groups of every test: "a" with "a/b" below, and "ab", whose name only begins likewise. */
static const char *const rig_groups[] = {"", "a", "a/b", "a/b/c", "ab", "own"};

struct rig {
	char mount[PATH_MAX - 64];
	char name[32]; /* of the group that holds all others */
	char path[256];
	atomic_ulong *counters; /* shared with the workers */
	pid_t workers[RIG_WORKERS];
	int n_workers;
};

static inline void rig_nap(long us)
{
	const struct timespec t = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&t, NULL);
}

/* "NAME/a" for "a"; until the next call but three. */
static inline const char *rig_name(const struct rig *r, const char *group)
{
	static char names[4][64];
	static unsigned int next;
	char *name = names[next++ % 4];

	snprintf(name, sizeof(names[0]), "%s%s%s", r->name, *group ? "/" : "", group);
	return name;
}

static inline const char *rig_file(const struct rig *r, const char *group, const char *file)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s/%s", r->mount, rig_name(r, group), file);
	return path;
}

static inline bool rig_write(const struct rig *r, const char *group, const char *file,
			     const char *text)
{
	CLEANUP_CLOSE int fd = open(rig_file(r, group, file), O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) > 0;
}

static inline bool rig_has(const struct rig *r, const char *group, const char *file,
			   const char *text)
{
	CLEANUP_CLOSE int fd = open(rig_file(r, group, file), O_RDONLY | O_CLOEXEC);
	char buf[4096];
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);

	if (n < 0)
		return false;
	buf[n] = '\0';
	return strstr(buf, text);
}

static inline bool rig_frozen(const struct rig *r, const char *group)
{
	return rig_has(r, group, "cgroup.events", "frozen 1");
}

static inline bool rig_freezes(const struct rig *r, const char *group)
{
	return rig_has(r, group, "cgroup.freeze", "1");
}

/* Polls until `what` holds; false when the deadline has passed. */
#define RIG_WAIT(what)                                                   \
	({                                                               \
		const uint64_t end_ = clock_mono_ns() + RIG_DEADLINE_NS; \
		bool holds_;                                             \
		while (!(holds_ = (what)) && clock_mono_ns() < end_)     \
			rig_nap(200);                                    \
		holds_;                                                  \
	})

/* A process in a group that counts, with a pause after each, or without. */
static inline void rig_start(struct rig *r, const char *group, long pause_us)
{
	int i = r->n_workers++;

	r->workers[i] = fork();
	if (r->workers[i])
		return;
	if (!rig_write(r, group, "cgroup.procs", "0"))
		_exit(1);
	for (;;) {
		atomic_fetch_add(&r->counters[i], 1);
		if (pause_us)
			rig_nap(pause_us);
	}
}

static inline void rig_worker(struct rig *r, const char *group)
{
	rig_start(r, group, 100);
}

static inline bool rig_runs(const struct rig *r, int i)
{
	unsigned long before = atomic_load(&r->counters[i]);

	return RIG_WAIT(atomic_load(&r->counters[i]) != before);
}

/* There is nothing to wait for: it must not count for as long as we look. */
static inline bool rig_stands(const struct rig *r, int i)
{
	unsigned long before = atomic_load(&r->counters[i]);

	rig_nap(20000);
	return atomic_load(&r->counters[i]) == before;
}

/* The guardians whose parent is a process. */
static inline size_t rig_guardians(pid_t parent, pid_t *ret_last)
{
	CLEANUP_FREE pid_t *pids = NULL;
	size_t n = 0, i, found = 0;

	if (os_proc_children(parent, &pids, &n) < 0)
		return 0;
	for (i = 0; i < n; i++) {
		struct os_proc_stat stat;

		if (os_proc_stat(pids[i], pids[i], &stat) < 0 ||
		    strcmp(stat.comm, "torpor-guardian") != 0)
			continue;
		found++;
		if (ret_last)
			*ret_last = pids[i];
	}
	return found;
}

/* Reaps the guardians that came to us when their torpor ended; true when there are none left.
 */
static inline bool rig_reap_guardians(void)
{
	CLEANUP_FREE pid_t *pids = NULL;
	size_t n = 0, i;
	pid_t last;

	if (os_proc_children(getpid(), &pids, &n) < 0)
		return false;
	for (i = 0; i < n; i++) {
		struct os_proc_stat stat;

		/* A zombie has kept its name. */
		if (os_proc_stat(pids[i], pids[i], &stat) == 0 &&
		    strcmp(stat.comm, "torpor-guardian") == 0)
			waitpid(pids[i], NULL, __WALL | WNOHANG);
	}
	return !rig_guardians(getpid(), &last);
}

static inline int rig_count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir && readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* NULL, and *ret_why, when groups cannot be made here. */
static inline struct rig *rig_new(const char **ret_why)
{
	static unsigned int serial;
	struct rig *r = calloc(1, sizeof(*r));
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char text[65536];
	size_t i;

	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	fclose(f);
	*ret_why = NULL;
	snprintf(r->name, sizeof(r->name), "torpor-test-%d-%u", getpid(), serial++);
	if (os_cgroup_mount(text, r->mount, sizeof(r->mount)) < 0)
		*ret_why = "no control groups of version 2 are mounted";
	for (i = 0; i < ARRAY_LEN(rig_groups) && !*ret_why; i++) {
		if (mkdir(rig_file(r, rig_groups[i], ""), 0755) < 0)
			*ret_why = "control groups cannot be made: no root";
	}
	if (!*ret_why && !rig_has(r, "a", "cgroup.freeze", "0"))
		*ret_why = "the kernel has no freezer for control groups of version 2";
	snprintf(r->path, sizeof(r->path), "%.200s/%s/a", r->mount, r->name);
	r->counters =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return r;
}

static inline void rig_free(struct rig *r)
{
	size_t i;

	for (i = 0; i < (size_t)r->n_workers; i++) {
		kill(r->workers[i], SIGKILL);
		waitpid(r->workers[i], NULL, 0);
	}
	/* What the workers had started came to us. */
	rig_write(r, "", "cgroup.kill", "1");
	for (i = ARRAY_LEN(rig_groups); i-- > 0;) {
		rig_write(r, rig_groups[i], "cgroup.freeze", "0");
		/* A process that has ended is counted for an instant longer. */
		RIG_WAIT(waitpid(-1, NULL, WNOHANG) <= 0 &&
			 (rmdir(rig_file(r, rig_groups[i], "")) == 0 || errno == ENOENT));
	}
	munmap(r->counters, 4096);
	free(r);
}

/* For cmocka: the rig is a test's state. */
static inline int rig_set_up(void **state)
{
	const char *why;

	*state = rig_new(&why);
	if (why)
		print_message("skipped: %s\n", why);
	return 0;
}

static inline int rig_tear_down(void **state)
{
	rig_free(*state);
	return 0;
}

/* The rig, or a skip. */
static inline struct rig *rig_or_skip(void **state)
{
	struct rig *r = *state;

	if (access(rig_file(r, "a", "cgroup.freeze"), W_OK) < 0)
		skip();
	return r;
}

#endif
