// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Images made to mislead: one field lies, and all hashes are right.  Both readers refuse, with
 * the right code and a message, and so does rebuilding or it makes an image that reads well.
 */
#include "image_rig.h"
#include "base/clock.h"
#include "image/rebuild.h"

#define HEADER 0u
#define FOOTER 100u

/* Readers that must find it. */
#define INDEXED 1u
#define STREAMED 2u
#define BOTH 3u

struct lie {
	unsigned int type, nth; /* of the record */
	unsigned int at, bytes; /* the field */
	uint64_t value;
	int rc;
	const char *says;
	unsigned int readers;
};

/* Offsets in records: SEGMENTS' first descriptor, INDEX's first entry, the root's first block.
 */
#define SEG(n) (40 + (n))
#define ENTRY(n) (IMAGE_INDEX_HEAD_BYTES + (n))
#define BLOCK(n) (IMAGE_ROOT_HEAD_BYTES + (n))

#define P60 ((uint64_t)1 << 60)
#define P63 ((uint64_t)1 << 63)

static const struct lie lies[] = {
	{HEADER, 0, 0, 1, 'X', -EBADMSG, "not a torpor image", BOTH},
	{HEADER, 0, 8, 4, 2, -EOPNOTSUPP, "version 2, newer", BOTH},
	{HEADER, 0, 8, 4, 0, -EBADMSG, "header", BOTH},
	{HEADER, 0, 12, 4, 8192, -EBADMSG, "header", BOTH},
	{HEADER, 0, 16, 8, 1, -EOPNOTSUPP, "feature bit 0", BOTH},
	{HEADER, 0, 16, 8, (uint64_t)1 << 37, -EOPNOTSUPP, "feature bit 37", BOTH},
	{HEADER, 0, 32, 8, 1, -EBADMSG, "", BOTH},
	{HEADER, 0, 48, 4, 0, -EBADMSG, "chunk size", BOTH},
	{HEADER, 0, 48, 4, 5000, -EBADMSG, "chunk size", BOTH},
	{HEADER, 0, 48, 4, 2 << 20, -EBADMSG, "chunk size", BOTH},
	{HEADER, 0, 56, 8, 100, -EBADMSG, "", BOTH},
	{HEADER, 0, 56, 8, P63, -EBADMSG, "", STREAMED},
	{HEADER, 0, 80, 1, 1, -EBADMSG, "reserved", BOTH},
	{HEADER, 0, 4087, 1, 1, -EBADMSG, "reserved", BOTH},

	{IMAGE_SEGMENTS, 0, 4, 2, 9, -EBADMSG, "", BOTH},
	{IMAGE_SEGMENTS, 0, 6, 2, 1, -EBADMSG, "", BOTH},
	{IMAGE_SEGMENTS, 0, 8, 8, 0, -EBADMSG, "", BOTH},
	{IMAGE_SEGMENTS, 0, 8, 8, 33, -EBADMSG, "", BOTH},
	{IMAGE_SEGMENTS, 0, 8, 8, P63, -EBADMSG, "", BOTH},
	{IMAGE_SEGMENTS, 0, 32, 4, 1, -EBADMSG, "out of order", BOTH},
	{IMAGE_SEGMENTS, 0, 36, 4, 0, -EBADMSG, "segments", BOTH},
	{IMAGE_SEGMENTS, 0, 36, 4, 4, -EBADMSG, "segments", BOTH},
	{IMAGE_SEGMENTS, 0, 36, 4, 6, -EBADMSG, "segment 5", BOTH},
	{IMAGE_SEGMENTS, 0, 36, 4, UINT32_MAX, -EBADMSG, "segment 5", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(0), 4, 0, -EBADMSG, "segment 0", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(0), 4, 63, -EBADMSG, "segment 0", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(0), 4, UINT32_MAX - 7, -EBADMSG, "segment 0", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(4), 4, 0, -EOPNOTSUPP, "kind 0", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(4), 4, 4, -EOPNOTSUPP, "kind 4", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(8), 8, 4096, -EBADMSG, "segment 0",
	 BOTH}, /* a folder with bytes */
	{IMAGE_SEGMENTS, 0, SEG(8), 8, P63, -EBADMSG, "segment 0", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(16), 4, 0, -EBADMSG, "segment 0", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(16), 4, 5000, -EBADMSG, "segment 0", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(16), 4, 8192, -EBADMSG, "segment 0",
	 BOTH}, /* beyond the chunk size */
	{IMAGE_SEGMENTS, 0, SEG(24), 4, 0100755, -EBADMSG, "segment 0", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(36), 4, 1, -EBADMSG, "segment 0", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(48), 4, 0, -EBADMSG, "segment 0", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(48), 4, UINT32_MAX, -EBADMSG, "segment 0", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(52), 4, UINT32_MAX, -EBADMSG, "segment 0", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(56), 4, 1, -EBADMSG, "segment 0",
	 BOTH}, /* a folder with link text */
	{IMAGE_SEGMENTS, 0, SEG(60), 4, UINT32_MAX, -EBADMSG, "segment 0", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(64), 1, '/', -EBADMSG, "not allowed", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(64), 2, 0x2e2e, -EBADMSG, "not allowed", BOTH}, /* ".." */
	{IMAGE_SEGMENTS, 0, SEG(64), 2, 0x2f61, -EBADMSG, "not allowed", BOTH}, /* "a/" */
	{IMAGE_SEGMENTS, 0, SEG(65), 1, 0, -EBADMSG, "strings", BOTH},
	{IMAGE_SEGMENTS, 0, SEG(64), 1, 'x', -EBADMSG, "in no folder",
	 BOTH}, /* others' parent is gone */
	{IMAGE_SEGMENTS, 0, SEG(66), 1, 'x', -EBADMSG, "origin", BOTH}, /* not absolute */
	{IMAGE_SEGMENTS, 0, SEG(81), 1, 1, -EBADMSG, "", BOTH},         /* padding */

	{IMAGE_CHUNK, 0, 8, 8, 0, -EBADMSG, "", BOTH},
	{IMAGE_CHUNK, 0, 8, 8, 32, -EBADMSG, "", BOTH},
	{IMAGE_CHUNK, 0, 8, 8, 4096 + 65536 + 88, -EBADMSG, "", BOTH},
	{IMAGE_CHUNK, 0, 8, 8, P63, -EBADMSG, "", BOTH},
	{IMAGE_CHUNK, 0, 40, 8, 1, -EBADMSG, "beyond", BOTH},
	{IMAGE_CHUNK, 0, 40, 8, UINT64_MAX, -EBADMSG, "beyond", BOTH},
	{IMAGE_CHUNK, 0, 48, 8, 0, -EBADMSG, "beyond", BOTH},
	{IMAGE_CHUNK, 0, 48, 8, P60, -EBADMSG, "beyond", BOTH},
	{IMAGE_CHUNK, 0, 48, 8, UINT64_MAX, -EBADMSG, "beyond", BOTH},
	{IMAGE_CHUNK, 0, 56, 4, 0, -EBADMSG, "beyond", BOTH}, /* a folder */
	{IMAGE_CHUNK, 0, 56, 4, 99, -EBADMSG, "no such segment", BOTH},
	{IMAGE_CHUNK, 0, 60, 1, 9, -EOPNOTSUPP, "codec", BOTH},
	{IMAGE_CHUNK, 0, 61, 1, 1, -EBADMSG, "reserved", BOTH},
	{IMAGE_CHUNK, 0, 62, 2, 0, -EBADMSG, "map", BOTH},
	{IMAGE_CHUNK, 0, 62, 2, 65535, -EBADMSG, "", BOTH},
	{IMAGE_CHUNK, 0, 64, 4, 0, -EBADMSG, "raw bytes", BOTH},
	{IMAGE_CHUNK, 0, 64, 4, UINT32_MAX, -EBADMSG, "raw bytes", BOTH},
	{IMAGE_CHUNK, 0, 68, 4, 0, -EBADMSG, "stored bytes", BOTH},
	{IMAGE_CHUNK, 0, 68, 4, UINT32_MAX, -EBADMSG, "stored bytes", BOTH},
	{IMAGE_CHUNK, 0, 80, 1, 0x09, -EBADMSG, "raw bytes", BOTH}, /* a zero page with data */
	{IMAGE_CHUNK, 0, 80, 1, 0x0c, -EBADMSG, "map", BOTH},
	{IMAGE_CHUNK, 0, 85, 1, 1, -EBADMSG, "not zero",
	 BOTH}, /* data behind the segment's end */

	{IMAGE_INDEX, 0, 8, 8, 40, -EBADMSG, "", BOTH},
	{IMAGE_INDEX, 0, 8, 8, 2 << 20, -EBADMSG, "", BOTH},
	{IMAGE_INDEX, 0, 32, 4, 0, -EBADMSG, "impossible length", BOTH},
	{IMAGE_INDEX, 0, 32, 4, UINT32_MAX, -EBADMSG, "impossible length", BOTH},
	{IMAGE_INDEX, 0, 36, 4, 1, -EBADMSG, "impossible length", BOTH},
	{IMAGE_INDEX, 0, ENTRY(0), 8, 1, -EBADMSG, "", BOTH},
	{IMAGE_INDEX, 0, ENTRY(8), 8, 0, -EBADMSG, "impossible", BOTH},
	{IMAGE_INDEX, 0, ENTRY(8), 8, 2, -EBADMSG, "impossible", BOTH},
	{IMAGE_INDEX, 0, ENTRY(8), 8, UINT64_MAX, -EBADMSG, "impossible", BOTH},
	{IMAGE_INDEX, 0, ENTRY(16), 8, 1, -EBADMSG, "impossible", BOTH},
	{IMAGE_INDEX, 0, ENTRY(24), 8, UINT64_MAX, -EBADMSG, "impossible", BOTH},
	{IMAGE_INDEX, 0, ENTRY(32), 8, 0, -EBADMSG, "", BOTH},
	{IMAGE_INDEX, 0, ENTRY(32), 8, 4097, -EBADMSG, "", BOTH},
	{IMAGE_INDEX, 0, ENTRY(32), 8, P63, -EBADMSG, "", BOTH},
	{IMAGE_INDEX, 0, ENTRY(48), 4, 0, -EBADMSG, "", BOTH},
	{IMAGE_INDEX, 0, ENTRY(48), 4, UINT32_MAX, -EBADMSG, "", BOTH},
	{IMAGE_INDEX, 0, ENTRY(52), 4, 1, -EBADMSG, "", BOTH},
	{IMAGE_INDEX, 0, ENTRY(52), 4, 99, -EBADMSG, "", BOTH},
	{IMAGE_INDEX, 0, ENTRY(56), 4, 2, -EBADMSG, "impossible", BOTH},
	{IMAGE_INDEX, 0, ENTRY(56), 4, 0, -EBADMSG, "index", BOTH},
	{IMAGE_INDEX, 0, ENTRY(60), 4, 1, -EBADMSG, "index", BOTH},
	{IMAGE_INDEX, 0, ENTRY(64), 8, 1, -EBADMSG, "twice, never", BOTH}, /* overlap or gap */

	{IMAGE_ROOT, 0, 8, 8, 0, -EBADMSG, "", BOTH},
	{IMAGE_ROOT, 0, 8, 8, P63, -EBADMSG, "", BOTH},
	{IMAGE_ROOT, 0, 32, 8, 6, -EBADMSG, "", BOTH},
	{IMAGE_ROOT, 0, 40, 8, 7, -EBADMSG, "totals", BOTH},
	{IMAGE_ROOT, 0, 48, 8, 7, -EBADMSG, "totals", BOTH},
	{IMAGE_ROOT, 0, 56, 8, P63, -EBADMSG, "totals", BOTH},
	{IMAGE_ROOT, 0, 64, 8, P63, -EBADMSG, "totals", BOTH},
	{IMAGE_ROOT, 0, 72, 8, P63, -EBADMSG, "totals", BOTH},
	{IMAGE_ROOT, 0, 80, 8, P63, -EBADMSG, "totals", BOTH},
	{IMAGE_ROOT, 0, 88, 8, P63, -EBADMSG, "totals", BOTH},
	{IMAGE_ROOT, 0, 112, 8, 0, -EBADMSG, "root", BOTH},
	{IMAGE_ROOT, 0, 112, 8, UINT64_MAX, -EBADMSG, "root", BOTH},
	{IMAGE_ROOT, 0, 120, 8, 1, -EBADMSG, "root", BOTH},
	{IMAGE_ROOT, 0, BLOCK(0), 8, 0, -EBADMSG, "", BOTH},
	{IMAGE_ROOT, 0, BLOCK(0), 8, P63, -EBADMSG, "", BOTH},
	{IMAGE_ROOT, 0, BLOCK(8), 4, 0, -EBADMSG, "", BOTH},
	{IMAGE_ROOT, 0, BLOCK(8), 4, UINT32_MAX, -EBADMSG, "", BOTH},
	{IMAGE_ROOT, 0, BLOCK(12), 4, 2, -EBADMSG, "", BOTH},
	{IMAGE_ROOT, 0, BLOCK(12), 4, 77, -EBADMSG, "", BOTH},
	{IMAGE_ROOT, 0, BLOCK(24), 4, 1, -EBADMSG, "", BOTH},
	{IMAGE_ROOT, 0, BLOCK(28), 4, 1, -EBADMSG, "", BOTH},
	{IMAGE_ROOT, 0, BLOCK(64), 4, 1, -EBADMSG, "", BOTH},

	{FOOTER, 0, 0, 1, 'X', -EBADMSG, "footer", BOTH},
	{FOOTER, 0, 8, 8, 4096, -EBADMSG, "footer", BOTH},
	{FOOTER, 0, 8, 8, UINT64_MAX - 127, -EBADMSG, "footer", BOTH},
	{FOOTER, 0, 16, 8, 0, -EBADMSG, "footer", BOTH},
	{FOOTER, 0, 16, 8, UINT64_MAX, -EBADMSG, "footer", BOTH},
	{FOOTER, 0, 24, 8, 1, -EBADMSG, "footer", BOTH},
	{FOOTER, 0, 32, 8, 1, -EBADMSG, "footer", BOTH},
};

static size_t find_record(const struct memory_image *m, unsigned int type, unsigned int nth)
{
	size_t at = IMAGE_HEADER_BYTES;

	if (type == HEADER)
		return 0;
	if (type == FOOTER)
		return m->used - IMAGE_FOOTER_BYTES;
	for (;; at += num_get64(m->data + at + 8)) {
		at = reseal_find(m->data, m->used, at, type);
		assert_true(at < m->used);
		if (!nth--)
			return at;
	}
}

static void put(uint8_t *at, unsigned int bytes, uint64_t value)
{
	for (unsigned int i = 0; i < bytes; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

/* Rebuilding a hostile image ends soon, and what it makes is sound. */
static void rebuild_any(struct memory_image *m)
{
	struct memory_image fresh = MEMORY_IMAGE_NEW;
	struct image_input input = memory_image_input(m);
	struct image_sink sink = memory_image_sink(&fresh);
	struct image_rebuild rebuild = {.cancel = NULL};
	struct err e = {.text = ""};
	uint64_t by_index, by_stream;

	if (image_rebuild(&input, &sink, &rebuild, &e)) {
		assert_true(e.text[0]);
	} else if (content_indexed(&fresh, &by_index, &e) ||
		   content_streamed(&fresh, &by_stream, &e)) {
		fail_msg("rebuilt: %s", e.text);
	} else {
		assert_true(by_index == by_stream);
	}
	free(fresh.data);
}

static void expect(const struct lie *lie, size_t number, const char *reader, int rc,
		   const struct err *e)
{
	if (rc != lie->rc || !e->text[0] || !strstr(e->text, lie->says))
		fail_msg("lie %zu (type %u, field %u, value %llx), %s: got %d, \"%s\"; want "
			 "%d, \"%s\"",
			 number, lie->type, lie->at, (unsigned long long)lie->value, reader, rc,
			 e->text, lie->rc, lie->says);
}

static void test_lies(void **unused)
{
	struct rig_model model = RIG_MODEL(rig_small, 4096, "none");
	struct memory_image m = MEMORY_IMAGE_NEW;
	uint64_t started = clock_mono_ns();

	assert_int_equal(rig_write(&m, &model, NULL), 0);
	reseal_image(m.data, m.used);
	rig_expect_good(&m, &model);
	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		const struct lie *lie = &lies[i];
		struct memory_image bad = rig_copy(&m, m.used);
		size_t at = find_record(&bad, lie->type, lie->nth);
		struct err e = {.text = ""};
		uint64_t got;

		put(bad.data + at + lie->at, lie->bytes, lie->value);
		if (lie->type == FOOTER)
			num_put64(bad.data + at + 56, XXH3_64bits(bad.data + at, 56));
		else
			reseal_image(bad.data, bad.used);
		if (lie->readers & INDEXED)
			expect(lie, i, "indexed", content_indexed(&bad, &got, &e), &e);
		e.text[0] = '\0';
		if (lie->readers & STREAMED)
			expect(lie, i, "streamed", content_streamed(&bad, &got, &e), &e);
		rebuild_any(&bad);
		free(bad.data);
	}
	assert_true(clock_mono_ns() - started < 60000000000u);
	free(m.data);
}

/* ---- names, which the writer takes as they are ---- */

static void expect_bad_names(const struct rig_segment *segs, uint64_t n)
{
	struct rig_model model = {.segs = segs, .n = n, .chunk_bytes = 4096, .codec = "none"};
	struct memory_image m = MEMORY_IMAGE_NEW;
	uint64_t got;

	assert_int_equal(rig_write(&m, &model, NULL), 0);
	assert_int_equal(content_indexed(&m, &got, NULL), -EBADMSG);
	assert_int_equal(content_streamed(&m, &got, NULL), -EBADMSG);
	rebuild_any(&m);
	free(m.data);
}

static void test_names(void **unused)
{
	static const char *const names[] = {"/etc",   "..",    ".",    "a/",   "a//b",
					    "a/../b", "a/./b", "a/..", "../a", "/"};
	static char long_name[257];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct rig_segment segs[] = {{.name = "a"}, {.name = names[i], .map = "d1"}};

		expect_bad_names(segs, 2);
	}
	memset(long_name, 'x', 256);
	expect_bad_names((struct rig_segment[]){{.name = long_name, .map = ""}}, 1);
	/* Twice; below nothing, a file, a symlink; before its folder. */
	expect_bad_names(
		(struct rig_segment[]){{.name = "a", .map = "d1"}, {.name = "a", .map = "d1"}},
		2);
	expect_bad_names((struct rig_segment[]){{.name = "b/a", .map = "d1"}}, 1);
	expect_bad_names(
		(struct rig_segment[]){{.name = "b", .map = ""}, {.name = "b/a", .map = "d1"}},
		2);
	expect_bad_names((struct rig_segment[]){{.name = "b", .map = "", .link = "/etc"},
						{.name = "b/a", .map = "d1"}},
			 2);
	expect_bad_names((struct rig_segment[]){{.name = "b/a", .map = "d1"}, {.name = "b"}},
			 2);
}

/* The index of two chunks, exchanged but for what must be in order: each is the other's place.
 */
static void test_entries_exchanged(void **unused)
{
	static const struct rig_segment segs[] = {{.name = "a", .map = "d3"}};
	struct rig_model model = RIG_MODEL(segs, 4096, "none");
	struct memory_image m = MEMORY_IMAGE_NEW;
	uint8_t *entries, keep[20];
	uint64_t got;

	assert_int_equal(rig_write(&m, &model, NULL), 0);
	entries = m.data + find_record(&m, IMAGE_INDEX, 0) + IMAGE_INDEX_HEAD_BYTES;
	memcpy(keep, entries + 32, sizeof(keep)); /* offset, hash, bytes */
	memcpy(entries + 32, entries + 64 + 32, sizeof(keep));
	memcpy(entries + 64 + 32, keep, sizeof(keep));
	reseal_image(m.data, m.used);
	assert_int_equal(content_streamed(&m, &got, NULL), -EBADMSG);
	free(m.data);
}

/* Magics wherever there is room, each claiming to be as long as a record may be. */
static void test_rebuild_of_magics_ends(void **unused)
{
	struct rig_model model = RIG_MODEL(rig_small, 4096, "none");
	struct memory_image m = MEMORY_IMAGE_NEW;
	uint64_t started = clock_mono_ns(), offset;
	uint8_t head[32] = {0};

	assert_int_equal(rig_write(&m, &model, NULL), 0);
	num_put32(head, IMAGE_RECORD_MAGIC);
	num_put16(head + 4, IMAGE_PAD);
	num_put64(head + 8, KIB(512));
	num_put64(head + 16, 0x1122334455667788);
	while (m.used < MIB(1))
		memory_image_append(&m, head, sizeof(head), &offset, NULL);
	rebuild_any(&m);
	print_message("rebuilding 1 MiB of magics took %llu ms\n",
		      (unsigned long long)((clock_mono_ns() - started) / 1000000));
	assert_true(clock_mono_ns() - started < 60000000000u);
	free(m.data);
}

/* ---- a root of gigabytes, in a file that is a hole but for its ends ---- */

struct sparse {
	uint8_t header[IMAGE_HEADER_BYTES], head[IMAGE_ROOT_HEAD_BYTES], footer[IMAGE_FOOTER_BYTES];
	struct image_footer is;
	uint64_t read;
};

static int sparse_read_at(void *ctx, void *buf, size_t bytes, uint64_t offset, struct err *e)
{
	struct sparse *s = ctx;

	assert_true(offset <= s->is.image_bytes && bytes <= s->is.image_bytes - offset);
	s->read += bytes;
	memset(buf, 0, bytes);
	if (offset == 0)
		memcpy(buf, s->header, num_min(bytes, sizeof(s->header)));
	if (offset == s->is.root_offset)
		memcpy(buf, s->head, num_min(bytes, sizeof(s->head)));
	if (offset == s->is.image_bytes - IMAGE_FOOTER_BYTES)
		memcpy(buf, s->footer, num_min(bytes, sizeof(s->footer)));
	return 0;
}

static void expect_little_read(const struct memory_image *m, bool with_head)
{
	const uint64_t blocks = 1 << 26;
	struct sparse s = {
		.is = {
			.root_offset = (uint64_t)8 << 30,
			.root_bytes = IMAGE_ROOT_HEAD_BYTES + blocks * IMAGE_ROOT_BLOCK_BYTES,
			.id = num_get64(m->data + 32),
		},
	};
	struct image_input input = {&s, 0, sparse_read_at};
	struct image_reader *reader;
	struct err e = {.text = ""};

	input.bytes = s.is.image_bytes = s.is.root_offset + s.is.root_bytes + IMAGE_FOOTER_BYTES;
	image_footer_encode(s.footer, &s.is);
	memcpy(s.header, m->data, sizeof(s.header));
	memcpy(s.head, m->data + find_record(m, IMAGE_ROOT, 0), sizeof(s.head));
	num_put64(s.head + 8, s.is.root_bytes);
	num_put64(s.head + 112, blocks);
	if (!with_head)
		memset(s.head, 0, sizeof(s.head));
	assert_int_equal(image_reader_open(&input, &reader, &e), -EBADMSG);
	assert_non_null(strstr(e.text, with_head ? "list of blocks" : "no record begins here"));
	assert_true(s.read < MIB(2));
}

static void test_a_long_hole_is_no_root(void **unused)
{
	struct rig_model model = RIG_MODEL(rig_small, 4096, "none");
	struct memory_image m = MEMORY_IMAGE_NEW;

	assert_int_equal(rig_write(&m, &model, NULL), 0);
	expect_little_read(&m, false);
	expect_little_read(&m, true);
	free(m.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_long_hole_is_no_root),
		cmocka_unit_test(test_lies),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_entries_exchanged),
		cmocka_unit_test(test_rebuild_of_magics_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
