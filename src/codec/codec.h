/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Codecs: one vtable, one file a codec (none, lz4, zstd, lzo).  This room turns one buffer into
 * another.  It knows no files, no pages and no threads; a state belongs to one worker, is made
 * once and used for every chunk.
 *
 * The identifiers stand in images and never change.
 */
#ifndef TORPOR_CODEC_CODEC_H
#define TORPOR_CODEC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum codec_id {
	CODEC_NONE = 0,
	CODEC_LZ4 = 1,
	CODEC_ZSTD = 2,
	CODEC_LZO = 3,
};

/*
 * The largest chunk (1 MiB).  Raw sizes go from 1 to this, for every function below; a state's
 * memory is bounded because of it.
 */
#define CODEC_RAW_MAX_BYTES ((size_t)1 << 20)

struct codec_state; /* opaque, per codec */

struct codec {
	const char *name;
	enum codec_id id;
	/* Accepted levels, both inclusive, and what level 0 of the caller means. */
	int level_min, level_max, level_default;
	/* What a level is, for --help: "acceleration", "level" or "" when there is none. */
	const char *level_word;

	/*
	 * Bytes that compressing `raw` bytes can need at worst.  A compressor is at its fastest
	 * with that much room: lzo, which knows no limit, then needs no copy.
	 */
	size_t (*bound)(size_t raw);

	/*
	 * Makes a worker's state: for `compress` and `decompress` both, or (level ignored) for
	 * decompress alone when `decode_only`.  `level` comes from codec_level().  A codec that
	 * needs no memory gives NULL, which its other functions accept.  Used by one thread at
	 * a time.  -ENOMEM; -EOPNOTSUPP when the library at hand is not the one built against.
	 */
	int (*state_new)(int level, bool decode_only, struct codec_state **ret);
	void (*state_free)(struct codec_state *state); /* accepts NULL */

	/*
	 * Keeps what the state takes for compressing chunks of up to `raw_bytes` within
	 * `memory_bytes`, at the cost of ratio where the level wants more.  Called before the
	 * first compress, or not at all.  NULL when no level takes more than 256 KiB.
	 */
	int (*limit)(struct codec_state *state, size_t raw_bytes, size_t memory_bytes);

	/*
	 * Compresses `src` into at most `dst_bytes` and sets *ret_bytes.  The result depends on
	 * `src`, the level and limit() alone, not on what the state did before.  -ENOSPC when it does
	 * not fit (the caller then stores the chunk as it is; `dst` holds anything); never
	 * writes beyond `dst_bytes`.  -EINVAL for a raw size out of range.  -ENOMEM from zstd
	 * alone, whose tables grow at the first chunk of a size; -EIO when the library fails
	 * for a reason of its own.
	 */
	int (*compress)(struct codec_state *state, void *dst, size_t dst_bytes, const void *src,
			size_t src_bytes, size_t *ret_bytes);

	/*
	 * Decodes `src`, which may hold anything, to exactly `dst_bytes`.  -EBADMSG when it is
	 * damaged, decodes to another length or is followed by more bytes; `dst` then holds
	 * anything.  Never reads beyond `src_bytes`, never writes beyond `dst_bytes`, allocates
	 * nothing.  Damage that decodes to the right length is for the caller's hash to find.
	 */
	int (*decompress)(struct codec_state *state, void *dst, size_t dst_bytes,
			  const void *src, size_t src_bytes);
};

/*
 * Finds a codec that this build has; *ret is untouched otherwise.  -EOPNOTSUPP with a message
 * naming it when it is known but not built in, -EINVAL when the name is unknown (the message
 * lists the known ones), -EOPNOTSUPP for an unknown identifier.
 */
int codec_by_name(const char *name, const struct codec **ret, struct err *e);
int codec_by_id(unsigned int id, const struct codec **ret, struct err *e);

/* The codecs of this build in the order of their identifiers; ends with NULL. */
const struct codec *const *codec_all(void);

/* Checks a level for `codec`; 0 becomes its default.  -ERANGE, and the message has the range.
 */
int codec_level(const struct codec *codec, int level, int *ret, struct err *e);

#endif
