/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * userfaultfd, in two ways that have nothing in common but the descriptor.
 *
 * Filling, without faults: UFFDIO_COPY puts new pages with their content into a mapping of
 * shared memory.  It does not zero the page first, as a fault would, nor take the file's lock,
 * as write(2) does, so several threads fill one file side by side.  Needs no privilege (user
 * mode only).
 *
 * Write protection: a store to a protected page of this process, by the program or by the
 * kernel for it, stops until the page is unprotected, and the descriptor tells where.  Since
 * stores by the kernel stop as well, it needs CAP_SYS_PTRACE, vm.unprivileged_userfaultfd, or
 * access to /dev/userfaultfd.
 */
#ifndef TORPOR_OS_UFFD_H
#define TORPOR_OS_UFFD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- filling ---- */

/* A descriptor, or a negative errno where it is not permitted or not there. */
int os_uffd_open(void);

/* Makes a range of a shared mapping fillable.  0 or a negative errno. */
int os_uffd_register(int fd, void *addr, size_t bytes);

/*
 * Fills new pages at `dst` (all aligned to pages) with `src`.  0; -EEXIST a page is there
 * already; -ENOSPC, -ENOMEM.  Part of it may be filled after an error.
 */
int os_uffd_copy(int fd, void *dst, const void *src, size_t bytes);

/* ---- write protection ---- */

/* What a kernel can protect, beyond private anonymous memory whose pages are there. */
struct os_uffd_can {
	bool shmem;   /* shared memory (Linux 5.19) */
	bool missing; /* private anonymous pages that are not there yet (6.4) */
};

/*
 * A descriptor that does not block, closed on exec.  -EPERM, -EACCES not permitted; -ENOSYS no
 * userfaultfd; -EOPNOTSUPP it cannot protect.
 */
int os_uffd_open_protect(struct os_uffd_can *ret_can);

/*
 * Makes a range protectable; protects nothing.  -EINVAL a mapping of another kind; -EPERM one
 * that can never be written; -EBUSY another userfaultfd has it; -EOPNOTSUPP huge pages of
 * hugetlbfs.
 */
int os_uffd_register_protect(int fd, const void *addr, size_t bytes);

/* Undoes that, and the protection.  Who waits for a fault there goes on. */
int os_uffd_unregister(int fd, const void *addr, size_t bytes);

/*
 * Protects, or unprotects and wakes who waits there.  -ENOENT part of the range is not
 * registered; the pages before it are done.
 */
int os_uffd_protect(int fd, const void *addr, size_t bytes, bool on);

/* Wakes who waits there. */
int os_uffd_wake(int fd, const void *addr, size_t bytes);

/* Addresses where somebody waits, at most `max`.  Their number, 0 for none just now; or a
 * negative errno. */
int os_uffd_read_faults(int fd, uintptr_t *addrs, size_t max);

#endif
