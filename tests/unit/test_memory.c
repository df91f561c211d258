// SPDX-License-Identifier: LGPL-2.1-or-later
/* Scanning sources, and the spans that they are read in. */
#include "memory_rig.h"

static struct memory_items scan(const struct rig *rig, const char *name)
{
	struct memory_items items = {.count = 0};
	struct memory_scan_opts opts = {.skip_special = false};
	char path[PATH_MAX];
	const char *paths[] = {rig_path(rig, name, path)};
	struct err e = {.text = ""};

	if (memory_scan(paths, 1, &opts, &items, &e))
		fail_msg("%s", e.text);
	return items;
}

/* Reads all spans of one file; what are holes stays as it was. */
static void read_all(const struct memory_items *items, uint8_t *buf, uint64_t *ret_hole_pages,
		     uint64_t *ret_pages)
{
	struct memory_source *source;
	struct memory_span span;

	*ret_hole_pages = *ret_pages = 0;
	assert_int_equal(memory_source_new(items, NULL, &source, NULL), 0);
	while (memory_source_next(source, &span, NULL) > 0) {
		uint64_t page = span.first_page, data = 0;

		assert_int_equal(page, *ret_pages);
		assert_in_range(span.n_pieces, 1, MEMORY_SPAN_PIECES);
		for (unsigned int i = 0; i < span.n_pieces; i++) {
			const struct memory_piece *piece = &span.pieces[i];

			assert_true(piece->pages > 0 &&
				    (!i || span.pieces[i - 1].hole != piece->hole));
			if (piece->hole)
				*ret_hole_pages += piece->pages;
			else if (memory_span_read(&span, page, piece->pages,
						  buf + page * RIG_PAGE, NULL))
				fail_msg("page %llu", (unsigned long long)page);
			data += piece->hole ? 0 : piece->pages;
			page += piece->pages;
		}
		assert_true(data <= MEMORY_SPAN_PAGES);
		*ret_pages = page;
		memory_span_release(&span, NULL);
	}
	memory_source_free(source);
}

static void check_file(const struct rig *rig, const uint8_t *want, uint64_t bytes,
		       uint64_t want_holes)
{
	struct memory_items items = scan(rig, "f");
	uint64_t whole = num_round_up(bytes, RIG_PAGE), holes, pages;
	uint8_t *got = calloc(1, whole + 1), *zeros = calloc(1, RIG_PAGE);

	memset(got + bytes, 0xff,
	       whole - bytes); /* the tail has to be zeroed, where it is data */
	read_all(&items, got, &holes, &pages);
	assert_int_equal(pages, whole / RIG_PAGE);
	assert_int_equal(holes, want_holes);
	assert_memory_equal(got, want, bytes);
	assert_memory_equal(got + bytes, zeros, whole - bytes);
	free(got);
	free(zeros);
	memory_items_free(&items);
}

static void test_spans(void **state)
{
	uint64_t bytes = 3000 * RIG_PAGE + 77;
	uint8_t *data = calloc(1, bytes);

	/* More pieces than one span has room for, then more data pages, then a hole, then a
	 * bit. */
	for (uint64_t page = 0; page < 200; page += 2)
		pattern_fill(data + page * RIG_PAGE, RIG_PAGE, PATTERN_NOISE, page);
	pattern_fill(data + 300 * RIG_PAGE, 1200 * RIG_PAGE, PATTERN_NOISE, 1);
	pattern_fill(data + 3000 * RIG_PAGE, 77, PATTERN_NOISE, 2);
	for (uint64_t page = 0; page < 200; page += 2)
		rig_make(*state, "f", data + page * RIG_PAGE, RIG_PAGE, page * RIG_PAGE);
	rig_make(*state, "f", data + 300 * RIG_PAGE, 1200 * RIG_PAGE, 300 * RIG_PAGE);
	rig_make(*state, "f", data + 3000 * RIG_PAGE, 77, 3000 * RIG_PAGE);
	check_file(*state, data, bytes, 3001 - 100 - 1200 - 1);
	free(data);
}

static void test_small_files(void **state)
{
	uint8_t byte = 'x', page[2 * RIG_PAGE] = {[5000] = 'y'};

	rig_make(*state, "f", "", 0, 0);
	check_file(*state, page, 0, 0);
	rig_make(*state, "f", &byte, 1, 0);
	check_file(*state, &byte, 1, 0);
	rig_grow(*state, "f", 0);
	rig_grow(*state, "f", 5001);
	rig_make(*state, "f", "y", 1, 5000);
	check_file(*state, page, 5001, 1);
}

static void test_all_hole(void **state)
{
	struct memory_items items;
	uint64_t holes, pages;

	rig_make(*state, "f", "", 0, 0);
	rig_grow(*state, "f", (1ull << 40) + 1);
	items = scan(*state, "f");
	read_all(&items, NULL, &holes, &pages);
	assert_int_equal(pages, (1ull << 28) + 1);
	assert_int_equal(holes, pages);
	memory_items_free(&items);
}

static void test_shrinking_file(void **state)
{
	uint8_t data[4 * RIG_PAGE], buf[4 * RIG_PAGE];
	struct memory_source *source;
	struct memory_items items;
	struct memory_span span;
	struct err e = {.text = ""};

	pattern_fill(data, sizeof(data), PATTERN_NOISE, 1);
	rig_make(*state, "f", data, sizeof(data), 0);
	items = scan(*state, "f");
	/* After it was opened. */
	assert_int_equal(memory_source_new(&items, NULL, &source, NULL), 0);
	assert_int_equal(memory_source_next(source, &span, NULL), 1);
	rig_grow(*state, "f", 2 * RIG_PAGE + 5);
	assert_int_equal(memory_span_read(&span, 0, 4, buf, &e), -ESTALE);
	assert_non_null(strstr(e.text, "8197"));
	assert_int_equal(memory_span_read(&span, 0, 2, buf, &e), 0);
	memory_source_free(source); /* the span outlives it */
	assert_int_equal(memory_span_read(&span, 1, 1, buf, &e), 0);
	memory_span_release(&span, NULL);
	/* Before. */
	assert_int_equal(memory_source_new(&items, NULL, &source, NULL), 0);
	assert_int_equal(memory_source_next(source, &span, &e), -ESTALE);
	memory_source_free(source);
	memory_items_free(&items);
}

static int run_to_end(struct memory_source *source, struct err *e)
{
	struct memory_span span;
	int rc;

	while ((rc = memory_source_next(source, &span, e)) > 0) {
		rc = memory_span_release(&span, e);
		if (rc < 0)
			return rc;
	}
	return rc;
}

/* All that is read is there, but what comes after it was cut off: it must not become a hole. */
static void test_shrinking_hole(void **state)
{
	uint8_t data[RIG_PAGE];
	struct memory_source *source;
	struct memory_items items;
	struct memory_span span;
	struct err e = {.text = ""};

	pattern_fill(data, sizeof(data), PATTERN_NOISE, 1);
	rig_make(*state, "f", data, sizeof(data), 0);
	rig_grow(*state, "f", 8 * RIG_PAGE);
	items = scan(*state, "f");
	/* After all of it was found. */
	assert_int_equal(memory_source_new(&items, NULL, &source, NULL), 0);
	assert_int_equal(memory_source_next(source, &span, NULL), 1);
	assert_int_equal(memory_source_next(source, &(struct memory_span){.item = 0}, NULL), 0);
	rig_grow(*state, "f", 2 * RIG_PAGE);
	assert_int_equal(memory_span_release(&span, &e), -ESTALE);
	assert_non_null(strstr(e.text, "8192 instead of 32768"));
	memory_source_free(source);
	memory_items_free(&items);
}

/* The end of the file was not looked at yet; that it grows again does not help. */
static void test_shrinking_end(void **state)
{
	const uint64_t bytes = (MEMORY_SPAN_PAGES + 8) * RIG_PAGE;
	uint8_t *data = malloc(bytes);
	struct memory_source *source;
	struct memory_items items;
	struct memory_span span;
	struct err e = {.text = ""};

	pattern_fill(data, bytes, PATTERN_NOISE, 1);
	rig_make(*state, "f", data, bytes, 0);
	rig_make(*state, "f", data, RIG_PAGE, 2 * bytes);
	items = scan(*state, "f");
	assert_int_equal(memory_source_new(&items, NULL, &source, NULL), 0);
	assert_int_equal(memory_source_next(source, &span, NULL), 1);
	rig_grow(*state, "f", bytes);
	assert_int_equal(memory_source_next(source, &(struct memory_span){.item = 0}, &e), -ESTALE);
	assert_non_null(strstr(e.text, "shrank"));
	rig_grow(*state, "f", 2 * bytes + RIG_PAGE);
	assert_int_equal(memory_span_release(&span, NULL), 0);
	memory_source_free(source);
	memory_items_free(&items);
	free(data);
}

static void test_warning_of_changes(void **state)
{
	enum { NOT, WRITTEN, GROWN, AND_AGAIN_NOT, WAYS };
	struct memory_warnings *warnings = memory_warnings_new();

	for (int i = NOT; i < WAYS; i++) {
		struct memory_source *source;
		struct memory_items items;
		char path[PATH_MAX];

		rig_make(*state, "f", "x", 1, 0);
		/* Long ago: the kernel's clock of files may stand still for some milliseconds. */
		assert_int_equal(utimensat(AT_FDCWD, rig_path(*state, "f", path), (struct timespec[2]){{1, 1}, {1, 1}}, 0), 0);
		items = scan(*state, "f");
		assert_int_equal(memory_source_new(&items, warnings, &source, NULL), 0);
		if (i == WRITTEN)
			rig_make(*state, "f", "yz", 2, 0);
		if (i == GROWN)
			rig_grow(*state, "f", RIG_PAGE);
		assert_int_equal(run_to_end(source, NULL), 0);
		memory_source_free(source);
		assert_int_equal(memory_warnings_get(warnings, 0) != NULL, i == WRITTEN || i == GROWN);
		memory_warnings_clear(warnings);
		memory_items_free(&items);
	}
	memory_warnings_free(warnings);
}

static void test_tree(void **state)
{
	static const char *const names[] = {"t", "t/a", "t/a-b", "t/a-b/x", "t/z"};
	struct memory_items items;
	char path[PATH_MAX];

	mkdir(rig_path(*state, "t", path), 0755);
	mkdir(rig_path(*state, "t/a-b", path), 0700);
	rig_make(*state, "t/z", "zz", 2, 0);
	rig_make(*state, "t/a-b/x", "x", 1, 0);
	assert_int_equal(symlink("/etc/passwd", rig_path(*state, "t/a", path)), 0);
	items = scan(*state, "t");
	assert_int_equal(items.count, ARRAY_LEN(names));
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		assert_string_equal(items.list[i].name, names[i]);
		assert_string_equal(items.list[i].origin, i ? "" : rig_path(*state, "t", path));
	}
	assert_int_equal(items.list[1].kind, MEMORY_SYMLINK);
	assert_string_equal(items.list[1].link, "/etc/passwd");
	assert_int_equal(items.list[1].bytes, 0);
	assert_int_equal(items.list[2].mode, 0700);
	assert_int_equal(items.list[4].bytes, 2);
	memory_items_free(&items);
}

static int scan_fails(const char *const *paths, size_t n, struct err *e)
{
	struct memory_items items = {.list = (struct memory_item *)8, .count = 99};
	struct memory_scan_opts opts = {.skip_special = false};
	int rc = memory_scan(paths, n, &opts, &items, e);

	assert_true(rc < 0 && e->text[0]);
	assert_int_equal(items.count, 99); /* untouched */
	return rc;
}

static void test_scan_errors(void **state)
{
	char a[PATH_MAX], b[PATH_MAX], c[PATH_MAX];
	struct err e = {.text = ""};
	struct memory_scan_opts skip = {.skip_special = true,
					.warnings = memory_warnings_new()};
	struct memory_items items;

	mkdir(rig_path(*state, "x", a), 0755);
	mkdir(rig_path(*state, "y", a), 0755);
	rig_make(*state, "x/same", "1", 1, 0);
	rig_make(*state, "y/same", "2", 1, 0);
	rig_path(*state, "x/same", a);
	rig_path(*state, "y/same", b);
	rig_path(*state, "y/fifo", c);
	assert_int_equal(mkfifo(c, 0600), 0);
	assert_int_equal(scan_fails((const char *[]){a, b}, 2, &e), -EINVAL);
	assert_true(strstr(e.text, a) && strstr(e.text, b));
	assert_int_equal(scan_fails((const char *[]){a, a}, 2, &e), -EINVAL);
	assert_int_equal(scan_fails((const char *[]){a, c}, 2, &e), -ENOTSUP);
	assert_non_null(strstr(e.text, "y/fifo is a fifo"));
	assert_int_equal(scan_fails((const char *[]){"/dev/null"}, 1, &e), -ENOTSUP);
	assert_int_equal(scan_fails((const char *[]){"/"}, 1, &e), -EINVAL);
	assert_int_equal(scan_fails((const char *[]){rig_path(*state, "none", c)}, 1, &e),
			 -ENOENT);
	assert_int_equal(scan_fails(NULL, 0, &e), -EINVAL);
	assert_int_equal(
		memory_scan((const char *[]){rig_path(*state, "y", c)}, 1, &skip, &items, &e),
		0);
	assert_int_equal(items.count, 2);
	assert_non_null(strstr(memory_warnings_get(skip.warnings, 0), "y/fifo"));
	assert_null(memory_warnings_get(skip.warnings, 1));
	memory_items_free(&items);
	memory_warnings_free(skip.warnings);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_spans),    RIG_TEST(test_small_files),
		RIG_TEST(test_all_hole), RIG_TEST(test_shrinking_file),
		RIG_TEST(test_tree),     RIG_TEST(test_scan_errors),
		RIG_TEST(test_shrinking_hole), RIG_TEST(test_shrinking_end), RIG_TEST(test_warning_of_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
