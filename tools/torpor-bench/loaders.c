// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Loaders to compare with the kernel's shape: a plain loop, torpor's pipeline, and the limit, a static
 * split without any hand-over.  All decode straight into the destination and check hashes.
 */
#include <stdlib.h>

#include "bench.h"
#include "pipe/pipe.h"

struct load_job {
	size_t chunk;
};

struct loading {
	const struct bench_chunks *chunks;
	uint8_t *dst;
	unsigned int threads;
	size_t next;
};

void load_plain(const struct bench_chunks *c, uint8_t *dst, unsigned int threads)
{
	struct codec_state *state = bench_decoder(c->codec);
	size_t i;

	for (i = 0; i < c->n; i++)
		bench_decode(c, state, i, dst + c->list[i].raw_at);
	c->codec->state_free(state);
}

static void split_part(void *arg, unsigned int number)
{
	const struct loading *l = arg;
	const struct bench_chunks *c = l->chunks;
	struct codec_state *state = bench_decoder(c->codec);
	size_t i, end = c->n * (number + 1) / l->threads;

	for (i = c->n * number / l->threads; i < end; i++)
		bench_decode(c, state, i, l->dst + c->list[i].raw_at);
	c->codec->state_free(state);
}

void load_split(const struct bench_chunks *c, uint8_t *dst, unsigned int threads)
{
	struct loading l = {.chunks = c, .dst = dst, .threads = threads};

	bench_threads(threads, split_part, &l);
}

static int take(void *arg, void *worker, void *job, struct err *e)
{
	struct loading *l = arg;

	if (l->next == l->chunks->n)
		return 0;
	((struct load_job *)job)->chunk = l->next++;
	return 1;
}

static int work(void *arg, void *worker, void *job, struct err *e)
{
	const struct loading *l = arg;
	size_t i = ((struct load_job *)job)->chunk;

	bench_decode(l->chunks, worker, i, l->dst + l->chunks->list[i].raw_at);
	return 0;
}

void load_pipe(const struct bench_chunks *c, uint8_t *dst, unsigned int threads)
{
	static const struct pipe_ops ops = {.take = take, .work = work};
	struct loading l = {.chunks = c, .dst = dst};
	void *workers[BENCH_THREADS_MAX];
	struct pipe_plan plan = {
		.ops = &ops,
		.ctx = &l,
		.workers = workers,
		.n_workers = threads,
		.slots = 4 * threads + 16,
		.job_bytes = sizeof(struct load_job),
	};
	struct err e;
	unsigned int i;

	for (i = 0; i < threads; i++)
		workers[i] = bench_decoder(c->codec);
	if (pipe_run(&plan, NULL, &e) < 0)
		bench_die("%s", e.text);
	for (i = 0; i < threads; i++)
		c->codec->state_free(workers[i]);
}
