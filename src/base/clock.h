/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Clocks, in nanoseconds. */
#ifndef TORPOR_BASE_CLOCK_H
#define TORPOR_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Wall time since some moment in the past; never goes back. */
static inline uint64_t clock_mono_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

/* CPU time of all threads of this process. */
static inline uint64_t clock_cpu_ns(void)
{
	return clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

#endif
