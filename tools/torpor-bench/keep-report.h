/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What torpor-bench keep measures of each design, and how it is told. */
#ifndef TORPOR_BENCH_KEEP_REPORT_H
#define TORPOR_BENCH_KEEP_REPORT_H

#include <math.h>

#include "bench.h"
#include "keep.h"

#define NOT_THERE ((double)NAN)

enum measure {
	/* Nanoseconds a page, one page a call; as enum arrival.  By one thread: */
	M_ASCENDING,
	M_STRIDED,
	M_RANDOM,
	/* By the wall's clock: by one thread, by all. */
	M_ASCENDING_WALL,
	M_ASCENDING_ALL,
	M_STRIDED_ALL,
	M_RANDOM_ALL,
	M_ASCENDING_ALL_CPU, /* of all of them together */
	/* Milliseconds for all of it. */
	M_HAND_OVER,
	M_ATTACH,
	M_ATTACH_HOLES,
	M_VALIDATE,
	M_VALIDATE_HOLES,
	M_WALK,
	M_WALK_HOLES,
	M_WALK_HALF,
	M_RANGES,
	M_RANGE,
	M_RANGES_0,
	M_RANGE_0,
	/* Bytes. */
	M_BYTES_DENSE,
	M_BYTES_LONE,
	M_BYTES_SPARSE,
	M_BYTES_HALF,
	M_BYTES_NONE,
	M_BYTES_EMPTIED,
	MEASURES
};

struct keep_samples {
	const char *names[TRACK_DESIGNS];
	double s[TRACK_DESIGNS][MEASURES][BENCH_RUNS_MAX];
};

/* Prints medians, and those of the ratios to the list. */
void keep_report(const struct keep_samples *samples, const struct bench_opts *opts,
		 uint64_t pages);

#endif
