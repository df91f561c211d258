/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The progress bar: a thread that asks torpor_progress() a few times a second and draws on
 * standard error.  It says nothing about an operation that is over within a second, and leaves
 * nothing on the terminal.
 */
#ifndef TORPOR_TOOL_PROGRESS_H
#define TORPOR_TOOL_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "args.h"

struct torpor;

struct progress {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t stopped; /* signalled when `stop` becomes true */
	const struct torpor *ctx;
	const char *verb;
	uint64_t start_ns;
	bool running; /* the owner's: there is a thread to join */
	bool stop;    /* under `lock` */
	bool lines;   /* the thread's: standard error is no terminal, a line each second */
	bool drawn;   /* the thread's: there is something to clear */
};

/*
 * Begins to watch `ctx`, unless `when` and standard error say that nobody would look.  A thread
 * that cannot be started is no error: the operation matters, the bar does not.
 */
void progress_start(struct progress *p, const struct torpor *ctx, const char *verb,
		    enum progress_when when);

/* Clears the bar and ends the thread.  Accepts one that was never started. */
void progress_stop(struct progress *p);

#endif
