// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Looking at a whole table without trusting it.  Every number is checked before it is followed,
 * each page of the area is entered once at most, and the way down is a stack of fixed depth.
 * Changes nothing.
 */
#include "base/cleanup.h"
#include "keep/table.h"

struct check {
	struct keep *k;
	bool crashed;
	bool sealed; /* the table is closed, so populations are there */
	unsigned int order;
	uint64_t *seen;
	struct keep_report *report;
	struct err *e;
	uint64_t words;           /* DESC or bits of the table looked at that are not 0 */
	uint32_t depth;           /* tables on the stack */
	uint32_t at[KEEP_LEVELS]; /* entry to look at next */
	uint32_t filled[KEEP_LEVELS],
		full[KEEP_LEVELS]; /* entries seen that are not EMPTY; FULL */
	uint64_t no[KEEP_LEVELS], desc[KEEP_LEVELS];
	const keep_word *table[KEEP_LEVELS];
};

static int bad(const struct check *c, uint64_t no, const char *what)
{
	return err_set(c->e, -EBADMSG, "order %u, level %u, table %llu: %s", c->order, c->depth,
		       (unsigned long long)no, what);
}

/* A table that could be released: nothing a crash could not leave. */
static int untidy(const struct check *c, uint64_t no, const char *what)
{
	c->report->untidy++;
	return c->crashed ? 0 : bad(c, no, what);
}

static bool bit_test(const uint64_t *bits, uint32_t i)
{
	return bits[i / 64] >> (i % 64) & 1;
}

/* A descriptor for position `no` at c->depth; a table is put on the stack. */
static int check_desc(struct check *c, uint64_t no, uint64_t desc)
{
	uint32_t index = desc_index(desc);
	int rc = 0;

	if (desc_is_uniform(desc)) {
		c->report->collapsed += desc == DESC_FULL;
		return desc <= DESC_FULL ? 0 : bad(c, no, "a descriptor with unknown bits");
	}
	if (!keep_index_valid(c->k, index))
		return bad(c, no, "its page lies outside the tables");
	if (bit_test(c->seen, index))
		return bad(c, no, "its page is reached twice");
	if (!(keep_load(&c->k->map[index / 64]) >> (index % 64) & 1))
		return bad(c, no, "its page counts as free");
	if (index >= keep_load(&c->k->header->ready))
		return bad(c, no, "its page was never made ready");
	if (desc_state(desc) == DESC_FROZEN)
		rc = untidy(c, no, "it was left frozen");
	if (rc)
		return rc;
	c->seen[index / 64] |= UINT64_C(1) << (index % 64);
	c->report->tables++;
	c->table[c->depth] = keep_table_at(c->k, index);
	c->no[c->depth] = no;
	c->desc[c->depth] = desc;
	c->at[c->depth] = c->filled[c->depth] = c->full[c->depth] = 0;
	c->depth++;
	return 0;
}

/* The population that keep_close() wrote, if it did. */
static int check_population(const struct check *c, uint64_t desc, uint64_t no, uint64_t is)
{
	uint32_t said = desc_high(desc);

	if (!c->sealed || said == is)
		return 0;
	return bad(c, no, "its population is not so");
}

/* The leaf on top of the stack, which it leaves. */
static int check_leaf(struct check *c)
{
	uint64_t no = c->no[--c->depth], bits = 0, value;
	const keep_word *leaf = c->table[c->depth];
	struct keep_extent extent = keep_extent(c->k, c->order, c->depth, no);
	uint32_t words = UINT32_C(1) << c->k->fan_shift, i;
	uint64_t beyond = 0;

	c->report->leaves++;
	for (i = 0; i < extent.words; i++)
		bits += (uint64_t)__builtin_popcountll(
			atomic_load_explicit(&leaf[i], memory_order_relaxed));
	for (; i < words; i++) {
		value = keep_load(&leaf[i]);
		beyond |= i == extent.words ? value & ~extent.tail : value;
		bits += (uint64_t)__builtin_popcountll(value);
	}
	if (beyond)
		return bad(c, no, "blocks beyond the end");
	if (!bits ||
	    bits == extent.words * UINT64_C(64) + (uint64_t)__builtin_popcountll(extent.tail)) {
		int rc = untidy(c, no,
				bits ? "full, and not collapsed" : "empty, and not released");

		if (rc)
			return rc;
	}
	return check_population(c, c->desc[c->depth], no, bits);
}

/* The upper table on top of the stack after its last entry; leaves it. */
static int check_upper_end(struct check *c, struct keep_extent extent)
{
	uint32_t d = --c->depth;
	int rc = 0;

	if (!c->filled[d])
		rc = untidy(c, c->no[d], "empty, and not released");
	else if (c->full[d] == extent.words)
		rc = untidy(c, c->no[d], "full, and not collapsed");
	return rc ? rc : check_population(c, c->desc[d], c->no[d], c->filled[d]);
}

/* One step: the next entry of the table on top of the stack. */
static int check_step(struct check *c)
{
	uint32_t d = c->depth - 1, i = c->at[d]++;
	struct keep_extent extent = keep_extent(c->k, c->order, d, c->no[d]);
	uint64_t desc;

	if (i == UINT32_C(1) << c->k->fan_shift)
		return check_upper_end(c, extent);
	desc = keep_load(&c->table[d][i]);
	if (i >= extent.words)
		return desc ? bad(c, c->no[d], "a descriptor beyond the end") : 0;
	c->filled[d] += desc != DESC_EMPTY;
	c->full[d] += desc == DESC_FULL;
	return check_desc(c, (c->no[d] << c->k->fan_shift) + i, desc);
}

static int check_tree(struct check *c)
{
	uint64_t root = keep_load(&c->k->header->root[c->order]);
	int rc;

	c->depth = 0;
	if (c->order > c->k->order_max || !c->k->tree[c->order].blocks)
		return root ? bad(c, 0, "an order that there is not") : 0;
	if (root && !(keep_load(&c->k->header->orders) >> c->order & 1))
		return bad(c, 0, "an order that counts as not used");
	rc = check_desc(c, 0, root);
	while (!rc && c->depth)
		rc = c->depth == c->k->tree[c->order].levels ? check_leaf(c) : check_step(c);
	return rc;
}

int keep_check_trees(struct keep *k, bool crashed, uint64_t *seen, struct keep_report *report,
		     struct err *e)
{
	struct check c = {.k = k, .crashed = crashed, .seen = seen, .report = report, .e = e};
	uint64_t i, word;
	int rc;

	*report = (struct keep_report){.tables = 0};
	c.sealed = !crashed && keep_load(&k->header->state) == KEEP_CLOSED;
	for (c.order = 0; c.order < KEEP_ORDERS; c.order++) {
		rc = check_tree(&c);
		if (rc)
			return rc;
	}
	for (i = 0; i < k->table_pages; i++) {
		word = keep_load(&k->map[i / 64]) >> (i % 64) & 1;
		if (i < k->first_table && !word)
			return err_set(e, -EBADMSG, "the header's pages count as free");
		if (i >= k->first_table)
			report->leaked += word && !bit_test(seen, (uint32_t)i);
	}
	word = keep_load(&k->map[keep_map_words(k) - 1]);
	if (k->table_pages % 64 && ~word >> (k->table_pages % 64))
		return err_set(e, -EBADMSG, "pages beyond the area count as free");
	if (report->leaked && !crashed)
		return err_set(e, -EBADMSG, "%llu table pages are taken and not reached",
			       (unsigned long long)report->leaked);
	return 0;
}

static int check_overlaps(struct keep *k, struct keep_report *report)
{
	struct keep_runs runs;
	struct keep_hand *hand;
	uint64_t start, end;
	int rc = keep_hand_new(k, &hand);

	if (rc)
		return rc;
	rc = keep_runs_begin(&runs, hand, 0, k->pages);
	while (!rc) {
		rc = keep_runs_next(&runs, &start, &end);
		if (rc <= 0)
			break;
		rc = 0;
	}
	report->overlaps = runs.overlaps;
	keep_hand_free(hand);
	return rc;
}

int keep_validate(struct keep *k, unsigned int flags, struct keep_report *ret, struct err *e)
{
	CLEANUP_FREE uint64_t *seen = calloc(keep_map_words(k), sizeof(*seen));
	uint64_t orders = keep_orders(k);
	bool crashed = flags & KEEP_CRASHED;
	struct keep_report report;
	int rc;

	if (!seen)
		return err_sys(e, -ENOMEM, "cannot check the table");
	rc = keep_check_trees(k, crashed, seen, &report, e);
	if (!rc && orders & (orders - 1)) {
		rc = check_overlaps(k, &report);
		if (rc)
			return err_sys(e, rc, "cannot check the table");
	}
	if (!rc && report.overlaps && !crashed)
		rc = err_set(e, -EBADMSG, "%llu runs overlap with another order",
			     (unsigned long long)report.overlaps);
	if (!rc)
		*ret = report;
	return rc;
}
