// SPDX-License-Identifier: LGPL-2.1-or-later
/* See each.h. */
#include "live/each.h"

#include "base/num.h"
#include "pipe/pipe.h"

struct each {
	int (*fn)(void *ctx, size_t i, struct err *e);
	void *ctx;
	size_t next, n; /* next: under the pipe's take */
};

static int take(void *arg, void *worker, void *job, struct err *e)
{
	struct each *each = arg;

	if (each->next == each->n)
		return 0;
	*(size_t *)job = each->next++;
	return 1;
}

static int work(void *arg, void *worker, void *job, struct err *e)
{
	struct each *each = arg;

	return each->fn(each->ctx, *(size_t *)job, e);
}

int live_each(unsigned int threads, size_t n, int (*fn)(void *ctx, size_t i, struct err *e), void *ctx,
	      const atomic_bool *cancel, struct err *e)
{
	static const struct pipe_ops ops = {.take = take, .work = work};
	void *nobody[PIPE_WORKERS_MAX] = {NULL};
	struct each each = {.fn = fn, .ctx = ctx, .n = n};
	struct pipe_plan plan = {
		.ops = &ops,
		.ctx = &each,
		.workers = nobody,
		.n_workers = (unsigned int)num_max(1, num_min(num_min(threads, n), PIPE_WORKERS_MAX)),
		.job_bytes = 64,
		.cancel = cancel,
	};

	plan.slots = plan.n_workers;
	return n ? pipe_run(&plan, NULL, e) : 0;
}
