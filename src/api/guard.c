// SPDX-License-Identifier: LGPL-2.1-or-later
/* The latency guard, held for the length of one operation; see torpor.h. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/context.h"
#include "os/latency.h"

int guard_hold(uint32_t mode, int *ret_fd, char *reason, size_t reason_bytes, struct err *e)
{
	char text[128];
	int fd;

	*ret_fd = -1;
	if (mode == TORPOR_GUARD_OFF) {
		snprintf(reason, reason_bytes, "switched off");
		return 0;
	}
	if (mode != TORPOR_GUARD_AUTO && mode != TORPOR_GUARD_ON)
		return err_set(e, -EINVAL, "no such mode of the latency guard: %u", mode);
	fd = os_latency_hold(OS_LATENCY_PATH);
	if (fd >= 0) {
		*ret_fd = fd;
		reason[0] = '\0';
		return 0;
	}
	snprintf(reason, reason_bytes, "%s: %s", OS_LATENCY_PATH, strerror_r(-fd, text, sizeof(text)));
	return mode == TORPOR_GUARD_ON ? err_set(e, fd, "cannot hold the latency guard: %s", reason) : 0;
}

void guard_release(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}
