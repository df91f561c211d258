// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The CPUs this process may use.  Every level of the control group tree may have a quota; the
 * smallest counts (v2: cpu.max "QUOTA PERIOD"; v1: cpu.cfs_quota_us and cpu.cfs_period_us).
 */
#include "os/cpus.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#define CPUS_MAX 8192

static bool read_text(const char *dir, const char *file, char *buf, size_t bytes)
{
	char path[PATH_MAX];
	CLEANUP_CLOSE int fd = -1;
	ssize_t n;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) >= sizeof(path))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, buf, bytes - 1);
	if (n < 0)
		return false;
	buf[n] = '\0';
	return true;
}

/* One level; 0: no quota there. */
static unsigned int level_quota(const char *dir)
{
	char text[64], period_text[64];
	long long quota, period;

	if (read_text(dir, "cpu.max", text, sizeof(text))) {
		if (sscanf(text, "%lld %lld", &quota, &period) != 2)
			return 0;
	} else if (read_text(dir, "cpu.cfs_quota_us", text, sizeof(text)) &&
		   read_text(dir, "cpu.cfs_period_us", period_text, sizeof(period_text))) {
		quota = atoll(text);
		period = atoll(period_text);
	} else {
		return 0;
	}
	if (quota <= 0 || period <= 0 || quota / period >= CPUS_MAX)
		return 0;
	return (unsigned int)((quota + period - 1) / period);
}

/* Walks from the group up to the mount. */
static unsigned int group_quota(const char *mount, const char *group)
{
	char dir[PATH_MAX];
	size_t top = strlen(mount);
	unsigned int least = 0;

	if ((size_t)snprintf(dir, sizeof(dir), "%s%s", mount, group) >= sizeof(dir))
		return 0;
	while (strlen(dir) >= top) {
		unsigned int quota = level_quota(dir);
		char *slash = strrchr(dir, '/');

		if (quota && (!least || quota < least))
			least = quota;
		if (!slash || slash == dir)
			break;
		*slash = '\0';
	}
	return least;
}

/* Does a line of /proc/self/cgroup name the cpu controller of v1?  Controllers stand between colons. */
static bool has_cpu_controller(const char *list, size_t bytes)
{
	size_t i = 0, start = 0;

	for (i = 0; i <= bytes; i++) {
		if (i == bytes || list[i] == ',') {
			if (i - start == 3 && !strncmp(list + start, "cpu", 3))
				return true;
			start = i + 1;
		}
	}
	return false;
}

unsigned int os_cpus_quota(const char *cgroup_text, const char *mount)
{
	CLEANUP_FREE char *copy = strdup(cgroup_text);
	char *line, *next = copy;
	unsigned int least = 0;

	while (copy && (line = strsep(&next, "\n"))) {
		static const char *const below[] = {"", "/unified", "/cpu", "/cpu,cpuacct"};
		char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
		size_t i;

		if (!group || (group != list + 1 && !has_cpu_controller(list + 1, (size_t)(group - list - 1))))
			continue;
		for (i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
			char top[PATH_MAX];
			unsigned int quota;

			if ((size_t)snprintf(top, sizeof(top), "%s%s", mount, below[i]) >= sizeof(top))
				continue;
			quota = group_quota(top, strcmp(group + 1, "/") ? group + 1 : "");
			if (quota && (!least || quota < least))
				least = quota;
		}
	}
	return least;
}

unsigned int os_cpus_allowed(void)
{
	cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
	size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
	char text[4096];
	int count = 0;
	unsigned int quota;

	if (set && sched_getaffinity(0, bytes, set) == 0)
		count = CPU_COUNT_S(bytes, set);
	CPU_FREE(set);
	if (count < 1)
		count = 1;
	quota = read_text("/proc/self", "cgroup", text, sizeof(text))
			? os_cpus_quota(text, "/sys/fs/cgroup")
			: 0;
	return quota && quota < (unsigned int)count ? quota : (unsigned int)count;
}
