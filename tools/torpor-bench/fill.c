// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor-bench fill: how fresh shared memory (a new file on tmpfs) is filled fastest. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/io.h"
#include "bench.h"
#include "os/uffd.h"

#define FILL_BYTES MIB(1536)
#define PIECE_BYTES KIB(128)

struct filling {
	int fd, uffd;
	uint8_t *map;
	const uint8_t *src; /* a piece */
	void (*piece)(struct filling *f, uint64_t at);
	_Atomic uint64_t next;
};

static void by_write(struct filling *f, uint64_t at)
{
	if (io_pwrite(f->fd, f->src, PIECE_BYTES, at) < 0)
		bench_die("cannot write");
}

static void by_fault(struct filling *f, uint64_t at)
{
	memcpy(f->map + at, f->src, PIECE_BYTES);
}

static void by_populate(struct filling *f, uint64_t at)
{
	if (madvise(f->map + at, PIECE_BYTES, MADV_POPULATE_WRITE) < 0)
		bench_die("cannot populate");
	by_fault(f, at);
}

static void by_fallocate(struct filling *f, uint64_t at)
{
	if (fallocate(f->fd, 0, (off_t)at, PIECE_BYTES) < 0)
		bench_die("cannot allocate");
	by_fault(f, at);
}

static void by_uffd(struct filling *f, uint64_t at)
{
	if (os_uffd_copy(f->uffd, f->map + at, f->src, PIECE_BYTES) < 0)
		bench_die("UFFDIO_COPY fails");
}

static const struct {
	const char *name;
	void (*piece)(struct filling *f, uint64_t at);
} ways[] = {
	{"pwrite", by_write},
	{"mapping, page faults", by_fault},
	{"MADV_POPULATE_WRITE, copy", by_populate},
	{"fallocate, copy", by_fallocate},
	{"UFFDIO_COPY", by_uffd},
};

static void part(void *arg, unsigned int number)
{
	struct filling *f = arg;
	uint64_t at;

	while ((at = atomic_fetch_add(&f->next, PIECE_BYTES)) < FILL_BYTES)
		f->piece(f, at);
}

/* GB/s; 0 where the way is not there. */
static double fill(size_t way, unsigned int threads, const uint8_t *src)
{
	struct filling f = {.src = src, .piece = ways[way].piece, .uffd = -1};
	uint64_t start;
	double gb_s;

	bench_warm(FILL_BYTES);
	f.fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (f.fd < 0 || ftruncate(f.fd, FILL_BYTES) < 0)
		bench_die("cannot make a file in /dev/shm");
	f.map = mmap(NULL, FILL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
	if (f.map == MAP_FAILED)
		bench_die("cannot map a file in /dev/shm");
	if (f.piece == by_uffd) {
		f.uffd = os_uffd_open();
		if (f.uffd < 0 || os_uffd_register(f.uffd, f.map, FILL_BYTES) < 0) {
			close(f.fd);
			return 0;
		}
	}
	start = clock_mono_ns();
	bench_threads(threads, part, &f);
	munmap(f.map, FILL_BYTES);
	gb_s = (double)FILL_BYTES / (double)(clock_mono_ns() - start);
	close(f.fd);
	if (f.uffd >= 0)
		close(f.uffd);
	return gb_s;
}

int bench_fill(const struct bench_opts *opts)
{
	static double one[ARRAY_LEN(ways)][BENCH_RUNS_MAX], all[ARRAY_LEN(ways)][BENCH_RUNS_MAX];
	uint8_t *src = bench_memory(PIECE_BYTES);
	unsigned int run;
	size_t w;

	for (run = 0; run < opts->runs; run++) {
		for (w = 0; w < ARRAY_LEN(ways); w++) {
			one[w][run] = fill(w, 1, src);
			all[w][run] = fill(w, opts->threads, src);
		}
	}
	if (!opts->json)
		printf("A new file of %zu MiB in /dev/shm, pieces of 128 KiB, median of %u runs\n\n"
		       "| way | 1 thread GB/s | %u threads GB/s |\n| --- | --- | --- |\n",
		       FILL_BYTES >> 20, opts->runs, opts->threads);
	for (w = 0; w < ARRAY_LEN(ways); w++) {
		double a = bench_median(one[w], opts->runs), b = bench_median(all[w], opts->runs);

		if (opts->json)
			printf("{\"way\": \"%s\", \"one_gb_per_s\": %.2f, \"all_gb_per_s\": %.2f}\n", ways[w].name, a, b);
		else
			printf("| %-26s | %5.2f | %5.2f |\n", ways[w].name, a, b);
	}
	return 0;
}
