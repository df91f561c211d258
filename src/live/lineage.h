/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who made a process, and when.  Tells processes that could have written memory while others
 * stood still from those that these made afterwards.  Reads /proc.
 */
#ifndef TORPOR_LIVE_LINEAGE_H
#define TORPOR_LIVE_LINEAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "os/proc.h"

/* Of a process that may have ended since: what was seen of it. */
struct live_origin {
	pid_t pid, ppid;      /* ppid 0: not known */
	uint64_t start_ticks; /* 0: not known */
};

/* Was it made after that moment?  False where that cannot be told. */
bool live_made_after(const struct live_origin *o, const struct os_proc_moment *m);

/*
 * Does it descend from one of `pids`, and was everything between made after the moment (NULL:
 * whenever)?  One whose parents have ended belongs to nobody.
 */
bool live_descends(const struct live_origin *o, const pid_t *pids, size_t n,
		   const struct os_proc_moment *m);

#endif
