// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * torpor-bench limits: torpor save and load, tmpfs to tmpfs, beside what they cannot beat in the
 * same run.
 *
 *   save   lz4 on the same chunks on all CPUs, plus a bare write of as many bytes by the same threads
 *   load   decoding into populated memory, plus filling as many new pages of the target, on all CPUs;
 *          filling both by populating a mapping and as torpor does it (UFFDIO_COPY)
 *   loop   one thread: a plain loop with the same reads, hashes and writes
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <torpor.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/io.h"
#include "bench.h"
#include "os/uffd.h"
#include "page/page.h"

enum figure {
	SAVE_LIMIT, SAVE_ALL, LOAD_POPULATE, LOAD_UFFD, LOAD_ALL, SAVE_LOOP, SAVE_ONE, LOAD_LOOP, LOAD_ONE, FIGURES
};

static const char *const names[FIGURES] = {
	[SAVE_LIMIT] = "save: limit, lz4 + bare write", [SAVE_ALL] = "save: torpor",
	[LOAD_POPULATE] = "load: limit, decode + populate", [LOAD_UFFD] = "load: limit, decode + UFFDIO_COPY",
	[LOAD_ALL] = "load: torpor", [SAVE_LOOP] = "save: plain loop, 1 thread",
	[SAVE_ONE] = "save: torpor, 1 thread", [LOAD_LOOP] = "load: plain loop, 1 thread",
	[LOAD_ONE] = "load: torpor, 1 thread",
};

/* What a figure is held against, and how many times as long it may take. */
static const struct {
	enum figure figure, against;
	double most;
} targets[] = {
	{SAVE_ALL, SAVE_LIMIT, 1.25}, {LOAD_ALL, LOAD_POPULATE, 1.25}, {LOAD_ALL, LOAD_UFFD, 1.25},
	{SAVE_ONE, SAVE_LOOP, 1.05}, {LOAD_ONE, LOAD_LOOP, 1.05},
};

struct limits {
	const struct bench_opts *opts;
	struct bench_data data;
	struct bench_chunks chunks;
	struct codec_state *states[BENCH_THREADS_MAX];
	char dir[64], source[128], image[128], target[160];
	uint8_t *dst;
	/* Of the figure that runs. */
	unsigned int threads;
	int fd, uffd;
	uint8_t *map;
	_Atomic uint64_t next, written;
};

static double seconds_since(uint64_t start)
{
	return (double)(clock_mono_ns() - start) / 1e9;
}

static int new_file(size_t bytes)
{
	int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		bench_die("cannot make a file in /dev/shm");
	return fd;
}

static void compress_part(void *arg, unsigned int number)
{
	struct limits *l = arg;
	uint8_t *out = malloc(MIB(1));
	size_t used = 0, stored;
	uint64_t i;

	while (out && (i = atomic_fetch_add(&l->next, 1)) < l->chunks.n) {
		const struct bench_chunk *c = &l->chunks.list[i];

		if (used + l->chunks.codec->bound(c->raw_bytes) > MIB(1)) {
			io_pwrite(l->fd, out, used, atomic_fetch_add(&l->written, used));
			used = 0;
		}
		if (l->chunks.codec->compress(l->states[number], out + used, MIB(1) - used,
					      l->data.dense + c->raw_at, c->raw_bytes, &stored) < 0)
			bench_die("cannot compress");
		used += stored;
	}
	io_pwrite(l->fd, out, used, atomic_fetch_add(&l->written, used));
	free(out);
}

static double save_limit(struct limits *l)
{
	uint64_t start;
	double s;

	bench_warm(l->data.bytes);
	l->fd = new_file(0);
	l->next = l->written = 0;
	start = clock_mono_ns();
	bench_threads(l->threads, compress_part, l);
	s = seconds_since(start);
	close(l->fd);
	return s;
}

static void save_step(struct limits *l, int in, struct codec_state *state, uint8_t *raw, uint8_t *out,
		      uint64_t at, size_t *used)
{
	uint64_t zero[BENCH_CHUNK_BYTES / 4096 / 64 + 1];
	size_t got, stored, n = 0, i;

	if (io_pread(in, raw, BENCH_CHUNK_BYTES, at, &got) < 0)
		bench_die("cannot read");
	page_span_find_zero(raw, got / 4096, 4096, zero);
	for (i = 0; i < got / 4096; i++) {
		if (page_bitmap_test(zero, i))
			continue;
		if (n != i)
			memcpy(raw + n * 4096, raw + i * 4096, 4096);
		n++;
	}
	if (!n)
		return;
	if (l->chunks.codec->compress(state, out + *used, MIB(1) - *used, raw, n * 4096, &stored) < 0)
		bench_die("cannot compress");
	*used += 80 + stored + (XXH3_64bits(raw, n * 4096) & 1);
	if (*used > KIB(512)) {
		io_pwrite(l->fd, out, *used, atomic_fetch_add(&l->written, *used));
		*used = 0;
	}
}

static double save_loop(struct limits *l)
{
	int in = open(l->source, O_RDONLY | O_CLOEXEC);
	uint8_t *raw = malloc(BENCH_CHUNK_BYTES), *out = malloc(MIB(1));
	size_t used = 0;
	uint64_t start, at;
	double s;

	if (in < 0 || !raw || !out)
		bench_die("cannot read %s", l->source);
	bench_warm(l->data.bytes);
	l->fd = new_file(0);
	l->written = 0;
	start = clock_mono_ns();
	for (at = 0; at < l->data.bytes; at += BENCH_CHUNK_BYTES)
		save_step(l, in, l->states[0], raw, out, at, &used);
	io_pwrite(l->fd, out, used, l->written);
	s = seconds_since(start);
	close(l->fd);
	close(in);
	free(raw);
	free(out);
	return s;
}

static void populate_part(void *arg, unsigned int number)
{
	struct limits *l = arg;
	uint64_t at, bytes = l->data.dense_bytes;

	while ((at = atomic_fetch_add(&l->next, MIB(2))) < bytes) {
		size_t n = num_min(MIB(2), bytes - at);
		int rc = l->uffd >= 0 ? os_uffd_copy(l->uffd, l->map + at, l->dst, n)
				      : madvise(l->map + at, n, MADV_POPULATE_WRITE);

		if (rc < 0)
			bench_die("cannot fill new pages");
	}
}

static double load_limit(struct limits *l, bool by_uffd)
{
	size_t bytes = l->data.dense_bytes;
	uint64_t start;
	double s;

	bench_warm(l->data.bytes);
	l->fd = new_file(bytes);
	l->uffd = -1;
	l->next = 0;
	l->map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, l->fd, 0);
	if (l->map == MAP_FAILED)
		bench_die("cannot map");
	if (by_uffd) {
		l->uffd = os_uffd_open();
		if (l->uffd < 0 || os_uffd_register(l->uffd, l->map, bytes) < 0)
			bench_die("no userfaultfd");
	}
	start = clock_mono_ns();
	load_split(&l->chunks, l->dst, l->threads);
	bench_threads(l->threads, populate_part, l);
	munmap(l->map, bytes);
	s = seconds_since(start);
	close(l->fd);
	if (l->uffd >= 0)
		close(l->uffd);
	return s;
}

/* The image is the chunks one behind the other, read 512 KiB at a time. */
static double load_loop(struct limits *l)
{
	size_t bytes = l->data.dense_bytes, at = 0, got, i;
	uint8_t *in = malloc(MIB(1));
	uint64_t start;
	double s;
	int fd = new_file(0);

	if (!in || io_pwrite(fd, l->chunks.store, l->chunks.stored_bytes, 0) < 0)
		bench_die("cannot write");
	bench_warm(l->data.bytes);
	l->fd = new_file(bytes);
	l->map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, l->fd, 0);
	l->uffd = os_uffd_open();
	if (l->map == MAP_FAILED || l->uffd < 0 || os_uffd_register(l->uffd, l->map, bytes) < 0)
		bench_die("no userfaultfd");
	start = clock_mono_ns();
	for (i = 0; i < l->chunks.n; i++) {
		const struct bench_chunk *c = &l->chunks.list[i];

		if (at % KIB(512) + c->stored_bytes >= KIB(512) || !at)
			io_pread(fd, in, KIB(512), at, &got);
		at += c->stored_bytes;
		bench_decode(&l->chunks, l->states[0], i, l->dst);
		os_uffd_copy(l->uffd, l->map + c->raw_at, l->dst, num_round_up(c->raw_bytes, 4096));
	}
	munmap(l->map, bytes);
	s = seconds_since(start);
	close(l->fd);
	close(l->uffd);
	close(fd);
	free(in);
	return s;
}

static double save(struct limits *l, unsigned int threads)
{
	struct torpor_save_opts o = TORPOR_OPTS(o);
	const char *sources[] = {l->source};
	struct torpor_report r = TORPOR_OPTS(r);
	struct torpor *ctx;

	o.threads = threads;
	o.flags = TORPOR_FORCE;
	unlink(l->image);
	bench_warm(l->data.bytes);
	if (torpor_new(&ctx) < 0 || torpor_save(ctx, sources, 1, l->image, &o, &r) < 0)
		bench_die("%s", torpor_error(ctx));
	torpor_free(ctx);
	return (double)r.wall_ns / 1e9;
}

static double load(struct limits *l, unsigned int threads)
{
	struct torpor_load_opts o = TORPOR_OPTS(o);
	struct torpor_report r = TORPOR_OPTS(r);
	struct torpor *ctx;

	o.threads = threads;
	o.to = l->target;
	bench_warm(l->data.bytes);
	if (torpor_new(&ctx) < 0 || torpor_load(ctx, l->image, &o, &r) < 0)
		bench_die("%s", torpor_error(ctx));
	torpor_free(ctx);
	return (double)r.wall_ns / 1e9;
}

static void forget_target(const struct limits *l)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/mem", l->target);
	unlink(path);
}

static void prepare(struct limits *l)
{
	unsigned int i;
	int fd;

	snprintf(l->dir, sizeof(l->dir), "/dev/shm/torpor-bench-XXXXXX");
	if (!mkdtemp(l->dir))
		bench_die("cannot make a folder in /dev/shm");
	snprintf(l->source, sizeof(l->source), "%s/mem", l->dir);
	snprintf(l->image, sizeof(l->image), "%s/image", l->dir);
	snprintf(l->target, sizeof(l->target), "%s/to", l->dir);
	fd = open(l->source, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (mkdir(l->target, 0700) < 0 || fd < 0 || io_pwrite(fd, l->data.at, l->data.bytes, 0) < 0)
		bench_die("cannot fill %s", l->dir);
	close(fd);
	bench_chunks_make(&l->data, "lz4", 1, BENCH_CHUNK_BYTES, &l->chunks);
	for (i = 0; i < l->threads; i++) {
		if (l->chunks.codec->state_new(1, false, &l->states[i]) < 0)
			bench_die("no memory");
	}
	l->dst = bench_memory(l->data.dense_bytes);
}

static void remove_all(const struct limits *l)
{
	forget_target(l);
	unlink(l->source);
	unlink(l->image);
	rmdir(l->target);
	rmdir(l->dir);
}

static void measure(struct limits *l, double values[FIGURES][BENCH_RUNS_MAX], unsigned int run)
{
	values[SAVE_LIMIT][run] = save_limit(l);
	values[SAVE_LOOP][run] = save_loop(l);
	values[SAVE_ONE][run] = save(l, 1);
	values[SAVE_ALL][run] = save(l, l->threads);
	values[LOAD_POPULATE][run] = load_limit(l, false);
	values[LOAD_UFFD][run] = load_limit(l, true);
	values[LOAD_LOOP][run] = load_loop(l);
	values[LOAD_ONE][run] = load(l, 1);
	forget_target(l);
	values[LOAD_ALL][run] = load(l, l->threads);
	forget_target(l);
}

int bench_limits(const struct bench_opts *opts)
{
	static double values[FIGURES][BENCH_RUNS_MAX];
	static struct limits l;
	double median[FIGURES];
	unsigned int run;
	size_t i;

	l.opts = opts;
	l.threads = opts->threads;
	bench_data_load(opts, &l.data);
	prepare(&l);
	for (run = 0; run < opts->runs; run++)
		measure(&l, values, run);
	remove_all(&l);
	if (!opts->json)
		printf("%zu MB, of which %zu MB not zero, tmpfs to tmpfs, %u threads, median of %u runs\n\n"
		       "| what | s |\n| --- | --- |\n",
		       l.data.bytes / 1000000, l.data.dense_bytes / 1000000, l.threads, opts->runs);
	for (i = 0; i < FIGURES; i++) {
		median[i] = bench_median(values[i], opts->runs);
		printf(opts->json ? "{\"what\": \"%s\", \"s\": %.3f}\n" : "| %-34s | %.3f |\n", names[i], median[i]);
	}
	for (i = 0; i < ARRAY_LEN(targets) && !opts->json; i++) {
		double ratio = median[targets[i].figure] / median[targets[i].against];

		printf("%s is %.2f x %s (at most %.2f: %s)\n", names[targets[i].figure], ratio,
		       names[targets[i].against], targets[i].most, ratio <= targets[i].most ? "reached" : "not reached");
	}
	return 0;
}
