// SPDX-License-Identifier: LGPL-2.1-or-later
/* Waiting between threads; see wait.h. */
#include "base/wait.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS 2000

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

void wait_while(_Atomic uint32_t *word, uint32_t value)
{
	int i;

	for (i = 0; i < SPINS; i++) {
		if (atomic_load_explicit(word, memory_order_acquire) != value)
			return;
		relax();
	}
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void wait_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void wait_lock_acquire(struct wait_lock *lock)
{
	uint32_t seen = 0;
	int i;

	for (i = 0; i < SPINS; i++) {
		seen = 0;
		if (atomic_compare_exchange_strong(&lock->state, &seen, 1))
			return;
		if (seen == 2)
			break;
		relax();
	}
	/* From here on the lock is taken as 2, since others may sleep too. */
	while (atomic_exchange(&lock->state, 2) != 0)
		syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

void wait_lock_release(struct wait_lock *lock)
{
	if (atomic_exchange(&lock->state, 0) == 2)
		syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
