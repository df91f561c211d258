// SPDX-License-Identifier: LGPL-2.1-or-later
/* Reading ahead; see readahead.h. */
#include "api/readahead.h"

#include "base/num.h"
#include "base/thread.h"

#define STEP_BYTES MIB(4)
#define AHEAD_BYTES MIB(64)

static void *readahead_main(void *arg)
{
	struct readahead *r = arg;
	uint64_t asked = 0;

	while (!atomic_load(&r->stop) && asked < r->in->bytes) {
		uint32_t seen = atomic_load(&r->turns);
		uint64_t position = atomic_load(&r->position);

		if (position > asked)
			asked = position;
		if (asked < position + AHEAD_BYTES) {
			store_input_prefetch(r->in, asked, STEP_BYTES);
			asked += STEP_BYTES;
		} else {
			wait_while(&r->turns, seen);
		}
	}
	return NULL;
}

void readahead_start(struct readahead *r, const struct store_input *in)
{
	r->in = in;
	r->running = in->on_disk && thread_start(&r->id, readahead_main, r) == 0;
}

static void turn(struct readahead *r)
{
	atomic_fetch_add(&r->turns, 1);
	wait_wake(&r->turns);
}

void readahead_advance(struct readahead *r, uint64_t position)
{
	/* In steps, since every one is a system call. */
	if (!r->running || position < atomic_load(&r->position) + STEP_BYTES)
		return;
	atomic_store(&r->position, position);
	turn(r);
}

void readahead_stop(struct readahead *r)
{
	if (!r->running)
		return;
	atomic_store(&r->stop, true);
	turn(r);
	pthread_join(r->id, NULL);
	r->running = false;
}
