/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the codecs share among themselves: the names of their tables and the one check that all
 * of them make.  Nobody outside of this folder includes it.
 */
#ifndef TORPOR_CODEC_BUILTIN_H
#define TORPOR_CODEC_BUILTIN_H

#include "codec/codec.h"

extern const struct codec codec_none;
extern const struct codec codec_lz4;
extern const struct codec codec_zstd;
extern const struct codec codec_lzo;

/*
 * Keeps every size within what the libraries' int and the states' buffers can take, so that
 * none of them has to think about a hostile length.
 */
static inline bool codec_raw_size_ok(size_t raw)
{
	return raw && raw <= CODEC_RAW_MAX_BYTES;
}

#endif
