// SPDX-License-Identifier: LGPL-2.1-or-later
/* The beginning and the end: a table made, attached, closed; and the hands of its threads. */
#include "base/cleanup.h"
#include "keep/table.h"

/* Pages beyond what the trees can need: for chains that lose the race to be linked. */
#define SPARE_PAGES 128

static bool geometry_valid(const struct keep_geometry *g)
{
	return (g->page_bytes == KIB(4) || g->page_bytes == KIB(16) ||
		g->page_bytes == KIB(64)) &&
	       g->pages && g->pages <= KEEP_PAGES_MAX && g->order_max <= KEEP_ORDER_MAX;
}

static uint64_t header_sum(const struct keep_header *h)
{
	const uint8_t *bytes = (const uint8_t *)h;
	uint64_t sum = UINT64_C(0xcbf29ce484222325);
	size_t i;

	for (i = 0; i < offsetof(struct keep_header, sum); i++)
		sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
	return sum;
}

/* What follows from the geometry alone. */
static void set_geometry(struct keep *k, const struct keep_geometry *g)
{
	unsigned int order;

	k->page_shift = (uint32_t)__builtin_ctz(g->page_bytes);
	k->leaf_shift = k->page_shift + 3;
	k->fan_shift = k->page_shift - 3;
	k->pages = g->pages;
	k->order_max = g->order_max;
	for (order = 0; order <= k->order_max; order++)
		keep_tree_shape(k, order);
}

uint64_t keep_area_bytes(const struct keep_geometry *g)
{
	struct keep k = {.header = NULL};
	uint64_t tables = SPARE_PAGES;
	unsigned int order;
	uint32_t d;

	if (!geometry_valid(g))
		return 0;
	set_geometry(&k, g);
	for (order = 0; order <= k.order_max; order++)
		for (d = 0; k.tree[order].blocks && d < k.tree[order].levels; d++)
			tables += num_pages(k.tree[order].blocks,
					    UINT64_C(1) << k.tree[order].shift[d]);
	/* The header's map covers the header too; a page more or less is not worth a formula.
	 */
	tables += num_pages(KEEP_MAP_OFFSET + tables / 7, g->page_bytes) + 1;
	return tables <= KEEP_TABLES_MAX ? tables << k.page_shift : 0;
}

static int keep_new(const struct keep_area *area, const struct keep_geometry *g,
		    uint32_t table_pages, struct keep **ret, struct err *e)
{
	struct keep *k = calloc(1, sizeof(*k));

	if (!k)
		return err_sys(e, -ENOMEM, "cannot use the table");
	set_geometry(k, g);
	k->area = *area;
	k->header = area->addr;
	k->map = (keep_word *)((char *)area->addr + KEEP_MAP_OFFSET);
	k->table_pages = table_pages;
	k->first_table = keep_header_pages(k->page_shift, table_pages);
	*ret = k;
	return 0;
}

/* The magic comes last: before that it is no table. */
static void write_header(struct keep *k, const struct keep_geometry *g)
{
	struct keep_header *h = k->header;
	uint64_t words = (uint64_t)k->first_table << k->fan_shift, i;

	for (i = 0; i < words; i++)
		keep_store((keep_word *)k->area.addr + i, 0);
	h->version = KEEP_VERSION;
	h->page_shift = k->page_shift;
	h->pages = g->pages;
	h->order_max = g->order_max;
	h->table_pages = k->table_pages;
	for (i = 0; i < k->first_table; i++)
		keep_or(&k->map[i / 64], UINT64_C(1) << (i % 64));
	for (i = k->table_pages; i < keep_map_words(k) * 64; i++)
		keep_or(&k->map[i / 64], UINT64_C(1) << (i % 64));
	keep_store(&h->ready, k->area.ready ? k->first_table : k->table_pages);
	keep_store(&h->state, KEEP_IN_USE);
	atomic_thread_fence(memory_order_seq_cst);
	h->magic = KEEP_MAGIC;
	h->sum = header_sum(h);
}

int keep_create(const struct keep_area *area, const struct keep_geometry *g, struct keep **ret,
		struct err *e)
{
	struct keep *k;
	uint64_t table_pages;
	int rc;

	if (!geometry_valid(g) || (uintptr_t)area->addr % sizeof(uint64_t))
		return err_set(e, -EINVAL, "not a geometry for a table");
	table_pages = num_min(area->bytes / g->page_bytes, KEEP_TABLES_MAX);
	rc = keep_new(area, g, (uint32_t)table_pages, &k, e);
	if (rc)
		return rc;
	if (table_pages < (uint64_t)k->first_table + k->tree[0].levels)
		rc = err_set(e, -ENOSPC, "the area is too small for a table");
	if (!rc && area->ready) {
		rc = area->ready(area->ctx, 0, (uint64_t)k->first_table << k->page_shift);
		if (rc)
			err_sys(e, rc, "cannot allocate the table's header");
	}
	if (rc) {
		free(k);
		return rc;
	}
	write_header(k, g);
	*ret = k;
	return 0;
}

/* The part of the header that never changes. */
static int read_header(const struct keep_area *area, struct keep_geometry *ret_g,
		       uint32_t *ret_table_pages, struct err *e)
{
	const struct keep_header *h = area->addr;

	if ((uintptr_t)area->addr % sizeof(uint64_t) || area->bytes < KIB(4) ||
	    h->magic != KEEP_MAGIC)
		return err_set(e, -EBADMSG, "not a preservation table");
	if (h->version != KEEP_VERSION)
		return err_set(e, -EOPNOTSUPP, "a preservation table of layout %u; known is %u",
			       h->version, KEEP_VERSION);
	*ret_table_pages = h->table_pages;
	*ret_g = (struct keep_geometry){.pages = h->pages,
					.page_bytes =
						h->page_shift < 31 ? 1u << h->page_shift : 0,
					.order_max = h->order_max};
	if (h->sum != header_sum(h) || !geometry_valid(ret_g) ||
	    *ret_table_pages > area->bytes / ret_g->page_bytes ||
	    *ret_table_pages > KEEP_TABLES_MAX ||
	    *ret_table_pages <= keep_header_pages(h->page_shift, *ret_table_pages) ||
	    keep_load(&h->state) > KEEP_IN_USE || keep_load(&h->ready) > *ret_table_pages)
		return err_set(e, -EBADMSG, "the header of the preservation table is damaged");
	return 0;
}

int keep_attach(const struct keep_area *area, unsigned int flags, struct keep **ret,
		struct keep_found *ret_found, struct err *e)
{
	struct keep_found found = {.crashed = false};
	struct keep_geometry g;
	uint32_t table_pages = 0;
	struct keep *k;
	int rc = read_header(area, &g, &table_pages, e);

	if (rc || flags & ~(unsigned int)KEEP_READ_ONLY)
		return rc ? rc : err_set(e, -EINVAL, "unknown flags");
	rc = keep_new(area, &g, table_pages, &k, e);
	if (rc)
		return rc;
	k->read_only = flags & KEEP_READ_ONLY;
	found.crashed = keep_load(&k->header->state) != KEEP_CLOSED;
	if (!k->read_only) {
		keep_store(&k->header->state, KEEP_IN_USE);
		rc = found.crashed ? keep_mend(k, &found, e) : 0;
	}
	if (rc) {
		keep_abandon(k);
		return rc;
	}
	if (ret_found)
		*ret_found = found;
	*ret = k;
	return 0;
}

void keep_abandon(struct keep *k)
{
	struct keep_hand *hand, *next;

	if (!k)
		return;
	for (hand = atomic_load(&k->hands); hand; hand = next) {
		next = hand->next;
		free(hand);
	}
	free(k);
}

/* Everything at rest, populations written, closed. */
static void shut(struct keep *k)
{
	struct keep_hand *hand;
	unsigned int order;

	for (hand = atomic_load(&k->hands); hand; hand = hand->next)
		keep_hand_rest(hand);
	if (keep_hand_new(k, &hand))
		return; /* as after a crash: the next owner looks at everything */
	for (order = 0; order <= k->order_max; order++)
		keep_seal_tree(hand, order);
	keep_store(&k->header->state, KEEP_CLOSED);
}

void keep_close(struct keep *k)
{
	if (k && !k->read_only)
		shut(k);
	keep_abandon(k);
}

struct keep_geometry keep_geometry(const struct keep *k)
{
	return (struct keep_geometry){.pages = k->pages,
				      .page_bytes = UINT32_C(1) << k->page_shift,
				      .order_max = k->order_max};
}

int keep_hand_new(struct keep *k, struct keep_hand **ret)
{
	struct keep_hand *hand;

	for (hand = atomic_load(&k->hands); hand; hand = hand->next)
		if (!atomic_exchange(&hand->taken, true)) {
			*ret = hand;
			return 0;
		}
	hand = aligned_alloc(_Alignof(struct keep_hand), sizeof(*hand));
	if (!hand)
		return -ENOMEM;
	memset(hand, 0, sizeof(*hand));
	hand->keep = k;
	atomic_store(&hand->taken, true);
	hand->orders = k->read_only ? 0 : k->order_max + 1;
	hand->orders_used = &k->header->orders;
	hand->next = atomic_load(&k->hands);
	while (!atomic_compare_exchange_weak(&k->hands, &hand->next, hand))
		;
	*ret = hand;
	return 0;
}

void keep_hand_rest(struct keep_hand *hand)
{
	unsigned int order;

	for (order = 0; order <= hand->keep->order_max; order++)
		keep_path_rest(hand, order);
}

void keep_hand_free(struct keep_hand *hand)
{
	if (!hand)
		return;
	keep_hand_rest(hand);
	atomic_store(&hand->taken, false);
}
