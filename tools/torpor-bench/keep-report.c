// SPDX-License-Identifier: LGPL-2.1-or-later
/* How torpor-bench keep tells what it measured: Markdown, or one JSON object a line. */
#include <stdio.h>

#include "keep-report.h"

static const struct {
	const char *what, *unit;
	bool all; /* by all threads */
} measures[MEASURES] = {
	[M_ASCENDING] = {"ascending", "ns a page", false},
	[M_STRIDED] = {"stride 512", "ns a page", false},
	[M_RANDOM] = {"random", "ns a page", false},
	[M_ASCENDING_WALL] = {"ascending, 1 thread", "ns a page", false},
	[M_ASCENDING_ALL] = {"ascending", "ns a page", true},
	[M_STRIDED_ALL] = {"stride 512", "ns a page", true},
	[M_RANDOM_ALL] = {"random", "ns a page", true},
	[M_ASCENDING_ALL_CPU] = {"ascending, CPU time of all", "ns a page", true},
	[M_HAND_OVER] = {"preserve + serialize", "ms", false},
	[M_ATTACH] = {"successor may run", "ms", false},
	[M_ATTACH_HOLES] = {"the same, holes", "ms", false},
	[M_VALIDATE] = {"validate", "ms", false},
	[M_VALIDATE_HOLES] = {"validate, holes", "ms", false},
	[M_WALK] = {"walk", "ms", false},
	[M_WALK_HOLES] = {"walk, holes", "ms", false},
	[M_WALK_HALF] = {"walk, every 2nd page", "ms", false},
	[M_RANGES] = {"512 pages a call", "ms", false},
	[M_RANGE] = {"one call", "ms", false},
	[M_RANGES_0] = {"512 pages a call, order 0", "ms", false},
	[M_RANGE_0] = {"one call, order 0", "ms", false},
	[M_BYTES_DENSE] = {"dense", "bytes", false},
	[M_BYTES_LONE] = {"one lone page", "bytes", false},
	[M_BYTES_SPARSE] = {"a page in 128 MiB", "bytes", false},
	[M_BYTES_HALF] = {"every 2nd page", "bytes", false},
	[M_BYTES_NONE] = {"no page", "bytes", false},
	[M_BYTES_EMPTIED] = {"all unpreserved", "bytes", false},
};

static const struct {
	const char *title;
	enum measure first, last;
} tables[] = {
	{"One page a call, 1 thread: ns of CPU time a page (times the list)", M_ASCENDING,
	 M_RANDOM},
	{"One page a call: ns a page (times the list)", M_ASCENDING_WALL, M_ASCENDING_ALL_CPU},
	{"From the first page to the successor: ms (times the list)", M_HAND_OVER,
	 M_VALIDATE_HOLES},
	{"Walks: ms (times the list)", M_WALK, M_WALK_HALF},
	{"Ranges, serializing included: ms (times the list)", M_RANGES, M_RANGE_0},
	{"Memory: bytes", M_BYTES_DENSE, M_BYTES_EMPTIED},
};

/* Medians, and of the ratios to the list in the same run; NaN for what is not there. */
struct result {
	double v[TRACK_DESIGNS][MEASURES], times[TRACK_DESIGNS][MEASURES];
};

static void print_number(double v)
{
	printf(v < 100 ? "%.3g" : "%.0f", v);
}

static void print_cell(const struct result *r, unsigned int d, unsigned int m)
{
	printf(" | ");
	if (isnan(r->v[d][m])) {
		printf("-");
		return;
	}
	print_number(r->v[d][m]);
	if (m < M_BYTES_DENSE && isfinite(r->times[d][m])) {
		printf(" (");
		print_number(r->times[d][m]);
		printf(")");
	}
}

static void print_table(const struct keep_samples *s, const struct result *r, size_t t,
			unsigned int threads)
{
	unsigned int d, m;

	printf("\n%s", tables[t].title);
	if (measures[tables[t].last].all)
		printf(", %u threads, each with memory of its own; by the wall's clock",
		       threads);
	printf("\n\n| design              ");
	for (m = tables[t].first; m <= tables[t].last; m++)
		printf(" | %s", measures[m].what);
	printf(" |\n| ---");
	for (m = tables[t].first; m <= tables[t].last; m++)
		printf(" | ---");
	printf(" |\n");
	for (d = 0; d < TRACK_DESIGNS; d++) {
		printf("| %-20s", s->names[d]);
		for (m = tables[t].first; m <= tables[t].last; m++)
			print_cell(r, d, m);
		printf(" |\n");
	}
}

static void print_json(const struct keep_samples *s, const struct result *r,
		       unsigned int threads)
{
	unsigned int d, m;
	char ratio[32];

	for (d = 0; d < TRACK_DESIGNS; d++) {
		for (m = 0; m < MEASURES; m++) {
			if (isnan(r->v[d][m]))
				continue;
			snprintf(ratio, sizeof(ratio),
				 !isfinite(r->times[d][m]) ? "null" : "%.6g", r->times[d][m]);
			printf("{\"design\": \"%s\", \"what\": \"%s\", \"threads\": %u, "
			       "\"unit\": \"%s\", \"value\": %.6g, \"ratio\": %s}\n",
			       s->names[d], measures[m].what, measures[m].all ? threads : 1,
			       measures[m].unit, r->v[d][m], ratio);
		}
	}
}

static void print_fact(const char *what, double is)
{
	printf("- %s: ", what);
	print_number(is);
	printf("\n");
}

/* What is to be reached; for 48 GiB. */
static void print_goal(const char *what, double is, double limit, bool at_least)
{
	bool reached = at_least ? is >= limit : is <= limit;

	printf("- %s: ", what);
	print_number(is);
	printf(" (at %s ", at_least ? "least" : "most");
	print_number(limit);
	printf(": %s)\n", reached ? "reached" : "NOT reached");
}

static void print_goals(const struct result *r, unsigned int threads)
{
	const double *ours = r->v[TRACK_TORPOR], *list = r->v[TRACK_LIST];
	const double *seed = r->v[TRACK_SEED], *flat = r->v[TRACK_LIMIT];
	double worst = 0;
	unsigned int m;

	for (m = M_BYTES_DENSE; m <= M_BYTES_HALF; m++)
		worst = ours[m] > worst * seed[m] ? ours[m] / seed[m] : worst;
	printf("\n");
	print_goal("preserve + serialize, times the list", r->times[TRACK_TORPOR][M_HAND_OVER],
		   0.5, false);
	print_fact("the same, times the list as merged",
		   ours[M_HAND_OVER] / r->v[TRACK_LIST_BARE][M_HAND_OVER]);
	print_goal("in one call at order 0, times the list",
		   ours[M_RANGE_0] / list[M_HAND_OVER], 0.002, false);
	if (threads > 1) {
		print_fact("one thread's time, times that of all (flat bitmap)",
			   flat[M_ASCENDING_WALL] / flat[M_ASCENDING_ALL]);
		print_goal("the same, torpor", ours[M_ASCENDING_WALL] / ours[M_ASCENDING_ALL],
			   1.6, true);
	}
	print_goal("successor may run, ms", ours[M_ATTACH], 0.1, false);
	print_goal("successor may run, holes, ms", ours[M_ATTACH_HOLES], 0.1, false);
	print_goal("validate, ms", ours[M_VALIDATE], 0.1, false);
	print_goal("validate, holes, ms", ours[M_VALIDATE_HOLES], 5, false);
	print_goal("the list read back, times that",
		   list[M_ATTACH_HOLES] / ours[M_VALIDATE_HOLES], 10, true);
	print_goal("walk, holes, ms", ours[M_WALK_HOLES], 1, false);
	print_goal("walk, every 2nd page, ms", ours[M_WALK_HALF], 40, false);
	print_goal("dense, bytes a GiB", ours[M_BYTES_DENSE] / 48, 256, false);
	print_goal("bytes, at worst, times the table's", worst, 1, false);
	print_goal("bytes after all is unpreserved, times those of no page",
		   ours[M_BYTES_EMPTIED] / ours[M_BYTES_NONE], 1, false);
}

static double median_of(const double *values, const double *by, unsigned int n)
{
	double sorted[BENCH_RUNS_MAX];
	unsigned int i;

	for (i = 0; i < n; i++) {
		sorted[i] = by ? values[i] / by[i] : values[i];
		/* What is not there is so in all runs, and cannot be sorted. */
		if (isnan(sorted[i]))
			return NOT_THERE;
	}
	return bench_median(sorted, n);
}

void keep_report(const struct keep_samples *s, const struct bench_opts *opts, uint64_t pages)
{
	struct result r;
	unsigned int d, m;
	size_t t;

	for (d = 0; d < TRACK_DESIGNS; d++) {
		for (m = 0; m < MEASURES; m++) {
			r.v[d][m] = median_of(s->s[d][m], NULL, opts->runs);
			r.times[d][m] = median_of(s->s[d][m], s->s[TRACK_LIST][m], opts->runs);
		}
	}
	if (opts->json) {
		print_json(s, &r, opts->threads);
		return;
	}
	printf("%llu pages (%.3g GiB) of order 0, medians of %u runs\n",
	       (unsigned long long)pages, (double)pages * TRACK_PAGE_BYTES / (double)GIB(1),
	       opts->runs);
	for (t = 0; t < ARRAY_LEN(tables); t++) {
		if (!measures[tables[t].last].all || opts->threads > 1)
			print_table(s, &r, t, opts->threads);
	}
	if (!opts->file)
		print_goals(&r, opts->threads);
}
