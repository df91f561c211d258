// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Zstandard: one ordinary frame a chunk, without checksum (the image has its own hash) and
 * without dictionary.  `zstd -d` reads such a frame.
 *
 * The decoder takes less than libzstd does: exactly one frame of the current format, with a
 * window of at most the largest chunk.  libzstd would also skip skippable frames, go on with
 * the next frame, and, where it was built so (Debian's is), hand frames of before 1.0 to the
 * old decoders, which allocate.  Our frames need none of that.
 *
 * What a level means for a size, and the memory that this takes, is told by two functions that libzstd
 * exports without promising to keep them (they are there since 1.0 and 1.3); nothing else here needs more
 * than the stable interface.
 */
#define ZSTD_STATIC_LINKING_ONLY
#include <stdlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/num.h"
#include "codec/builtin.h"

/* Tables of fewer entries (2^10) find next to nothing: a lower level is better then. */
#define TABLE_LOG_MIN 10

struct codec_state {
	ZSTD_CCtx *cctx; /* NULL when made to decode only */
	ZSTD_DCtx *dctx;
	int level;
};

static size_t zstd_bound(size_t raw)
{
	return ZSTD_compressBound(raw);
}

static void zstd_state_free(struct codec_state *state)
{
	if (!state)
		return;
	ZSTD_freeCCtx(state->cctx);
	ZSTD_freeDCtx(state->dctx);
	free(state);
}

static bool make_compressor(struct codec_state *state, int level)
{
	state->cctx = ZSTD_createCCtx();
	return state->cctx &&
	       !ZSTD_isError(
		       ZSTD_CCtx_setParameter(state->cctx, ZSTD_c_compressionLevel, level)) &&
	       !ZSTD_isError(ZSTD_CCtx_setParameter(state->cctx, ZSTD_c_checksumFlag, 0));
}

/*
 * The level's parameters with tables that fit.  They are lowered in turn, the hash table first: equal tables lose
 * least at all strategies (measured).  What is left without tables, and grows with the strategy, is
 * 0.5 MiB at level 1 and 1.3 MiB at level 22.
 */
static ZSTD_compressionParameters fitting(int level, size_t raw_bytes, size_t memory_bytes)
{
	ZSTD_compressionParameters p;
	bool fits;

	do {
		p = ZSTD_getCParams(level, raw_bytes, 0);
		while (!(fits = ZSTD_estimateCCtxSize_usingCParams(p) <= memory_bytes) &&
		       num_max(p.hashLog, p.chainLog) > TABLE_LOG_MIN) {
			if (p.hashLog > p.chainLog)
				p.hashLog--;
			else
				p.chainLog--;
		}
	} while (!fits && level-- > 1);
	return p;
}

static int zstd_limit(struct codec_state *state, size_t raw_bytes, size_t memory_bytes)
{
	const ZSTD_compressionParameters p = fitting(state->level, raw_bytes, memory_bytes);
	const struct {
		ZSTD_cParameter name;
		int value;
	} set[] = {
		{ZSTD_c_windowLog, (int)p.windowLog},	    {ZSTD_c_hashLog, (int)p.hashLog},
		{ZSTD_c_chainLog, (int)p.chainLog},	    {ZSTD_c_searchLog, (int)p.searchLog},
		{ZSTD_c_minMatch, (int)p.minMatch},	    {ZSTD_c_targetLength, (int)p.targetLength},
		{ZSTD_c_strategy, (int)p.strategy},
	};

	for (size_t i = 0; i < ARRAY_LEN(set); i++)
		if (ZSTD_isError(ZSTD_CCtx_setParameter(state->cctx, set[i].name, set[i].value)))
			return -EIO;
	return 0;
}

static int zstd_state_new(int level, bool decode_only, struct codec_state **ret)
{
	struct codec_state *state = calloc(1, sizeof(*state));

	if (!state)
		return -ENOMEM;
	state->level = level;
	state->dctx = ZSTD_createDCtx();
	if (!state->dctx || (!decode_only && !make_compressor(state, level))) {
		zstd_state_free(state);
		return -ENOMEM;
	}
	*ret = state;
	return 0;
}

static int zstd_compress(struct codec_state *state, void *dst, size_t dst_bytes,
			 const void *src, size_t src_bytes, size_t *ret_bytes)
{
	size_t n;

	if (!codec_raw_size_ok(src_bytes))
		return -EINVAL;
	n = ZSTD_compress2(state->cctx, dst, dst_bytes, src, src_bytes);
	if (ZSTD_isError(n)) {
		switch (ZSTD_getErrorCode(n)) {
		case ZSTD_error_dstSize_tooSmall:
			return -ENOSPC;
		case ZSTD_error_memory_allocation:
			return -ENOMEM;
		default:
			return -EIO;
		}
	}
	*ret_bytes = n;
	return 0;
}

/*
 * Window of a frame as its header (RFC 8878, 3.1.1.1) says; a frame of a single segment has its
 * content as window.  Decoding a whole frame at once needs no memory for it, as the destination
 * is the window; but a reader that streams does, and this keeps what it can be asked for small.
 */
static bool window_is_small(const uint8_t *frame)
{
	const unsigned int descriptor = frame[4], window = frame[5];
	const bool single_segment = descriptor >> 5 & 1;
	uint64_t base;

	if (single_segment)
		return true;
	base = (uint64_t)1 << (10 + (window >> 3));
	return base + base / 8 * (window & 7) <= CODEC_RAW_MAX_BYTES;
}

static bool is_one_frame(const void *src, size_t src_bytes, size_t content_bytes)
{
	unsigned long long content;

	/* Six bytes hold all that is looked at here; no frame is shorter. */
	if (src_bytes < 6 || num_get32(src) != ZSTD_MAGICNUMBER || !window_is_small(src))
		return false;
	content = ZSTD_getFrameContentSize(src, src_bytes);
	if (content != content_bytes && content != ZSTD_CONTENTSIZE_UNKNOWN)
		return false;
	return ZSTD_findFrameCompressedSize(src, src_bytes) == src_bytes;
}

static int zstd_decompress(struct codec_state *state, void *dst, size_t dst_bytes,
			   const void *src, size_t src_bytes)
{
	if (!codec_raw_size_ok(dst_bytes) || !is_one_frame(src, src_bytes, dst_bytes))
		return -EBADMSG;
	if (ZSTD_decompressDCtx(state->dctx, dst, dst_bytes, src, src_bytes) != dst_bytes)
		return -EBADMSG;
	return 0;
}

const struct codec codec_zstd = {
	.name = "zstd",
	.id = CODEC_ZSTD,
	/* ZSTD_minCLevel() and ZSTD_maxCLevel(), which are no constants; a test compares. */
	.level_min = -131072,
	.level_max = 22,
	.level_default = 1,
	.level_word = "level",
	.bound = zstd_bound,
	.state_new = zstd_state_new,
	.state_free = zstd_state_free,
	.limit = zstd_limit,
	.compress = zstd_compress,
	.decompress = zstd_decompress,
};
