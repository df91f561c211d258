// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The table of codecs and the look-ups by name, identifier and level.  A codec that was left
 * out of the build is still known by name, so that an image which needs it can say so.
 */
#include "codec/codec.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "codec/builtin.h"

static const char *const known_names[] = {
	[CODEC_NONE] = "none",
	[CODEC_LZ4] = "lz4",
	[CODEC_ZSTD] = "zstd",
	[CODEC_LZO] = "lzo",
};

static const struct codec *const built_in[] = {
	&codec_none,
#ifdef HAVE_LZ4
	&codec_lz4,
#endif
#ifdef HAVE_ZSTD
	&codec_zstd,
#endif
#ifdef HAVE_LZO
	&codec_lzo,
#endif
	NULL,
};

const struct codec *const *codec_all(void)
{
	return built_in;
}

static const struct codec *find_built_in(unsigned int id)
{
	for (size_t i = 0; built_in[i]; i++)
		if (built_in[i]->id == id)
			return built_in[i];
	return NULL;
}

/* "none, lz4, zstd, lzo (not built in)" */
static void list_known(char *text, size_t text_bytes)
{
	size_t used = 0;

	for (unsigned int id = 0; id < ARRAY_LEN(known_names); id++) {
		int n = snprintf(text + used, text_bytes - used, "%s%s%s", id ? ", " : "",
				 known_names[id], find_built_in(id) ? "" : " (not built in)");

		if (n < 0 || (size_t)n >= text_bytes - used)
			return;
		used += (size_t)n;
	}
}

int codec_by_id(unsigned int id, const struct codec **ret, struct err *e)
{
	const struct codec *codec;

	if (id >= ARRAY_LEN(known_names))
		return err_set(e, -EOPNOTSUPP, "unknown codec number %u", id);
	codec = find_built_in(id);
	if (!codec)
		return err_set(e, -EOPNOTSUPP, "codec %s is not built in", known_names[id]);
	*ret = codec;
	return 0;
}

int codec_by_name(const char *name, const struct codec **ret, struct err *e)
{
	char known[128] = "";

	for (unsigned int id = 0; id < ARRAY_LEN(known_names); id++)
		if (!strcmp(name, known_names[id]))
			return codec_by_id(id, ret, e);
	list_known(known, sizeof(known));
	return err_set(e, -EINVAL, "unknown codec '%s'; known are %s", name, known);
}

int codec_level(const struct codec *codec, int level, int *ret, struct err *e)
{
	if (!level)
		level = codec->level_default;
	if (level >= codec->level_min && level <= codec->level_max) {
		*ret = level;
		return 0;
	}
	if (codec->level_min == codec->level_max)
		return err_set(e, -ERANGE, "codec %s has no levels (level %d given)",
			       codec->name, level);
	return err_set(e, -ERANGE, "codec %s: %s %d is not in the range from %d to %d",
		       codec->name, codec->level_word, level, codec->level_min,
		       codec->level_max);
}
