// SPDX-License-Identifier: LGPL-2.1-or-later
/* The guard against SIGBUS; see busguard.h. */
#include "os/busguard.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/num.h"
#include "base/wait.h"

#define PAGE_BYTES 4096u

/*
 * The state of the guard that is held.  What the handler reads is written before sigaction()
 * and stays until the old action is back and no handler runs; the ranges are the handlers' own,
 * under `lock`, which spins and sleeps on a futex and so may be taken in a handler: nobody is
 * interrupted by SIGBUS while holding it.
 */
static struct {
	atomic_bool held;
	const struct os_guarded *list;
	size_t n;
	struct sigaction before;
	struct wait_lock lock;
	struct os_bad_range bad[OS_BUSGUARD_RANGES];
	size_t n_bad;
} guard;

static const struct os_guarded *guarded_at(const uint8_t *at)
{
	size_t i;

	for (i = 0; i < guard.n; i++) {
		if (at >= guard.list[i].at && at < guard.list[i].at + guard.list[i].bytes)
			return &guard.list[i];
	}
	return NULL;
}

/* Where to put zero pages: all that lies behind the file's end, else what the kernel calls bad.
 */
static struct os_bad_range faulty_range(const struct os_guarded *g, uint8_t *at, size_t granule)
{
	size_t offset = (size_t)(at - g->at) & ~(granule - 1);
	struct stat st;

	if (g->fd >= 0 && fstat(g->fd, &st) == 0 &&
	    num_round_up((uint64_t)st.st_size, PAGE_BYTES) <= offset) {
		offset = num_round_up((uint64_t)st.st_size, PAGE_BYTES);
		return (struct os_bad_range){g->at + offset, g->bytes - offset};
	}
	return (struct os_bad_range){g->at + offset, num_min(granule, g->bytes - offset)};
}

/* Puts `r` and `b` together when they touch; mappings that lie side by side stay apart. */
static bool join(struct os_bad_range *b, const struct os_bad_range *r)
{
	uint8_t *end = b->at + b->bytes, *r_end = r->at + r->bytes;

	if (r->at > end || b->at > r_end || guarded_at(b->at) != guarded_at(r->at))
		return false;
	b->at = b->at < r->at ? b->at : r->at;
	b->bytes = (size_t)((end > r_end ? end : r_end) - b->at);
	return true;
}

/* What finds no room is only counted: the caller then knows that it knows not all. */
static void remember(struct os_bad_range r)
{
	size_t i;

	for (i = 0; i < num_min(guard.n_bad, OS_BUSGUARD_RANGES); i++) {
		if (join(&guard.bad[i], &r))
			return;
	}
	if (guard.n_bad < OS_BUSGUARD_RANGES)
		guard.bad[guard.n_bad] = r;
	guard.n_bad++;
}

/* Not ours: what would have happened without the guard happens. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
	if (guard.before.sa_flags & SA_SIGINFO) {
		guard.before.sa_sigaction(sig, info, context);
	} else if (guard.before.sa_handler == SIG_IGN && info->si_code <= 0) {
		/* Sent by a process; a fault cannot be ignored. */
	} else if (guard.before.sa_handler == SIG_DFL || guard.before.sa_handler == SIG_IGN) {
		signal(SIGBUS, SIG_DFL);
		raise(SIGBUS);
	} else {
		guard.before.sa_handler(sig);
	}
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	uint8_t *at = (uint8_t *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE_BYTES - 1));
	const struct os_guarded *g = info->si_code > 0 ? guarded_at(at) : NULL;
	size_t granule = PAGE_BYTES;
	struct os_bad_range r;
	int saved = errno;

	if (!g) {
		pass_on(sig, info, context);
		return;
	}
#ifdef BUS_MCEERR_AR
	/* Broken memory: the kernel says how much of it. */
	if ((info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO) &&
	    info->si_addr_lsb > 12 && info->si_addr_lsb < 31)
		granule = (size_t)1 << info->si_addr_lsb;
#endif
	r = faulty_range(g, at, granule);
	if (mmap(r.at, r.bytes, PROT_READ,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
		 0) == MAP_FAILED) {
		pass_on(sig, info, context);
		return;
	}
	wait_lock_acquire(&guard.lock);
	remember(r);
	wait_lock_release(&guard.lock);
	errno = saved;
}

int os_busguard_hold(const struct os_guarded *list, size_t n, struct err *e)
{
	struct sigaction action = {.sa_sigaction = on_sigbus,
				   .sa_flags = SA_SIGINFO | SA_NODEFER};

	if (atomic_exchange(&guard.held, true))
		return err_set(e, -EBUSY, "another copy is being taken in this process");
	guard.list = list;
	guard.n = n;
	guard.n_bad = 0;
	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, &guard.before);
	return 0;
}

static int by_address(const void *a, const void *b)
{
	const struct os_bad_range *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

/* In order; a range that came between two others makes them one.  Returns how many are left. */
static size_t tidy(size_t n)
{
	size_t i, kept = 0;

	qsort(guard.bad, n, sizeof(guard.bad[0]), by_address);
	for (i = 0; i < n; i++) {
		if (!kept || !join(&guard.bad[kept - 1], &guard.bad[i]))
			guard.bad[kept++] = guard.bad[i];
	}
	return kept;
}

size_t os_busguard_release(struct os_bad_range *ret, size_t room)
{
	size_t n = guard.n_bad, kept;

	sigaction(SIGBUS, &guard.before, NULL);
	kept = tidy(num_min(n, OS_BUSGUARD_RANGES));
	if (room)
		memcpy(ret, guard.bad, num_min(kept, room) * sizeof(*ret));
	atomic_store(&guard.held, false);
	return n > OS_BUSGUARD_RANGES ? n : kept;
}
