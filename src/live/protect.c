// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A snapshot by write protection: preparing, protecting, reading, letting go; see protect.h,
 * and protect-priv.h for how the parts work together.
 */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "live/protect-priv.h"

/* The next chunk that no other thread has taken; false when there is none. */
static bool protect_chunk(struct live_protect *p)
{
	uint32_t i = atomic_fetch_add(&p->next_chunk, 1);
	const struct chunk *c = &p->chunks[i];
	int rc = 0, none = 0;

	if (i >= p->n_chunks)
		return false;
	/* After an error what is left is only counted. */
	if (!atomic_load(&p->now_code))
		rc = protect_range(p, c->at, c->bytes, true);
	if (rc < 0 && atomic_compare_exchange_strong(&p->now_code, &none, rc))
		atomic_store(&p->bad_chunk, i);
	if (atomic_fetch_add(&p->chunks_done, 1) + 1 == p->n_chunks && p->n_helpers)
		wait_wake(&p->chunks_done);
	return true;
}

void *protect_helper(void *arg)
{
	struct live_protect *p = arg;

	while (atomic_load(&p->go) == WAIT)
		wait_while(&p->go, WAIT);
	while (atomic_load(&p->go) == GO && protect_chunk(p))
		continue;
	return NULL;
}

/*
 * Waking a thread takes as long as protecting a GiB of huge pages, while a GiB of 4 KiB pages
 * takes two hundred times as much.  So helpers are called when it turns out to take long.
 */
#define HELP_NS 200000u

static void protect_all(struct live_protect *p)
{
	const uint64_t start_ns = clock_mono_ns();
	bool called = p->n_helpers == 0;
	uint32_t done;

	while (protect_chunk(p)) {
		if (called || clock_mono_ns() - start_ns < HELP_NS)
			continue;
		atomic_store(&p->go, GO);
		wait_wake(&p->go);
		called = true;
	}
	/* What helpers have begun, they finish, in a few milliseconds. */
	while ((done = atomic_load(&p->chunks_done)) < p->n_chunks)
		wait_while(&p->chunks_done, done);
}

int live_protect_now(struct live_protect *p, struct err *e)
{
	const struct chunk *c;
	int rc;

	if (atomic_load(&p->phase) != PREPARED)
		return err_set(e, -EINVAL, "the memory was protected before");
	protect_all(p);
	rc = atomic_load(&p->now_code);
	atomic_store(&p->phase, rc < 0 ? FAILED : PROTECTED);
	if (rc == 0)
		return 0;
	protect_undo(p);
	c = &p->chunks[atomic_load(&p->bad_chunk)];
	return err_sys(e, rc, "region %zu: cannot write-protect %llu bytes at 0x%llx",
		       c->region, (unsigned long long)c->bytes,
		       (unsigned long long)(uintptr_t)c->at);
}

/* All of a group is read: it is unprotected as one. */
static void count_done(struct live_protect *p, const struct region *r, uint64_t block)
{
	const uint64_t start = (uintptr_t)r->at >> BLOCK_SHIFT, number = start + block;
	const uint64_t group =
		(number >> (GROUP_SHIFT - BLOCK_SHIFT)) - ((uintptr_t)r->at >> GROUP_SHIFT);
	uint8_t *at;
	size_t bytes = protect_group_at(r, group, &at);
	struct region whole = {.at = at, .bytes = bytes};

	if (atomic_fetch_add(&p->groups[r->first_group + group], 1) + 1 ==
	    protect_count(&whole, BLOCK_SHIFT))
		protect_range(p, at, bytes, false);
}

/* Under the block's lock: pages of one block, which begins at `start`. */
static int take_pages(struct live_protect *p, struct block *b, const uint8_t *start,
		      const uint8_t *at, size_t bytes, void *buf)
{
	switch ((enum block_state)b->state) {
	case UNTOUCHED:
		return protect_map_read(p, at, bytes, buf);
	case SAVED:
		memcpy(buf, side_slot(&p->side, b->slot) + (at - start), bytes);
		return 0;
	case LOST:
		return -EFAULT;
	case DONE:
		break;
	}
	return -EINVAL;
}

/* As much of [at, at + bytes) as lies in one block; *ret_bytes of it. */
static int read_block(struct live_protect *p, const struct region *r, uint8_t *at,
		      uint64_t bytes, void *buf, size_t *ret_bytes)
{
	uint64_t index = ((uintptr_t)at >> BLOCK_SHIFT) - ((uintptr_t)r->at >> BLOCK_SHIFT);
	struct wait_lock *lock = protect_lock(p, r->first_block + index);
	struct block *b = &p->blocks[r->first_block + index];
	bool done = false;
	uint8_t *start;
	size_t block_bytes = protect_block_at(r, index, &start);
	size_t n = num_min(bytes, block_bytes - (size_t)(at - start));
	int rc;

	wait_lock_acquire(lock);
	rc = b->taken + n / PAGE_BYTES > block_bytes / PAGE_BYTES
		     ? -EINVAL
		     : take_pages(p, b, start, at, n, buf);
	if (rc == 0) {
		b->taken = (uint16_t)(b->taken + n / PAGE_BYTES);
		done = b->taken == block_bytes / PAGE_BYTES;
	}
	if (done) {
		if (b->state == SAVED)
			side_put(&p->side, b->slot);
		b->state = DONE;
	}
	wait_lock_release(lock);
	if (done)
		count_done(p, r, index);
	*ret_bytes = n;
	return rc;
}

/* A signal handler of the program's, run while a block is locked, could store to that block and
 * wait for ever. */
static int read_range(struct live_protect *p, const struct region *r, uint64_t first,
		      uint64_t bytes, uint8_t *buf, uint64_t *ret_at)
{
	sigset_t all, before;
	uint64_t at;
	size_t n;
	int rc = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (at = 0; at < bytes && rc == 0; at += n) {
		*ret_at = first + at;
		rc = read_block(p, r, r->at + first + at, bytes - at, buf + at, &n);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static bool in_a_region(const struct live_protect *p, const uint8_t *at, uint64_t bytes)
{
	size_t i;

	for (i = 0; i < p->n_regions; i++) {
		if (at < p->regions[i].at + p->regions[i].bytes &&
		    p->regions[i].at < at + bytes)
			return true;
	}
	return false;
}

int live_protect_read(struct live_protect *p, size_t region, uint64_t first_page,
		      uint64_t pages, void *buf, struct err *e)
{
	const struct region *r = region < p->n_regions ? &p->regions[region] : NULL;
	uint64_t total = r ? r->bytes / PAGE_BYTES : 0, at = 0;
	int rc;

	if (atomic_load(&p->phase) != PROTECTED)
		return err_set(e, -EINVAL, "the memory is not protected");
	if (!r || first_page > total || pages > total - first_page)
		return err_set(e, -EINVAL, "no such pages in region %zu", region);
	if (in_a_region(p, buf, pages * PAGE_BYTES))
		return err_set(e, -EINVAL, "the buffer is itself protected");
	rc = read_range(p, r, first_page * PAGE_BYTES, pages * PAGE_BYTES, buf, &at);
	/* Only now: what changed after the handler gave up may have been read. */
	if (atomic_load(&p->failed))
		return err_sys(e, -EIO, "the snapshot was lost: error %d of its handler",
			       atomic_load(&p->failed));
	if (rc == -EINVAL)
		return err_set(e, rc, "region %zu: pages at %llu were read before", region,
			       (unsigned long long)at / PAGE_BYTES);
	if (rc < 0)
		return err_sys(e, rc, "region %zu: cannot read pages at %llu", region,
			       (unsigned long long)at / PAGE_BYTES);
	return 0;
}

uint64_t live_protect_faults(const struct live_protect *p)
{
	return atomic_load(&p->saved_pages);
}

/* First whoever waits, then the threads that serve them. */
static void let_go(struct live_protect *p)
{
	uint64_t one = 1;
	size_t i;

	if (atomic_load(&p->phase) == PROTECTED)
		protect_undo(p);
	for (i = 0; i < p->n_registered; i++)
		os_uffd_unregister(p->uffd, p->regions[i].at, p->regions[i].bytes);
	atomic_store(&p->go, NEVER);
	wait_wake(&p->go);
	for (i = 0; i < p->n_helpers; i++)
		pthread_join(p->helpers[i], NULL);
	atomic_store(&p->stop, true);
	if (p->has_handler && write(p->wake_fd, &one, sizeof(one)) == (ssize_t)sizeof(one))
		pthread_join(p->handler, NULL);
}

void live_protect_free(struct live_protect *p)
{
	if (!p)
		return;
	/* The descriptor that a child has is for its parent's memory. */
	if (p->pid == getpid())
		let_go(p);
	if (p->uffd >= 0)
		close(p->uffd);
	if (p->wake_fd >= 0)
		close(p->wake_fd);
	if (p->pid == getpid())
		side_end(&p->side);
	protect_map_free(p);
	munmap(p, p->state_bytes);
}
