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

#include "base/num.h"

/* Younger than the headers of some systems that have the kernel for it. */
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

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

/* ---- write protection ---- */

static int protect_descriptor(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK), dev, rc;

	if (fd >= 0)
		return fd;
	rc = -errno;
	/* Who may open the device need not have the capability. */
	dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (dev < 0)
		return rc;
	fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	rc = fd < 0 ? -errno : fd;
	close(dev);
	return rc;
}

int os_uffd_open_protect(struct os_uffd_can *ret_can)
{
	static const uint64_t wanted[] = {
		UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM |
			UFFD_FEATURE_WP_UNPOPULATED,
		UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
		UFFD_FEATURE_PAGEFAULT_FLAG_WP,
	};
	size_t i;

	/* A kernel that does not know a feature refuses all of them. */
	for (i = 0; i < ARRAY_LEN(wanted); i++) {
		struct uffdio_api api = {.api = UFFD_API, .features = wanted[i]};
		int fd = protect_descriptor(), code;

		if (fd < 0)
			return fd;
		if (ioctl(fd, UFFDIO_API, &api) == 0) {
			ret_can->shmem = wanted[i] & UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
			ret_can->missing = wanted[i] & UFFD_FEATURE_WP_UNPOPULATED;
			return fd;
		}
		code = -errno;
		close(fd);
		if (code != -EINVAL)
			return code;
	}
	return -EOPNOTSUPP;
}

int os_uffd_register_protect(int fd, const void *addr, size_t bytes)
{
	struct uffdio_register reg = {
		.range = {.start = (uintptr_t)addr, .len = bytes},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	if (ioctl(fd, UFFDIO_REGISTER, &reg) < 0)
		return -errno;
	/* Zero pages can be put everywhere but into hugetlbfs, whose pages are not of 4 KiB. */
	if (reg.ioctls & (1ull << _UFFDIO_WRITEPROTECT) &&
	    reg.ioctls & (1ull << _UFFDIO_ZEROPAGE))
		return 0;
	os_uffd_unregister(fd, addr, bytes);
	return -EOPNOTSUPP;
}

int os_uffd_unregister(int fd, const void *addr, size_t bytes)
{
	struct uffdio_range range = {.start = (uintptr_t)addr, .len = bytes};

	if (ioctl(fd, UFFDIO_UNREGISTER, &range) < 0)
		return -errno;
	/* It wakes those who wait for a missing page, and nobody else. */
	return os_uffd_wake(fd, addr, bytes);
}

int os_uffd_protect(int fd, const void *addr, size_t bytes, bool on)
{
	struct uffdio_writeprotect wp = {
		.range = {.start = (uintptr_t)addr, .len = bytes},
		.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};

	while (ioctl(fd, UFFDIO_WRITEPROTECT, &wp) < 0) {
		/* EAGAIN: the mappings are being changed just now. */
		if (errno != EAGAIN)
			return -errno;
	}
	return 0;
}

int os_uffd_wake(int fd, const void *addr, size_t bytes)
{
	struct uffdio_range range = {.start = (uintptr_t)addr, .len = bytes};

	return ioctl(fd, UFFDIO_WAKE, &range) < 0 ? -errno : 0;
}

int os_uffd_read_faults(int fd, uintptr_t *addrs, size_t max)
{
	struct uffd_msg msgs[16];
	ssize_t got;
	size_t i;
	int n = 0;

	got = read(fd, msgs, num_min(max, ARRAY_LEN(msgs)) * sizeof(msgs[0]));
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	for (i = 0; i < (size_t)got / sizeof(msgs[0]); i++) {
		if (msgs[i].event == UFFD_EVENT_PAGEFAULT)
			addrs[n++] = (uintptr_t)msgs[i].arg.pagefault.address;
	}
	return n;
}
