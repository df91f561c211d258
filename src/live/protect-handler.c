// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The handler: copies a block aside the moment before it first changes, and lets the store go
 * on.  Allocates nothing, takes no signals, and stores to nothing but the snapshot's own
 * mappings.
 */
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/num.h"
#include "live/protect-priv.h"

/* Faults taken at a time. */
#define BATCH 16

uint64_t protect_count(const struct region *r, unsigned int shift)
{
	return (((uintptr_t)r->at + r->bytes - 1) >> shift) - ((uintptr_t)r->at >> shift) + 1;
}

/* The part of a region in the index-th unit of 2^shift bytes that it has a part in. */
static size_t unit_at(const struct region *r, unsigned int shift, uint64_t index,
		      uint8_t **ret_at)
{
	uint64_t start = (((uintptr_t)r->at >> shift) + index) << shift;
	uint64_t end = num_min(start + (1ull << shift), (uintptr_t)r->at + r->bytes);

	start = num_max(start, (uintptr_t)r->at);
	*ret_at = (uint8_t *)(uintptr_t)start;
	return end - start;
}

size_t protect_block_at(const struct region *r, uint64_t index, uint8_t **ret_at)
{
	return unit_at(r, BLOCK_SHIFT, index, ret_at);
}

size_t protect_group_at(const struct region *r, uint64_t index, uint8_t **ret_at)
{
	return unit_at(r, GROUP_SHIFT, index, ret_at);
}

int protect_range(struct live_protect *p, uint8_t *at, uint64_t bytes, bool on)
{
	uint64_t half;
	int rc = os_uffd_protect(p->uffd, at, bytes, on), rest;

	if (rc == 0)
		return 0;
	if (bytes <= p->page_bytes) {
		/* Not ours any more; who waited for it finds that out. */
		if (!on)
			os_uffd_wake(p->uffd, at, bytes);
		return rc;
	}
	/* Kernels before 6.3 take one mapping at a time, and the program may have split ours
	 * (mprotect, madvise). */
	half = num_round_up(bytes / 2, p->page_bytes);
	rc = protect_range(p, at, half, on);
	if (rc < 0 && on)
		return rc;
	rest = protect_range(p, at + half, bytes - half, on);
	return rc < 0 ? rc : rest;
}

void protect_undo(struct live_protect *p)
{
	size_t i;

	for (i = 0; i < p->n_chunks; i++)
		protect_range(p, p->chunks[i].at, p->chunks[i].bytes, false);
}

/* No snapshot any more, but the program goes on. */
static void give_up(struct live_protect *p, int code)
{
	int none = 0;

	/* Before anything can change, so that who reads what was changed knows it. */
	if (atomic_compare_exchange_strong(&p->failed, &none, code))
		protect_undo(p);
}

/* Under the block's lock. */
static void save_block(struct live_protect *p, struct block *b, const uint8_t *at, size_t bytes)
{
	uint32_t slot = side_take(&p->side);
	int rc = protect_map_read(p, at, bytes, side_slot(&p->side, slot));

	if (rc == 0) {
		b->slot = slot;
		b->state = SAVED;
		atomic_fetch_add_explicit(&p->saved_pages, bytes / PAGE_BYTES,
					  memory_order_relaxed);
		return;
	}
	side_put(&p->side, slot);
	b->state = LOST;
	if (rc != -EFAULT)
		give_up(p, rc);
}

static const struct region *region_of(const struct live_protect *p, uintptr_t addr)
{
	size_t low = 0, high = p->n_regions;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if ((uintptr_t)p->regions[p->by_address[middle]].at <= addr)
			low = middle;
		else
			high = middle;
	}
	return &p->regions[p->by_address[low]];
}

static void serve(struct live_protect *p, uintptr_t addr)
{
	const struct region *r = region_of(p, addr);
	uint64_t index = (addr >> BLOCK_SHIFT) - ((uintptr_t)r->at >> BLOCK_SHIFT);
	uint64_t number = r->first_block + index;
	struct wait_lock *lock = protect_lock(p, number);
	struct block *b = &p->blocks[number];
	uint8_t *at;
	size_t bytes = protect_block_at(r, index, &at);

	wait_lock_acquire(lock);
	if (b->state == UNTOUCHED && !atomic_load(&p->failed))
		save_block(p, b, at, bytes);
	/* In every state: two threads may have waited, or the group of a block that was read is
	 * not done. */
	protect_range(p, at, bytes, false);
	wait_lock_release(lock);
}

/* Sleeps until there are faults or p->stop. */
static void wait_for_faults(struct live_protect *p)
{
	struct pollfd fds[] = {
		{.fd = p->uffd, .events = POLLIN},
		{.fd = p->wake_fd, .events = POLLIN},
	};

	poll(fds, ARRAY_LEN(fds), -1);
}

/*
 * The whole program waits for this thread: where it is permitted, it goes before all others.
 * Without that a store waits for a time slice (4 ms) on a machine whose CPUs are all taken, by
 * the snapshot's compression for one.
 */
static void go_first(void)
{
	setpriority(PRIO_PROCESS, (id_t)gettid(), -20);
}

/*
 * It does not spin before it sleeps: the thread that faults sleeps itself, and leaves its CPU
 * to the handler, so that being woken costs little.  Where CPUs are short, spinning only uses
 * up the handler's share of them.
 */
void *protect_handler(void *arg)
{
	struct live_protect *p = arg;
	uintptr_t addrs[BATCH];
	int i, n;

	go_first();
	while (!atomic_load(&p->stop)) {
		n = os_uffd_read_faults(p->uffd, addrs, BATCH);
		for (i = 0; i < n; i++)
			serve(p, addrs[i]);
		if (n <= 0)
			wait_for_faults(p);
	}
	return NULL;
}

int protect_start(pthread_t *ret, void *(*run)(void *), struct live_protect *p)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(ret, NULL, run, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -rc;
}
