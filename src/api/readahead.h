/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Has an image on disk read ahead of its decoding.  Asking the kernel to read ahead takes the time
 * that allocating page-cache pages takes, so a thread of its own asks; it never touches what was read.
 */
#ifndef TORPOR_API_READAHEAD_H
#define TORPOR_API_READAHEAD_H

#include <pthread.h>
#include <stdbool.h>

#include "base/wait.h"
#include "store/store.h"

struct readahead {
	const struct store_input *in;
	_Atomic uint64_t position; /* up to which jobs were taken */
	_Atomic uint32_t turns;    /* changes with position and stop */
	atomic_bool stop;
	bool running;
	pthread_t id;
};

/* Starts, where reading ahead pays; without a thread everything works, only slower.  Zeroed before. */
void readahead_start(struct readahead *r, const struct store_input *in);

/* Tells how far jobs were taken.  One thread at a time. */
void readahead_advance(struct readahead *r, uint64_t position);

void readahead_stop(struct readahead *r);

#endif
