/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Does a thread that was told to freeze stand still by now?  Reads /proc, and stops nothing. */
#ifndef TORPOR_OS_STILL_H
#define TORPOR_OS_STILL_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Only of threads that were told to freeze before (cgroup.freeze): others may stand still and
 * go on the next moment. True also when it has ended, is a kernel thread, which is never
 * frozen, or may not be looked at.
 */
bool os_still(pid_t tid);

#endif
