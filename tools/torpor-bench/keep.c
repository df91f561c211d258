// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * torpor-bench keep: the time and the memory that it takes to say which pages are preserved, to
 * hand that over and to take it over, by torpor's table and by its rivals.  No page itself is
 * touched or even there: 48 GiB are as many page numbers.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "keep.h"
#include "keep-report.h"

#define ALL_PAGES (GIB(48) / TRACK_PAGE_BYTES)
#define STRIDE 512u
#define LEAF_PAGES 32768u /* 128 MiB */
#define MISSING 777u      /* of each 128 MiB, where one page is */
#define SEED UINT64_C(0x9e3779b97f4a7c15)

static const struct track_ops *const designs[TRACK_DESIGNS] = {
	[TRACK_LIST] = &track_list,   [TRACK_LIST_BARE] = &track_list_bare,
	[TRACK_SEED] = &track_seed,   [TRACK_SEED_BARE] = &track_seed_bare,
	[TRACK_RADIX] = &track_radix, [TRACK_TORPOR] = &track_torpor,
	[TRACK_LIMIT] = &track_limit,
};

enum arrival { ASCENDING, STRIDED, RANDOM, ARRIVALS };

/* What all of it is done with. */
struct plan {
	uint64_t pages;
	unsigned int threads;
	uint32_t *random, *random_all; /* page numbers; the same, sorted by who gets them */
};

/* One tracker being filled by some threads. */
struct filling {
	const struct track_ops *ops;
	void *t;
	const struct plan *plan;
	enum arrival arrival;
	unsigned int threads;
};

/* The first page of a thread's own part; in whole 128 MiB where there are as many. */
static uint64_t part_start(uint64_t pages, unsigned int threads, unsigned int number)
{
	uint64_t unit = pages / threads >= LEAF_PAGES ? LEAF_PAGES : 1;

	return number == threads ? pages : pages * number / threads / unit * unit;
}

/* ---- page numbers in no order ---- */

static uint64_t random_next(uint64_t *state)
{
	/* xorshift64*: the same order in each run of the program. */
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(0x2545f4914f6cdd1d);
}

static void shuffle(struct plan *p)
{
	uint64_t lot = SEED, i, j, at;
	unsigned int thread;
	uint32_t kept;

	p->random = malloc(p->pages * sizeof(*p->random));
	p->random_all = malloc(p->pages * sizeof(*p->random_all));
	if (!p->random || !p->random_all)
		bench_die("no memory");
	for (i = 0; i < p->pages; i++)
		p->random[i] = (uint32_t)i;
	for (i = p->pages - 1; i > 0; i--) {
		j = random_next(&lot) % (i + 1);
		kept = p->random[i];
		p->random[i] = p->random[j];
		p->random[j] = kept;
	}
	for (thread = 0, at = 0; thread < p->threads; thread++) {
		uint64_t from = part_start(p->pages, p->threads, thread);
		uint64_t to = part_start(p->pages, p->threads, thread + 1);

		for (i = 0; i < p->pages; i++) {
			if (p->random[i] >= from && p->random[i] < to)
				p->random_all[at++] = p->random[i];
		}
	}
}

/* ---- preserving, one page a call ---- */

static void *enter(const struct track_ops *ops, void *t)
{
	return ops->enter ? ops->enter(t) : t;
}

static void leave(const struct track_ops *ops, void *hand)
{
	if (ops->leave)
		ops->leave(hand);
}

static void done(const struct track_ops *ops, int rc)
{
	if (rc)
		bench_die("%s: cannot preserve a page", ops->name);
}

static void fill_part(void *arg, unsigned int number)
{
	const struct filling *f = arg;
	const uint64_t from = part_start(f->plan->pages, f->threads, number);
	const uint64_t to = part_start(f->plan->pages, f->threads, number + 1);
	int (*const preserve)(void *, uint64_t) = f->ops->preserve;
	const uint32_t *random = f->threads == 1 ? f->plan->random : f->plan->random_all;
	void *hand = enter(f->ops, f->t);
	uint64_t i, first;
	int rc = 0;

	switch (f->arrival) {
	case ASCENDING:
		for (i = from; i < to; i++)
			rc |= preserve(hand, i);
		break;
	case STRIDED:
		for (first = from; first < to && first < from + STRIDE; first++) {
			for (i = first; i < to; i += STRIDE)
				rc |= preserve(hand, i);
		}
		break;
	default:
		for (i = from; i < to; i++)
			rc |= preserve(hand, random[i]);
	}
	done(f->ops, rc);
	leave(f->ops, hand);
}

struct seen {
	uint64_t pages, runs, end;
};

static int see(void *ctx, uint64_t pfn, uint64_t pages)
{
	struct seen *s = ctx;

	s->runs += pfn != s->end || !s->pages;
	s->pages += pages;
	s->end = pfn + pages;
	return 0;
}

/*
 * What one thread does is measured in its CPU time, as nobody waits in it, and what else runs
 * on the machine should not count.  What several do at once is measured by the wall's.
 */
static uint64_t start_of(void)
{
	return clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Milliseconds since. */
static double ms_since(uint64_t start)
{
	return (double)(start_of() - start) / 1e6;
}

/* Walks all of it as runs: milliseconds.  Nobody is quick by forgetting pages. */
static double walk_ms(const struct track_ops *ops, void *t, uint64_t pages, uint64_t runs)
{
	struct seen seen = {0};
	uint64_t start = start_of();
	double ms;

	ops->walk(t, see, &seen);
	ms = ms_since(start);
	if (seen.pages != pages || (runs && seen.runs != runs))
		bench_die("%s: %llu pages in %llu runs preserved, not %llu in %llu", ops->name,
			  (unsigned long long)seen.pages, (unsigned long long)seen.runs,
			  (unsigned long long)pages, (unsigned long long)runs);
	return ms;
}

static double attach_ms(const struct track_ops *ops, void *t)
{
	uint64_t start = start_of();

	ops->attach(t);
	return ms_since(start);
}

static double validate_ms(const struct track_ops *ops, void *t)
{
	uint64_t start = start_of();

	if (!ops->validate)
		return NOT_THERE;
	ops->validate(t);
	return ms_since(start);
}

/* After ascending pages by one thread: what comes next, in the order in which it comes. */
static void take_over(const struct plan *p, const struct track_ops *ops, void *t, double *ret)
{
	void *hand;

	ret[M_ATTACH] = attach_ms(ops, t);
	ret[M_BYTES_DENSE] = (double)ops->bytes(t);
	ret[M_VALIDATE] = validate_ms(ops, t);
	ret[M_WALK] = walk_ms(ops, t, p->pages, 1);
	if (ops->unpreserve_range) {
		hand = enter(ops, t);
		ops->unpreserve_range(hand, 0, p->pages);
		leave(ops, hand);
		ret[M_BYTES_EMPTIED] = (double)ops->bytes(t);
	}
}

static void one_page_a_call(const struct plan *p, const struct track_ops *ops,
			    enum arrival arrival, unsigned int threads, double *ret)
{
	struct filling f = {ops, ops->create(p->pages), p, arrival, threads};
	uint64_t cpu = clock_cpu_ns(), wall = clock_mono_ns(), start = start_of();
	double ms, wall_ms, cpu_ms;

	bench_threads(threads, fill_part, &f);
	ms = ms_since(start);
	wall_ms = (double)(clock_mono_ns() - wall) / 1e6;
	cpu_ms = (double)(clock_cpu_ns() - cpu) / 1e6;
	if (threads == 1)
		ret[M_ASCENDING + arrival] = ms * 1e6 / (double)p->pages;
	else
		ret[M_ASCENDING_ALL + arrival] = wall_ms * 1e6 / (double)p->pages;
	if (threads > 1 && arrival == ASCENDING)
		ret[M_ASCENDING_ALL_CPU] = cpu_ms * 1e6 / (double)p->pages;
	ops->serialize(f.t);
	if (threads == 1 && arrival == ASCENDING) {
		ret[M_HAND_OVER] = ms_since(start);
		ret[M_ASCENDING_WALL] = wall_ms * 1e6 / (double)p->pages;
		take_over(p, ops, f.t, ret);
	} else {
		walk_ms(ops, f.t, p->pages, 1);
	}
	ops->destroy(f.t);
}

/* ---- preserving, a range a call ---- */

static double ranges_ms(const struct plan *p, const struct track_ops *ops,
			void (*preserve)(void *, uint64_t, uint64_t), uint64_t each)
{
	uint64_t start, at;
	void *t, *hand;
	double ms;

	if (!preserve)
		return NOT_THERE;
	t = ops->create(p->pages);
	start = start_of();
	hand = enter(ops, t);
	for (at = 0; at < p->pages; at += each)
		preserve(hand, at, num_min(each, p->pages - at));
	leave(ops, hand);
	ops->serialize(t);
	ms = ms_since(start);
	walk_ms(ops, t, p->pages, 0);
	ops->destroy(t);
	return ms;
}

/* ---- not all of the pages ---- */

/* Every `step`th page from 0 on. */
static void *some_pages(const struct track_ops *ops, uint64_t pages, uint64_t step)
{
	void *t = ops->create(pages), *hand = enter(ops, t);
	uint64_t i;
	int rc = 0;

	for (i = 0; i < pages; i += step)
		rc |= ops->preserve(hand, i);
	done(ops, rc);
	leave(ops, hand);
	ops->serialize(t);
	return t;
}

static void few_pages(const struct plan *p, const struct track_ops *ops, double *ret)
{
	const uint64_t sparse = num_pages(p->pages, LEAF_PAGES), half = num_pages(p->pages, 2);
	void *t = ops->create(p->pages);

	ops->serialize(t);
	ret[M_BYTES_NONE] = (double)ops->bytes(t);
	ops->destroy(t);
	t = some_pages(ops, p->pages, p->pages);
	ret[M_BYTES_LONE] = (double)ops->bytes(t);
	walk_ms(ops, t, 1, 1);
	ops->destroy(t);
	t = some_pages(ops, p->pages, LEAF_PAGES);
	ret[M_BYTES_SPARSE] = (double)ops->bytes(t);
	walk_ms(ops, t, sparse, sparse);
	ops->destroy(t);
	t = some_pages(ops, p->pages, 2);
	ret[M_BYTES_HALF] = (double)ops->bytes(t);
	ret[M_WALK_HALF] = walk_ms(ops, t, half, half);
	ops->destroy(t);
}

/* One page missing in each 128 MiB: nothing collapses, and there are as many runs. */
static void with_holes(const struct plan *p, const struct track_ops *ops, double *ret)
{
	void *t = ops->create(p->pages), *hand = enter(ops, t);
	uint64_t i, holes = 0;
	int rc = 0;

	for (i = 0; i < p->pages; i++) {
		if (i % LEAF_PAGES == MISSING)
			holes++;
		else
			rc |= ops->preserve(hand, i);
	}
	done(ops, rc);
	leave(ops, hand);
	ops->serialize(t);
	ret[M_ATTACH_HOLES] = attach_ms(ops, t);
	ret[M_VALIDATE_HOLES] = validate_ms(ops, t);
	ret[M_WALK_HOLES] = walk_ms(ops, t, p->pages - holes, 0);
	ops->destroy(t);
}

/* ---- all designs take turns ---- */

static void some_arrival(const struct plan *p, const struct track_ops *ops, unsigned int step,
			 double *ret)
{
	unsigned int threads = step < ARRIVALS ? 1 : p->threads;

	if (step < ARRIVALS || threads > 1)
		one_page_a_call(p, ops, step % ARRIVALS, threads, ret);
}

static void ranges(const struct plan *p, const struct track_ops *ops, double *ret)
{
	ret[M_RANGES] = ranges_ms(p, ops, ops->preserve_range, STRIDE);
	ret[M_RANGE] = ranges_ms(p, ops, ops->preserve_range, p->pages);
	ret[M_RANGES_0] = ranges_ms(p, ops, ops->preserve_range_0, STRIDE);
	ret[M_RANGE_0] = ranges_ms(p, ops, ops->preserve_range_0, p->pages);
}

#define STEPS (2 * ARRIVALS + 3)

static void measure(const struct plan *p, const struct track_ops *ops, unsigned int step,
		    double *ret)
{
	if (step < 2 * ARRIVALS)
		some_arrival(p, ops, step, ret);
	else if (step == 2 * ARRIVALS)
		ranges(p, ops, ret);
	else if (step == 2 * ARRIVALS + 1)
		few_pages(p, ops, ret);
	else
		with_holes(p, ops, ret);
}

static void one_run(const struct plan *p, struct keep_samples *samples, unsigned int run)
{
	double one[TRACK_DESIGNS][MEASURES];
	unsigned int step, i, d, m;

	for (d = 0; d < TRACK_DESIGNS; d++) {
		for (m = 0; m < MEASURES; m++)
			one[d][m] = NOT_THERE;
	}
	for (step = 0; step < STEPS; step++) {
		/* Each begins in turn: nobody is always measured after the same one. */
		for (i = 0; i < TRACK_DESIGNS; i++) {
			d = (run + step + i) % TRACK_DESIGNS;
			measure(p, designs[d], step, one[d]);
		}
	}
	for (d = 0; d < TRACK_DESIGNS; d++) {
		for (m = 0; m < MEASURES; m++)
			samples->s[d][m][run] = one[d][m];
	}
}

int bench_keep(const struct bench_opts *opts)
{
	static struct keep_samples samples;
	struct plan p = {.pages = ALL_PAGES, .threads = opts->threads};
	unsigned int run, d;
	struct stat st;

	if (opts->file) {
		if (stat(opts->file, &st) < 0 || st.st_size < (off_t)TRACK_PAGE_BYTES)
			bench_die("cannot use %s", opts->file);
		p.pages = (uint64_t)st.st_size / TRACK_PAGE_BYTES;
	}
	if (p.pages > UINT32_MAX)
		bench_die("%s is too large", opts->file);
	shuffle(&p);
	for (d = 0; d < TRACK_DESIGNS; d++)
		samples.names[d] = designs[d]->name;
	for (run = 0; run < opts->runs; run++)
		one_run(&p, &samples, run);
	keep_report(&samples, opts, p.pages);
	free(p.random);
	free(p.random_all);
	return 0;
}
