// SPDX-License-Identifier: LGPL-2.1-or-later
/* Copying by the kernel; see vmcopy.h. */
#include "os/vmcopy.h"

#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

int os_vm_copy(void *dst, const void *src, size_t bytes)
{
	struct iovec from = {.iov_base = (void *)(uintptr_t)src, .iov_len = bytes};
	struct iovec to = {.iov_base = dst, .iov_len = bytes};

	while (from.iov_len) {
		/*
		 * Writing to ourselves: it is the target's pages that the kernel pins, and a
		 * pinned page must not be shared with a child.  The thread's number, since
		 * the process's own stands for its first thread, which may have ended.  Not by
		 * the C library's wrapper: a sanitizer looks into that, and cannot know
		 * that nobody stores to the source meanwhile.
		 */
		ssize_t n = syscall(SYS_process_vm_writev, gettid(), &from, 1ul, &to, 1ul, 0ul);

		if (n < 0)
			return -errno;
		if (!n)
			return -EFAULT;
		from.iov_base = (uint8_t *)from.iov_base + n;
		from.iov_len -= (size_t)n;
		to.iov_base = (uint8_t *)to.iov_base + n;
		to.iov_len -= (size_t)n;
	}
	return 0;
}
