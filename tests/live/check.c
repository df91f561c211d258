// SPDX-License-Identifier: LGPL-2.1-or-later
/* Is it the memory of one instant?  See layout.h.  Reads only. */
#include <inttypes.h>
#include <stdio.h>

#include "layout.h"

/* At most this many steps are under way in a slot. */
#define UNDER_WAY 1u

static bool wrong(uint64_t slot, const char *what, uint64_t got, uint64_t want)
{
	fprintf(stderr, "slot %" PRIu64 ": %s is %" PRIu64 ", not %" PRIu64 "\n", slot, what,
		got, want);
	return false;
}

/* The pairs of a slot: how many steps it began and finished. */
static bool check_pairs(const struct layout *l, uint64_t slot, uint64_t *ret_begun,
			uint64_t *ret_done)
{
	const layout_word *a = layout_a(l, slot), *b = layout_b(l, slot);
	uint64_t begun = 0, done = 0;
	unsigned int k;

	for (k = 0; k < LAYOUT_PAIRS; k++) {
		begun += a[k];
		done += b[k];
		if (a[k] - b[k] > UNDER_WAY)
			return wrong(slot, "B of a pair", b[k], a[k]);
	}
	if (begun - done > UNDER_WAY)
		return wrong(slot, "the sum of B", done, begun);
	for (k = 0; k < LAYOUT_PAIRS; k++) {
		if (a[k] != layout_stamp(begun, k, LAYOUT_PAIRS))
			return wrong(slot, "A of a pair", a[k],
				     layout_stamp(begun, k, LAYOUT_PAIRS));
		if (b[k] != layout_stamp(done, k, LAYOUT_PAIRS))
			return wrong(slot, "B of a pair", b[k],
				     layout_stamp(done, k, LAYOUT_PAIRS));
	}
	*ret_begun = begun;
	*ret_done = done;
	return true;
}

static bool check_page(const struct layout *l, uint64_t slot, uint64_t page, uint64_t stamp)
{
	const uint64_t *at = (const uint64_t *)(l->at + page * LAYOUT_PAGE);
	enum layout_kind kind = layout_kind(page);
	unsigned int w;

	for (w = 0; w < LAYOUT_WORDS; w++) {
		uint64_t want = layout_content(kind, page, stamp, w);

		if (at[w] == want)
			continue;
		fprintf(stderr, "page %" PRIu64 " (kind %d), word %u: ", page, kind, w);
		return wrong(slot, "the content", at[w], want);
	}
	return true;
}

static bool check_slot(const struct layout *l, uint64_t slot, uint64_t *begun, uint64_t *done)
{
	uint64_t m = layout_own(l, slot), first = 0, last = 0, j;

	if (!check_pairs(l, slot, &first, &last))
		return false;
	*begun += first;
	*done += last;
	for (j = 0; j < m; j++) {
		/* The page of the step under way may be in any state. */
		if (first != last && j == last % m)
			continue;
		if (!check_page(l, slot, layout_own_page(l, slot, j), layout_stamp(last, j, m)))
			return false;
	}
	return true;
}

bool layout_check(const struct layout *l, uint64_t *ret_steps)
{
	uint64_t begun = 0, done = 0, slot;
	const struct layout_head *head = layout_head(l);

	for (slot = 0; slot < l->slots; slot++) {
		if (!check_slot(l, slot, &begun, &done))
			return false;
	}
	if (head->begun - begun > l->slots * UNDER_WAY)
		return wrong(l->slots, "the counter of steps begun", head->begun, begun);
	if (done - *layout_done(l) > l->slots * UNDER_WAY)
		return wrong(l->slots, "the counter of steps done", *layout_done(l), done);
	*ret_steps = done;
	return true;
}

bool layout_check_tail(const struct layout *l, uint64_t pages)
{
	const struct layout_head *head = layout_head(l);
	const uint64_t *at = (const uint64_t *)layout_page(l, l->pages);
	uint64_t before = layout_tail_content(head->grown),
		 after = layout_tail_content(head->cuts), want = after, w;

	if (head->cuts - head->grown > UNDER_WAY)
		return wrong(l->slots, "the number of times the tail grew", head->grown,
			     head->cuts);
	if (head->cuts == head->grown) {
		if (head->cuts && pages != LAYOUT_TAIL)
			return wrong(l->slots, "the length of the tail", pages, LAYOUT_TAIL);
		before = after;
	}
	if (pages && pages != LAYOUT_TAIL)
		return wrong(l->slots, "the length of the tail", pages, LAYOUT_TAIL);
	/* Not cut yet; or filled up to some word. */
	if (pages && at[pages * LAYOUT_WORDS - 1] == before)
		want = at[0] == before ? before : after;
	for (w = 0; w < pages * LAYOUT_WORDS; w++) {
		if (at[w] == want)
			continue;
		if (at[w] != 0 || want != after || head->cuts == head->grown)
			return wrong(l->slots, "a word of the tail", at[w], want);
		want = 0;
	}
	return true;
}
