// SPDX-License-Identifier: LGPL-2.1-or-later
/* The data that benchmarks work on, and their small tools. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "bench.h"
#include "page/page.h"

#define PAGE_BYTES 4096u
#define MADE_UP_BYTES GIB(1)

static void *populated(size_t bytes, int advice)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		bench_die("cannot get %zu bytes of memory", bytes);
	madvise(p, bytes, advice);
	memset(p, 1, bytes);
	return p;
}

void *bench_memory(size_t bytes)
{
	return populated(bytes, MADV_HUGEPAGE);
}

void bench_warm(size_t bytes)
{
	/* In small pages, as what follows will take them: huge ones come from elsewhere. */
	munmap(populated(bytes, MADV_NOHUGEPAGE), bytes);
}

/* Of six pages five are a program's and one is zero; of 16 MiB one is noise. */
static void make_up(struct bench_data *d)
{
	DIR *dir = opendir("/usr/bin");
	struct dirent *entry;
	size_t used = 0, i;

	while (dir && used < d->bytes) {
		char path[512];
		struct stat st;
		size_t got = 0;
		int fd;

		entry = readdir(dir);
		if (!entry) {
			if (!used)
				bench_die("/usr/bin is empty; name a file");
			rewinddir(dir);
			continue;
		}
		snprintf(path, sizeof(path), "/usr/bin/%s", entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > (16 << 10) &&
		    io_pread(fd, d->at + used, num_min(MIB(16), d->bytes - used), 0, &got) == 0)
			used += got;
		if (fd >= 0)
			close(fd);
	}
	if (dir)
		closedir(dir);
	for (i = 0; i + MIB(1) <= d->bytes; i += MIB(16)) {
		if (getrandom(d->at + i, MIB(1), 0) < 0)
			bench_die("no random numbers");
	}
	for (i = 0; i < d->bytes / PAGE_BYTES; i++) {
		if (i % 6 == 5)
			memset(d->at + i * PAGE_BYTES, 0, PAGE_BYTES);
	}
}

static void squeeze(struct bench_data *d)
{
	size_t i;

	d->dense = bench_memory(d->bytes);
	for (i = 0; i < d->bytes; i += PAGE_BYTES) {
		if (page_ops()->is_zero(d->at + i, PAGE_BYTES))
			continue;
		memcpy(d->dense + d->dense_bytes, d->at + i, PAGE_BYTES);
		d->dense_bytes += PAGE_BYTES;
	}
	if (!d->dense_bytes)
		bench_die("there is nothing but zeros in the data");
}

void bench_data_load(const struct bench_opts *opts, struct bench_data *ret)
{
	struct bench_data d = {.bytes = MADE_UP_BYTES};
	struct stat st;
	size_t got;
	int fd;

	if (!opts->file) {
		d.at = bench_memory(d.bytes);
		make_up(&d);
	} else {
		fd = open(opts->file, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < (off_t)PAGE_BYTES)
			bench_die("cannot use %s", opts->file);
		d.bytes = (size_t)st.st_size / PAGE_BYTES * PAGE_BYTES;
		d.at = bench_memory(d.bytes);
		if (io_pread(fd, d.at, d.bytes, 0, &got) < 0 || got != d.bytes)
			bench_die("cannot read %s", opts->file);
		close(fd);
	}
	squeeze(&d);
	*ret = d;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double bench_median(double *values, unsigned int n)
{
	qsort(values, n, sizeof(*values), ascending);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct call {
	void (*fn)(void *arg, unsigned int number);
	void *arg;
	unsigned int number;
};

static void *call(void *arg)
{
	struct call *c = arg;

	c->fn(c->arg, c->number);
	return NULL;
}

void bench_threads(unsigned int threads, void (*fn)(void *arg, unsigned int number), void *arg)
{
	struct call calls[BENCH_THREADS_MAX];
	pthread_t ids[BENCH_THREADS_MAX];
	unsigned int i;

	for (i = 1; i < threads; i++) {
		calls[i] = (struct call){fn, arg, i};
		if (pthread_create(&ids[i], NULL, call, &calls[i]) != 0)
			bench_die("cannot start a thread");
	}
	fn(arg, 0);
	for (i = 1; i < threads; i++)
		pthread_join(ids[i], NULL);
}
