// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The pieces that the rivals of torpor-bench keep are made of.  They do what the kernel's do
 * and no more; where the kernel's are slower without need, these are not (see place()).
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"
#include "keep.h"

_Static_assert(sizeof(struct track_xnode) == 576, "as large as the kernel's xa_node");

/* ---- memory ---- */

void track_arena_new(struct track_arena *a, uint64_t pages)
{
	/* A bit a page, a half more for what leads there, and tables of all orders. */
	*a = (struct track_arena){
		.size = num_round_up(pages / 8 + pages / 16 + MIB(2), TRACK_PAGE_BYTES)};
	a->at = mmap(NULL, a->size, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (a->at == MAP_FAILED)
		bench_die("cannot get %zu bytes of memory", a->size);
}

void *track_alloc(struct track_arena *a, size_t bytes)
{
	size_t room = num_round_up(bytes, 64), pages, rest;
	uint8_t *at;

	if (bytes % TRACK_PAGE_BYTES == 0) {
		pages = atomic_fetch_add(&a->used_pages, bytes) + bytes;
		rest = atomic_load(&a->used_rest);
		at = a->at + pages - bytes;
	} else {
		rest = atomic_fetch_add(&a->used_rest, room) + room;
		pages = atomic_load(&a->used_pages);
		at = a->at + a->size - rest;
	}
	if (pages + rest > a->size)
		bench_die("the memory for tables is used up");
	atomic_fetch_add(&a->bytes, bytes);
	return memset(at, 0, bytes);
}

void track_give_back(struct track_arena *a, size_t bytes)
{
	atomic_fetch_sub(&a->bytes, bytes);
}

void track_arena_free(struct track_arena *a)
{
	munmap(a->at, a->size);
}

/* ---- rw_semaphore ---- */

void track_sem_read_slow(struct track_sem *s)
{
	do {
		track_sem_unread(s);
		while (atomic_load(&s->count) & TRACK_SEM_WRITER)
			sched_yield();
	} while (atomic_fetch_add(&s->count, TRACK_SEM_READER) & TRACK_SEM_WRITER);
}

void track_sem_write(struct track_sem *s)
{
	uint64_t none = 0;

	while (!atomic_compare_exchange_weak(&s->count, &none, TRACK_SEM_WRITER)) {
		none = 0;
		sched_yield();
	}
}

void track_sem_unwrite(struct track_sem *s)
{
	atomic_fetch_sub(&s->count, TRACK_SEM_WRITER);
}

/* ---- xarray ---- */

static uintptr_t new_node(struct track_arena *a, uint64_t shift, uintptr_t first)
{
	struct track_xnode *node = track_alloc(a, sizeof(*node));

	node->shift = shift;
	atomic_init(&node->slots[0], first);
	return (uintptr_t)node | 1;
}

/* Adds levels at the top until `index` fits.  Readers see the old top or the new one, whole. */
static void grow(struct track_xarray *xa, struct track_arena *a, uint64_t index)
{
	uintptr_t head = atomic_load(&xa->head);

	if (!track_xnode(head) && index != 0)
		head = new_node(a, 0, head);
	while (track_xnode(head) && index >> track_xnode(head)->shift >= TRACK_XA_SLOTS)
		head = new_node(a, track_xnode(head)->shift + TRACK_XA_BITS, head);
	atomic_store(&xa->head, head);
}

void *track_xa_make(struct track_xarray *xa, struct track_arena *a, uint64_t index,
		    size_t bytes)
{
	_Atomic(uintptr_t) *slot = &xa->head;
	struct track_xnode *node;

	pthread_mutex_lock(&xa->lock);
	grow(xa, a, index);
	while ((node = track_xnode(atomic_load(slot))) != NULL) {
		slot = &node->slots[(index >> node->shift) % TRACK_XA_SLOTS];
		if (node->shift && !atomic_load(slot))
			atomic_store(slot, new_node(a, node->shift - TRACK_XA_BITS, 0));
	}
	if (!atomic_load(slot))
		atomic_store(slot, (uintptr_t)track_alloc(a, bytes));
	pthread_mutex_unlock(&xa->lock);
	return (void *)atomic_load(slot);
}

static void each(uintptr_t entry, uint64_t index, void (*fn)(void *, uint64_t, void *),
		 void *ctx)
{
	struct track_xnode *node = track_xnode(entry);
	uint64_t i;

	if (!node) {
		if (entry)
			fn(ctx, index, (void *)entry);
		return;
	}
	for (i = 0; i < TRACK_XA_SLOTS; i++)
		each(atomic_load(&node->slots[i]), index | i << node->shift, fn, ctx);
}

void track_xa_each(struct track_xarray *xa, void (*fn)(void *ctx, uint64_t index, void *entry),
		   void *ctx)
{
	each(atomic_load(&xa->head), 0, fn, ctx);
}

/* ---- bits ---- */

void track_each_bit(_Atomic uint64_t *bits, size_t n, uint64_t pfn, unsigned int order,
		    track_run_fn fn, void *ctx)
{
	uint64_t word, at;
	size_t i;

	for (i = 0; i < n / 64; i++) {
		word = atomic_load_explicit(&bits[i], memory_order_relaxed);
		for (; word; word &= word - 1) {
			at = i * 64 + (unsigned int)__builtin_ctzll(word);
			fn(ctx, pfn + (at << order), UINT64_C(1) << order);
		}
	}
}

/* ---- memblock ---- */

#define NO_INIT 1u

static void insert(struct track_regions *r, size_t i, uint64_t pfn, uint64_t pages)
{
	if (r->n == r->max) {
		r->max = r->max ? 2 * r->max : 128;
		r->at = realloc(r->at, r->max * sizeof(*r->at));
		if (!r->at)
			bench_die("no memory");
	}
	memmove(&r->at[i + 1], &r->at[i], (r->n - i) * sizeof(*r->at));
	r->at[i] = (struct track_region){.base = pfn, .pages = pages};
	r->n++;
}

/* Regions from `first` on: two alike that touch become one. */
static void merge(struct track_regions *r, size_t first, size_t last)
{
	size_t i = first;

	while (i < last && i + 1 < r->n) {
		struct track_region *this = &r->at[i], *next = this + 1;

		if (this->base + this->pages != next->base || this->node != next->node ||
		    this->flags != next->flags) {
			i++;
			continue;
		}
		this->pages += next->pages;
		memmove(next, next + 1, (r->n - (i + 2)) * sizeof(*next));
		r->n--;
		last--;
	}
}

/*
 * The first region beyond `pfn`.  The kernel looks at all regions from the lowest on, twice for
 * a reservation and once for a mark; from the highest on, pages that come in ascending order
 * are reserved in constant time.
 */
static size_t place(const struct track_regions *r, uint64_t pfn)
{
	size_t i = r->n;

	while (i && r->at[i - 1].base > pfn)
		i--;
	return i;
}

static void reserve(struct track_regions *r, uint64_t pfn, uint64_t pages)
{
	size_t i = place(r, pfn);

	if ((i && r->at[i - 1].base + r->at[i - 1].pages > pfn) ||
	    (i < r->n && r->at[i].base < pfn + pages))
		bench_die("page %llu is preserved twice", (unsigned long long)pfn);
	insert(r, i, pfn, pages);
	merge(r, i ? i - 1 : 0, i + 1);
}

/* Each is marked right after it was reserved, so it touches nothing that is like it. */
static void mark(struct track_regions *r, uint64_t pfn, uint64_t pages)
{
	size_t i = place(r, pfn) - 1;

	if (r->at[i].base != pfn || r->at[i].pages != pages)
		bench_die("page %llu is not a reservation of its own", (unsigned long long)pfn);
	r->at[i].flags |= NO_INIT;
	merge(r, i ? i - 1 : 0, i + 1);
}

int track_reserve(void *ctx, uint64_t pfn, uint64_t pages)
{
	reserve(ctx, pfn, pages);
	mark(ctx, pfn, pages);
	return 0;
}

void track_read_back(void *t, void (*walk)(void *t, track_run_fn run, void *ctx))
{
	struct track_regions r = {0};

	walk(t, track_reserve, &r);
	free(r.at);
}
