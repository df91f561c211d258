/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Running only when nobody else wants to. */
#ifndef TORPOR_OS_PRIORITY_H
#define TORPOR_OS_PRIORITY_H

/*
 * Puts the calling thread, and threads that it starts from here on, at idle CPU and I/O priority.  Best effort: needs no
 * privilege, and a scheduler of disks that knows no priorities passes over it.
 */
void os_priority_idle(void);

#endif
