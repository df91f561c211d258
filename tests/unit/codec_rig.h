/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the tests of the codecs share: one codec with buffers at the edge of memory (guard.h),
 * so that a byte too far is a SIGSEGV, which fails the test.
 */
#ifndef TORPOR_TESTS_CODEC_RIG_H
#define TORPOR_TESTS_CODEC_RIG_H

#include <setjmp.h>
#include <stdarg.h>

#include "../guard.h"
#include "../pattern.h"
#include "base/num.h"
#include "codec/codec.h"

/* After the headers it leans on. */
#include <cmocka.h>

/* One codec with its states, and edge buffers for what goes in and comes out. */
struct rig {
	const struct codec *codec;
	struct codec_state *both, *decoder;
	struct guard raw, packed, out;
	uint8_t *good; /* the packed form of `raw`, kept aside */
	size_t raw_bytes, good_bytes;
};

static inline struct codec_state *state_of(const struct codec *codec, int level,
					   bool decode_only)
{
	struct codec_state *state = NULL;

	assert_int_equal(codec->state_new(level, decode_only, &state), 0);
	return state;
}

static inline void rig_set_up(struct rig *rig, const struct codec *codec, int level)
{
	const size_t bound = codec->bound(CODEC_RAW_MAX_BYTES);
	struct err e;

	assert_int_equal(codec_level(codec, level, &level, &e), 0);
	*rig = (struct rig){
		.codec = codec,
		.both = state_of(codec, level, false),
		.decoder = state_of(codec, level, true),
		.raw = guard_new(CODEC_RAW_MAX_BYTES),
		.packed = guard_new(bound + 16),
		.out = guard_new(CODEC_RAW_MAX_BYTES),
		.good = malloc(bound + 16),
	};
	assert_non_null(rig->good);
}

static inline void rig_tear_down(struct rig *rig)
{
	rig->codec->state_free(rig->both);
	rig->codec->state_free(rig->decoder);
	guard_free(&rig->raw);
	guard_free(&rig->packed);
	guard_free(&rig->out);
	free(rig->good);
}

/* Compresses `bytes` of a pattern with all the room that bound() asks for. */
static inline void rig_pack(struct rig *rig, size_t bytes, enum pattern pattern, uint64_t seed)
{
	const size_t bound = rig->codec->bound(bytes);
	uint8_t *raw = guard_at_end(&rig->raw, bytes);
	uint8_t *packed = guard_at_end(&rig->packed, bound);
	size_t n = 0;

	pattern_fill(raw, bytes, pattern, seed);
	assert_int_equal(rig->codec->compress(rig->both, packed, bound, raw, bytes, &n), 0);
	assert_in_range(n, 1, bound);
	assert_true(guard_intact(&rig->packed));
	memcpy(rig->good, packed, n);
	rig->raw_bytes = bytes;
	rig->good_bytes = n;
}

/*
 * Decodes twice, with the end and with the beginning of both buffers at the edge; both must say
 * the same.  What was decoded is in rig->out.
 */
static inline int rig_unpack(struct rig *rig, const uint8_t *packed, size_t packed_bytes,
			     size_t out_bytes)
{
	uint8_t *src = guard_at_start(&rig->packed, packed_bytes);
	uint8_t *out = guard_at_start(&rig->out, out_bytes);
	int at_start, at_end;

	memcpy(src, packed, packed_bytes);
	at_start = rig->codec->decompress(rig->decoder, out, out_bytes, src, packed_bytes);
	assert_true(guard_intact(&rig->out));
	src = guard_copy(&rig->packed, packed, packed_bytes);
	out = guard_at_end(&rig->out, out_bytes);
	at_end = rig->codec->decompress(rig->decoder, out, out_bytes, src, packed_bytes);
	assert_true(guard_intact(&rig->out));
	assert_int_equal(at_start, at_end);
	assert_true(at_end == 0 || at_end == -EBADMSG);
	return at_end;
}

static inline void rig_check_good(struct rig *rig)
{
	assert_int_equal(rig_unpack(rig, rig->good, rig->good_bytes, rig->raw_bytes), 0);
	assert_memory_equal(rig->out.buffer, rig->raw.buffer, rig->raw_bytes);
}

static inline void for_each_codec(void (*check)(struct rig *rig))
{
	for (const struct codec *const *codec = codec_all(); *codec; codec++) {
		struct rig rig;

		rig_set_up(&rig, *codec, 0);
		check(&rig);
		rig_tear_down(&rig);
	}
}

#endif
