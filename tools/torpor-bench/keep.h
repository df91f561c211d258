/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What torpor-bench keep compares: ways to track preserved pages and to hand them to a
 * successor. A rival is written anew here, for this comparison alone, after its published
 * description; its pieces are in keep-kit.c.  Whatever the kernel does beside the tracking
 * (folios, struct page, RCU, notifiers) is left out of all of them.
 */
#ifndef TORPOR_BENCH_KEEP_H
#define TORPOR_BENCH_KEEP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACK_PAGE_BYTES 4096u

/* Told of `pages` preserved pages from `pfn` on; 0 is to go on. */
typedef int (*track_run_fn)(void *ctx, uint64_t pfn, uint64_t pages);

/* One way to track pages.  What fails ends the program. */
struct track_ops {
	const char *name;
	/* An empty tracker of page numbers below `pages`; its memory is populated. */
	void *(*create)(uint64_t pages);
	/* What a thread hands to the four below; NULL where that is the tracker itself. */
	void *(*enter)(void *t);
	void (*leave)(void *hand);
	/* One page of order 0; by many threads at once.  0, or what made it fail. */
	int (*preserve)(void *hand, uint64_t pfn);
	/* A range, in the largest orders that its alignment allows; NULL where there is none.
	 */
	void (*preserve_range)(void *hand, uint64_t pfn, uint64_t pages);
	/* The same, kept at order 0; NULL where that is one call a page. */
	void (*preserve_range_0)(void *hand, uint64_t pfn, uint64_t pages);
	void (*unpreserve_range)(void *hand, uint64_t pfn, uint64_t pages); /* may be NULL */
	/* What has to be done before a successor can take over. */
	void (*serialize)(void *t);
	/* What a successor does before it may run; after serialize(). */
	void (*attach)(void *t);
	/* A distrusting look at all of it; NULL where there is none; after serialize(). */
	void (*validate)(void *t);
	/* All preserved pages; adjacent ones need not be merged; after serialize(). */
	void (*walk)(void *t, track_run_fn run, void *ctx);
	/* Memory for everything that says which pages are preserved. */
	size_t (*bytes)(void *t);
	void (*destroy)(void *t);
};

enum track_design {
	TRACK_LIST,
	TRACK_LIST_BARE,
	TRACK_SEED,
	TRACK_SEED_BARE,
	TRACK_RADIX,
	TRACK_TORPOR,
	TRACK_LIMIT,
	TRACK_DESIGNS,
};

extern const struct track_ops track_list, track_list_bare, track_seed, track_seed_bare,
	track_radix, track_torpor, track_limit;

/* ---- memory: populated beforehand, zeroed when handed out, as the kernel's allocator does
 * ---- */

/* Whole pages come from its beginning and stay aligned; the rest comes from its end. */
struct track_arena {
	uint8_t *at;
	size_t size;
	_Atomic size_t used_pages, used_rest;
	_Atomic size_t bytes; /* what is part of the structure */
};

void track_arena_new(struct track_arena *a, uint64_t pages);
void *track_alloc(struct track_arena *a, size_t bytes);
void track_arena_free(struct track_arena *a);

/* Another thread was faster: this piece is not part of the structure (and is not used again).
 */
void track_give_back(struct track_arena *a, size_t bytes);

/* ---- the uncontended path of the kernel's rw_semaphore: one atomic addition each way ---- */

#define TRACK_SEM_WRITER 1u
#define TRACK_SEM_READER 256u

struct track_sem {
	_Atomic uint64_t count;
};

void track_sem_read_slow(struct track_sem *s);
void track_sem_write(struct track_sem *s);
void track_sem_unwrite(struct track_sem *s);

static inline void track_sem_read(struct track_sem *s)
{
	if (atomic_fetch_add_explicit(&s->count, TRACK_SEM_READER, memory_order_acquire) &
	    TRACK_SEM_WRITER)
		track_sem_read_slow(s);
}

static inline void track_sem_unread(struct track_sem *s)
{
	atomic_fetch_sub_explicit(&s->count, TRACK_SEM_READER, memory_order_release);
}

/* ---- the kernel's xarray: nodes of 64, grown upwards on demand; zeroed memory is an empty one
 * ---- */

#define TRACK_XA_BITS 6u
#define TRACK_XA_SLOTS (1u << TRACK_XA_BITS)

struct track_xnode {
	uint64_t shift;
	_Atomic(uintptr_t) slots[TRACK_XA_SLOTS];
	uint64_t rest[7]; /* as large as the kernel's: its metadata is counted */
};

struct track_xarray {
	_Atomic(uintptr_t) head; /* an entry, alone at index 0, or a node: lowest bit set */
	pthread_mutex_t lock;    /* of changes; zeroed memory is an unlocked one */
};

static inline struct track_xnode *track_xnode(uintptr_t entry)
{
	return entry & 1 ? (struct track_xnode *)(entry - 1) : NULL;
}

static inline void *track_xa_load(struct track_xarray *xa, uint64_t index)
{
	uintptr_t entry = atomic_load_explicit(&xa->head, memory_order_acquire);
	struct track_xnode *node = track_xnode(entry);

	if (node ? index >> node->shift >= TRACK_XA_SLOTS : index != 0)
		return NULL;
	for (; node; node = track_xnode(entry))
		entry = atomic_load_explicit(
			&node->slots[(index >> node->shift) % TRACK_XA_SLOTS],
			memory_order_acquire);
	return (void *)entry;
}

/* The entry at `index`; a new zeroed one of `bytes` where there was none. */
void *track_xa_make(struct track_xarray *xa, struct track_arena *a, uint64_t index,
		    size_t bytes);

static inline void *track_xa_load_or_make(struct track_xarray *xa, struct track_arena *a,
					  uint64_t index, size_t bytes)
{
	void *entry = track_xa_load(xa, index);

	return entry ? entry : track_xa_make(xa, a, index, bytes);
}

/* All entries, in ascending order. */
void track_xa_each(struct track_xarray *xa, void (*fn)(void *ctx, uint64_t index, void *entry),
		   void *ctx);

/* ---- bits and orders ---- */

static inline void track_set_bit(_Atomic uint64_t *bits, uint64_t bit)
{
	atomic_fetch_or_explicit(&bits[bit / 64], UINT64_C(1) << bit % 64,
				 memory_order_relaxed);
}

/* Each set one of `n` bits, the first of which stands for page `pfn` of `order`. */
void track_each_bit(_Atomic uint64_t *bits, size_t n, uint64_t pfn, unsigned int order,
		    track_run_fn fn, void *ctx);

/* The order of the largest page that begins at `pfn` and ends with or before `end`. */
static inline unsigned int track_order(uint64_t pfn, uint64_t end, unsigned int max)
{
	unsigned int order = 63u - (unsigned int)__builtin_clzll(end - pfn);

	if (pfn && (unsigned int)__builtin_ctzll(pfn) < order)
		order = (unsigned int)__builtin_ctzll(pfn);
	return order < max ? order : max;
}

/* ---- the successor: reservations as the kernel's memblock makes them ---- */

struct track_region {
	uint64_t base, pages;
	unsigned int flags;
	int node;
};

struct track_regions {
	struct track_region *at;
	size_t n, max;
};

/* A track_run_fn; `ctx` is a struct track_regions.  One reservation, marked as not to
 * initialize. */
int track_reserve(void *ctx, uint64_t pfn, uint64_t pages);

/* Reserves what `walk` says; the array goes at the end, as its pages are not what is compared.
 */
void track_read_back(void *t, void (*walk)(void *t, track_run_fn run, void *ctx));

#endif
