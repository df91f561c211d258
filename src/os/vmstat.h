/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* /proc/vmstat: what the kernel did to memory of its own accord since it booted. */
#ifndef TORPOR_OS_VMSTAT_H
#define TORPOR_OS_VMSTAT_H

#include <stdint.h>

/*
 * A number that has changed when the kernel may have dropped page table entries of shared
 * memory: it looked for pages to swap out, or made huge pages out of small ones.  The
 * soft-dirty bits in these entries are lost.  0 or a negative errno.
 */
int os_vmstat_dropped(uint64_t *ret);

#endif
