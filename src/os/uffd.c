// SPDX-License-Identifier: LGPL-2.1-or-later
/* userfaultfd; see uffd.h. */
#include "os/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int os_uffd_open(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	int rc;

	if (fd < 0)
		return -errno;
	if (ioctl(fd, UFFDIO_API, &api) == 0)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

int os_uffd_register(int fd, void *addr, size_t bytes)
{
	struct uffdio_register reg = {
		.range = {.start = (uintptr_t)addr, .len = bytes},
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	if (ioctl(fd, UFFDIO_REGISTER, &reg) < 0)
		return -errno;
	return reg.ioctls & (1ull << _UFFDIO_COPY) ? 0 : -EOPNOTSUPP;
}

int os_uffd_copy(int fd, void *dst, const void *src, size_t bytes)
{
	struct uffdio_copy copy = {
		.dst = (uintptr_t)dst,
		.src = (uintptr_t)src,
		.len = bytes,
		/* Nobody sleeps on these pages: a wake-up would be a needless lock. */
		.mode = UFFDIO_COPY_MODE_DONTWAKE,
	};

	while (ioctl(fd, UFFDIO_COPY, &copy) < 0) {
		if (errno != EAGAIN)
			return -errno;
		/* Interrupted by a change of mappings, perhaps half-way. */
		if (copy.copy > 0) {
			copy.dst += (uint64_t)copy.copy;
			copy.src += (uint64_t)copy.copy;
			copy.len -= (uint64_t)copy.copy;
		}
		copy.copy = 0;
		if (!copy.len)
			break;
	}
	return 0;
}
