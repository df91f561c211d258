// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * torpor-bench load: the experiment of "Request 0 CPU latency during image decompression", and the
 * answer to it.  Chunks of 128 KiB lie compressed in memory and are decoded into populated
 * memory, so that what differs is the hand-over alone; in each of three states of the CPUs: as they are, with the
 * latency guard held, and kept out of idle by idle-priority spinners, which stand in for the guard on
 * machines that do not idle deeply.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "os/latency.h"

enum state { AS_IS, GUARDED, SPINNING, STATES };

static const char *const state_names[STATES] = {"as they are", "guard held", "spinners"};

struct way {
	const char *name;
	void (*load)(const struct bench_chunks *c, uint8_t *dst, unsigned int threads);
	unsigned int threads; /* 0: all */
};

static const struct way ways[] = {
	{"plain loop", load_plain, 1},	       {"kernel's shape, 1 worker", load_kernel_shape, 1},
	{"kernel's shape, all", load_kernel_shape, 0}, {"torpor, 1 thread", load_pipe, 1},
	{"torpor, all", load_pipe, 0},	       {"static split, all", load_split, 0},
};

enum { PLAIN, KERNEL_ONE, KERNEL_ALL, TORPOR_ONE, TORPOR_ALL, SPLIT, WAYS };

struct result {
	double wall_s[BENCH_RUNS_MAX], cpu_s[BENCH_RUNS_MAX];
};

static atomic_bool spin;

static void *spinner(void *arg)
{
	struct sched_param p = {.sched_priority = 0};

	sched_setscheduler(0, SCHED_IDLE, &p);
	while (atomic_load_explicit(&spin, memory_order_relaxed))
		;
	return NULL;
}

/* Puts the CPUs into a state; returns false where it cannot be had. */
static bool enter(enum state state, unsigned int threads, pthread_t *ids, int *guard)
{
	unsigned int i;

	*guard = -1;
	if (state == GUARDED) {
		*guard = os_latency_hold(OS_LATENCY_PATH);
		return *guard >= 0;
	}
	atomic_store(&spin, state == SPINNING);
	for (i = 0; state == SPINNING && i < threads; i++) {
		if (pthread_create(&ids[i], NULL, spinner, NULL) != 0)
			bench_die("cannot start a thread");
	}
	return true;
}

static void leave(enum state state, unsigned int threads, const pthread_t *ids, int guard)
{
	unsigned int i;

	if (guard >= 0)
		close(guard);
	atomic_store(&spin, false);
	for (i = 0; state == SPINNING && i < threads; i++)
		pthread_join(ids[i], NULL);
}

static void measure(const struct bench_opts *opts, const struct bench_chunks *c, uint8_t *dst,
		    enum state state, unsigned int run, struct result results[WAYS])
{
	pthread_t ids[BENCH_THREADS_MAX];
	unsigned int w;
	int guard;

	if (!enter(state, opts->threads, ids, &guard))
		return;
	for (w = 0; w < WAYS; w++) {
		uint64_t wall = clock_mono_ns(), cpu = clock_cpu_ns();

		ways[w].load(c, dst, ways[w].threads ? ways[w].threads : opts->threads);
		results[w].wall_s[run] = (double)(clock_mono_ns() - wall) / 1e9;
		results[w].cpu_s[run] = (double)(clock_cpu_ns() - cpu) / 1e9;
	}
	leave(state, opts->threads, ids, guard);
}

static void print(const struct bench_opts *opts, const struct bench_chunks *c, enum state state,
		  struct result results[WAYS])
{
	double mb[WAYS], kernel;
	unsigned int w;

	if (results[0].wall_s[0] <= 0)
		return;
	for (w = 0; w < WAYS; w++)
		mb[w] = (double)c->raw_bytes / 1e6 / bench_median(results[w].wall_s, opts->runs);
	kernel = mb[KERNEL_ONE] > mb[KERNEL_ALL] ? mb[KERNEL_ONE] : mb[KERNEL_ALL];
	for (w = 0; w < WAYS; w++) {
		double cpu = bench_median(results[w].cpu_s, opts->runs) * (double)GIB(1) / (double)c->raw_bytes;

		if (opts->json)
			printf("{\"codec\": \"%s\", \"cpus\": \"%s\", \"loader\": \"%s\", \"mb_per_s\": %.0f, \"ratio\": %.3f, \"cpu_s_per_gib\": %.3f}\n",
			       c->codec->name, state_names[state], ways[w].name, mb[w], mb[w] / kernel, cpu);
		else
			printf("| %-4s | %-11s | %-24s | %6.0f | %5.2f | %6.2f%s |\n", c->codec->name,
			       state_names[state], ways[w].name, mb[w], mb[w] / kernel, cpu,
			       state == SPINNING ? " (with spinners)" : "");
	}
	if (!opts->json)
		printf("| %-4s | %-11s | torpor, all / static split: %.2f; torpor, 1 / plain loop: %.2f | | | |\n",
		       c->codec->name, state_names[state], mb[TORPOR_ALL] / mb[SPLIT], mb[TORPOR_ONE] / mb[PLAIN]);
}

static void bench_one(const struct bench_opts *opts, const struct bench_data *data, const char *codec)
{
	struct result(*results)[WAYS] = calloc(STATES, sizeof(*results));
	uint8_t *dst = bench_memory(data->dense_bytes);
	struct bench_chunks c;
	unsigned int run, state;

	if (!results)
		bench_die("no memory");
	bench_chunks_make(data, codec, 0, BENCH_CHUNK_BYTES, &c);
	for (run = 0; run < opts->runs; run++) {
		for (state = 0; state < STATES; state++)
			measure(opts, &c, dst, state, run, results[state]);
	}
	if (memcmp(dst, data->dense, data->dense_bytes) != 0)
		bench_die("what was loaded differs");
	for (state = 0; state < STATES; state++)
		print(opts, &c, state, results[state]);
	bench_chunks_free(&c);
	free(results);
}

int bench_load(const struct bench_opts *opts)
{
	const struct codec *codec;
	struct bench_data data;

	bench_data_load(opts, &data);
	if (!opts->json)
		printf("%zu MB of pages that are not zero, %u threads, median of %u runs\n\n"
		       "| codec | CPUs | loader | MB/s | ratio | CPU s/GiB |\n| --- | --- | --- | --- | --- | --- |\n",
		       data.dense_bytes / 1000000, opts->threads, opts->runs);
	if (codec_by_name("lzo", &codec, NULL) == 0)
		bench_one(opts, &data, "lzo");
	if (codec_by_name("lz4", &codec, NULL) == 0)
		bench_one(opts, &data, "lz4");
	return 0;
}
