/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Waiting between threads: spin briefly, then sleep on a futex; and the one lock built on it.
 * Sleeping costs 17 to 50 microseconds until the thread runs again on a virtual machine, spinning 0.1; a
 * spin of about 10 microseconds covers the hand-overs that are about to happen anyway.
 */
#ifndef TORPOR_BASE_WAIT_H
#define TORPOR_BASE_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

/* Returns once *word is not `value` any more, or for no reason: the caller checks again. */
void wait_while(_Atomic uint32_t *word, uint32_t value);

/* Wakes everybody who waits on the word; its value was changed before. */
void wait_wake(_Atomic uint32_t *word);

/* 0 free, 1 held, 2 held and somebody sleeps.  Zero it before use. */
struct wait_lock {
	_Atomic uint32_t state;
};

void wait_lock_acquire(struct wait_lock *lock);
void wait_lock_release(struct wait_lock *lock);

#endif
