// SPDX-License-Identifier: LGPL-2.1-or-later
/* Memory of this process; see memory.h. */
#include "os/memory.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/num.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* The two versions of control groups. */
struct group_kind {
	const char *controller, *mount, *limit, *usage;
	const char *stat_prefix; /* of what counts the groups below, too */
};

/* A number in a file of one number; UINT64_MAX when there is none ("max"). */
static uint64_t read_number(const char *dir, const char *name)
{
	char path[PATH_MAX];
	uint64_t value = UINT64_MAX;
	unsigned long long n;
	FILE *f;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
		return UINT64_MAX;
	f = fopen(path, "re");
	if (!f)
		return UINT64_MAX;
	if (fscanf(f, "%llu", &n) == 1)
		value = n;
	fclose(f);
	return value;
}

static uint64_t system_available(void)
{
	char line[128];
	unsigned long long kib;
	uint64_t found = UINT64_MAX;
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			found = kib << 10;
	}
	if (f)
		fclose(f);
	return found;
}

/* Pages of files on disk that a group and those below it hold. */
static uint64_t group_cache(const char *dir, const char *prefix)
{
	char path[PATH_MAX], line[128], key[64];
	unsigned long long n;
	uint64_t sum = 0;
	FILE *f;

	if ((size_t)snprintf(path, sizeof(path), "%s/memory.stat", dir) >= sizeof(path))
		return 0;
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%63s %llu", key, &n) != 2 ||
		    strncmp(key, prefix, strlen(prefix)) != 0)
			continue;
		if (!strcmp(key + strlen(prefix), "active_file") ||
		    !strcmp(key + strlen(prefix), "inactive_file"))
			sum += n;
	}
	if (f)
		fclose(f);
	return sum;
}

/* What a group's limit leaves; the page cache that it holds can be dropped and is not counted
 * as used. */
static uint64_t group_available(const char *dir, const struct group_kind *kind)
{
	uint64_t limit = read_number(dir, kind->limit), usage = read_number(dir, kind->usage),
		 cache;

	if (limit == UINT64_MAX || usage == UINT64_MAX)
		return UINT64_MAX;
	cache = group_cache(dir, kind->stat_prefix);
	usage -= num_min(usage, cache);
	return limit > usage ? limit - usage : 0;
}

/* From the group of this process up to the mount. */
static uint64_t groups_available(void)
{
	static const struct group_kind kinds[] = {
		{"0::", "/sys/fs/cgroup", "memory.max", "memory.current", ""},
		{"memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
		 "memory.usage_in_bytes", "total_"},
	};
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX], dir[2 * PATH_MAX];
	uint64_t least = UINT64_MAX;
	size_t i;

	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		for (i = 0; i < ARRAY_LEN(kinds); i++) {
			char *group = strstr(line, kinds[i].controller), *slash;

			if (!group)
				continue;
			snprintf(dir, sizeof(dir), "%s%s", kinds[i].mount,
				 group + strlen(kinds[i].controller));
			while (strlen(dir) >= strlen(kinds[i].mount)) {
				least = num_min(least, group_available(dir, &kinds[i]));
				slash = strrchr(dir, '/');
				if (!slash || slash == dir)
					break;
				*slash = '\0';
			}
		}
	}
	if (f)
		fclose(f);
	return least;
}

uint64_t os_memory_available(void)
{
	return num_min(system_available(), groups_available());
}

void *os_memory_reserve(size_t bytes)
{
	size_t whole = num_round_up(bytes, OS_HUGE_BYTES);
	uint8_t *raw = mmap(NULL, whole + OS_HUGE_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t before;

	if (raw == MAP_FAILED)
		return NULL;
	before = num_round_up((uintptr_t)raw, OS_HUGE_BYTES) - (uintptr_t)raw;
	if (before)
		munmap(raw, before);
	if (OS_HUGE_BYTES - before)
		munmap(raw + before + whole, OS_HUGE_BYTES - before);
	madvise(raw + before, whole, MADV_HUGEPAGE);
	/* A child has no use for it, and copying its page tables takes time. */
	madvise(raw + before, whole, MADV_DONTFORK);
	return raw + before;
}

void os_memory_unreserve(void *at, size_t bytes)
{
	if (at)
		munmap(at, num_round_up(bytes, OS_HUGE_BYTES));
}

int os_memory_populate(void *at, size_t bytes)
{
	size_t i;

	if (!bytes || madvise(at, bytes, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	/* Before Linux 5.14. */
	for (i = 0; i < bytes; i += 4096)
		((volatile uint8_t *)at)[i] = 0;
	return 0;
}

void os_memory_map_pages(const void *at, size_t bytes)
{
	if (bytes)
		madvise((void *)at, bytes, MADV_POPULATE_READ);
}

int os_memory_resident(const void *at, size_t bytes, unsigned char *ret)
{
	return mincore((void *)at, bytes, ret) < 0 ? -errno : 0;
}

void os_memory_discard(void *at, size_t bytes)
{
	madvise(at, bytes, MADV_DONTNEED);
}
