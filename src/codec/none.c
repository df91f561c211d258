// SPDX-License-Identifier: LGPL-2.1-or-later
/* The codec that stores: a chunk is its own compressed form.  Has no state and no levels. */
#include <string.h>

#include "codec/builtin.h"

static size_t none_bound(size_t raw)
{
	return raw;
}

static int none_state_new(int level, bool decode_only, struct codec_state **ret)
{
	*ret = NULL;
	return 0;
}

static void none_state_free(struct codec_state *state)
{
}

static int none_compress(struct codec_state *state, void *dst, size_t dst_bytes,
			 const void *src, size_t src_bytes, size_t *ret_bytes)
{
	if (!codec_raw_size_ok(src_bytes))
		return -EINVAL;
	if (src_bytes > dst_bytes)
		return -ENOSPC;
	memcpy(dst, src, src_bytes);
	*ret_bytes = src_bytes;
	return 0;
}

static int none_decompress(struct codec_state *state, void *dst, size_t dst_bytes,
			   const void *src, size_t src_bytes)
{
	if (!codec_raw_size_ok(dst_bytes) || src_bytes != dst_bytes)
		return -EBADMSG;
	memcpy(dst, src, src_bytes);
	return 0;
}

const struct codec codec_none = {
	.name = "none",
	.id = CODEC_NONE,
	.level_word = "",
	.bound = none_bound,
	.state_new = none_state_new,
	.state_free = none_state_free,
	.compress = none_compress,
	.decompress = none_decompress,
};
