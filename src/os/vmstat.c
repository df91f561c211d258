// SPDX-License-Identifier: LGPL-2.1-or-later
/* See vmstat.h. */
#include "os/vmstat.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Shared memory is on the same lists as anonymous memory. */
static bool is_reclaim(const char *name)
{
	static const char *const names[] = {"pgscan_anon", "pswpout", "zswpout"};
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (!strcmp(name, names[i]))
			return true;
	}
	return false;
}

int os_vmstat_dropped(uint64_t *ret)
{
	FILE *f = fopen("/proc/vmstat", "re");
	uint64_t n, sum = 0, collapsed = 0, huge = 0, lines = 0;
	char name[64];

	if (!f)
		return -errno;
	while (fscanf(f, "%63s %" SCNu64, name, &n) == 2) {
		lines++;
		if (is_reclaim(name))
			sum += n;
		else if (!strcmp(name, "thp_collapse_alloc"))
			collapsed = n;
		else if (!strcmp(name, "nr_shmem_hugepages"))
			huge = n;
	}
	fclose(f);
	/* Where no shared memory is huge, it was private memory that became so. */
	*ret = sum + (huge ? collapsed + 1 : 0);
	return lines ? 0 : -EIO;
}
