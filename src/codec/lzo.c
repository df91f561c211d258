// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * LZO1X-1, as the kernel's hibernation images have it.  liblzo2 is under the GPL, and so is a
 * build with this file in it.
 *
 * lzo1x_1_compress() is told no size of its destination.  Where less room is given than the
 * worst case needs, it writes into a buffer of the state's own, and what fits is copied.
 */
#include <lzo/lzo1x.h>
#include <stdlib.h>
#include <string.h>

#include "codec/builtin.h"

/* Worst case of LZO1X: a sixteenth more, and some bytes of markers (the library's FAQ). */
#define LZO_BOUND(raw) ((raw) + (raw) / 16 + 64 + 3)

struct codec_state {
	/* Pointers, for alignment: the dictionary of lzo1x_1_compress(). */
	void *work[LZO1X_1_MEM_COMPRESS / sizeof(void *)];
	uint8_t bounce[LZO_BOUND(CODEC_RAW_MAX_BYTES)];
};

static size_t lzo_bound(size_t raw)
{
	return LZO_BOUND(raw);
}

static int lzo_state_new(int level, bool decode_only, struct codec_state **ret)
{
	struct codec_state *state = NULL;

	/* Compares the sizes of its types with ours, and sets nothing. */
	if (lzo_init() != LZO_E_OK)
		return -EOPNOTSUPP;
	if (!decode_only) {
		state = malloc(sizeof(*state));
		if (!state)
			return -ENOMEM;
	}
	*ret = state;
	return 0;
}

static void lzo_state_free(struct codec_state *state)
{
	free(state);
}

static int lzo_compress(struct codec_state *state, void *dst, size_t dst_bytes, const void *src,
			size_t src_bytes, size_t *ret_bytes)
{
	uint8_t *out = dst;
	lzo_uint n = 0;

	if (!codec_raw_size_ok(src_bytes))
		return -EINVAL;
	if (dst_bytes < LZO_BOUND(src_bytes))
		out = state->bounce;
	if (lzo1x_1_compress(src, src_bytes, out, &n, state->work) != LZO_E_OK)
		return -EIO;
	if (n > dst_bytes)
		return -ENOSPC;
	if (out != dst)
		memcpy(dst, out, n);
	*ret_bytes = n;
	return 0;
}

static int lzo_decompress(struct codec_state *state, void *dst, size_t dst_bytes,
			  const void *src, size_t src_bytes)
{
	lzo_uint n = dst_bytes;

	if (!codec_raw_size_ok(dst_bytes))
		return -EBADMSG;
	if (lzo1x_decompress_safe(src, src_bytes, dst, &n, NULL) != LZO_E_OK || n != dst_bytes)
		return -EBADMSG;
	return 0;
}

const struct codec codec_lzo = {
	.name = "lzo",
	.id = CODEC_LZO,
	.level_word = "",
	.bound = lzo_bound,
	.state_new = lzo_state_new,
	.state_free = lzo_state_free,
	.compress = lzo_compress,
	.decompress = lzo_decompress,
};
