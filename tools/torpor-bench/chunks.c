// SPDX-License-Identifier: LGPL-2.1-or-later
/* Chunks for benchmarks, compressed and decoded with torpor's codecs. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bench.h"

void bench_chunks_make(const struct bench_data *data, const char *codec, int level, size_t chunk_bytes,
		       struct bench_chunks *ret)
{
	struct bench_chunks c = {.raw_bytes = data->dense_bytes};
	struct codec_state *state;
	struct err e;
	size_t i;

	if (codec_by_name(codec, &c.codec, &e) < 0 || codec_level(c.codec, level, &level, &e) < 0)
		bench_die("%s", e.text);
	if (c.codec->state_new(level, false, &state) < 0)
		bench_die("no memory");
	c.n = (c.raw_bytes + chunk_bytes - 1) / chunk_bytes;
	c.list = calloc(c.n, sizeof(*c.list));
	c.store = malloc(c.n * c.codec->bound(chunk_bytes));
	if (!c.list || !c.store)
		bench_die("no memory");
	for (i = 0; i < c.n; i++) {
		const uint8_t *raw = data->dense + i * chunk_bytes;
		size_t bytes = num_min(chunk_bytes, c.raw_bytes - i * chunk_bytes), stored;

		if (c.codec->compress(state, c.store + c.stored_bytes, c.codec->bound(bytes), raw, bytes,
				      &stored) < 0)
			bench_die("%s cannot compress", codec);
		c.list[i] = (struct bench_chunk){
			.stored = c.store + c.stored_bytes,
			.stored_bytes = (uint32_t)stored,
			.raw_bytes = (uint32_t)bytes,
			.raw_at = i * chunk_bytes,
			.hash = XXH3_64bits(raw, bytes),
		};
		c.stored_bytes += stored;
	}
	c.codec->state_free(state);
	*ret = c;
}

void bench_chunks_free(struct bench_chunks *c)
{
	free(c->list);
	free(c->store);
}

struct codec_state *bench_decoder(const struct codec *codec)
{
	struct codec_state *state;

	if (codec->state_new(0, true, &state) < 0)
		bench_die("no memory");
	return state;
}

void bench_decode(const struct bench_chunks *c, struct codec_state *state, size_t i, uint8_t *dst)
{
	const struct bench_chunk *chunk = &c->list[i];

	if (c->codec->decompress(state, dst, chunk->raw_bytes, chunk->stored, chunk->stored_bytes) < 0 ||
	    XXH3_64bits(dst, chunk->raw_bytes) != chunk->hash)
		bench_die("%s: chunk %zu does not come back", c->codec->name, i);
}
