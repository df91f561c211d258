// SPDX-License-Identifier: LGPL-2.1-or-later
/* What the operating system says: quotas of made-up control groups, the latency request,
 * extents. */
#include <setjmp.h>
#include <stdarg.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "os/beneath.h"
#include "os/cpus.h"
#include "os/extent.h"
#include "os/filesystem.h"
#include "os/latency.h"

#include <cmocka.h>
#include <errno.h>

static int set_up(void **state)
{
	char *dir = strdup("/dev/shm/torpor-os-XXXXXX");

	*state = dir;
	return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", (char *)*state);
	free(*state);
	return system(command);
}

/* A file below the mount, its folders made. */
static void put(const char *mount, const char *name, const char *text)
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", mount, name);
	for (char *at = path + strlen(mount) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		mkdir(path, 0755);
		*at = '/';
	}
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void test_quota_v2(void **state)
{
	const char *mount = *state;

	assert_int_equal(os_cpus_quota("0::/a/b\n", mount), 0);
	put(mount, "a/b/cpu.max", "max 100000\n");
	assert_int_equal(os_cpus_quota("0::/a/b\n", mount), 0);
	put(mount, "a/b/cpu.max", "150000 100000\n");
	assert_int_equal(os_cpus_quota("0::/a/b\n", mount), 2);
	put(mount, "a/b/cpu.max", "400000 100000\n");
	assert_int_equal(os_cpus_quota("0::/a/b\n", mount), 4);
	assert_int_equal(os_cpus_quota("0::/a\n", mount), 0);
	/* A level above has less. */
	put(mount, "a/cpu.max", "300000 100000\n");
	assert_int_equal(os_cpus_quota("0::/a/b\n", mount), 3);
	put(mount, "cpu.max", "50000 100000\n");
	assert_int_equal(os_cpus_quota("0::/a/b\n", mount), 1);
	assert_int_equal(os_cpus_quota("0::/\n", mount), 1);
}

static void test_quota_v1(void **state)
{
	const char *mount = *state;
	const char *text = "12:pids:/x\n4:cpu,cpuacct:/a\n3:cpuset:/b\n";

	put(mount, "cpu,cpuacct/b/cpu.cfs_quota_us", "100000\n");
	put(mount, "cpu,cpuacct/b/cpu.cfs_period_us", "100000\n");
	assert_int_equal(os_cpus_quota(text, mount), 0); /* cpuset is not cpu */
	put(mount, "cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
	put(mount, "cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
	assert_int_equal(os_cpus_quota(text, mount), 0);
	put(mount, "cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n");
	assert_int_equal(os_cpus_quota(text, mount), 3);
	put(mount, "cpu/a/cpu.cfs_quota_us", "200000\n");
	put(mount, "cpu/a/cpu.cfs_period_us", "100000\n");
	assert_int_equal(os_cpus_quota(text, mount), 2);
}

static void test_quota_nonsense(void **state)
{
	static const char *const values[] = {"",
					     "x",
					     "100000",
					     "100000 0",
					     "0 100000",
					     "-5 100000",
					     "100000 -1",
					     "9223372036854775807 1",
					     "99999999999999999999 100000"};
	static const char *const texts[] = {
		"", "\n", "::", "0:", "0::", "abc", "0::/a:b\n", "0::/../../..\n"};
	const char *mount = *state;

	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		put(mount, "a/cpu.max", values[i]);
		assert_int_equal(os_cpus_quota("0::/a\n", mount), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		assert_int_equal(os_cpus_quota(texts[i], mount), 0);
}

static void test_allowed(void **unused)
{
	cpu_set_t old, one;
	int cpu = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(old), &old), 0);
	assert_in_range(os_cpus_allowed(), 1, CPU_COUNT(&old));
	while (!CPU_ISSET(cpu, &old))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	assert_int_equal(os_cpus_allowed(), 1);
	sched_setaffinity(0, sizeof(old), &old);
}

static void test_latency(void **state)
{
	char path[128], link[128];
	int32_t value = 77;
	int fd, reader;

	snprintf(path, sizeof(path), "%s/latency", (char *)*state);
	snprintf(link, sizeof(link), "%s/link", (char *)*state);
	assert_int_equal(os_latency_hold(path), -ENOENT);
	put(*state, "latency", "");
	fd = os_latency_hold(path);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	reader = open(path, O_RDONLY);
	assert_int_equal(read(reader, &value, sizeof(value)), 4);
	assert_int_equal(value, 0);
	assert_int_equal(read(reader, &value, 1), 0);
	close(reader);
	close(fd);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(os_latency_hold(link), -ELOOP);
	assert_int_equal(os_latency_hold(*state), -EISDIR);
	assert_int_equal(os_latency_hold("/dev/full"), -ENOSPC);
	if (geteuid() == 0) {
		chmod(path, 0400);
		chmod(*state, 0755);
		assert_int_equal(seteuid(65534), 0);
		assert_int_equal(os_latency_hold(path), -EACCES);
		assert_int_equal(seteuid(0), 0);
	}
}

static void test_extents(void **unused)
{
	CLEANUP_CLOSE int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	uint64_t start, end, bytes = MIB(1);

	assert_int_equal(os_next_data(fd, 0, 0, &start, &end), 0);
	assert_true(start == 0 && end == 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(os_next_data(fd, 0, bytes, &start, &end), 0);
	assert_true(start == bytes && end == bytes);
	assert_int_equal(pwrite(fd, "x", 1, 100000), 1);
	assert_int_equal(pwrite(fd, "x", 1, (off_t)bytes - 1), 1);
	assert_int_equal(os_next_data(fd, 0, bytes, &start, &end), 0);
	assert_true(start <= 100000 && end > 100000 && end < bytes);
	assert_int_equal(os_next_data(fd, end, bytes, &start, &end), 0);
	assert_true(start < bytes && start > 200000 && end == bytes);
	/* A file that grew: what lies beyond is not told. */
	assert_int_equal(os_next_data(fd, 0, 100500, &start, &end), 0);
	assert_true(end <= 100500);
	assert_int_equal(os_next_data(-1, 0, 1, &start, &end), -EBADF);
}

/* Each way of opening, on the same paths. */
static void test_beneath(void **state)
{
	static int (*const ways[])(int, const char *, int) = {os_open_beneath, os_walk_beneath};
	static const struct {
		const char *path;
		int want;
	} cases[] = {
		{"a/b/file", 0},      {"top", 0},           {"a/./b/file", 0},          {"a/to-b/file", -ELOOP},
		{"out/file", -ELOOP}, {"a/link", -ELOOP},   {"a/../../escape", -EXDEV}, {"../escape", -EXDEV},
		{"a/nothing", -ENOENT}, {"nothing/file", -ENOENT}, {"top/file", -ENOTDIR}, {"", -ENOENT},
	};
	const char *dir = *state;
	char path[PATH_MAX];

	put(dir, "in/a/b/file", "x");
	put(dir, "in/top", "x");
	put(dir, "file", "x");
	put(dir, "escape", "x");
	snprintf(path, sizeof(path), "%s/in/out", dir);
	assert_int_equal(symlink("..", path), 0);
	snprintf(path, sizeof(path), "%s/in/a/to-b", dir);
	assert_int_equal(symlink("b", path), 0);
	snprintf(path, sizeof(path), "%s/in/a/link", dir);
	assert_int_equal(symlink("b/file", path), 0);
	snprintf(path, sizeof(path), "%s/in", dir);
	for (size_t way = 0; way < ARRAY_LEN(ways); way++) {
		CLEANUP_CLOSE int in = open(path, O_PATH | O_CLOEXEC);

		for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
			int fd = ways[way](in, cases[i].path, O_RDONLY | O_CLOEXEC);

			if (fd < 0 ? fd != cases[i].want : cases[i].want != 0)
				fail_msg("way %zu, \"%s\": %d", way, cases[i].path, fd);
			if (fd >= 0)
				close(fd);
		}
	}
}

static void test_filesystem(void **unused)
{
	CLEANUP_CLOSE int shm = open("/dev/shm", O_RDONLY | O_CLOEXEC),
			  proc = open("/proc", O_RDONLY | O_CLOEXEC);
	struct os_filesystem fs;

	assert_int_equal(os_filesystem_of(shm, &fs), 0);
	assert_true(fs.tmpfs && fs.memory && fs.free_bytes > 0);
	assert_int_equal(os_filesystem_of(proc, &fs), 0);
	assert_false(fs.tmpfs || fs.memory);
	assert_int_equal(os_filesystem_of(-1, &fs), -EBADF);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_quota_v2),
		TEST(test_quota_v1),
		TEST(test_quota_nonsense),
		cmocka_unit_test(test_allowed),
		TEST(test_latency),
		cmocka_unit_test(test_extents),
		TEST(test_beneath),
		cmocka_unit_test(test_filesystem),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
