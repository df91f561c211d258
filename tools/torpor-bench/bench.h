/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the benchmarks share: data, chunks made of it, timing, and tables as text or JSON.  Benchmarks
 * end the process on errors: nobody calls them but a person.
 */
#ifndef TORPOR_BENCH_H
#define TORPOR_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/num.h"
#include "codec/codec.h"

#define BENCH_CHUNK_BYTES KIB(128)
#define BENCH_RUNS_MAX 99
#define BENCH_THREADS_MAX 64u

struct bench_opts {
	const char *file; /* NULL: made up */
	unsigned int runs, threads;
	bool json;
};

/* Ends the process with a message. */
void bench_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Memory, populated, from a file or made up of the machine's own programs, zero pages and noise. */
struct bench_data {
	uint8_t *at;
	size_t bytes; /* whole pages */
	uint8_t *dense; /* its pages that are not zero, one after another */
	size_t dense_bytes;
};

void bench_data_load(const struct bench_opts *opts, struct bench_data *ret);

/* Populated anonymous memory; huge pages when there are. */
void *bench_memory(size_t bytes);

/* Touches and frees as much memory, so that the next first touch does not measure the host. */
void bench_warm(size_t bytes);

/* Chunks of the dense data, compressed. */
struct bench_chunk {
	const uint8_t *stored;
	uint32_t stored_bytes, raw_bytes;
	uint64_t raw_at; /* in dense */
	uint64_t hash;
};

struct bench_chunks {
	const struct codec *codec;
	struct bench_chunk *list;
	size_t n;
	size_t raw_bytes, stored_bytes;
	uint8_t *store;
};

void bench_chunks_make(const struct bench_data *data, const char *codec, int level, size_t chunk_bytes,
		       struct bench_chunks *ret);
void bench_chunks_free(struct bench_chunks *c);

/* Decodes one chunk to `dst` and checks its hash. */
void bench_decode(const struct bench_chunks *c, struct codec_state *state, size_t i, uint8_t *dst);
struct codec_state *bench_decoder(const struct codec *codec);

/* The loaders; all decode all chunks to their places in `dst`. */
void load_plain(const struct bench_chunks *c, uint8_t *dst, unsigned int threads);
void load_split(const struct bench_chunks *c, uint8_t *dst, unsigned int threads);
void load_pipe(const struct bench_chunks *c, uint8_t *dst, unsigned int threads);
void load_kernel_shape(const struct bench_chunks *c, uint8_t *dst, unsigned int threads);

/* Median of `n` numbers, which it sorts. */
double bench_median(double *values, unsigned int n);

/* Runs `threads` times fn(arg, number), the calling thread included. */
void bench_threads(unsigned int threads, void (*fn)(void *arg, unsigned int number), void *arg);

int bench_load(const struct bench_opts *opts);
int bench_codec(const struct bench_opts *opts);
int bench_limits(const struct bench_opts *opts);
int bench_copy(const struct bench_opts *opts);
int bench_fill(const struct bench_opts *opts);
int bench_critical(const struct bench_opts *opts);
int bench_keep(const struct bench_opts *opts);

#endif
