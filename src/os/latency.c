// SPDX-License-Identifier: LGPL-2.1-or-later
/* The request for zero CPU wake-up latency; see latency.h. */
#include "os/latency.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

int os_latency_hold(const char *path)
{
	int32_t latency_us = 0;
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	int rc;

	if (fd < 0)
		return -errno;
	if (write(fd, &latency_us, sizeof(latency_us)) == sizeof(latency_us))
		return fd;
	rc = errno ? -errno : -EIO;
	close(fd);
	return rc;
}
