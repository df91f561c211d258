// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * torpor's own table as torpor-bench keep sees it, in shared memory, with all of its checks. To
 * serialize is to close it, and to take over is to attach it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"
#include "keep.h"
#include "keep/keep.h"

struct ours {
	struct keep *keep;      /* NULL between two owners */
	struct keep_hand *hand; /* of whoever does not enter() */
	struct keep_area area;
	uint64_t pages;
};

static void check(int rc, const char *what)
{
	if (rc < 0)
		bench_die("cannot %s: %s", what, strerror(-rc));
}

static void *create(uint64_t pages)
{
	const struct keep_geometry geometry = {pages, TRACK_PAGE_BYTES, KEEP_ORDER_MAX};
	struct ours *t = calloc(1, sizeof(*t));
	struct err e;

	if (!t)
		bench_die("no memory");
	t->pages = pages;
	t->area.bytes = keep_area_bytes(&geometry);
	t->area.addr = mmap(NULL, t->area.bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (t->area.addr == MAP_FAILED)
		bench_die("cannot get %llu bytes of memory", (unsigned long long)t->area.bytes);
	if (keep_create(&t->area, &geometry, &t->keep, &e) < 0)
		bench_die("%s", e.text);
	check(keep_hand_new(t->keep, &t->hand), "get a hand");
	return t;
}

static void *enter(void *p)
{
	struct ours *t = p;
	struct keep_hand *hand;

	check(keep_hand_new(t->keep, &hand), "get a hand");
	return hand;
}

static void leave(void *hand)
{
	keep_hand_free(hand);
}

static int preserve(void *hand, uint64_t pfn)
{
	return keep_preserve(hand, pfn, 0);
}

static void preserve_range(void *hand, uint64_t pfn, uint64_t pages)
{
	check(keep_preserve_range(hand, pfn, pages, KEEP_LARGEST), "preserve a range");
}

static void preserve_range_0(void *hand, uint64_t pfn, uint64_t pages)
{
	check(keep_preserve_range(hand, pfn, pages, 0), "preserve a range");
}

static void unpreserve_range(void *hand, uint64_t pfn, uint64_t pages)
{
	check(keep_unpreserve_range(hand, pfn, pages, 0), "unpreserve a range");
}

static void serialize(void *p)
{
	struct ours *t = p;

	keep_close(t->keep);
	t->keep = NULL;
}

static void attach(void *p)
{
	struct ours *t = p;
	struct keep_found found;
	struct err e;

	if (t->keep)
		return;
	if (keep_attach(&t->area, 0, &t->keep, &found, &e) < 0)
		bench_die("%s", e.text);
	if (found.crashed)
		bench_die("a table that was closed counts as crashed");
	check(keep_hand_new(t->keep, &t->hand), "get a hand");
}

static void validate(void *p)
{
	struct ours *t = p;
	struct keep_report report;
	struct err e;

	attach(t);
	if (keep_validate(t->keep, 0, &report, &e) < 0)
		bench_die("%s", e.text);
}

static void walk(void *p, track_run_fn run, void *ctx)
{
	struct ours *t = p;

	attach(t);
	check(keep_walk(t->hand, 0, t->pages, run, ctx), "walk");
	keep_hand_rest(t->hand);
}

static size_t bytes(void *p)
{
	struct keep_stats stats;
	struct ours *t = p;

	attach(t);
	check(keep_stats(t->hand, &stats), "get statistics");
	keep_hand_rest(t->hand);
	return stats.header_bytes + stats.table_bytes;
}

static void destroy(void *p)
{
	struct ours *t = p;

	keep_close(t->keep);
	munmap(t->area.addr, t->area.bytes);
	free(t);
}

const struct track_ops track_torpor = {
	.name = "torpor",
	.create = create,
	.enter = enter,
	.leave = leave,
	.preserve = preserve,
	.preserve_range = preserve_range,
	.preserve_range_0 = preserve_range_0,
	.unpreserve_range = unpreserve_range,
	.serialize = serialize,
	.attach = attach,
	.validate = validate,
	.walk = walk,
	.bytes = bytes,
	.destroy = destroy,
};
