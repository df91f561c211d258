// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Proves that the decoders stay inside of their buffers whatever they are fed, that damage and
 * wrong lengths are errors, and that the formats are the well-known ones.
 */
#include "codec_rig.h"

/* ---- damage ---- */

static void check_cut(struct rig *rig)
{
	static const size_t cut_sizes[] = {1, 2, 700, 4096};

	for (size_t s = 0; s < ARRAY_LEN(cut_sizes); s++)
		for (int pattern = 0; pattern < PATTERN_COUNT; pattern++) {
			rig_pack(rig, cut_sizes[s], (enum pattern)pattern, 7);
			for (size_t cut = 0; cut < rig->good_bytes; cut++)
				assert_int_equal(rig_unpack(rig, rig->good, cut, cut_sizes[s]),
						 -EBADMSG);
		}
}

static void test_cut_at_every_length(void **unused)
{
	for_each_codec(check_cut);
}

static void check_flip(struct rig *rig)
{
	for (int pattern = 0; pattern < PATTERN_COUNT; pattern++) {
		rig_pack(rig, 4096, (enum pattern)pattern, 9);
		for (size_t i = 0; i < rig->good_bytes; i++) {
			const uint8_t was = rig->good[i];

			for (unsigned int bit = 0; bit < 8; bit++) {
				rig->good[i] = (uint8_t)(was ^ 1u << bit);
				rig_unpack(rig, rig->good, rig->good_bytes, 4096);
			}
			rig->good[i] = (uint8_t)~was;
			rig_unpack(rig, rig->good, rig->good_bytes, 4096);
			rig->good[i] = was;
		}
		rig_check_good(rig);
	}
}

static void test_each_bit_flipped(void **unused)
{
	for_each_codec(check_flip);
}

static void check_wrong_length(struct rig *rig)
{
	static const int off_by[] = {-4000, -2000, -9, -2, -1, 1, 2, 9, 4096, 65536, 1000000};

	for (int pattern = 0; pattern < PATTERN_COUNT; pattern++) {
		rig_pack(rig, 4096, (enum pattern)pattern, 11);
		for (size_t i = 0; i < ARRAY_LEN(off_by); i++)
			assert_int_equal(rig_unpack(rig, rig->good, rig->good_bytes,
						    (size_t)(4096 + off_by[i])),
					 -EBADMSG);
		memset(rig->good + rig->good_bytes, 0, 16);
		for (size_t more = 1; more <= 16; more++)
			assert_int_equal(
				rig_unpack(rig, rig->good, rig->good_bytes + more, 4096),
				-EBADMSG);
	}
}

static void test_wrong_length(void **unused)
{
	for_each_codec(check_wrong_length);
}

static void check_garbage(struct rig *rig)
{
	uint64_t seed = 4711;
	uint8_t noise[512];

	for (unsigned int i = 0; i < 200000; i++) {
		const size_t bytes = pattern_random(&seed) % sizeof(noise);
		const size_t out_bytes = 1 + pattern_random(&seed) % 4096;

		pattern_fill_noise(noise, bytes, i);
		/* Half of them begin as the codec's own output does. */
		if (i % 256 == 0)
			rig_pack(rig, 4096, (enum pattern)(i / 256 % PATTERN_COUNT), i);
		if (i & 1)
			memcpy(noise, rig->good,
			       num_min(num_min(i / 2 % 24, bytes), rig->good_bytes));
		if (bytes != out_bytes || rig->codec->id != CODEC_NONE)
			rig_unpack(rig, noise, bytes, out_bytes);
	}
}

static void test_garbage(void **unused)
{
	for_each_codec(check_garbage);
}

/* ---- the formats are the well-known ones ---- */

static void unpacks_to(const char *name, const void *packed, size_t packed_bytes,
		       const char *text)
{
	const struct codec *codec;
	struct rig rig;

	if (codec_by_name(name, &codec, NULL))
		return;
	rig_set_up(&rig, codec, 0);
	assert_int_equal(rig_unpack(&rig, packed, packed_bytes, strlen(text)), 0);
	assert_memory_equal(rig.out.buffer, text, strlen(text));
	rig_tear_down(&rig);
}

/* Written by hand from the descriptions of the formats: a word, then a match to it. */
static void test_known_forms(void **unused)
{
	static const char text[] = "freeze freeze freeze freeze thaw!";
	/* 7 literals, a match of 4 + 15 + 2 at distance 7; 5 literals. */
	static const char lz4[] = "\x7f"
				  "freeze \x07\x00\x02\x50thaw!";
	/* A run of 7 (17 + 7); M3 of 2 + 19 at distance 7; 3 + 2 literals; the end marker. */
	static const char lzo[] = "\x18"
				  "freeze \x33\x18\x00\x02thaw!\x11\x00\x00";
	/* A single segment of 33 bytes in one raw block. */
	static const char zstd[] = "\x28\xb5\x2f\xfd\x20\x21\x09\x01\x00"
				   "freeze freeze freeze freeze thaw!";

	unpacks_to("none", text, strlen(text), text);
	unpacks_to("lz4", lz4, sizeof(lz4) - 1, text);
	unpacks_to("lzo", lzo, sizeof(lzo) - 1, text);
	unpacks_to("zstd", zstd, sizeof(zstd) - 1, text);
}

#ifdef HAVE_ZSTD
/* A frame with a window descriptor and one block: 4096 times the letter z. */
static const uint8_t run_of_z[] = {0x28, 0xb5, 0x2f, 0xfd, 0, 0x50, 0x03, 0x80, 0, 'z'};

/* The same in format 0.7, which libzstd may have been built to decode. */
static const uint8_t old_run_of_z[] = {0x27, 0xb5, 0x2f, 0xfd, 0, 0x50, 0x80,
				       0x10, 0,    'z',  0xc0, 0, 0};

static int unpack_run(struct rig *rig, size_t at, uint8_t value)
{
	uint8_t frame[sizeof(run_of_z)];

	memcpy(frame, run_of_z, sizeof(frame));
	frame[at] = value;
	return rig_unpack(rig, frame, sizeof(frame), 4096);
}

static void test_zstd_takes_one_plain_frame(void **unused)
{
	static const uint8_t empty[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 0x01, 0, 0};
	static const uint8_t skippable[] = {0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0};
	uint8_t joined[64];
	const struct codec *codec;
	struct rig rig;

	assert_int_equal(codec_by_name("zstd", &codec, NULL), 0);
	rig_set_up(&rig, codec, 0);
	assert_int_equal(unpack_run(&rig, 5, 0x50), 0);        /* window of 1 MiB */
	assert_int_equal(unpack_run(&rig, 5, 0x51), -EBADMSG); /* an eighth more */
	assert_int_equal(unpack_run(&rig, 5, 0xa8), -EBADMSG); /* 2 GiB */
	assert_int_equal(unpack_run(&rig, 5, 0xff), -EBADMSG);
	assert_int_equal(rig_unpack(&rig, old_run_of_z, sizeof(old_run_of_z), 4096), -EBADMSG);
	assert_int_equal(unpack_run(&rig, 4, 0x01), -EBADMSG); /* needs a dictionary */
	/* No content size stands in this frame: the length is found out by decoding. */
	assert_int_equal(rig_unpack(&rig, run_of_z, sizeof(run_of_z), 4095), -EBADMSG);
	assert_int_equal(rig_unpack(&rig, run_of_z, sizeof(run_of_z), 4097), -EBADMSG);

	for (int after = 0; after < 2; after++)
		for (int kind = 0; kind < 2; kind++) {
			const uint8_t *extra = kind ? empty : skippable;
			const size_t extra_bytes = kind ? sizeof(empty) : sizeof(skippable);

			memcpy(joined + (after ? 0 : extra_bytes), run_of_z, sizeof(run_of_z));
			memcpy(joined + (after ? sizeof(run_of_z) : 0), extra, extra_bytes);
			assert_int_equal(
				rig_unpack(&rig, joined, sizeof(run_of_z) + extra_bytes, 4096),
				-EBADMSG);
		}
	rig_tear_down(&rig);
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_at_every_length),
		cmocka_unit_test(test_each_bit_flipped),
		cmocka_unit_test(test_wrong_length),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_known_forms),
#ifdef HAVE_ZSTD
		cmocka_unit_test(test_zstd_takes_one_plain_frame),
#endif
	};

	return cmocka_run_group_tests_name("codec_damage", tests, NULL, NULL);
}
