/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of this process: how much there is to be had, and having its pages before they are needed. */
#ifndef TORPOR_OS_MEMORY_H
#define TORPOR_OS_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define OS_HUGE_BYTES ((size_t)2 << 20)

/*
 * Bytes that may be allocated without swapping: what the kernel calls available, and not more than the
 * control group's limit leaves.  UINT64_MAX when nothing can be read.
 */
uint64_t os_memory_available(void);

/* Fresh memory at a multiple of 2 MiB, huge pages preferred; without pages yet.  NULL: no address space. */
void *os_memory_reserve(size_t bytes);
void os_memory_unreserve(void *at, size_t bytes);

/* Allocates pages and fills in page tables, writable.  -ENOMEM, -EFAULT (the kernel ran out). */
int os_memory_populate(void *at, size_t bytes);

/* Fills in page tables of pages that are there, to read.  Best effort: a page that is not there is left to its fault. */
void os_memory_map_pages(const void *at, size_t bytes);

/*
 * Which pages are in memory, mapped or in the file that is mapped: one byte each, 0 or 1.  What is not may have
 * been swapped out.  0 or a negative errno.  Any thread.
 */
int os_memory_resident(const void *at, size_t bytes, unsigned char *ret);

/* Gives pages back; what is whole huge pages goes as such. */
void os_memory_discard(void *at, size_t bytes);

#endif
