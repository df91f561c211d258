/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory for the copy: handed out densely in pages, populated beforehand, and given back to the system in huge pages when
 * all of one has been read.
 */
#ifndef TORPOR_LIVE_ARENA_H
#define TORPOR_LIVE_ARENA_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct live_arena;

struct live_arena *live_arena_new(void);
void live_arena_free(struct live_arena *a);

/* Adds room for `bytes`, populated by all threads.  -ENOMEM.  One thread, as all but release. */
int live_arena_grow(struct live_arena *a, uint64_t bytes, unsigned int threads, const atomic_bool *cancel, struct err *e);

/* Up to `pages` pages that lie together; grows, without populating, when there are none.  NULL: no memory. */
uint8_t *live_arena_take(struct live_arena *a, uint64_t pages, uint64_t *ret_pages);

/* These pages are not needed any more.  Any thread; each page once. */
void live_arena_release(struct live_arena *a, const uint8_t *at, uint64_t pages);

#endif
