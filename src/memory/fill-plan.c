// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What huge pages cost: a page of data in one takes all of it.  Looks at how the data lies before anything is written: a huge page of
 * tmpfs is had where it will be mostly data, and what they take beyond the data is counted.  A chunk's data is at most 1 MiB.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/num.h"
#include "memory/target-priv.h"

/* Of a huge page so much has to be data. */
#define DENSE_BYTES (FILL_HUGE_BYTES / 4 * 3)

/* The huge page that is being added up. */
struct plan {
	struct memory_target *t;
	uint64_t item, number, bytes;
};

static const struct os_filesystem *fs_of(const struct memory_target *t, uint64_t item)
{
	return &t->roots[t->root_of[item]].fs;
}

static int set_dense(struct memory_target *t, uint64_t item, uint64_t number)
{
	if (!t->dense[item])
		t->dense[item] = calloc(num_pages(t->items->list[item].bytes, FILL_HUGE_BYTES) / 64 + 1, sizeof(**t->dense));
	if (!t->dense[item])
		return -ENOMEM;
	t->dense[item][number / 64] |= (uint64_t)1 << number % 64;
	return 0;
}

static int judge(struct plan *p)
{
	uint64_t bytes = p->bytes;

	p->bytes = 0;
	if (bytes < DENSE_BYTES)
		return 0;
	p->t->rounding_bytes += FILL_HUGE_BYTES - num_min(bytes, FILL_HUGE_BYTES);
	return set_dense(p->t, p->item, p->number);
}

static int add(struct plan *p, uint64_t item, uint64_t number, uint64_t bytes)
{
	int rc = 0;

	if (p->item != item || p->number != number)
		rc = judge(p);
	p->item = item;
	p->number = number;
	p->bytes += bytes;
	return rc;
}

/*
 * The data of a chunk counts as evenly spread over all of it.  Where it is thin it counts at both ends alone: what lies between is mostly
 * holes, and may be a lot.
 */
static int add_data(struct plan *p, const struct memory_data *d)
{
	uint64_t page_bytes = p->t->items->list[d->item].page_bytes;
	uint64_t at = d->first_page * page_bytes, end = at + d->pages * page_bytes, next;
	bool thin = d->data_pages < d->pages - d->pages / 4;
	int rc = 0;

	for (; at < end && !rc; at = next) {
		next = num_min(end, num_round_up(at + 1, FILL_HUGE_BYTES));
		rc = add(p, d->item, at / FILL_HUGE_BYTES, num_pages((next - at) * d->data_pages, d->pages));
		if (thin && next < end)
			next = num_max(next, num_round_up(end, FILL_HUGE_BYTES) - FILL_HUGE_BYTES);
	}
	return rc;
}

/* Is this a file whose pages may be huge?  A mapping is as long as an address space allows. */
static bool may_be_huge(const struct memory_target *t, uint64_t item)
{
	uint64_t bytes = t->items->list[item].bytes;

	return fs_of(t, item)->huge && bytes >= DENSE_BYTES && bytes <= FILL_MAP_MAX_BYTES;
}

/*
 * hugetlbfs has whole huge pages alone, and nothing else has any of its kind: who had a file on them wants to know when it comes back on
 * others.
 */
static int check_hugetlb(const struct memory_target *t, struct err *e)
{
	uint64_t i;

	for (i = 0; i < t->items->count; i++) {
		const struct memory_item *item = &t->items->list[i];
		uint32_t there = fs_of(t, i)->huge_page_bytes;

		if (item->kind != MEMORY_FILE)
			continue;
		if (there && item->bytes % there)
			return err_set(e, -ENOTSUP,
				       "%s cannot be restored to hugetlbfs: its %" PRIu64 " bytes are not whole pages of %u bytes",
				       item->name, item->bytes, there);
		if (item->huge_page_bytes && item->huge_page_bytes != there)
			memory_warn(t->opts.warnings, "%s lay on huge pages of %u bytes (hugetlbfs), and comes back on pages of another size",
				    item->name, item->huge_page_bytes);
	}
	return 0;
}

int fill_plan(struct memory_target *t, struct err *e)
{
	struct plan p = {.t = t};
	struct memory_data d;
	bool huge = false;
	uint64_t i;
	int rc = check_hugetlb(t, e);

	for (i = 0; i < t->items->count && !huge; i++)
		huge = may_be_huge(t, i);
	if (rc < 0 || !huge || !t->opts.next_data)
		return rc;
	t->dense = calloc(t->items->count, sizeof(*t->dense));
	if (!t->dense)
		return err_sys(e, -ENOMEM, "cannot plan where huge pages go");
	while ((rc = t->opts.next_data(t->opts.data_ctx, &d, e)) > 0) {
		if (may_be_huge(t, d.item) && add_data(&p, &d) < 0)
			return err_sys(e, -ENOMEM, "cannot plan where huge pages go");
	}
	if (!rc && judge(&p) < 0)
		rc = err_sys(e, -ENOMEM, "cannot plan where huge pages go");
	return rc;
}

void fill_plan_free(struct memory_target *t)
{
	uint64_t i;

	for (i = 0; t->dense && i < t->items->count; i++)
		free(t->dense[i]);
	free(t->dense);
}
