// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * torpor-bench copy: the experiment of "PM: hibernate: Allow disabling zero page check in
 * copy_data_pages()", and the answer to it: what copying pages and finding the zero ones among
 * them costs.
 *
 * Rivals take turns on pieces of the same memory, in an order that changes, and ratios are
 * medians of the ratios on each piece: what happens to the machine meanwhile happens to all.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "bench.h"
#include "copy.h"
#include "os/memory.h"
#include "page/page.h"
#include "pipe/pipe.h"

#define MADE_UP_BYTES GIB(4)
#define PIECE_PAGES (MIB(128) / COPY_PAGE_BYTES)
#define CLUSTER_PAGES_MAX 256
#define SEED UINT64_C(0x9e3779b97f4a7c15)

enum kind { HUGE, SMALL, KINDS };

static const char *const kind_names[KINDS] = {"huge", "4 KiB"};

struct placing {
	unsigned int percent;
	const char *how;
	double at_least; /* times copy_page, in huge pages */
};

static const struct placing placings[] = {
	{0, "", 1.6},
	{21, "scattered", 1.75},
	{21, "clustered", 1.75},
	{50, "scattered", 1.85},
	{50, "clustered", 1.85},
	{90, "scattered", 2.0},
	{90, "clustered", 2.0},
};

struct memory {
	uint8_t *src, *dst;
	size_t pieces, piece_pages;
	size_t zero; /* pages */
};

struct result {
	double gb_s[COPY_RIVALS], ratio[COPY_RIVALS]; /* to copy_page */
	double of_no_check, of_split;
	size_t pages, zero;
};

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* ---- memory ---- */

static uint8_t *get_memory(size_t bytes, enum kind kind)
{
	uint8_t *at = os_memory_reserve(bytes);

	if (at && kind == SMALL)
		madvise(at, bytes, MADV_NOHUGEPAGE);
	if (!at || os_memory_populate(at, bytes) < 0)
		bench_die("cannot get %zu bytes of memory", bytes);
	memset(at, 1, bytes);
	return at;
}

static size_t memory_bytes(const struct memory *m)
{
	return m->pieces * m->piece_pages * COPY_PAGE_BYTES;
}

static void get_both(struct memory *m, size_t bytes, enum kind kind)
{
	size_t pages = bytes / COPY_PAGE_BYTES;

	if (os_memory_available() < 2 * bytes + MIB(64))
		bench_die("this takes %zu MiB of memory; name a smaller file",
			  (2 * bytes >> 20) + 64);
	*m = (struct memory){.src = get_memory(bytes, kind), .dst = get_memory(bytes, kind)};
	m->pieces = num_max(1, pages / PIECE_PAGES);
	m->piece_pages = pages / m->pieces;
}

/* Percent of this process's memory that is in huge pages; -1 where the kernel does not tell. */
static int huge_percent(const struct memory *m)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "re");
	unsigned long long kib, huge = 0;
	char line[128];

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "AnonHugePages: %llu", &kib) == 1)
			huge = kib << 10;
	}
	fclose(f);
	return (int)num_min(100, huge * 100 / (2 * memory_bytes(m)));
}

/* Noise, of which no word is zero, and zero pages: each by lot, or runs of them by lot. */
static void fill(struct memory *m, const struct placing *p)
{
	const size_t pages = m->pieces * m->piece_pages;
	const bool clustered = !strcmp(p->how, "clustered");
	uint64_t lot = SEED, noise = SEED, *at = (uint64_t *)m->src;
	size_t i, j, left = 0;
	bool zero = false;

	m->zero = 0;
	for (i = 0; i < pages; i++) {
		if (!left) {
			left = clustered ? 1 + random_next(&lot) % CLUSTER_PAGES_MAX : 1;
			zero = random_next(&lot) % 100 < p->percent;
		}
		left--;
		m->zero += zero;
		for (j = 0; j < COPY_PAGE_BYTES / sizeof(*at); j++)
			*at++ = zero ? 0 : random_next(&noise);
	}
}

static void read_file(struct memory *m, int fd, const char *path)
{
	const struct page_ops *generic = page_ops_all()[0];
	size_t i, got;

	if (io_pread(fd, m->src, memory_bytes(m), 0, &got) < 0 || got != memory_bytes(m))
		bench_die("cannot read %s", path);
	m->zero = 0;
	for (i = 0; i < memory_bytes(m); i += COPY_PAGE_BYTES)
		m->zero += generic->is_zero(m->src + i, COPY_PAGE_BYTES);
}

/* ---- one rival on one piece ---- */

struct copying {
	const struct copy_rival *rival;
	const uint8_t *src;
	uint8_t *dst;
	size_t pages, next; /* next: under the pipe's take */
	unsigned int threads;
	atomic_size_t found;
};

static void copy_range(struct copying *c, size_t first, size_t end)
{
	size_t found = 0, n;

	for (; first < end; first += n) {
		n = num_min(COPY_SPAN_PAGES, end - first);
		found += c->rival->span(c->dst + first * COPY_PAGE_BYTES,
					c->src + first * COPY_PAGE_BYTES, n);
	}
	atomic_fetch_add_explicit(&c->found, found, memory_order_relaxed);
}

static void copy_part(void *arg, unsigned int number)
{
	struct copying *c = arg;

	copy_range(c, c->pages * number / c->threads, c->pages * (number + 1) / c->threads);
}

static int take(void *arg, void *worker, void *job, struct err *e)
{
	struct copying *c = arg;

	if (c->next >= c->pages)
		return 0;
	*(size_t *)job = c->next;
	c->next += COPY_SPAN_PAGES;
	return 1;
}

static int work(void *arg, void *worker, void *job, struct err *e)
{
	struct copying *c = arg;
	size_t first = *(size_t *)job;

	copy_range(c, first, num_min(first + COPY_SPAN_PAGES, c->pages));
	return 0;
}

static void copy_by_pipe(struct copying *c)
{
	static const struct pipe_ops ops = {.take = take, .work = work};
	void *workers[BENCH_THREADS_MAX] = {NULL};
	struct pipe_plan plan = {
		.ops = &ops,
		.ctx = c,
		.workers = workers,
		.n_workers = c->threads,
		.slots = c->threads,
		.job_bytes = sizeof(size_t),
	};
	struct err e;

	if (pipe_run(&plan, NULL, &e) < 0)
		bench_die("%s", e.text);
}

/* Seconds. */
static double copy_piece(const struct memory *m, size_t piece, const struct copy_rival *rival,
			 unsigned int threads, size_t *found)
{
	const size_t at = piece * m->piece_pages * COPY_PAGE_BYTES;
	struct copying c = {
		.rival = rival,
		.src = m->src + at,
		.dst = m->dst + at,
		.pages = m->piece_pages,
		.threads = threads,
	};
	uint64_t start = clock_mono_ns();

	if (rival->way == COPY_PIPE)
		copy_by_pipe(&c);
	else if (rival->way == COPY_SPLIT)
		bench_threads(threads, copy_part, &c);
	else
		copy_range(&c, 0, c.pages);
	*found += atomic_load(&c.found);
	return (double)(clock_mono_ns() - start) / 1e9;
}

/* ---- all rivals on all pieces ---- */

struct samples {
	double *s[COPY_RIVALS], *scratch;
	unsigned int n;
};

static void samples_new(struct samples *s, size_t n)
{
	double *room = calloc(n, (COPY_RIVALS + 1) * sizeof(*room));
	size_t i;

	if (!room)
		bench_die("no memory");
	for (i = 0; i < COPY_RIVALS; i++)
		s->s[i] = room + i * n;
	s->scratch = room + COPY_RIVALS * n;
	s->n = (unsigned int)n;
}

/* How many times as fast as `against` a rival is: the median over the pieces and runs. */
static double times(const struct samples *s, size_t rival, size_t against)
{
	unsigned int i;

	for (i = 0; i < s->n; i++)
		s->scratch[i] = s->s[against][i] / s->s[rival][i];
	return bench_median(s->scratch, s->n);
}

static void shuffle(size_t order[COPY_RIVALS], uint64_t *lot)
{
	size_t i, j, kept;

	for (i = COPY_RIVALS - 1; i > 0; i--) {
		j = random_next(lot) % (i + 1);
		kept = order[i];
		order[i] = order[j];
		order[j] = kept;
	}
}

static void check_found(const struct memory *m, const size_t found[COPY_RIVALS],
			unsigned int runs)
{
	size_t i;

	for (i = 0; i < COPY_RIVALS; i++) {
		if (found[i] != (copy_rivals[i].finds ? m->zero * runs : 0))
			bench_die("%s found %zu zero pages in %u runs, not %zu in each",
				  copy_rivals[i].name, found[i], runs, m->zero);
	}
}

static void measure(const struct memory *m, unsigned int runs, unsigned int threads,
		    struct result *ret)
{
	size_t order[COPY_RIVALS], found[COPY_RIVALS] = {0}, i, piece;
	uint64_t lot = SEED;
	struct samples s;
	unsigned int run;

	samples_new(&s, m->pieces * runs);
	for (i = 0; i < COPY_RIVALS; i++)
		order[i] = i;
	for (run = 0; run < runs; run++) {
		for (piece = 0; piece < m->pieces; piece++) {
			shuffle(order, &lot);
			for (i = 0; i < COPY_RIVALS; i++)
				s.s[order[i]][run * m->pieces + piece] =
					copy_piece(m, piece, &copy_rivals[order[i]], threads,
						   &found[order[i]]);
		}
	}
	check_found(m, found, runs);
	ret->pages = m->pieces * m->piece_pages;
	ret->zero = m->zero;
	ret->of_no_check = times(&s, COPY_DEFAULT, COPY_STREAM);
	ret->of_split = times(&s, COPY_DEFAULT_PIPE, COPY_DEFAULT_SPLIT);
	for (i = 0; i < COPY_RIVALS; i++)
		ret->ratio[i] = times(&s, i, COPY_COPY_PAGE);
	for (i = 0; i < COPY_RIVALS; i++)
		ret->gb_s[i] = (double)m->piece_pages * COPY_PAGE_BYTES / 1e9 /
			       bench_median(s.s[i], s.n);
	free(s.s[0]);
}

/* ---- what came out ---- */

static void print_json(const struct result *r, const struct placing *p, enum kind kind)
{
	char found[32];
	size_t i;

	for (i = 0; i < COPY_RIVALS; i++) {
		snprintf(found, sizeof(found), copy_rivals[i].finds ? "%zu" : "null", r->zero);
		printf("{\"pages\": \"%s\", \"zero_percent\": %u, \"zero_pages\": %zu, "
		       "\"placed\": \"%s\", "
		       "\"rival\": \"%s\", \"gb_per_s\": %.2f, \"ratio\": %.3f, "
		       "\"zero_pages_found\": %s}\n",
		       kind_names[kind], p->percent, r->zero, p->how, copy_rivals[i].name,
		       r->gb_s[i], r->ratio[i], found);
	}
	fflush(stdout);
}

static void print_table(const struct result *r, const struct placing *p, size_t n)
{
	size_t i, k;

	printf("| zero pages              ");
	for (k = 0; k < n; k++)
		printf(" | %u %%%s%s", p[k].percent, *p[k].how ? " " : "", p[k].how);
	printf(" | finds |\n| ---");
	for (k = 0; k <= n; k++)
		printf(" | ---");
	printf(" |\n| their number");
	for (k = 0; k < n; k++)
		printf(" | %zu", r[k].zero);
	printf(" | |\n");
	for (i = 0; i < COPY_RIVALS; i++) {
		printf("| %-27s", copy_rivals[i].name);
		for (k = 0; k < n; k++)
			printf(" | %5.2f (%.2f)", r[k].gb_s[i], r[k].ratio[i]);
		printf(" | %s |\n", copy_rivals[i].finds ? "all" : "none");
	}
}

static const char *verdict(double is, double at_least)
{
	return is >= at_least ? "reached" : "not reached";
}

static void print_goals(const struct result *r, const struct placing *p, size_t n,
			enum kind kind, bool made_up)
{
	size_t k;

	printf("\n");
	for (k = 0; k < n; k++) {
		printf("- %u %%%s%s: ", p[k].percent, *p[k].how ? " " : "", p[k].how);
		if (kind == HUGE && made_up)
			printf("torpor is %.2f x copy_page (at least %.2f: %s); ",
			       r[k].ratio[COPY_DEFAULT], p[k].at_least,
			       verdict(r[k].ratio[COPY_DEFAULT], p[k].at_least));
		printf("%.3f of itself without the check (at least 0.97: %s); all threads %.2f "
		       "of a static split "
		       "(at least 0.90: %s)\n",
		       r[k].of_no_check, verdict(r[k].of_no_check, 0.97), r[k].of_split,
		       verdict(r[k].of_split, 0.9));
	}
	printf("\n");
}

static void print_head(const struct memory *m, const struct bench_opts *opts, enum kind kind)
{
	printf("%zu MiB of memory, %d %% in huge pages; one thread, or %u where it says all; "
	       "GB/s (and times "
	       "copy_page), medians of %u runs on each of %zu pieces\n\n",
	       memory_bytes(m) >> 20, huge_percent(m), opts->threads, opts->runs, m->pieces);
}

static void bench_kind(const struct bench_opts *opts, enum kind kind, int fd, size_t bytes)
{
	struct placing of_file = {.how = "as in the file"};
	const struct placing *p = opts->file ? &of_file : placings;
	size_t n = opts->file ? 1 : ARRAY_LEN(placings), k;
	struct result results[ARRAY_LEN(placings)];
	struct memory m;

	get_both(&m, bytes, kind);
	if (!opts->json)
		print_head(&m, opts, kind);
	for (k = 0; k < n; k++) {
		if (opts->file)
			read_file(&m, fd, opts->file);
		else
			fill(&m, &p[k]);
		of_file.percent = (unsigned int)(m.zero * 100 / (m.pieces * m.piece_pages));
		measure(&m, opts->runs, opts->threads, &results[k]);
		if (opts->json)
			print_json(&results[k], &p[k], kind);
	}
	if (!opts->json) {
		print_table(results, p, n);
		print_goals(results, p, n, kind, !opts->file);
	}
	os_memory_unreserve(m.src, bytes);
	os_memory_unreserve(m.dst, bytes);
}

int bench_copy(const struct bench_opts *opts)
{
	size_t bytes = MADE_UP_BYTES;
	struct stat st;
	enum kind kind;
	int fd = -1;

	if (opts->file) {
		fd = open(opts->file, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < (off_t)COPY_PAGE_BYTES)
			bench_die("cannot use %s", opts->file);
		bytes = (size_t)st.st_size / COPY_PAGE_BYTES * COPY_PAGE_BYTES;
	}
	for (kind = HUGE; kind < KINDS; kind++)
		bench_kind(opts, kind, fd, bytes);
	if (fd >= 0)
		close(fd);
	return 0;
}
