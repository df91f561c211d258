/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * /dev/cpu_dma_latency: while a descriptor on which 0 was written is open, the kernel keeps all
 * CPUs out of idle states that take time to leave.  Closing it, which the end of the process does too,
 * gives it up: so it is released on every way out.
 */
#ifndef TORPOR_OS_LATENCY_H
#define TORPOR_OS_LATENCY_H

#define OS_LATENCY_PATH "/dev/cpu_dma_latency"

/* Asks for no wake-up latency.  Returns a descriptor to be kept open, or a negative errno. */
int os_latency_hold(const char *path);

#endif
