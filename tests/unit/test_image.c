// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Images written to memory and read back, whole and page by page, against the model they were
 * made from; maps at the edges of their encoding; a sink that runs full at every append.
 */
#include "image_rig.h"

static void check_model(struct rig_model model)
{
	struct memory_image m = MEMORY_IMAGE_NEW, exact;
	struct err e = {.text = ""};

	if (rig_write(&m, &model, &e))
		fail_msg("write: %s", e.text);
	exact = rig_copy(&m, m.used);
	rig_expect_good(&exact, &model);
	free(m.data);
	free(exact.data);
}

static void test_small(void **unused)
{
	static const char *const codecs[] = {"none", "lz4", "zstd", "lzo"};
	const struct codec *codec;

	for (size_t i = 0; i < ARRAY_LEN(codecs); i++)
		if (codec_by_name(codecs[i], &codec, NULL) == 0)
			for (uint32_t chunk = 4096; chunk <= IMAGE_CHUNK_MAX_BYTES; chunk *= 4)
				check_model(RIG_MODEL(rig_small, chunk, codecs[i]));
}

static void test_no_segment_and_empty_ones(void **unused)
{
	static const struct rig_segment one[] = {{.name = "empty", .map = ""}};
	struct rig_model none = RIG_MODEL(one, 4096, "lz4");

	check_model(none);
	none.n = 0;
	check_model(none);
}

/* 15/16 and 2047/2048 pages are where a run's number grows by a byte; 2^40 is what it is for.
 */
static void test_run_lengths(void **unused)
{
	static const struct rig_segment segs[] = {
		{.name = "a",
		 .map = "z15 h16 z2047 h2048 u15 z16 d1 h15 d1 z16 d1 u2047 d1 h2048 d1"},
		{.name = "b", .map = "h1099511627776"},
		{.name = "c",
		 .map = "d1 z1099511627776 d1 h1099511627776 d1 u1099511627776 d1"},
		{.name = "d", .map = "d15 z1 d16 h1 d17"},
		{.name = "e",
		 .map = "h1125899906842624",
		 .less_bytes = 4095}, /* 2^62 bytes but for a page */
	};

	check_model(RIG_MODEL(segs, 4096, "lz4"));
	check_model(RIG_MODEL(segs, 65536, "lz4"));
}

/* Neighbouring runs of zero, hole and unpreserved pages share one record. */
static void test_runs_merge(void **unused)
{
	static const struct rig_segment segs[] = {{.name = "a", .map = "z1 h2 u3 z4 h5 u6"}};
	struct rig_model model = RIG_MODEL(segs, 4096, "lz4");
	struct memory_image m = MEMORY_IMAGE_NEW;
	struct image_input input;
	struct image_reader *r;

	assert_int_equal(rig_write(&m, &model, NULL), 0);
	rig_expect_good(&m, &model);
	input = memory_image_input(&m);
	assert_int_equal(image_reader_open(&input, &r, NULL), 0);
	assert_int_equal(image_reader_totals(r)->records, 1);
	assert_int_equal(image_reader_totals(r)->chunks, 0);
	assert_int_equal(image_reader_totals(r)->zero_bytes, 5 * RIG_PAGE);
	assert_int_equal(image_reader_totals(r)->hole_bytes, 7 * RIG_PAGE);
	assert_int_equal(image_reader_totals(r)->unpreserved_bytes, 9 * RIG_PAGE);
	image_reader_free(r);
	free(m.data);
}

/* Runs of one page each, more than one map can hold. */
static void test_map_overflows_into_next(void **unused)
{
	const size_t runs = 80000;
	char *map = malloc(runs * 3 + 1);
	struct rig_segment segs[] = {{.name = "a", .map = map}};

	for (size_t i = 0; i < runs; i++)
		memcpy(map + 3 * i, i % 2 ? "z1 " : "h1 ", 4);
	check_model(RIG_MODEL(segs, 4096, "lz4"));
	free(map);
}

/* Several SEGMENTS records, by names as long as they may be. */
static void test_many_segments(void **unused)
{
	const uint64_t n = 3000;
	struct rig_segment *segs = calloc(n, sizeof(*segs));
	struct rig_model model = {.segs = segs, .n = n, .chunk_bytes = 4096, .codec = "lz4"};

	for (uint64_t i = 0; i < n; i++) {
		char *name = malloc(256);

		memset(name, 'n', 255);
		name[255] = '\0';
		memcpy(name,
		       (char[]){(char)('a' + i % 26), (char)('a' + i / 26 % 26),
				(char)('a' + i / 676)},
		       3);
		segs[i] = (struct rig_segment){.name = name, .map = i % 7 ? "d1" : ""};
	}
	check_model(model);
	for (uint64_t i = 0; i < n; i++)
		free((char *)(uintptr_t)segs[i].name);
	free(segs);
}

/* A name of 4095 bytes: folders within folders. */
static void test_long_name(void **unused)
{
	static char path[4096];
	struct rig_segment segs[17] = {{.name = NULL}};
	struct rig_model model = RIG_MODEL(segs, 4096, "lz4");

	memset(path, 'x', 4095);
	for (size_t i = 0; i < 16; i++) {
		path[i * 256 + 255] = '\0';
		segs[i].name = strdup(path);
		path[i * 256 + 255] = '/';
	}
	model.n = 16;
	segs[15].map = "d2";
	assert_int_equal(strlen(segs[15].name), IMAGE_NAME_MAX_BYTES);
	check_model(model);
	for (size_t i = 0; i < 16; i++)
		free((char *)(uintptr_t)segs[i].name);
}

/* More chunks than one INDEX record lists; every page is found at random. */
static void test_many_chunks_and_find(void **unused)
{
	static const struct rig_segment segs[] = {
		{.name = "a", .map = "d2500 h10 d3"},
		{.name = "b", .map = ""},
		{.name = "c", .map = "z7 d900"},
	};
	struct rig_model model = RIG_MODEL(segs, 4096, "lz4");
	struct memory_image m = MEMORY_IMAGE_NEW;
	struct image_input input;
	struct image_reader *r;
	struct image_entry entry;
	uint64_t seed = 1;

	assert_int_equal(rig_write(&m, &model, NULL), 0);
	rig_expect_good(&m, &model);
	input = memory_image_input(&m);
	assert_int_equal(image_reader_open(&input, &r, NULL), 0);
	assert_int_equal(image_reader_totals(r)->chunks, 2500 + 3 + 900);
	for (int i = 0; i < 5000; i++) {
		uint32_t segment = pattern_random(&seed) % 2 * 2;
		uint64_t page = pattern_random(&seed) % (segment ? 907 : 2513);

		assert_int_equal(image_reader_find(r, segment, page, &entry, NULL), 0);
		assert_int_equal(entry.segment, segment);
		assert_true(entry.first_page <= page && page - entry.first_page < entry.pages);
	}
	assert_int_equal(image_reader_find(r, 1, 0, &entry, NULL), -EBADMSG);
	assert_int_equal(image_reader_find(r, 2, 907, &entry, NULL), -EBADMSG);
	image_reader_free(r);
	free(m.data);
}

/* ---- maps ---- */

static void check_bad_map(const uint8_t *map, size_t bytes, uint64_t pages)
{
	uint64_t by_kind[IMAGE_RUN_KINDS];
	uint8_t *exact = malloc(bytes ? bytes : 1);

	if (bytes)
		memcpy(exact, map, bytes);
	assert_int_equal(image_map_check(exact, bytes, pages, by_kind), -EBADMSG);
	free(exact);
}

#define BAD_MAP(pages, ...)                                                                   \
	check_bad_map((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}), \
		      pages)

static void test_map_errors(void **unused)
{
	uint64_t by_kind[IMAGE_RUN_KINDS];

	assert_int_equal(image_map_check((const uint8_t[]){0x08, 0x09}, 2, 2, by_kind), 0);
	assert_int_equal(by_kind[IMAGE_RUN_DATA], 1);
	assert_int_equal(by_kind[IMAGE_RUN_ZERO], 1);
	check_bad_map(NULL, 0, 1);
	BAD_MAP(3, 0x08, 0x09);       /* pages do not add up */
	BAD_MAP(1, 0x08, 0x09);       /* neither way */
	BAD_MAP(2, 0x08, 0x08);       /* neighbours of one kind */
	BAD_MAP(1, 0x08, 0x01);       /* a run of no pages */
	BAD_MAP(1, 0x0c);             /* kind 4 */
	BAD_MAP(1, 0x0f);             /* kind 7 */
	BAD_MAP(1, 0x88);             /* cut off */
	BAD_MAP(1, 0x88, 0x00);       /* needless byte */
	BAD_MAP(1, 0x88, 0x80, 0x00); /* two of them */
	BAD_MAP(1, 0x88, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
		0x00); /* too long */
	BAD_MAP(1, 0x88, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
		0x02); /* beyond 64 bits */
	/* The sum of the pages wraps around to 1. */
	BAD_MAP(1, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0xf9, 0xff, 0xff,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 0xff, 0x01, 0xf9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0x01, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0xf9, 0xff,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0xf8, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 0xff, 0xff, 0x01, 0xf9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0x01, 0x48);
}

static void test_map_full(void **unused)
{
	struct image_map *map = malloc(sizeof(*map));
	uint64_t by_kind[IMAGE_RUN_KINDS], pages, added = 0;

	image_map_reset(map);
	while (image_map_add(map, added % 2 ? IMAGE_RUN_ZERO : IMAGE_RUN_DATA,
			     (uint64_t)1 << 40))
		added++;
	pages = image_map_pages(map);
	assert_int_equal(pages, added << 40);
	image_map_close(map);
	assert_true(map->used <= sizeof(map->bytes));
	assert_int_equal(image_map_check(map->bytes, map->used, pages, by_kind), 0);
	free(map);
}

/* ---- a sink that fails ---- */

static void test_sink_full_at_every_append(void **unused)
{
	static const struct rig_segment segs[] = {{.name = "mc"},
						  {.name = "mc/a", .map = "d1100 h1 z1 d2 h9"}};
	struct rig_model models[] = {RIG_MODEL(rig_small, 4096, "lz4"),
				     RIG_MODEL(segs, 4096, "none")};

	for (size_t i = 0; i < ARRAY_LEN(models); i++) {
		struct memory_image whole = MEMORY_IMAGE_NEW;
		size_t at = 0, root;

		assert_int_equal(rig_write(&whole, &models[i], NULL), 0);
		root = reseal_find(whole.data, whole.used, IMAGE_HEADER_BYTES, IMAGE_ROOT);
		while (at < whole.used) {
			size_t bytes = at == 0     ? IMAGE_HEADER_BYTES
				       : at > root ? IMAGE_FOOTER_BYTES
						   : num_get64(whole.data + at + 8);
			struct memory_image m = MEMORY_IMAGE_NEW;
			struct err e = {.text = ""};

			m.limit = at + bytes - 1;
			assert_int_equal(rig_write(&m, &models[i], &e), -ENOSPC);
			assert_non_null(strstr(e.text, "full"));
			assert_int_equal(m.used, at);
			free(m.data);
			/* Of the long model's chunks one in 50 will do. */
			at += bytes;
			for (int skip = 0; i && skip < 50 && at < root &&
					   num_get16(whole.data + at + 4) == IMAGE_CHUNK;
			     skip++)
				at += num_get64(whole.data + at + 8);
		}
		free(whole.data);
	}
}

static void test_flush_fails(void **unused)
{
	struct rig_model model = RIG_MODEL(rig_small, 4096, "lz4");

	for (unsigned int limit = 0; limit < 2; limit++) {
		struct memory_image m = MEMORY_IMAGE_NEW;
		uint64_t content;

		m.flush_limit = limit;
		assert_int_equal(rig_write(&m, &model, NULL), -EIO);
		/* What could not be flushed was not followed by the footer. */
		assert_int_equal(content_indexed(&m, &content, NULL), limit ? 0 : -EBADMSG);
		free(m.data);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small),
		cmocka_unit_test(test_no_segment_and_empty_ones),
		cmocka_unit_test(test_run_lengths),
		cmocka_unit_test(test_runs_merge),
		cmocka_unit_test(test_map_overflows_into_next),
		cmocka_unit_test(test_many_segments),
		cmocka_unit_test(test_long_name),
		cmocka_unit_test(test_many_chunks_and_find),
		cmocka_unit_test(test_map_errors),
		cmocka_unit_test(test_map_full),
		cmocka_unit_test(test_sink_full_at_every_append),
		cmocka_unit_test(test_flush_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
