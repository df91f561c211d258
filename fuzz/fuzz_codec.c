// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Fuzz target for every decoder and for the way there and back.  An input is a head of four
 * bytes, then the payload:
 *
 *   byte 0     bits 0-1 codec, bit 2 way (0 decode, 1 compress and decode), bit 3 edge (the
 *              decoded buffer begins or ends where memory does), bits 4-7 (compress only) how
 *              often the payload is repeated, as a power of two
 *   bytes 1-3  decode: length asked for, little-endian
 *              compress: byte 1 the level (signed), bytes 2-3 room in the second try
 *
 * Buffers lie at the edge of memory (guard.h), since the codecs' libraries are not
 * instrumented. A codec that this build lacks ends an input at once.
 */
#include "../tests/guard.h"
#include "base/num.h"
#include "codec/codec.h"
#include "fuzz.h"

#define HEAD_BYTES 4
#define ROOM_BYTES (CODEC_RAW_MAX_BYTES * 2)

/* Kept between inputs, as a worker keeps its state between chunks. */
static struct guard src_guard, dst_guard, out_guard;
static struct codec_state *decoders[4], *encoders[4];
static int encoder_levels[4];

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void set_up_once(void)
{
	if (src_guard.map)
		return;
	src_guard = guard_new(ROOM_BYTES);
	dst_guard = guard_new(ROOM_BYTES);
	out_guard = guard_new(ROOM_BYTES);
}

static struct codec_state *decoder_of(const struct codec *codec)
{
	if (!decoders[codec->id])
		require(codec->state_new(0, true, &decoders[codec->id]) == 0);
	return decoders[codec->id];
}

static struct codec_state *encoder_of(const struct codec *codec, int8_t wish)
{
	int level = wish;

	if (level < codec->level_min)
		level = codec->level_min;
	if (level > codec->level_max)
		level = codec->level_max;
	require(codec_level(codec, level, &level, NULL) == 0);
	if (encoder_levels[codec->id] != level || !encoders[codec->id]) {
		codec->state_free(encoders[codec->id]);
		require(codec->state_new(level, false, &encoders[codec->id]) == 0);
		encoder_levels[codec->id] = level;
	}
	return encoders[codec->id];
}

static int decode(const struct codec *codec, const uint8_t *src, size_t src_bytes,
		  size_t out_bytes, bool edge_at_start)
{
	uint8_t *out = edge_at_start ? guard_at_start(&out_guard, out_bytes)
				     : guard_at_end(&out_guard, out_bytes);
	int r = codec->decompress(decoder_of(codec), out, out_bytes, src, src_bytes);

	require(guard_intact(&out_guard));
	require(r == 0 || r == -EBADMSG);
	return r;
}

/* Less room than the bound: all or nothing, and nothing beyond the room. */
static void compress_into(const struct codec *codec, struct codec_state *state,
			  const uint8_t *raw, size_t raw_bytes, size_t room)
{
	uint8_t *dst = guard_at_end(&dst_guard, room);
	size_t n = SIZE_MAX;
	int r = codec->compress(state, dst, room, raw, raw_bytes, &n);

	require(guard_intact(&dst_guard));
	if (r) {
		require(r == -ENOSPC && n == SIZE_MAX);
		return;
	}
	require(n <= room && decode(codec, dst, n, raw_bytes, false) == 0);
	require(!memcmp(out_guard.buffer, raw, raw_bytes));
}

static void there_and_back(const struct codec *codec, const uint8_t *head,
			   const uint8_t *payload, size_t payload_bytes)
{
	const bool edge_at_start = head[0] >> 3 & 1;
	const size_t copies = (size_t)1 << (head[0] >> 4);
	const size_t raw_bytes = num_min(payload_bytes * copies, CODEC_RAW_MAX_BYTES);
	struct codec_state *state = encoder_of(codec, (int8_t)head[1]);
	const size_t bound = raw_bytes ? codec->bound(raw_bytes) : 64;
	uint8_t *raw = guard_at_end(&src_guard, raw_bytes);
	uint8_t *dst = guard_at_end(&dst_guard, bound);
	size_t n = 0;
	int r;

	for (size_t i = 0; i < raw_bytes; i += payload_bytes)
		memcpy(raw + i, payload, num_min(payload_bytes, raw_bytes - i));
	r = codec->compress(state, dst, bound, raw, raw_bytes, &n);
	require(guard_intact(&dst_guard));
	if (!raw_bytes) {
		require(r == -EINVAL);
		return;
	}
	require(r == 0 && n <= bound);
	require(decode(codec, dst, n, raw_bytes, edge_at_start) == 0);
	require(!memcmp(out_guard.buffer, raw, raw_bytes));
	require(decode(codec, dst, n, raw_bytes - 1, edge_at_start) == -EBADMSG);
	require(decode(codec, dst, n, raw_bytes + 1, edge_at_start) == -EBADMSG);
	require(decode(codec, dst, n - 1, raw_bytes, edge_at_start) == -EBADMSG);
	compress_into(codec, state, raw, raw_bytes, num_get16(head + 2) % (bound + 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const struct codec *codec;
	size_t payload_bytes;
	uint8_t *src;

	if (bytes < HEAD_BYTES || codec_by_id(data[0] & 3, &codec, NULL))
		return 0;
	set_up_once();
	payload_bytes = num_min(bytes - HEAD_BYTES, CODEC_RAW_MAX_BYTES);
	if (data[0] >> 2 & 1) {
		there_and_back(codec, data, data + HEAD_BYTES, payload_bytes);
		return 0;
	}
	src = guard_copy(&src_guard, data + HEAD_BYTES, payload_bytes);
	/* May ask for one byte more than the largest chunk and must then be refused. */
	decode(codec, src, payload_bytes, (num_get32(data) >> 8) % (CODEC_RAW_MAX_BYTES + 2),
	       data[0] >> 3 & 1);
	return 0;
}
