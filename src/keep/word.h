/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Every access of the room to shared memory.  All are sequentially consistent, since the
 * protocol of docs/design/keep.md is argued in the single order of these; on x86 a load costs
 * nothing by that.  Only tables that nobody can reach yet are written with relaxed stores
 * (keep_fill()), and become visible by the compare-and-swap that links them.
 *
 * A test build (KEEP_STORE_HOOK) is called after each store, and each pin, to stop there or to
 * let other threads run.
 */
#ifndef TORPOR_KEEP_WORD_H
#define TORPOR_KEEP_WORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint64_t keep_word;

#ifdef KEEP_STORE_HOOK
void keep_store_hook(void);
#else
static inline void keep_store_hook(void)
{
}
#endif

static inline uint64_t keep_load(const keep_word *w)
{
	return atomic_load_explicit(w, memory_order_seq_cst);
}

static inline void keep_store(keep_word *w, uint64_t value)
{
	atomic_store_explicit(w, value, memory_order_seq_cst);
	keep_store_hook();
}

/* True when *w was `seen` and is `value` now. */
static inline bool keep_cas(keep_word *w, uint64_t seen, uint64_t value)
{
	if (!atomic_compare_exchange_strong(w, &seen, value))
		return false;
	keep_store_hook();
	return true;
}

/* Both return what was there before. */
static inline uint64_t keep_or(keep_word *w, uint64_t bits)
{
	uint64_t old = atomic_fetch_or(w, bits);

	keep_store_hook();
	return old;
}

static inline uint64_t keep_and(keep_word *w, uint64_t bits)
{
	uint64_t old = atomic_fetch_and(w, bits);

	keep_store_hook();
	return old;
}

#endif
