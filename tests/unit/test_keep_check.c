// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Tables from a stranger: each thing that can be wrong is made so by hand in a sound one, is
 * found, and named; and no operation on it leaves the area, which lies between guard pages.
 */
#include "keep/table.h"
#include "keep_rig.h"

#define PAGES (UINT64_C(32768) * 4 + 100)

/* A sound table, closed: three leaves of order 0 and one of order 9, half full. */
struct victim {
	struct keep_rig r;
	struct keep_header *header;
	keep_word *root; /* of order 0 */
	keep_word *leaf; /* the first below it */
};

static keep_word *table_of(struct victim *v, uint64_t desc)
{
	return (keep_word *)((char *)v->r.area.addr + UINT64_C(4096) * desc_index(desc));
}

static void victim_new(struct victim *v)
{
	char *around;

	rig_new(&v->r, PAGES, 4096, 18, 16 * 4096);
	around = mmap(NULL, v->r.area.bytes + 2 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	assert_true(around != MAP_FAILED);
	assert_int_equal(keep_preserve_range(v->r.hand, 10, 20000, 0), 0);
	assert_int_equal(keep_preserve_range(v->r.hand, 32768 * 2, 32768, 0), 0);
	assert_int_equal(keep_preserve(v->r.hand, 32768 * 3 + 8, 0), 0);
	assert_int_equal(keep_preserve(v->r.hand, 32768 * 4 + 99, 0), 0);
	assert_int_equal(keep_preserve(v->r.hand, 32768 + 512, 9), 0);
	keep_close(v->r.keep);
	v->r.area.addr = mremap(v->r.area.addr, v->r.area.bytes, v->r.area.bytes,
				MREMAP_MAYMOVE | MREMAP_FIXED, around + 4096);
	assert_true(v->r.area.addr != MAP_FAILED);
	v->header = v->r.area.addr;
	v->root = table_of(v, v->header->root[0]);
	v->leaf = table_of(v, v->root[0]);
}

static void victim_free(struct victim *v)
{
	munmap((char *)v->r.area.addr - 4096, v->r.area.bytes + 2 * 4096);
	free(v->r.owner);
}

static int look(struct victim *v, unsigned int flags, struct keep_report *report, struct err *e)
{
	struct keep *keep;
	int rc;

	assert_int_equal(keep_attach(&v->r.area, KEEP_READ_ONLY, &keep, NULL, e), 0);
	rc = keep_validate(keep, flags, report, e);
	keep_close(keep);
	return rc;
}

/* Whatever the table says, these come back, and touch nothing outside. */
static void use(struct victim *v)
{
	struct keep_hand *hand;
	struct keep *keep;
	struct keep_run run;
	struct keep_stats stats;
	uint64_t page, count;

	assert_int_equal(keep_attach(&v->r.area, 0, &keep, NULL, NULL), 0);
	assert_int_equal(keep_hand_new(keep, &hand), 0);
	for (page = 0; page < PAGES; page += 111) {
		keep_find(hand, page);
		keep_preserve(hand, page & ~UINT64_C(7), 3);
		keep_unpreserve(hand, page, 0, KEEP_SPLIT);
		keep_preserve(hand, page, 0);
	}
	keep_preserve_range(hand, 1000, 90000, KEEP_LARGEST);
	keep_unpreserve_range(hand, 3, PAGES - 3, KEEP_SPLIT);
	keep_next_run(hand, 0, &run);
	keep_count(hand, 0, PAGES, &count);
	keep_stats(hand, &stats);
	keep_close(keep);
}

static void assert_refused(struct victim *v, const char *text)
{
	struct keep_report report;
	struct err e = {.text = ""};

	assert_int_equal(look(v, 0, &report, &e), -EBADMSG);
	if (!strstr(e.text, text))
		fail_msg("\"%s\", not \"%s\"", e.text, text);
	use(v);
	victim_free(v);
	victim_new(v);
}

static void test_a_sound_table_passes(void **state)
{
	struct keep_report report;
	struct victim v;
	struct err e = {.text = ""};

	victim_new(&v);
	if (look(&v, 0, &report, &e))
		fail_msg("%s", e.text);
	assert_int_equal(report.tables, 5);
	assert_int_equal(report.leaves, 4);
	assert_int_equal(report.collapsed, 1);
	assert_int_equal(report.untidy + report.leaked + report.overlaps, 0);
	use(&v);
	victim_free(&v);
}

static void test_where_descriptors_may_not_lead(void **state)
{
	struct victim v;
	uint64_t self;

	victim_new(&v);
	self = v.header->root[0];
	v.root[1] = self;
	assert_refused(&v, "its page is reached twice"); /* a circle */
	v.root[1] = v.root[0];
	assert_refused(&v, "its page is reached twice");
	v.header->root[1] = self;
	v.header->orders |= 2;
	assert_refused(&v, "its page is reached twice"); /* by two orders */
	v.root[1] = desc_make(DESC_TABLE, 0, 0);
	assert_refused(&v, "its page lies outside the tables"); /* the header */
	v.root[1] = desc_make(DESC_TABLE, 16, 0);
	assert_refused(&v, "its page lies outside the tables");
	v.root[1] = desc_make(DESC_FROZEN, (1u << 29) - 1, 7);
	assert_refused(&v, "its page lies outside the tables");
	v.root[1] = desc_make(DESC_TABLE, 12, 0);
	assert_refused(&v, "its page counts as free");
	v.root[1] = desc_make(DESC_FULL, 3, 0);
	assert_refused(&v, "unknown bits");
	v.root[1] = DESC_WANT;
	assert_refused(&v, "unknown bits");
	v.root[5] = DESC_FULL;
	assert_refused(&v, "a descriptor beyond the end");
	v.header->root[18] = DESC_FULL;
	assert_refused(&v, "an order that there is not");
	v.header->root[KEEP_ORDER_MAX] = DESC_FULL;
	assert_refused(&v, "an order that there is not");
	v.header->root[1] = DESC_FULL;
	assert_refused(&v, "an order that counts as not used");
	victim_free(&v);
}

static void test_what_tables_may_not_hold(void **state)
{
	struct keep_report report;
	struct victim v;
	struct err e;

	victim_new(&v);
	table_of(&v, v.root[4])[2] = 1;
	assert_refused(&v, "blocks beyond the end");
	table_of(&v, v.root[4])[1] |= UINT64_C(1) << 36; /* 100 pages: 36 bits of word 1 */
	assert_refused(&v, "blocks beyond the end");
	table_of(&v, v.root[3])[0] = 0;
	assert_refused(&v, "empty, and not released");
	v.root[2] = 0;
	v.root[0] = 0;
	v.root[3] = 0;
	v.root[4] = 0;
	assert_refused(&v, "empty, and not released");
	memset((void *)v.leaf, 0xff, 4096);
	assert_refused(&v, "full, and not collapsed");
	v.leaf[5] &= ~UINT64_C(2);
	assert_refused(&v, "population");
	v.root[2] = 0;
	assert_refused(&v, "population");
	v.root[0] ^= DESC_STATE ^ DESC_TABLE ^ DESC_STATE ^ DESC_FROZEN;
	assert_refused(&v, "it was left frozen");
	assert_int_equal(look(&v, KEEP_CRASHED, &report, &e), 0);
	victim_free(&v);
}

static void test_orders_that_overlap(void **state)
{
	struct keep_found found;
	struct keep_report report;
	struct victim v;
	struct err e;

	victim_new(&v);
	/* Order 9, block 7: pages 3584 to 4095, which are preserved at order 0. */
	v.header->root[9] = desc_make(DESC_TABLE, desc_index(v.header->root[9]), 2);
	table_of(&v, v.header->root[9])[0] |= 1 << 7;
	assert_int_equal(look(&v, KEEP_CRASHED, &report, &e), 0);
	assert_int_equal(report.overlaps, 1);
	/* As a crash would leave it: the larger stays, and nothing gets lost. */
	v.header->state = KEEP_IN_USE;
	assert_int_equal(keep_attach(&v.r.area, 0, &v.r.keep, &found, &e), 0);
	assert_true(found.crashed);
	assert_int_equal(found.overlaps, 1);
	assert_int_equal(keep_hand_new(v.r.keep, &v.r.hand), 0);
	assert_int_equal(keep_find(v.r.hand, 3583), 0);
	assert_int_equal(keep_find(v.r.hand, 3584), 9);
	assert_int_equal(keep_find(v.r.hand, 4096), 0);
	rig_assert_sound(&v.r);
	keep_close(v.r.keep);
	table_of(&v, v.header->root[9])[0] |= 1 << 8;
	v.header->root[9] += UINT64_C(1) << DESC_HIGH_SHIFT;
	assert_refused(&v, "overlap with another order");
	victim_free(&v);
}

static void test_pages_taken_and_not_reached(void **state)
{
	struct keep_found found;
	struct keep_report report;
	struct victim v;
	keep_word *map;
	struct err e;

	victim_new(&v);
	map = (keep_word *)((char *)v.header + KEEP_MAP_OFFSET);
	map[0] |= 1 << 14;
	assert_int_equal(look(&v, KEEP_CRASHED, &report, &e), 0);
	assert_int_equal(report.leaked, 1);
	v.header->state = KEEP_IN_USE;
	assert_int_equal(keep_attach(&v.r.area, 0, &v.r.keep, &found, &e), 0);
	assert_int_equal(found.leaked, 1);
	assert_int_equal(keep_hand_new(v.r.keep, &v.r.hand), 0);
	rig_assert_sound(&v.r);
	keep_close(v.r.keep);
	map[0] |= 1 << 14;
	assert_refused(&v, "taken and not reached");
	map = (keep_word *)((char *)v.header + KEEP_MAP_OFFSET);
	map[0] &= ~UINT64_C(1);
	assert_refused(&v, "the header's pages count as free");
	map = (keep_word *)((char *)v.header + KEEP_MAP_OFFSET);
	map[0] &= ~(UINT64_C(1) << 20);
	assert_refused(&v, "pages beyond the area count as free");
	victim_free(&v);
}

static void assert_header_refused(struct victim *v, int code)
{
	struct keep *keep;
	struct err e = {.text = ""};

	assert_int_equal(keep_attach(&v->r.area, 0, &keep, NULL, &e), code);
	assert_true(e.text[0]);
	victim_free(v);
	victim_new(v);
}

static void test_headers_that_are_not_attached(void **state)
{
	struct victim v;

	victim_new(&v);
	v.header->magic++;
	assert_header_refused(&v, -EBADMSG);
	v.header->version++;
	assert_header_refused(&v, -EOPNOTSUPP);
	v.header->pages++;
	assert_header_refused(&v, -EBADMSG);
	v.header->state = 2;
	assert_header_refused(&v, -EBADMSG);
	v.header->ready = 17;
	assert_header_refused(&v, -EBADMSG);
	v.r.area.bytes -= 4096;
	assert_int_equal(keep_attach(&v.r.area, 0, &v.r.keep, NULL, NULL), -EBADMSG);
	v.r.area.bytes += 4096;
	/* Not closed, and damaged: it is not touched. */
	v.header->state = KEEP_IN_USE;
	v.root[1] = v.root[0];
	assert_header_refused(&v, -EBADMSG);
	victim_free(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_sound_table_passes),
		cmocka_unit_test(test_where_descriptors_may_not_lead),
		cmocka_unit_test(test_what_tables_may_not_hold),
		cmocka_unit_test(test_orders_that_overlap),
		cmocka_unit_test(test_pages_taken_and_not_reached),
		cmocka_unit_test(test_headers_that_are_not_attached),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
