// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Random operations of every kind against a model that says of each page at which order it is
 * preserved: every result, every error, and after a while every page, run and count.
 */
#include "keep_ops.h"

static void assert_around(struct keep_rig *r, const struct op *op)
{
	uint64_t end = op_end(op), i;

	for (i = 0; i < 3; i++) {
		if (op->start + i < r->geometry.pages)
			rig_assert_page(r, op->start + i);
		if (op->start >= i)
			rig_assert_page(r, op->start - i);
		if (end + i < r->geometry.pages)
			rig_assert_page(r, end + i);
		if (end > i && end - i < r->geometry.pages)
			rig_assert_page(r, end - i);
	}
}

static void assert_next_run(struct keep_rig *r, uint64_t from)
{
	struct keep_run run;
	uint64_t end;
	int rc = keep_next_run(r->hand, from, &run);

	while (from < r->geometry.pages && !r->owner[from])
		from++;
	for (end = from; end < r->geometry.pages && r->owner[end];)
		end++;
	assert_int_equal(rc, from < r->geometry.pages ? 0 : -ENOENT);
	if (!rc) {
		assert_int_equal(run.start, from);
		assert_int_equal(run.pages, end - from);
	}
}

static void reopen(struct keep_rig *r)
{
	struct keep_found found;

	if (rig_random(r, 2))
		keep_close(r->keep);
	else
		keep_abandon(r->keep);
	rig_attach(r, &found);
	assert_int_equal(found.overlaps, 0);
}

static void run_random(uint64_t pages, uint32_t page_bytes, uint32_t order_max, int ops)
{
	struct keep_rig r;
	uint64_t from;
	int i;

	rig_new(&r, pages, page_bytes, order_max, 0);
	for (i = 0; i < ops; i++) {
		struct op op = op_random(&r, 0, pages);

		op_both(&r, &op);
		assert_around(&r, &op);
		if (i % 16 == 0)
			assert_next_run(&r, rig_random(&r, pages));
		if (i % 64 == 0) {
			from = rig_random(&r, pages);
			rig_assert_walk(&r, from, rig_random(&r, pages - from + 1));
		}
		if (i % 256 == 255) {
			rig_assert_same(&r);
			rig_assert_sound(&r);
		}
		if (i % 512 == 511)
			reopen(&r);
	}
	for (from = 0; from < pages; from++)
		if (r.owner[from])
			assert_int_equal(keep_unpreserve(r.hand, from, 0, KEEP_SPLIT), 0);
	assert_int_equal(rig_tables(&r), 0);
	rig_free(&r);
}

static void test_one_leaf(void **state)
{
	run_random(1000, 4096, 9, 20000);
	run_random(1, 4096, 18, 500);
	run_random(64, 4096, 6, 2000);
}

static void test_two_levels_and_an_odd_end(void **state)
{
	run_random(32768 * 5 + 77, 4096, 18, 20000);
}

static void test_a_full_number_of_leaves(void **state)
{
	run_random(32768 * 4, 4096, 16, 12000);
}

static void test_order_0_alone(void **state)
{
	run_random(32768 * 2 + 64, 4096, 0, 12000);
}

static void test_pages_of_16_kib(void **state)
{
	run_random(131072 * 2 + 5, 16384, 18, 12000);
}

static void test_pages_of_64_kib(void **state)
{
	run_random(524288 + 1000, 65536, 19, 6000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_leaf),
		cmocka_unit_test(test_two_levels_and_an_odd_end),
		cmocka_unit_test(test_a_full_number_of_leaves),
		cmocka_unit_test(test_order_0_alone),
		cmocka_unit_test(test_pages_of_16_kib),
		cmocka_unit_test(test_pages_of_64_kib),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
