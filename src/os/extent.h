/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Data and holes of a file, by SEEK_DATA and SEEK_HOLE: asking does not allocate anything. */
#ifndef TORPOR_OS_EXTENT_H
#define TORPOR_OS_EXTENT_H

#include <stdint.h>

/*
 * The next data at or after `offset` in a file of `bytes` bytes: [*ret_start, *ret_end).  Both are
 * `bytes` when only a hole is left.  A file system that cannot tell has data everywhere.  Finding an end
 * costs time in proportion to the extent on tmpfs, so keep what was found.  A file that is shorter than
 * `bytes` by now looks like one with a hole at its end: see to that where it matters.  0 or a negative errno.
 */
int os_next_data(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret_start, uint64_t *ret_end);

/* Only where the next data begins: takes no time for what lies between.  Any thread. */
int os_seek_data(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret_start);

#endif
