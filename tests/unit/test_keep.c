// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What the preservation table promises, one promise a test; among them the mistakes that
 * published designs of such tables made.
 */
#include "keep_rig.h"

#define GIB_PAGES (UINT64_C(1) << 18)

static void assert_only(struct keep_rig *r, uint64_t start, uint64_t pages)
{
	struct keep_run run;
	uint64_t count;

	assert_int_equal(keep_next_run(r->hand, 0, &run), 0);
	assert_int_equal(run.start, start);
	assert_int_equal(run.pages, pages);
	assert_int_equal(keep_next_run(r->hand, start + pages, &run), -ENOENT);
	assert_int_equal(keep_count(r->hand, 0, r->geometry.pages, &count), 0);
	assert_int_equal(count, pages);
}

static int collect(void *ctx, uint64_t start, uint64_t pages)
{
	struct keep_run *run = ctx;

	*run = (struct keep_run){start, pages};
	return 7;
}

/* Addresses in a leaf are blocks of its order, not pages. */
static void test_walk_scales_blocks_by_their_order(void **state)
{
	struct keep_run run;
	struct keep_rig r;
	unsigned int order;

	rig_new(&r, 64 * GIB_PAGES, 4096, 18, 0);
	for (order = 0; order <= 18; order++) {
		uint64_t size = UINT64_C(1) << order, page = 37 * size;

		assert_int_equal(keep_preserve(r.hand, page, order), 0);
		assert_only(&r, page, size);
		assert_int_equal(keep_walk(r.hand, 0, r.geometry.pages, collect, &run), 7);
		assert_int_equal(run.start, page);
		assert_int_equal(run.pages, size);
		assert_int_equal(keep_find(r.hand, page + size - 1), order);
		assert_int_equal(keep_find(r.hand, page + size), -ENOENT);
		assert_int_equal(keep_unpreserve(r.hand, page, order, 0), 0);
	}
	rig_free(&r);
}

/* No table page: the call says so, and the page does not count as preserved. */
static void test_out_of_table_pages_is_an_error(void **state)
{
	struct keep_rig r;
	uint64_t i;
	int rc = 0;

	rig_new(&r, 64 * GIB_PAGES, 4096, 18, 6 * 4096);
	for (i = 0; !rc && i < 10; i++)
		rc = keep_preserve(r.hand, i * 32768, 0);
	assert_int_equal(rc, -ENOMEM);
	assert_int_equal(i, 5); /* a header, a root table, four leaves */
	assert_int_equal(keep_find(r.hand, 4 * 32768), -ENOENT);
	assert_int_equal(keep_preserve(r.hand, 5, 3), -EINVAL);
	assert_int_equal(keep_preserve(r.hand, 8, 3), -ENOMEM);
	assert_int_equal(keep_find(r.hand, 8), -ENOENT);
	assert_int_equal(rig_tables(&r), 5);
	/* What was given back can be used again. */
	assert_int_equal(keep_unpreserve(r.hand, 0, 0, 0), 0);
	assert_int_equal(keep_preserve(r.hand, 6 * 32768, 0), 0);
	rig_free(&r);
}

/* The alignment of the start decides, not the length alone. */
static void test_ranges_of_any_alignment(void **state)
{
	static const uint64_t lengths[] = {1, 2, 63, 64, 65, 511, 512, 513, 4096, 32768, 40000};
	struct keep_rig r;
	uint64_t start;
	size_t i;

	rig_new(&r, 4 * 32768 + 17, 4096, 18, 0);
	for (i = 0; i < ARRAY_LEN(lengths); i++)
		for (start = 0; start < 70000; start += start < 130 ? 1 : 1021) {
			unsigned int flags = start % 2 ? KEEP_LARGEST : 0;
			uint64_t pages = lengths[i];

			assert_int_equal(keep_preserve_range(r.hand, start, pages, flags), 0);
			assert_only(&r, start, pages);
			assert_int_equal(keep_find(r.hand, start + pages), -ENOENT);
			assert_int_equal(keep_unpreserve_range(r.hand, start, pages, 0), 0);
			assert_int_equal(keep_find(r.hand, start), -ENOENT);
		}
	assert_int_equal(rig_tables(&r), 0);
	rig_free(&r);
}

/* A range that fails in the middle is taken back, each piece with its own order. */
static void test_failed_range_is_taken_back_whole(void **state)
{
	struct keep_rig r;

	/* Pages for the first orders of the cut, but not for all. */
	rig_new(&r, 64 * GIB_PAGES, 4096, 18, 8 * 4096);
	assert_int_equal(keep_preserve_range(r.hand, 4097, 3 * GIB_PAGES, KEEP_LARGEST),
			 -ENOMEM);
	assert_int_equal(keep_next_run(r.hand, 0, &(struct keep_run){0}), -ENOENT);
	assert_int_equal(rig_tables(&r), 0);
	/* An obstacle near the end. */
	assert_int_equal(keep_preserve(r.hand, 9000, 0), 0);
	assert_int_equal(keep_preserve_range(r.hand, 8190, 900, KEEP_LARGEST), -EBUSY);
	assert_int_equal(keep_preserve_range(r.hand, 8190, 900, 0), -EEXIST);
	assert_only(&r, 9000, 1);
	assert_int_equal(keep_unpreserve_range(r.hand, 8999, 2, 0), -ENOENT);
	assert_only(&r, 9000, 1);
	rig_free(&r);
}

/* Taking out of a collapsed range needs tables: without them nothing of it is taken out. */
static void test_unpreserve_without_table_pages_changes_nothing(void **state)
{
	uint64_t all = 200 * 32768, pages;
	struct keep_rig r;

	rig_new(&r, all, 4096, 18, 4096 + 4096 * 2);
	assert_int_equal(keep_preserve_range(r.hand, 0, all, 0), 0);
	assert_int_equal(rig_tables(&r), 0);
	/* Two leaves and a root would be needed. */
	assert_int_equal(keep_unpreserve_range(r.hand, 5, all - 10, 0), -ENOMEM);
	assert_only(&r, 0, all);
	assert_int_equal(keep_unpreserve(r.hand, 5, 0, 0), 0);
	assert_int_equal(keep_unpreserve(r.hand, 40000, 0, 0), -ENOMEM);
	assert_int_equal(keep_count(r.hand, 0, all, &pages), 0);
	assert_int_equal(pages, all - 1);
	assert_int_equal(keep_preserve(r.hand, 5, 0), 0);
	assert_int_equal(rig_tables(&r), 0);
	rig_free(&r);
}

/* Orders from 11 up, and what is longer than 8 MiB, come back as they went in. */
static void test_high_orders_outlive_the_attach(void **state)
{
	struct keep_rig r;
	unsigned int order;
	uint64_t page = 0;

	rig_new(&r, 64 * GIB_PAGES, 4096, 18, 0);
	for (order = 9; order <= 18; order++, page += GIB_PAGES)
		assert_int_equal(keep_preserve(r.hand, page, order), 0);
	assert_int_equal(keep_preserve_range(r.hand, page + 3, 5000, KEEP_LARGEST), 0);
	keep_close(r.keep);
	rig_attach(&r, NULL);
	for (order = 9, page = 0; order <= 18; order++, page += GIB_PAGES) {
		assert_int_equal(keep_find(r.hand, page), order);
		assert_int_equal(keep_find(r.hand, page + (UINT64_C(1) << order) - 1), order);
		assert_int_equal(keep_unpreserve(r.hand, page, order, 0), 0);
	}
	assert_only(&r, page + 3, 5000);
	rig_free(&r);
}

/* A missing table is an answer, no endless loop; and 1 << order is of 64 bits. */
static void test_unpreserve_of_what_was_never_there(void **state)
{
	struct keep_rig r;
	unsigned int order;

	rig_new(&r, UINT64_C(1) << 36, 4096, KEEP_ORDER_MAX, 0);
	for (order = 0; order <= KEEP_ORDER_MAX; order++) {
		uint64_t size = UINT64_C(1) << order;

		assert_int_equal(keep_unpreserve(r.hand, 0, order, 0), -ENOENT);
		assert_int_equal(keep_unpreserve(r.hand, 3 * size, order, KEEP_SPLIT), -ENOENT);
		assert_int_equal(keep_preserve(r.hand, 3 * size, order), 0);
		assert_only(&r, 3 * size, size);
		assert_int_equal(keep_unpreserve(r.hand, 2 * size, order, 0), -ENOENT);
		assert_int_equal(keep_unpreserve(r.hand, 3 * size, order, 0), 0);
	}
	assert_int_equal(keep_unpreserve_range(r.hand, 0, UINT64_C(1) << 36, 0), -ENOENT);
	assert_int_equal(keep_unpreserve(r.hand, 0, KEEP_ORDER_MAX + 1, 0), -ERANGE);
	assert_int_equal(keep_preserve(r.hand, 0, 64), -ERANGE);
	rig_free(&r);
}

/* The last block of each order, at each page size; nothing falls off the end. */
static void test_every_page_size_to_the_last_page(void **state)
{
	static const uint32_t sizes[] = {4096, 16384, 65536};
	static const uint64_t pages[] = {1 << 19, (UINT64_C(1) << 40) - 1, (1 << 26) + 4711};
	struct keep_rig r;
	unsigned int order;
	size_t i, j;

	for (i = 0; i < ARRAY_LEN(sizes); i++)
		for (j = 0; j < ARRAY_LEN(pages); j++) {
			rig_new(&r, pages[j], sizes[i], 18, MIB(4));
			for (order = 0; order <= 18; order++) {
				uint64_t size = UINT64_C(1) << order;
				uint64_t last = (pages[j] / size - 1) * size;

				assert_int_equal(keep_preserve(r.hand, last, order), 0);
				assert_only(&r, last, size);
				assert_int_equal(keep_find(r.hand, last), order);
				assert_int_equal(keep_preserve(r.hand, last + size, order),
						 -ERANGE);
				assert_int_equal(keep_unpreserve(r.hand, last, order, 0), 0);
			}
			assert_int_equal(keep_preserve_range(r.hand, 0, pages[j], 0), 0);
			assert_only(&r, 0, pages[j]);
			assert_int_equal(rig_tables(&r), 0);
			rig_free(&r);
		}
}

static void test_misuse_is_answered(void **state)
{
	struct keep_rig r;

	rig_new(&r, 100000, 4096, 18, 0);
	assert_int_equal(keep_preserve(r.hand, 512, 9), 0);
	/* Twice is an error, and once taken back it is gone. */
	assert_int_equal(keep_preserve(r.hand, 512, 9), -EEXIST);
	/* Overlap, from below and from above. */
	assert_int_equal(keep_preserve(r.hand, 600, 0), -EBUSY);
	assert_int_equal(keep_preserve(r.hand, 0, 10), -EBUSY);
	assert_int_equal(keep_preserve_range(r.hand, 0, 5000, 0), -EBUSY);
	/* The wrong order clears nothing and says so. */
	assert_int_equal(keep_unpreserve(r.hand, 512, 8, 0), -EINVAL);
	assert_int_equal(keep_unpreserve(r.hand, 0, 10, 0), -ENOENT);
	assert_only(&r, 512, 512);
	assert_int_equal(keep_unpreserve(r.hand, 512, 9, 0), 0);
	assert_int_equal(keep_unpreserve(r.hand, 512, 9, 0), -ENOENT);
	/* What cannot be. */
	assert_int_equal(keep_preserve(r.hand, 1, 1), -EINVAL);
	assert_int_equal(keep_preserve(r.hand, 100000, 0), -ERANGE);
	assert_int_equal(keep_preserve(r.hand, 0, 17), -ERANGE);
	assert_int_equal(keep_preserve(r.hand, UINT64_MAX, 0), -ERANGE);
	assert_int_equal(keep_preserve_range(r.hand, 1, UINT64_MAX, 0), -ERANGE);
	assert_int_equal(keep_preserve_range(r.hand, 1, 0, 0), -EINVAL);
	assert_int_equal(keep_preserve_range(r.hand, 1, 1, KEEP_SPLIT), -EINVAL);
	assert_int_equal(keep_unpreserve(r.hand, 1, 0, KEEP_LARGEST), -EINVAL);
	assert_int_equal(keep_find(r.hand, 100000), -ERANGE);
	rig_free(&r);
}

/* After an error nothing is held: the next call, from another thread's hand, goes through. */
static void test_errors_leave_nothing_locked(void **state)
{
	struct keep_hand *other;
	struct keep_rig r;

	rig_new(&r, 64 * GIB_PAGES, 4096, 18, 3 * 4096);
	assert_int_equal(keep_hand_new(r.keep, &other), 0);
	assert_int_equal(keep_preserve(r.hand, 512, 18), -EINVAL);
	assert_int_equal(keep_preserve(r.hand, 0, 18), 0);
	/* Splitting takes a lock and needs more pages than there are. */
	assert_int_equal(keep_unpreserve(r.hand, 512, 0, KEEP_SPLIT), -ENOMEM);
	assert_int_equal(keep_unpreserve(other, 512, 0, KEEP_SPLIT), -ENOMEM);
	assert_only(&r, 0, GIB_PAGES);
	assert_int_equal(keep_unpreserve(other, 0, 18, 0), 0);
	keep_hand_free(other);
	assert_int_equal(rig_tables(&r), 0);
	rig_free(&r);
}

static void test_full_tables_collapse_and_empty_ones_go(void **state)
{
	uint64_t pages = 48 * GIB_PAGES, i;
	struct keep_rig r;

	rig_new(&r, pages, 4096, 18, 0);
	assert_int_equal(keep_preserve(r.hand, 77, 0), 0);
	assert_int_equal(rig_tables(&r), 2);
	assert_int_equal(keep_unpreserve(r.hand, 77, 0, 0), 0);
	assert_int_equal(rig_tables(&r), 0);
	/* Page by page, against the grain. */
	for (i = 0; i < 3 * 32768; i++)
		assert_int_equal(keep_preserve(r.hand, (i * 5) % (3 * 32768), 0), 0);
	assert_int_equal(rig_tables(&r), 1);
	assert_int_equal(keep_preserve_range(r.hand, 3 * 32768, pages - 3 * 32768, 0), 0);
	assert_int_equal(rig_tables(&r), 0);
	assert_only(&r, 0, pages);
	/* A hole in every leaf: the seed's table needs 387, this one not more. */
	for (i = 0; i < pages; i += 32768)
		assert_int_equal(keep_unpreserve(r.hand, i, 0, 0), 0);
	assert_int_equal(rig_tables(&r), 385);
	for (i = 0; i < pages; i += 32768)
		assert_int_equal(keep_unpreserve_range(r.hand, i + 1, 32767, 0), 0);
	assert_int_equal(rig_tables(&r), 0);
	rig_free(&r);
}

/* Ten million changes: pages that come and go alone, in leaves that come and go with them. */
static void test_no_growth(void **state)
{
	struct keep_stats before, after;
	struct keep_rig r;
	uint64_t i, page;
	struct err e;

	rig_new(&r, 48 * GIB_PAGES, 4096, 18, 12 * 4096);
	assert_int_equal(keep_stats(r.hand, &before), 0);
	for (i = 0; i < 5000000; i++) {
		/* Mostly in one leaf, where another page stays for a while. */
		page = i % 4096 ? 5 + i % 1000 : i * 37 % (48 * GIB_PAGES);
		if (i % 65536 == 0)
			assert_int_equal(keep_preserve(r.hand, 3, 0), 0);
		assert_int_equal(keep_preserve(r.hand, page, 0),
				 i % 65536 || page != 3 ? 0 : 0);
		assert_int_equal(keep_unpreserve(r.hand, page, 0, 0), 0);
		if (i % 65536 == 60000)
			assert_int_equal(keep_unpreserve(r.hand, 3, 0, 0), 0);
		if (i % 1000000 == 999999) {
			keep_close(r.keep);
			assert_int_equal(keep_attach(&r.area, 0, &r.keep, NULL, &e), 0);
			assert_int_equal(keep_hand_new(r.keep, &r.hand), 0);
		}
	}
	keep_unpreserve(r.hand, 3, 0, 0);
	assert_int_equal(rig_tables(&r), 0);
	assert_int_equal(keep_stats(r.hand, &after), 0);
	assert_memory_equal(&before, &after, sizeof(before));
	rig_free(&r);
}

static void test_attach_anywhere(void **state)
{
	struct keep_rig r;
	void *elsewhere;

	rig_new(&r, 100000, 4096, 9, 0);
	assert_int_equal(keep_preserve_range(r.hand, 1001, 50000, KEEP_LARGEST), 0);
	keep_close(r.keep);
	elsewhere = mmap(NULL, r.area.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			 -1, 0);
	assert_true(elsewhere != MAP_FAILED);
	memcpy(elsewhere, r.area.addr, r.area.bytes);
	munmap(r.area.addr, r.area.bytes);
	r.area.addr = elsewhere;
	rig_attach(&r, NULL);
	assert_only(&r, 1001, 50000);
	rig_free(&r);
}

static void test_read_only_writes_nothing(void **state)
{
	struct keep_hand *hand;
	struct keep *keep;
	struct keep_rig r;
	struct err e;

	rig_new(&r, 100000, 4096, 9, 0);
	assert_int_equal(keep_preserve(r.hand, 5, 0), 0);
	mprotect(r.area.addr, r.area.bytes, PROT_READ);
	assert_int_equal(keep_attach(&r.area, KEEP_READ_ONLY, &keep, NULL, &e), 0);
	assert_int_equal(keep_hand_new(keep, &hand), 0);
	assert_int_equal(keep_find(hand, 5), 0);
	assert_int_equal(keep_preserve(hand, 6, 0), -EROFS);
	assert_int_equal(keep_unpreserve(hand, 5, 0, 0), -EROFS);
	assert_int_equal(keep_preserve_range(hand, 6, 2, 0), -EROFS);
	keep_close(keep);
	mprotect(r.area.addr, r.area.bytes, PROT_READ | PROT_WRITE);
	rig_free(&r);
}

struct owner {
	uint64_t ready, full_at;
};

static int make_ready(void *ctx, uint64_t offset, uint64_t bytes)
{
	struct owner *o = ctx;

	assert_true(offset <= o->ready);
	if (offset + bytes > o->full_at)
		return -ENOSPC;
	o->ready = num_max(o->ready, offset + bytes);
	return 0;
}

static void test_no_byte_is_touched_before_it_is_ready(void **state)
{
	struct owner owner = {.full_at = 30 * 4096};
	struct keep_area area;
	struct keep_hand *hand;
	struct keep *keep;
	struct keep_rig r;
	struct err e;
	uint64_t i;
	int rc = 0;

	rig_new(&r, 64 * GIB_PAGES, 4096, 18, 0);
	keep_abandon(r.keep);
	area = r.area;
	area.ready = make_ready;
	area.ctx = &owner;
	mprotect((char *)area.addr + owner.full_at, area.bytes - owner.full_at, PROT_NONE);
	assert_int_equal(keep_create(&area, &r.geometry, &keep, &e), 0);
	assert_int_equal(keep_hand_new(keep, &hand), 0);
	for (i = 0; !rc; i++)
		rc = keep_preserve(hand, i * 32768, 0);
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(owner.ready, 24 * 4096);
	assert_int_equal(keep_find(hand, (i - 1) * 32768), -ENOENT);
	keep_close(keep);
	owner.full_at = 0;
	assert_int_equal(keep_create(&area, &r.geometry, &keep, &e), -ENOSPC);
	mprotect(area.addr, area.bytes, PROT_READ | PROT_WRITE);
	assert_int_equal(keep_create(&r.area, &r.geometry, &r.keep, &e), 0);
	assert_int_equal(keep_hand_new(r.keep, &r.hand), 0);
	rig_free(&r);
}

static void test_geometry_is_checked(void **state)
{
	struct keep_geometry g = {.pages = 1000, .page_bytes = 4096, .order_max = 9};
	static uint64_t room[1024];
	struct keep_area area = {.addr = room, .bytes = sizeof(room)};
	struct keep *keep;
	struct err e;

	assert_int_equal(keep_create(&area, &g, &keep, &e), 0);
	keep_close(keep);
	area.bytes = 4096;
	assert_int_equal(keep_create(&area, &g, &keep, &e), -ENOSPC);
	g.page_bytes = 8192;
	assert_int_equal(keep_create(&area, &g, &keep, &e), -EINVAL);
	assert_int_equal(keep_area_bytes(&g), 0);
	g = (struct keep_geometry){.pages = 0, .page_bytes = 4096};
	assert_int_equal(keep_create(&area, &g, &keep, &e), -EINVAL);
	g = (struct keep_geometry){.pages = 1, .page_bytes = 4096, .order_max = 32};
	assert_int_equal(keep_create(&area, &g, &keep, &e), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walk_scales_blocks_by_their_order),
		cmocka_unit_test(test_out_of_table_pages_is_an_error),
		cmocka_unit_test(test_ranges_of_any_alignment),
		cmocka_unit_test(test_failed_range_is_taken_back_whole),
		cmocka_unit_test(test_unpreserve_without_table_pages_changes_nothing),
		cmocka_unit_test(test_high_orders_outlive_the_attach),
		cmocka_unit_test(test_unpreserve_of_what_was_never_there),
		cmocka_unit_test(test_every_page_size_to_the_last_page),
		cmocka_unit_test(test_misuse_is_answered),
		cmocka_unit_test(test_errors_leave_nothing_locked),
		cmocka_unit_test(test_full_tables_collapse_and_empty_ones_go),
		cmocka_unit_test(test_no_growth),
		cmocka_unit_test(test_attach_anywhere),
		cmocka_unit_test(test_read_only_writes_nothing),
		cmocka_unit_test(test_no_byte_is_touched_before_it_is_ready),
		cmocka_unit_test(test_geometry_is_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
