/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A snapshot of this process's own memory by write protection: from live_protect_now() on the
 * regions are readable as they were at that moment, while the program goes on.  A handler
 * thread copies a block the moment before it first changes.
 *
 * What the program must keep to from live_protect_new() to live_protect_free():
 * - the regions stay mapped as they are, and are not discarded: no munmap, mremap,
 *   MADV_DONTNEED, MADV_REMOVE, ftruncate.  Such pages are read as -EFAULT or as zero;
 * - shared memory is stored to through the regions only: not by write(2) to its file, nor by a
 *   child of fork(2), which is not protected.  To private memory a child may do what it likes;
 * - no direct I/O (O_DIRECT, RDMA) into the regions is under way at live_protect_now(): it goes
 *   past the page tables.
 *
 * Everything else stops for the copy and goes on, stores by system calls such as read(2)
 * included.
 */
#ifndef TORPOR_LIVE_PROTECT_H
#define TORPOR_LIVE_PROTECT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct live_region {
	uint8_t *at;    /* a multiple of the page size */
	uint64_t bytes; /* likewise */
};

struct live_protect;

/*
 * Registers the regions and starts the handler thread; nothing is protected yet.  Fails with
 * - -EPERM: userfaultfd is not permitted;
 * - -EOPNOTSUPP: the kernel or a mapping cannot do it (private mappings of files, hugetlbfs,
 *   files not on tmpfs);
 * - -EBUSY: shared memory could be written past the protection, by another process that has it
 *   mapped or open for writing (of those that may be looked at), or through a second mapping;
 * - -EINVAL: no region, not whole pages, or two overlap;
 * - -EFAULT: part of a region is not mapped.
 *
 * The message says why; the caller falls back to copying.
 *
 * Takes 0.02 % of the regions' size, address space of their size for the copies, and a
 * descriptor for each shared file.  The handler inherits the caller's scheduling policy, and
 * takes the highest nice level where that is permitted: do not call this at idle priority.
 */
int live_protect_new(const struct live_region *regions, size_t n, struct live_protect **ret,
		     struct err *e);

/*
 * Protects everything: the state that is read from here on.  Once.  On failure nothing is
 * protected, and only live_protect_free() is left to do.
 */
int live_protect_now(struct live_protect *p, struct err *e);

/*
 * Reads pages of 4 KiB of a region as they were, once each, and lets go of their protection.
 * The range need not fall on block boundaries.  Any thread, different ranges.  Neither `buf`
 * nor the stack of the thread lie in a region.  Fails with
 * - -EIO: the handler failed, and the snapshot with it;
 * - -EFAULT: a page is not there any more; others can be read;
 * - -EINVAL: a page was read before, or is not in the region.
 */
int live_protect_read(struct live_protect *p, size_t region, uint64_t first_page,
		      uint64_t pages, void *buf, struct err *e);

/* Pages that were copied by the handler so far. */
uint64_t live_protect_faults(const struct live_protect *p);

/*
 * Lets go of all protection, ends the thread and frees; in any state, NULL too.  The program
 * never stays stuck in a fault.  In a child of fork(2) it only frees what the child has of it.
 */
void live_protect_free(struct live_protect *p);

#endif
