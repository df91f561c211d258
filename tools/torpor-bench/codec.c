// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor-bench codec: ratio and speed of codecs, levels and chunk sizes, on one core. */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

static const struct {
	const char *codec;
	int level;
} choices[] = {{"lz4", 1}, {"lz4", 8}, {"lzo", 0}, {"zstd", -3}, {"zstd", 1}, {"zstd", 3}};

static const size_t sizes[] = {KIB(4), KIB(32), KIB(128), KIB(256), MIB(1)};

static void bench_one(const struct bench_opts *opts, const struct bench_data *data, const char *name,
		      int level, size_t chunk_bytes)
{
	double in[BENCH_RUNS_MAX], out[BENCH_RUNS_MAX], mb = (double)data->dense_bytes / 1e6, ratio = 0;
	uint8_t *dst = malloc(chunk_bytes);
	unsigned int run;

	if (!dst)
		bench_die("no memory");
	for (run = 0; run < opts->runs; run++) {
		uint64_t start = clock_mono_ns();
		struct codec_state *state;
		struct bench_chunks c;
		size_t i;

		bench_chunks_make(data, name, level, chunk_bytes, &c);
		in[run] = mb / ((double)(clock_mono_ns() - start) / 1e9);
		state = bench_decoder(c.codec);
		start = clock_mono_ns();
		for (i = 0; i < c.n; i++)
			bench_decode(&c, state, i, dst);
		out[run] = mb / ((double)(clock_mono_ns() - start) / 1e9);
		ratio = (double)c.raw_bytes / (double)c.stored_bytes;
		c.codec->state_free(state);
		bench_chunks_free(&c);
	}
	free(dst);
	if (opts->json)
		printf("{\"codec\": \"%s\", \"level\": %d, \"chunk_bytes\": %zu, \"ratio\": %.3f, \"compress_mb_per_s\": %.0f, \"decompress_mb_per_s\": %.0f}\n",
		       name, level, chunk_bytes, ratio, bench_median(in, opts->runs), bench_median(out, opts->runs));
	else
		printf("| %4zu KiB | %-4s %3d | %.2f | %5.0f | %5.0f |\n", chunk_bytes >> 10, name, level, ratio,
		       bench_median(in, opts->runs), bench_median(out, opts->runs));
	fflush(stdout);
}

int bench_codec(const struct bench_opts *opts)
{
	const struct codec *codec;
	struct bench_data data;
	size_t i, j;

	bench_data_load(opts, &data);
	if (!opts->json)
		printf("%zu MB of pages that are not zero, one core, hash included, median of %u runs\n\n"
		       "| chunk | codec, level | ratio | compress MB/s | decompress MB/s |\n| --- | --- | --- | --- | --- |\n",
		       data.dense_bytes / 1000000, opts->runs);
	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		for (j = 0; j < ARRAY_LEN(choices); j++) {
			if (codec_by_name(choices[j].codec, &codec, NULL) == 0)
				bench_one(opts, &data, choices[j].codec, choices[j].level, sizes[i]);
		}
	}
	return 0;
}
