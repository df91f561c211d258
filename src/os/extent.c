// SPDX-License-Identifier: LGPL-2.1-or-later
/* Data and holes of a file; see extent.h. */
#include "os/extent.h"

#include <errno.h>
#include <unistd.h>

#include "base/num.h"

int os_next_data(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret_start, uint64_t *ret_end)
{
	off_t start = lseek(fd, (off_t)offset, SEEK_DATA), end;

	if (start < 0 && errno == ENXIO) {
		*ret_start = *ret_end = bytes;
		return 0;
	}
	if (start < 0 && errno != EINVAL)
		return -errno;
	end = start < 0 ? -1 : lseek(fd, start, SEEK_HOLE);
	if (start < 0 || end <= start) {
		*ret_start = offset;
		*ret_end = bytes;
		return 0;
	}
	*ret_start = num_min((uint64_t)start, bytes);
	*ret_end = num_min((uint64_t)end, bytes);
	return 0;
}

int os_seek_data(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret_start)
{
	off_t start = lseek(fd, (off_t)offset, SEEK_DATA);

	if (start < 0 && errno != ENXIO && errno != EINVAL)
		return -errno;
	*ret_start = start >= 0 ? num_min((uint64_t)start, bytes) : errno == ENXIO ? bytes : offset;
	return 0;
}
