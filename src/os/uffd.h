/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * userfaultfd, used without faults: UFFDIO_COPY puts new pages with their content into a mapping
 * of shared memory.  It does not zero the page first, as a fault would, nor take the file's lock, as
 * write(2) does, so several threads fill one file side by side.  Needs no privilege (user mode only).
 */
#ifndef TORPOR_OS_UFFD_H
#define TORPOR_OS_UFFD_H

#include <stddef.h>

/* A descriptor, or a negative errno where it is not permitted or not there. */
int os_uffd_open(void);

/* Makes a range of a shared mapping fillable.  0 or a negative errno. */
int os_uffd_register(int fd, void *addr, size_t bytes);

/*
 * Fills new pages at `dst` (all aligned to pages) with `src`.  0; -EEXIST a page is there already;
 * -ENOSPC, -ENOMEM.  Part of it may be filled after an error.
 */
int os_uffd_copy(int fd, void *dst, const void *src, size_t bytes);

#endif
