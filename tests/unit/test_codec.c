// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Proves that every codec of this build gives back what it was given, keeps to the room that it
 * was given, and that names, identifiers and levels are looked up as codec.h says.
 */
#include <malloc.h>
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
		struct err e = {.text = ""};
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
	struct err e = {.text = ""};

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
	struct err e = {.text = ""};

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

/* What malloc has given out; sanitizers' says 0. */
static size_t allocated(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static void limit_holds(const struct codec *codec, int level, size_t raw_bytes, size_t memory_bytes)
{
	size_t before, bound = codec->bound(raw_bytes), n = 0;
	uint8_t *raw = malloc(raw_bytes), *packed = malloc(bound), *out = malloc(raw_bytes);
	struct codec_state *state;

	assert_true(raw && packed && out);
	pattern_fill(raw, raw_bytes, PATTERN_TEXT, 7);
	state = state_of(codec, level, false);
	before = allocated();
	assert_int_equal(codec->limit(state, raw_bytes, memory_bytes), 0);
	/* The last chunk of a file may be shorter: it must not take more either. */
	for (size_t bytes = raw_bytes; bytes; bytes /= 5) {
		assert_int_equal(codec->compress(state, packed, bound, raw, bytes, &n), 0);
		assert_in_range(allocated() - before, 0, memory_bytes);
		assert_int_equal(codec->decompress(state, out, bytes, packed, n), 0);
		assert_memory_equal(out, raw, bytes);
	}
	codec->state_free(state);
	free(raw);
	free(packed);
	free(out);
}

/* The least that a save with very many threads leaves to the codec is 1.8 MiB (chunks of 1 MiB), with 16 it is 4.6. */
static void test_zstd_keeps_to_a_limit(void **unused)
{
	static const int levels[] = {-100, 1, 3, 5, 6, 8, 9, 12, 15, 16, 18, 22};
	static const size_t raws[] = {KIB(4), KIB(64), KIB(256), MIB(1)};
	const struct codec *codec;

	assert_int_equal(codec_by_name("zstd", &codec, NULL), 0);
	for (size_t l = 0; l < ARRAY_LEN(levels); l++)
		for (size_t r = 0; r < ARRAY_LEN(raws); r++) {
			limit_holds(codec, levels[l], raws[r], KIB(1700));
			limit_holds(codec, levels[l], raws[r], KIB(4600));
		}
	/* No level fits: a low one is taken. */
	limit_holds(codec, 19, MIB(1), KIB(700));
}

/* Where nothing has to be made smaller the limit changes nothing; where something has, it costs some percent. */
static void test_zstd_limit_costs_little(void **unused)
{
	size_t bytes[3], memory[3] = {0, MIB(64), KIB(1700)};
	struct rig rig;
	const struct codec *codec;

	assert_int_equal(codec_by_name("zstd", &codec, NULL), 0);
	for (int i = 0; i < 3; i++) {
		rig_set_up(&rig, codec, 19);
		if (memory[i])
			assert_int_equal(codec->limit(rig.both, MIB(1), memory[i]), 0);
		rig_pack(&rig, MIB(1), PATTERN_TEXT, 1);
		rig_check_good(&rig);
		bytes[i] = rig.good_bytes;
		rig_tear_down(&rig);
	}
	assert_int_equal(bytes[1], bytes[0]);
	assert_in_range(bytes[2], bytes[0], bytes[0] * 5 / 4);
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
		cmocka_unit_test(test_zstd_keeps_to_a_limit),
		cmocka_unit_test(test_zstd_limit_costs_little),
#endif
	};

	return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
