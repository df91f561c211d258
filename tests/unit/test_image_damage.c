// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Damage by chance: every byte flipped, every length cut off; and what rebuilding saves of it.
 * A reader finds the damage, or what it gives is what was there.
 */
#include "image_rig.h"
#include "image/rebuild.h"

static struct memory_image small_image(const char *codec, struct rig_model *ret_model)
{
	struct memory_image m = MEMORY_IMAGE_NEW;

	*ret_model = RIG_MODEL(rig_small, 4096, codec);
	assert_int_equal(rig_write(&m, ret_model, NULL), 0);
	return m;
}

static void expect_found(struct memory_image *m, uint64_t want, size_t at)
{
	static int (*const readers[])(struct memory_image *, uint64_t *,
				      struct err *) = {content_indexed, content_streamed};

	for (size_t i = 0; i < ARRAY_LEN(readers); i++) {
		struct err e = {.text = ""};
		uint64_t got = 0;
		int rc = readers[i](m, &got, &e);

		if (rc ? rc != -EBADMSG || !e.text[0] : got != want)
			fail_msg("byte %zu, reader %zu: %d, %s", at, i, rc, e.text);
	}
}

static void test_every_byte_flipped(void **unused)
{
	static const char *const codecs[] = {"none", "lz4", "zstd"};
	static const uint8_t masks[] = {0x01, 0x80, 0xff};
	const struct codec *codec;
	struct rig_model model;

	for (size_t c = 0; c < ARRAY_LEN(codecs); c++) {
		struct memory_image m, exact;
		uint64_t want;

		if (codec_by_name(codecs[c], &codec, NULL))
			continue;
		m = small_image(codecs[c], &model);
		exact = rig_copy(&m, m.used);
		want = rig_content(&model);
		for (size_t i = 0; i < m.used; i++) {
			exact.data[i] ^= masks[i % ARRAY_LEN(masks)];
			expect_found(&exact, want, i);
			exact.data[i] = m.data[i];
		}
		rig_expect_good(&exact, &model);
		free(exact.data);
		free(m.data);
	}
}

static void test_cut_at_every_length(void **unused)
{
	struct rig_model model;
	struct memory_image m = small_image("lz4", &model);
	uint64_t got;

	for (size_t bytes = 0; bytes < m.used; bytes++) {
		struct memory_image cut = rig_copy(&m, bytes);

		assert_int_equal(content_indexed(&cut, &got, NULL), -EBADMSG);
		assert_int_equal(content_streamed(&cut, &got, NULL), -EBADMSG);
		free(cut.data);
	}
	free(m.data);
}

static void test_bytes_behind_the_end(void **unused)
{
	struct rig_model model;
	struct memory_image m = small_image("lz4", &model);
	uint64_t offset, got;

	memory_image_append(&m, "12345678", 8, &offset, NULL);
	assert_int_equal(content_indexed(&m, &got, NULL), -EBADMSG);
	free(m.data);
}

/* ---- rebuilding ---- */

/* What is left when the chunks for which `lost` holds are gone, and how many bytes that is. */
static uint64_t content_left(struct memory_image *m, const struct rig_model *model, size_t from,
			     size_t to, uint64_t *ret_lost)
{
	struct image_input input = memory_image_input(m);
	struct image_decoders decoders = {.made = {false}};
	struct image_cursor cursor = {.i = 0};
	struct image_entry entry;
	uint64_t sum = rig_content(model), gone;

	*ret_lost = 0;
	assert_int_equal(image_reader_open(&input, &cursor.reader, NULL), 0);
	while (image_cursor_next(&cursor, &entry, NULL) > 0) {
		CLEANUP_FREE uint8_t *record = malloc(entry.record_bytes);

		if (entry.offset + entry.record_bytes <= from || entry.offset >= to)
			continue;
		memcpy(record, m->data + entry.offset, entry.record_bytes);
		gone = 0;
		assert_int_equal(content_chunk(record, entry.record_bytes, entry.offset, NULL,
					       image_reader_frame(cursor.reader), &decoders,
					       &gone, NULL),
				 0);
		sum += content_run(entry.segment, IMAGE_RUN_HOLE, entry.first_page,
				   entry.pages) -
		       gone;
		*ret_lost += entry.pages * RIG_PAGE;
	}
	image_decoders_free(&decoders);
	image_reader_free(cursor.reader);
	return sum;
}

static void expect_rebuilt(struct memory_image *damaged, uint64_t want, uint64_t want_lost)
{
	struct memory_image fresh = MEMORY_IMAGE_NEW;
	struct image_input input = memory_image_input(damaged);
	struct image_sink sink = memory_image_sink(&fresh);
	struct image_rebuild rebuild = {.cancel = NULL};
	struct err e = {.text = ""};
	uint64_t got = 0;

	if (image_rebuild(&input, &sink, &rebuild, &e))
		fail_msg("rebuild: %s", e.text);
	assert_int_equal(rebuild.lost_bytes, want_lost);
	assert_int_equal(rebuild.totals.image_bytes, fresh.used);
	if (content_indexed(&fresh, &got, &e))
		fail_msg("rebuilt, indexed: %s", e.text);
	assert_true(got == want);
	got = 0;
	if (content_streamed(&fresh, &got, &e))
		fail_msg("rebuilt, streamed: %s", e.text);
	assert_true(got == want);
	free(fresh.data);
}

static const struct rig_segment rebuild_segs[] = {
	{.name = "a"},
	{.name = "a/b", .map = "d4 z3 d2 h5 u1 d3", .less_bytes = 77},
	{.name = "a/c", .map = ""},
	{.name = "d", .map = "h9 d1"},
};

static void test_rebuild_cut_at_records(void **unused)
{
	struct rig_model model = RIG_MODEL(rebuild_segs, 8192, "lz4");
	struct memory_image m = MEMORY_IMAGE_NEW;
	size_t segments_end, root, at;
	uint64_t want, lost;

	assert_int_equal(rig_write(&m, &model, NULL), 0);
	root = reseal_find(m.data, m.used, IMAGE_HEADER_BYTES, IMAGE_ROOT);
	segments_end = IMAGE_HEADER_BYTES + num_get64(m.data + IMAGE_HEADER_BYTES + 8);
	for (at = segments_end; at <= root; at += num_get64(m.data + at + 8)) {
		for (size_t less = 0; less <= 1; less++) {
			struct memory_image cut;

			if (at - less < segments_end)
				continue;
			cut = rig_copy(&m, at - less);
			want = content_left(&m, &model, at - less, SIZE_MAX, &lost);
			expect_rebuilt(&cut, want, lost);
			free(cut.data);
		}
	}
	expect_rebuilt(&m, rig_content(&model), 0);
	free(m.data);
}

static void test_rebuild_with_damaged_records(void **unused)
{
	static const size_t places[] = {0, 9, 17, 24, 40, 50, 70, 81, 90};
	struct rig_model model = RIG_MODEL(rebuild_segs, 8192, "lz4");
	struct memory_image m = MEMORY_IMAGE_NEW;
	uint64_t want, lost;
	size_t at;

	assert_int_equal(rig_write(&m, &model, NULL), 0);
	for (at = IMAGE_HEADER_BYTES;
	     (at = reseal_find(m.data, m.used, at, IMAGE_CHUNK)) < m.used;
	     at += num_get64(m.data + at + 8)) {
		for (size_t i = 0; i < ARRAY_LEN(places); i++) {
			struct memory_image bad = rig_copy(&m, m.used);

			if (places[i] >= num_get64(m.data + at + 8)) {
				free(bad.data);
				continue;
			}
			bad.data[at + places[i]] ^= 0x55;
			want = content_left(&m, &model, at, at + 1, &lost);
			expect_rebuilt(&bad, want, lost);
			free(bad.data);
		}
	}
	free(m.data);
}

static void test_rebuild_without_segments(void **unused)
{
	struct rig_model model = RIG_MODEL(rebuild_segs, 8192, "lz4");
	struct memory_image m = MEMORY_IMAGE_NEW, fresh = MEMORY_IMAGE_NEW;
	struct image_sink sink = memory_image_sink(&fresh);
	struct image_rebuild rebuild = {.cancel = NULL};
	struct image_input input;
	struct err e = {.text = ""};

	assert_int_equal(rig_write(&m, &model, NULL), 0);
	m.data[IMAGE_HEADER_BYTES + 50] ^= 1;
	input = memory_image_input(&m);
	assert_int_equal(image_rebuild(&input, &sink, &rebuild, &e), -EBADMSG);
	assert_non_null(strstr(e.text, "segments"));
	m.data[8] ^= 1;
	assert_int_equal(image_rebuild(&input, &sink, &rebuild, &e), -EBADMSG);
	assert_int_equal(fresh.used, 0);
	free(m.data);
}

static void test_rebuild_cancel_and_full(void **unused)
{
	struct rig_model model = RIG_MODEL(rebuild_segs, 8192, "lz4");
	struct memory_image m = MEMORY_IMAGE_NEW, fresh = MEMORY_IMAGE_NEW;
	struct image_sink sink = memory_image_sink(&fresh);
	atomic_bool cancel = true;
	struct image_rebuild rebuild = {.cancel = &cancel};
	struct image_input input;

	assert_int_equal(rig_write(&m, &model, NULL), 0);
	input = memory_image_input(&m);
	assert_int_equal(image_rebuild(&input, &sink, &rebuild, NULL), -ECANCELED);
	cancel = false;
	for (size_t limit = 0; limit < m.used - 1; limit += 509) {
		fresh.used = 0;
		fresh.limit = limit;
		assert_int_equal(image_rebuild(&input, &sink, &rebuild, NULL), -ENOSPC);
	}
	free(fresh.data);
	free(m.data);
}

/* A rebuilt image can be rebuilt: chunk numbers stay unique, so that no chunk displaces
 * another. */
static void test_rebuild_twice(void **unused)
{
	struct rig_model model = RIG_MODEL(rebuild_segs, 8192, "lz4");
	struct memory_image m = MEMORY_IMAGE_NEW, fresh = MEMORY_IMAGE_NEW;
	struct image_sink sink = memory_image_sink(&fresh);
	struct image_rebuild rebuild = {.cancel = NULL};
	struct image_input input;
	uint64_t numbers[64], n = 0;
	size_t at, bad;

	assert_int_equal(rig_write(&m, &model, NULL), 0);
	bad = reseal_find(m.data, m.used, IMAGE_HEADER_BYTES, IMAGE_CHUNK);
	m.data[bad + 40] ^= 1;
	input = memory_image_input(&m);
	assert_int_equal(image_rebuild(&input, &sink, &rebuild, NULL), 0);
	for (at = IMAGE_HEADER_BYTES;
	     (at = reseal_find(fresh.data, fresh.used, at, IMAGE_CHUNK)) < fresh.used;
	     at += num_get64(fresh.data + at + 8)) {
		numbers[n] = num_get64(fresh.data + at + 32);
		for (uint64_t i = 0; i < n; i++)
			if (numbers[i] == numbers[n])
				fail_msg("two chunks have the number %llx",
					 (unsigned long long)numbers[n]);
		n++;
	}
	free(fresh.data);
	free(m.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_byte_flipped),
		cmocka_unit_test(test_cut_at_every_length),
		cmocka_unit_test(test_bytes_behind_the_end),
		cmocka_unit_test(test_rebuild_cut_at_records),
		cmocka_unit_test(test_rebuild_with_damaged_records),
		cmocka_unit_test(test_rebuild_without_segments),
		cmocka_unit_test(test_rebuild_cancel_and_full),
		cmocka_unit_test(test_rebuild_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
