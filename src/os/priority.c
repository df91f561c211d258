// SPDX-License-Identifier: LGPL-2.1-or-later
/* See priority.h. */
#include "os/priority.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of <linux/ioprio.h>, which older headers lack. */
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_IDLE (3 << 13)

void os_priority_idle(void)
{
	struct sched_param none = {.sched_priority = 0};

	sched_setscheduler(0, SCHED_IDLE, &none);
	syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE);
}
