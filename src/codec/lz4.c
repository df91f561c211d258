// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * LZ4 blocks (not frames: the image knows the lengths and has its own hash).  The level is
 * LZ4's acceleration: higher is faster and compresses less.
 */
#include <limits.h>
#include <lz4.h>
#include <stdlib.h>

#include "base/num.h"
#include "codec/builtin.h"

struct codec_state {
	int acceleration;
	/* LZ4_sizeofState() bytes; asked at run time, for the library may be newer than lz4.h.
	 */
	uint64_t stream[];
};

static size_t lz4_bound(size_t raw)
{
	return LZ4_COMPRESSBOUND(raw);
}

static int lz4_state_new(int level, bool decode_only, struct codec_state **ret)
{
	struct codec_state *state;

	if (decode_only) {
		*ret = NULL;
		return 0;
	}
	state = malloc(sizeof(*state) + (size_t)LZ4_sizeofState());
	if (!state)
		return -ENOMEM;
	state->acceleration = level;
	*ret = state;
	return 0;
}

static void lz4_state_free(struct codec_state *state)
{
	free(state);
}

static int lz4_compress(struct codec_state *state, void *dst, size_t dst_bytes, const void *src,
			size_t src_bytes, size_t *ret_bytes)
{
	int n;

	if (!codec_raw_size_ok(src_bytes))
		return -EINVAL;
	n = LZ4_compress_fast_extState(state->stream, src, dst, (int)src_bytes,
				       (int)num_min(dst_bytes, INT_MAX), state->acceleration);
	if (n <= 0)
		return -ENOSPC;
	*ret_bytes = (size_t)n;
	return 0;
}

static int lz4_decompress(struct codec_state *state, void *dst, size_t dst_bytes,
			  const void *src, size_t src_bytes)
{
	int n;

	if (!codec_raw_size_ok(dst_bytes) || src_bytes > INT_MAX)
		return -EBADMSG;
	n = LZ4_decompress_safe(src, dst, (int)src_bytes, (int)dst_bytes);
	return n == (int)dst_bytes ? 0 : -EBADMSG;
}

const struct codec codec_lz4 = {
	.name = "lz4",
	.id = CODEC_LZ4,
	.level_min = 1,
	.level_max = 65537, /* LZ4 takes more for this */
	.level_default = 1,
	.level_word = "acceleration",
	.bound = lz4_bound,
	.state_new = lz4_state_new,
	.state_free = lz4_state_free,
	.compress = lz4_compress,
	.decompress = lz4_decompress,
};
