// SPDX-License-Identifier: LGPL-2.1-or-later
/* File systems; see filesystem.h. */
#include "os/filesystem.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/num.h"

/* Memory that can be had without swapping out, plus free swap; 0 when it is not told. */
static uint64_t available_bytes(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	uint64_t sum = 0;
	unsigned long long kib;
	char line[128];

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1 ||
		    sscanf(line, "SwapFree: %llu", &kib) == 1)
			sum += kib << 10;
	}
	fclose(f);
	return sum;
}

/* Is the mount of this device one with huge=always, within_size or advise? */
static bool mounted_huge(dev_t dev)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096];
	bool huge = false;

	if (!f)
		return false;
	while (!huge && fgets(line, sizeof(line), f)) {
		unsigned int major_no, minor_no;
		const char *options = strstr(line, " - ");

		if (sscanf(line, "%*u %*u %u:%u", &major_no, &minor_no) != 2 || !options ||
		    makedev(major_no, minor_no) != dev)
			continue;
		huge = strstr(options, "huge=always") || strstr(options, "huge=within_size") ||
		       strstr(options, "huge=advise");
	}
	fclose(f);
	return huge;
}

int os_filesystem_of(int fd, struct os_filesystem *ret)
{
	struct os_filesystem fs = {.memory = false};
	struct statfs sfs;
	struct stat st;
	uint64_t blocks;

	if (fstatfs(fd, &sfs) < 0 || fstat(fd, &st) < 0)
		return -errno;
	fs.tmpfs = sfs.f_type == TMPFS_MAGIC;
	fs.memory = fs.tmpfs || sfs.f_type == RAMFS_MAGIC;
	fs.huge = fs.tmpfs && mounted_huge(st.st_dev);
	if (sfs.f_type == HUGETLBFS_MAGIC)
		fs.huge_page_bytes = (uint32_t)sfs.f_bsize;
	blocks = geteuid() == 0 ? sfs.f_bfree : sfs.f_bavail;
	fs.free_known = sfs.f_blocks > 0;
	if (num_mul_overflows(blocks, (uint64_t)sfs.f_bsize, &fs.free_bytes))
		fs.free_bytes = UINT64_MAX;
	if (fs.memory) {
		uint64_t available = available_bytes();

		if (available && (!fs.free_known || available < fs.free_bytes)) {
			fs.free_bytes = available;
			fs.free_known = true;
		}
	}
	*ret = fs;
	return 0;
}
