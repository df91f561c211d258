// SPDX-License-Identifier: LGPL-2.1-or-later
/* What a critical section cannot beat: the same copy of the same mappings, or the bare protection, with nobody to be stopped. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "critical.h"
#include "os/extent.h"
#include "os/memory.h"
#include "os/uffd.h"
#include "page/page.h"

#define PAGE_BYTES 4096u
#define STEP_PAGES 512u

struct copying {
	const uint8_t *src;
	uint8_t *dst;
	size_t pages;
	unsigned int threads;
};

/* A static split, each thread its own part. */
static void part(void *arg, unsigned int number)
{
	const struct copying *c = arg;
	size_t page = c->pages * number / c->threads, end = c->pages * (number + 1) / c->threads, n;
	uint64_t zero[STEP_PAGES / 64];

	for (; page < end; page += n) {
		n = num_min(STEP_PAGES, end - page);
		page_span_copy_find_zero(c->dst + page * PAGE_BYTES, c->src + page * PAGE_BYTES, n, PAGE_BYTES, zero);
	}
}

double critical_limit_copy_ms(const char *path, unsigned int threads)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct copying c = {.threads = threads};
	uint64_t start, end, ns = 0, at;
	struct stat st;
	uint8_t *map;

	if (fd < 0 || fstat(fd, &st) < 0)
		bench_die("cannot open %s", path);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		bench_die("cannot map %s", path);
	for (at = 0; os_next_data(fd, at, (uint64_t)st.st_size, &start, &end) == 0 && start < (uint64_t)st.st_size; at = end) {
		c.src = map + start;
		c.pages = (end - start) / PAGE_BYTES;
		c.dst = bench_memory(c.pages * PAGE_BYTES);
		os_memory_map_pages(c.src, c.pages * PAGE_BYTES);
		ns -= clock_mono_ns();
		bench_threads(threads, part, &c);
		ns += clock_mono_ns();
		munmap(c.dst, c.pages * PAGE_BYTES);
	}
	munmap(map, (size_t)st.st_size);
	close(fd);
	return (double)ns / 1e6;
}

double critical_limit_protect_ms(uint8_t *at, size_t bytes)
{
	struct os_uffd_can can;
	int fd = os_uffd_open_protect(&can);
	uint64_t start, took;

	if (fd < 0 || os_uffd_register_protect(fd, at, bytes) < 0)
		return 0;
	start = clock_mono_ns();
	os_uffd_protect(fd, at, bytes, true);
	took = clock_mono_ns() - start;
	os_uffd_protect(fd, at, bytes, false);
	close(fd);
	return (double)took / 1e6;
}
