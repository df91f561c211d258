/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whole reads and writes on descriptors: short results and EINTR are dealt with here.  All
 * return 0 or a negative errno and set no message, since they do not know what they read.
 */
#ifndef TORPOR_BASE_IO_H
#define TORPOR_BASE_IO_H

#include <stddef.h>
#include <stdint.h>

/* *ret_got is less than `bytes` only at the end of the file. */
int io_pread(int fd, void *buf, size_t bytes, uint64_t offset, size_t *ret_got);
int io_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset);

#endif
