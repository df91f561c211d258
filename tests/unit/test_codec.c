// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Proves that every codec of this build gives back what it was given, keeps to the room that it
 * was given, and that names, identifiers and levels are looked up as codec.h says.
 */
#include <stdio.h>

#include "codec_rig.h"

#ifdef HAVE_ZSTD
#include <zstd.h>
#endif

/* ---- what goes in comes out ---- */

static const size_t sizes[] = {1, 2, 4095, 4096, 131072, 1048576};

static void round_trip_at(const struct codec *codec, int level)
{
	struct rig rig;

	rig_set_up(&rig, codec, level);
	for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
		for (int pattern = 0; pattern < PATTERN_COUNT; pattern++) {
			rig_pack(&rig, sizes[s], (enum pattern)pattern, s);
			rig_check_good(&rig);
		}
	rig_tear_down(&rig);
}

static void test_round_trip(void **unused)
{
	static const int levels[] = {0, -131072, -5, 1, 3, 8, 15, 19, 22, 1000, 65537};

	for (const struct codec *const *codec = codec_all(); *codec; codec++)
		for (size_t i = 0; i < ARRAY_LEN(levels); i++)
			if (!levels[i] || (levels[i] >= (*codec)->level_min &&
					   levels[i] <= (*codec)->level_max))
				round_trip_at(*codec, levels[i]);
}

static size_t packed_bytes_at(const struct codec *codec, int level)
{
	struct rig rig;

	rig_set_up(&rig, codec, level);
	rig_pack(&rig, 131072, PATTERN_TEXT, 1);
	rig_tear_down(&rig);
	return rig.good_bytes;
}

/* A level that is accepted and then ignored would pass every other test. */
static void test_level_matters(void **unused)
{
	const struct codec *codec;

	if (!codec_by_name("lz4", &codec, NULL))
		assert_true(packed_bytes_at(codec, 1) < packed_bytes_at(codec, 1000));
	if (!codec_by_name("zstd", &codec, NULL)) {
		assert_true(packed_bytes_at(codec, 19) < packed_bytes_at(codec, 1));
		assert_true(packed_bytes_at(codec, 1) < packed_bytes_at(codec, -50));
		assert_int_equal(packed_bytes_at(codec, 0), packed_bytes_at(codec, 1));
	}
}

static void check_reuse(struct rig *rig)
{
	for (unsigned int i = 0; i < 300; i++) {
		const size_t bytes = i % 7 == 3 ? 1 + i * 31 : (size_t)131072 >> (i % 5);
		struct rig fresh;

		rig_pack(rig, bytes, (enum pattern)(i % PATTERN_COUNT), i);
		/* A decoder that has just refused something must not remember it. */
		rig_unpack(rig, rig->good, rig->good_bytes / 2, bytes);
		rig_check_good(rig);
		if (i % 3)
			continue;
		rig_set_up(&fresh, rig->codec, 0);
		rig_pack(&fresh, bytes, (enum pattern)(i % PATTERN_COUNT), i);
		assert_int_equal(fresh.good_bytes, rig->good_bytes);
		assert_memory_equal(fresh.good, rig->good, rig->good_bytes);
		rig_tear_down(&fresh);
	}
}

static void test_state_reuse_changes_nothing(void **unused)
{
	for_each_codec(check_reuse);
}

/* ---- too little room ---- */

/* Returns what compress() said; whatever it says, nothing is written out of bounds. */
static int pack_into(struct rig *rig, size_t room)
{
	uint8_t *packed = guard_at_end(&rig->packed, room);
	size_t n = SIZE_MAX;
	int r = rig->codec->compress(rig->both, packed, room, rig->raw.buffer, rig->raw_bytes,
				     &n);

	assert_true(guard_intact(&rig->packed));
	if (r) {
		assert_int_equal(r, -ENOSPC);
		assert_int_equal(n, SIZE_MAX);
		return r;
	}
	assert_in_range(n, 1, room);
	memcpy(rig->good, packed, n);
	rig->good_bytes = n;
	rig_check_good(rig);
	return 0;
}

static void check_no_space(struct rig *rig)
{
	for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
		for (int pattern = 0; pattern < PATTERN_COUNT; pattern++) {
			size_t needed, step, bound = rig->codec->bound(sizes[s]);

			rig_pack(rig, sizes[s], (enum pattern)pattern, 5);
			needed = rig->good_bytes;
			step = needed / 200 + 1;
			for (size_t room = 0; room < needed; room += step)
				assert_int_equal(pack_into(rig, room), -ENOSPC);
			assert_int_equal(pack_into(rig, needed - 1), -ENOSPC);
			/* A little more than needed may be asked for, the bound never. */
			for (size_t room = needed; room < needed + 20 && room < bound; room++)
				pack_into(rig, room);
			assert_int_equal(pack_into(rig, bound), 0);
		}
}

static void test_no_space(void **unused)
{
	for_each_codec(check_no_space);
}

static void check_raw_size_limits(struct rig *rig)
{
	uint8_t *raw = calloc(1, CODEC_RAW_MAX_BYTES + 1);
	const size_t room = rig->codec->bound(CODEC_RAW_MAX_BYTES);
	uint8_t *packed = guard_at_end(&rig->packed, room);
	size_t n;

	assert_non_null(raw);
	assert_int_equal(rig->codec->compress(rig->both, packed, room, raw, 0, &n), -EINVAL);
	assert_int_equal(
		rig->codec->compress(rig->both, packed, room, raw, CODEC_RAW_MAX_BYTES + 1, &n),
		-EINVAL);
	assert_int_equal(rig->codec->decompress(rig->decoder, raw, CODEC_RAW_MAX_BYTES + 1,
						packed, room),
			 -EBADMSG);
	assert_int_equal(rig->codec->decompress(rig->decoder, raw, SIZE_MAX, packed, SIZE_MAX),
			 -EBADMSG);
	free(raw);
#if SIZE_MAX > UINT32_MAX
	/* Right in the low half only, which is all that a library's int would see. */
	const size_t high = (size_t)1 << 32;

	rig_pack(rig, 4096, PATTERN_TEXT, 1);
	packed = guard_copy(&rig->packed, rig->good, rig->good_bytes);
	assert_int_equal(rig->codec->decompress(rig->decoder, guard_at_end(&rig->out, 4096),
						high + 4096, packed, rig->good_bytes),
			 -EBADMSG);
	if (rig->codec->id == CODEC_LZ4)
		assert_int_equal(rig->codec->decompress(rig->decoder,
							guard_at_end(&rig->out, 4096), 4096,
							packed, high + rig->good_bytes),
				 -EBADMSG);
#endif
	rig_pack(rig, 1, PATTERN_TEXT, 1);
	assert_int_equal(rig_unpack(rig, rig->good, rig->good_bytes, 0), -EBADMSG);
}

static void test_raw_size_limits(void **unused)
{
	for_each_codec(check_raw_size_limits);
}

/* ---- look-ups ---- */

static void test_look_up(void **unused)
{
	static const char *const names[] = {"none", "lz4", "zstd", "lzo"};
	const struct codec *const *all = codec_all();

	for (unsigned int id = 0; id < ARRAY_LEN(names); id++) {
		const struct codec *codec = NULL, *by_name = NULL;
		struct err e = {""};
		int r = codec_by_id(id, &codec, &e);

		assert_int_equal(codec_by_name(names[id], &by_name, NULL), r);
		assert_ptr_equal(codec, by_name);
		if (r) {
			assert_int_equal(r, -EOPNOTSUPP);
			assert_null(codec);
			assert_non_null(strstr(e.text, names[id]));
			assert_non_null(strstr(e.text, "not built in"));
			continue;
		}
		assert_ptr_equal(codec, *all++);
		assert_int_equal(codec->id, id);
		assert_string_equal(codec->name, names[id]);
	}
	assert_null(*all);
}

static void test_unknown(void **unused)
{
	const struct codec *codec = NULL;
	struct err e = {""};

	assert_int_equal(codec_by_id(4, &codec, &e), -EOPNOTSUPP);
	assert_non_null(strstr(e.text, "4"));
	assert_int_equal(codec_by_id(UINT32_MAX, &codec, &e), -EOPNOTSUPP);
	assert_non_null(strstr(e.text, "4294967295"));
	assert_int_equal(codec_by_name("lz5", &codec, &e), -EINVAL);
	assert_non_null(strstr(e.text, "'lz5'"));
	assert_non_null(strstr(e.text, "none, lz4"));
	assert_non_null(strstr(e.text, "lzo"));
	assert_int_equal(codec_by_name("", &codec, &e), -EINVAL);
	assert_int_equal(codec_by_name("LZ4", &codec, NULL), -EINVAL);
	assert_null(codec);
}

static void level_refused(const struct codec *codec, int level, const char *says)
{
	int got = 12345;
	struct err e = {""};

	assert_int_equal(codec_level(codec, level, &got, &e), -ERANGE);
	assert_int_equal(got, 12345);
	assert_non_null(strstr(e.text, codec->name));
	assert_non_null(strstr(e.text, says));
}

static void test_levels(void **unused)
{
	for (const struct codec *const *all = codec_all(); *all; all++) {
		const struct codec *codec = *all;
		const bool has_levels = codec->level_min != codec->level_max;
		int level = 12345;
		char says[64] = "no levels";

		assert_int_equal(codec_level(codec, 0, &level, NULL), 0);
		assert_int_equal(level, codec->level_default);
		assert_int_equal(level, has_levels ? 1 : 0);
		assert_int_equal(*codec->level_word != 0, has_levels);
		assert_int_equal(codec_level(codec, codec->level_max, &level, NULL), 0);
		assert_int_equal(level, codec->level_max);
		if (has_levels)
			snprintf(says, sizeof(says), "%s %d is not in the range from %d to %d",
				 codec->level_word, codec->level_max + 1, codec->level_min,
				 codec->level_max);
		level_refused(codec, codec->level_max + 1, says);
		level_refused(codec, INT32_MIN, has_levels ? "-2147483648" : says);
	}
}

#ifdef HAVE_ZSTD
static void test_zstd_levels_are_the_librarys(void **unused)
{
	const struct codec *codec;

	assert_int_equal(codec_by_name("zstd", &codec, NULL), 0);
	assert_true(codec->level_min >= ZSTD_minCLevel());
	assert_true(codec->level_max <= ZSTD_maxCLevel());
}

/* A sound frame of more than the largest chunk: the limit itself refuses, not the library. */
static void test_zstd_larger_than_any_chunk(void **unused)
{
	const size_t bytes = CODEC_RAW_MAX_BYTES + 1;
	uint8_t *raw = calloc(1, bytes), packed[4096];
	const struct codec *codec;
	struct codec_state *state;
	size_t n;

	assert_non_null(raw);
	assert_int_equal(codec_by_name("zstd", &codec, NULL), 0);
	state = state_of(codec, 1, true);
	n = ZSTD_compress(packed, sizeof(packed), raw, bytes, 1);
	assert_int_equal(ZSTD_decompress(raw, bytes, packed, n), bytes);
	assert_int_equal(codec->decompress(state, raw, bytes, packed, n), -EBADMSG);
	codec->state_free(state);
	free(raw);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_level_matters),
		cmocka_unit_test(test_state_reuse_changes_nothing),
		cmocka_unit_test(test_no_space),
		cmocka_unit_test(test_raw_size_limits),
		cmocka_unit_test(test_look_up),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_levels),
#ifdef HAVE_ZSTD
		cmocka_unit_test(test_zstd_levels_are_the_librarys),
		cmocka_unit_test(test_zstd_larger_than_any_chunk),
#endif
	};

	return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
