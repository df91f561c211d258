/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A folder on tmpfs for each test of the memory room, and what lies in it. */
#ifndef TORPOR_TESTS_MEMORY_RIG_H
#define TORPOR_TESTS_MEMORY_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "../pattern.h"
#include "base/cleanup.h"
#include "base/num.h"
#include "memory/source.h"
#include "memory/target.h"

#include <cmocka.h>

#define RIG_PAGE MEMORY_PAGE_BYTES

struct rig {
	char dir[64];
	int fds; /* open at the beginning */
};

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

	snprintf(rig->dir, sizeof(rig->dir), "/dev/shm/torpor-memory-XXXXXX");
	*state = rig;
	rig->fds = rig_entries("/proc/self/fd");
	return mkdtemp(rig->dir) ? 0 : -1;
}

/* No descriptor stays open after any test. */
static inline int rig_tear_down(void **state)
{
	struct rig *rig = *state;
	char command[256];
	int leaked = rig_entries("/proc/self/fd") - rig->fds;

	snprintf(command, sizeof(command), "chmod -R u+rwx %s; rm -rf %s", rig->dir, rig->dir);
	free(rig);
	return system(command) || leaked;
}

static inline char *rig_path(const struct rig *rig, const char *name, char buf[PATH_MAX])
{
	snprintf(buf, PATH_MAX, "%s/%s", rig->dir, name);
	return buf;
}

static inline void rig_make(const struct rig *rig, const char *name, const void *data,
			    size_t bytes, uint64_t offset)
{
	char path[PATH_MAX];
	CLEANUP_CLOSE int fd =
		open(rig_path(rig, name, path), O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, data, bytes, (off_t)offset), bytes);
}

static inline void rig_grow(const struct rig *rig, const char *name, uint64_t bytes)
{
	char path[PATH_MAX];

	assert_int_equal(truncate(rig_path(rig, name, path), (off_t)bytes), 0);
}

#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

#endif
