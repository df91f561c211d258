/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The critical section of a save: whose memory, who could write it, stop, copy, go.  The order of calls is
 *
 *     stopped_prepare, stopped_take, (write the pages of its source), stopped_go, stopped_free
 *
 * After stopped_take() all run again already, unless there is no copy.
 */
#ifndef TORPOR_API_STOPPED_H
#define TORPOR_API_STOPPED_H

#include "api/context.h"
#include "live/copy.h"
#include "live/find.h"
#include "live/passes.h"
#include "live/stop.h"
#include "memory/source.h"

struct stopped {
	struct torpor *ctx;
	struct torpor_stop opts;
	const char *const *sources; /* none: found from the maps */
	size_t n_sources;
	struct memory_scan_opts scan;
	const char *image; /* that will be written; as for glue_create() */
	uint32_t image_flags;
	int image_fd;
	unsigned int threads; /* that copy */
	size_t (*copy_span)(void *dst, const void *src, size_t pages, size_t page_bytes, uint64_t *ret_zero); /* see live/copy.h */

	struct live_stop *stop;
	struct live_passes *passes; /* NULL: one, in the critical section */
	struct live_copy *copy; /* NULL: they stand still until all is written */
	struct memory_items items;
	struct memory_source *source;
	uint64_t expected_bytes; /* of data, when it was prepared */
	uint64_t asked_ns, stopped_ns, copied_ns, gone_ns;
	uint64_t pause_ns; /* they stood still between passes */
	uint32_t processes, stopped_threads;
	bool writers; /* some were found, and are allowed */
	bool first_look; /* warnings are given once */
};

/* Everything that can be done while they run.  Fills in what is below `threads`. */
int stopped_prepare(struct stopped *s);

/* Stops, copies, and lets go: s->items and s->source are then what to write. */
int stopped_take(struct stopped *s);

/* Lets go, when that was not done yet, and looks for writers again. */
int stopped_go(struct stopped *s);

void stopped_report(const struct stopped *s, struct torpor_report *report);
void stopped_free(struct stopped *s);

#endif
