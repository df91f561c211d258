/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The pipeline: workers take jobs in order, work on them side by side, and have them finished in
 * order.  It knows jobs, not pages: no files, no codecs.
 *
 *     take  (one at a time)   ->   work  (all at once)   ->   done  (one at a time, in the order of take)
 *
 * There is no lock step and no hand-over of work: a worker carries its job through, buffers belong to
 * workers, and the calling thread is worker 0, so one worker means no other thread at all.  A
 * slow job holds up nobody until `slots` younger ones are waiting for their turn to be done.
 *
 * Who runs `done` is whoever finished the oldest job; others leave theirs in its slot and go on.
 */
#ifndef TORPOR_PIPE_PIPE_H
#define TORPOR_PIPE_PIPE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PIPE_WORKERS_MAX 1024u

struct pipe_ops {
	/*
	 * Fills in the next job.  1: there is one, 0: there are no more, negative: error.  Never
	 * runs twice at once.  May block and may use the worker's buffers.  With `done`, -EMFILE and -ENFILE are no
	 * error as long as jobs are under way that may have files open: then it is asked again when one is done.
	 */
	int (*take)(void *ctx, void *worker, void *job, struct err *e);
	/* Does the work.  Runs in many threads at once, on different jobs and workers. */
	int (*work)(void *ctx, void *worker, void *job, struct err *e);
	/* In the order of take, never twice at once.  NULL: nothing is ordered, and nobody waits. */
	int (*done)(void *ctx, void *job, struct err *e);
	/*
	 * Instead of `done` for a job that was taken but whose turn never came, since something
	 * failed.  May be NULL.
	 */
	void (*drop)(void *ctx, void *job);
};

struct pipe_plan {
	const struct pipe_ops *ops;
	void *ctx;
	void *const *workers; /* one for each worker, handed to take and work */
	unsigned int n_workers; /* 1 to PIPE_WORKERS_MAX; 1 thread is the calling one */
	unsigned int slots;     /* jobs under way at most; at least n_workers */
	size_t job_bytes;
	const atomic_bool *cancel; /* looked at before every take: -ECANCELED.  May be NULL */
};

/*
 * Runs until there are no more jobs or something fails.  The first error wins, and is returned with
 * its message when all workers have stopped.   Threads that
 * cannot be started are done without; *ret_workers, which may be NULL, is how many worked.
 */
int pipe_run(const struct pipe_plan *plan, unsigned int *ret_workers, struct err *e);

#endif
