/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Copying within this process's memory by the kernel: what is not mapped is an error and not a
 * signal.  Allocates nothing, and does not pin what it reads: pages that are shared with a
 * child since fork(2) stay shared.
 */
#ifndef TORPOR_OS_VMCOPY_H
#define TORPOR_OS_VMCOPY_H

#include <stddef.h>

/* 0; -EFAULT part of it cannot be read or written; -EPERM, -ENOSYS it is not permitted or not
 * there. */
int os_vm_copy(void *dst, const void *src, size_t bytes);

#endif
