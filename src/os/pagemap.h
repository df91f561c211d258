/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* /proc/PID/pagemap: what is known of each page of a process's mappings; and clearing
 * soft-dirty bits. */
#ifndef TORPOR_OS_PAGEMAP_H
#define TORPOR_OS_PAGEMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Bits of an entry, one for each page of 4 KiB. */
#define OS_PAGEMAP_PRESENT ((uint64_t)1 << 63)
#define OS_PAGEMAP_SWAPPED ((uint64_t)1 << 62)
#define OS_PAGEMAP_SOFT_DIRTY ((uint64_t)1 << 55)

/* A descriptor for os_pagemap_read(), or a negative errno. */
int os_pagemap_open(pid_t pid);

/*
 * Entries of `pages` pages from `address` on, a multiple of the page size; 0 where nothing is
 * mapped.  The descriptor is bound to the memory that the process had when it was opened:
 * -EFAULT that is gone.  0 or a negative errno.  Any thread.
 */
int os_pagemap_read(int fd, uint64_t address, size_t pages, uint64_t *ret_entries);

/* Clears the soft-dirty bits of all pages of a process.  0 or a negative errno. */
int os_soft_dirty_clear(pid_t pid);

/* Does this kernel keep soft-dirty bits?  Tried on a page of our own. */
bool os_soft_dirty_works(void);

#endif
