// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Writes the seeds of corpus/codec into the folder named: for every codec good forms of all
 * kinds of content, of text also cut and damaged ones, forms asked to be of another length, and
 * raw content for the way there and back.  The head of an input is described in fuzz_codec.c.
 * The same at every run.
 */
#include <stdio.h>

#include "../tests/pattern.h"
#include "base/cleanup.h"
#include "base/num.h"
#include "codec/codec.h"

#define WAY_BACK 4 /* head bit 2: compress and decode */
#define EDGE_AT_START 8
#define SEED_MAX_BYTES 2500 /* larger ones teach a fuzzer little and cost it much */

static const char *const pattern_names[] = {"zero", "noise", "text", "counter"};
static const char *folder;

static void fail(const char *what, const char *name)
{
	fprintf(stderr, "seed_codec: cannot %s %s: %m\n", what, name);
	exit(1);
}

static void write_seed(const struct codec *codec, const char *kind, const char *variant,
		       const uint8_t head[4], const uint8_t *payload, size_t bytes)
{
	CLEANUP_FREE char *path = NULL;
	FILE *f;

	if (asprintf(&path, "%s/%s-%s-%s", folder, codec->name, kind, variant) < 0)
		fail("name a seed in", folder);
	f = fopen(path, "wb");
	if (!f || fwrite(head, 1, 4, f) != 4 || fwrite(payload, 1, bytes, f) != bytes ||
	    fclose(f))
		fail("write", path);
}

static void write_packed(const struct codec *codec, const char *kind, const char *variant,
			 size_t asked, const uint8_t *packed, size_t bytes)
{
	uint8_t head[4];

	num_put32(head, (uint32_t)(asked << 8 | (unsigned int)codec->id));
	if (strstr(variant, "at-start"))
		head[0] |= EDGE_AT_START;
	write_seed(codec, kind, variant, head, packed, bytes);
}

/* Good, cut in the middle, one byte damaged near the beginning and near the end, wrong length.
 */
static void write_variants(const struct codec *codec, const char *kind, size_t raw,
			   uint8_t *packed, size_t bytes)
{
	const size_t early = bytes / 8, late = bytes - 1 - bytes / 8;

	write_packed(codec, kind, "good", raw, packed, bytes);
	write_packed(codec, kind, "good-at-start", raw, packed, bytes);
	write_packed(codec, kind, "cut", raw, packed, bytes / 2);
	write_packed(codec, kind, "short", raw - 1, packed, bytes);
	write_packed(codec, kind, "long", raw + 1, packed, bytes);
	packed[early] ^= 0x41;
	write_packed(codec, kind, "damaged-early", raw, packed, bytes);
	packed[early] ^= 0x41;
	packed[late] ^= 0x82;
	write_packed(codec, kind, "damaged-late", raw, packed, bytes);
}

static void seed_content(const struct codec *codec, struct codec_state *state,
			 const char *level, enum pattern pattern, size_t raw_bytes)
{
	CLEANUP_FREE uint8_t *raw = malloc(raw_bytes);
	CLEANUP_FREE uint8_t *packed = malloc(codec->bound(raw_bytes));
	char kind[64];
	size_t n;

	if (!raw || !packed)
		fail("allocate for", codec->name);
	pattern_fill(raw, raw_bytes, pattern, 3);
	if (codec->compress(state, packed, codec->bound(raw_bytes), raw, raw_bytes, &n))
		fail("compress with", codec->name);
	if (n > SEED_MAX_BYTES)
		return;
	snprintf(kind, sizeof(kind), "%s-%zu%s", pattern_names[pattern], raw_bytes, level);
	if (pattern == PATTERN_TEXT && !*level && raw_bytes > 1)
		write_variants(codec, kind, raw_bytes, packed, n);
	else
		write_packed(codec, kind, "good", raw_bytes, packed, n);
	if (!*level && raw_bytes <= 700) {
		/* Repeated once and 256 times; room for half of the bound in the second try. */
		uint8_t head[4] = {(uint8_t)(codec->id | WAY_BACK), 1};

		num_put16(head + 2, (uint16_t)(codec->bound(raw_bytes) / 2));
		write_seed(codec, kind, "raw", head, raw, raw_bytes);
		head[0] |= 8 << 4;
		head[1] = 3;
		write_seed(codec, kind, "raw-repeated", head, raw, raw_bytes);
	}
}

static void seed_codec(const struct codec *codec, int level, const char *suffix)
{
	static const size_t sizes[] = {1, 700, 4096};
	struct codec_state *state;

	if (codec_level(codec, level, &level, NULL) || codec->state_new(level, false, &state))
		fail("set up", codec->name);
	for (int pattern = 0; pattern < PATTERN_COUNT; pattern++)
		for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
			seed_content(codec, state, suffix, (enum pattern)pattern, sizes[s]);
	if (codec->id != CODEC_NONE)
		seed_content(codec, state, suffix, PATTERN_ZERO, CODEC_RAW_MAX_BYTES);
	codec->state_free(state);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: seed_codec FOLDER\n");
		return 2;
	}
	folder = argv[1];
	for (const struct codec *const *codec = codec_all(); *codec; codec++) {
		seed_codec(*codec, 0, "");
		if ((*codec)->level_max >= 19)
			seed_codec(*codec, 19, "-level19");
	}
	return 0;
}
