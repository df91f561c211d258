// SPDX-License-Identifier: LGPL-2.1-or-later
/* Whole reads and writes; see io.h. */
#include "base/io.h"

#include <errno.h>
#include <unistd.h>

int io_pread(int fd, void *buf, size_t bytes, uint64_t offset, size_t *ret_got)
{
	size_t got = 0;

	while (got < bytes) {
		ssize_t n = pread(fd, (char *)buf + got, bytes - got, (off_t)(offset + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		got += (size_t)n;
	}
	*ret_got = got;
	return 0;
}

int io_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n = pwrite(fd, (const char *)buf + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			return -EIO;
		done += (size_t)n;
	}
	return 0;
}
