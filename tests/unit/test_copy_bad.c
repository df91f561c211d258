// SPDX-License-Identifier: LGPL-2.1-or-later
/* Pages that cannot be had: files that are cut off while they are copied, and files that cannot
 * be mapped or read. */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "copy_rig.h"

static uint8_t byte_of(uint64_t page)
{
	return (uint8_t)(page % 251 + 1);
}

/* Each page full of its own byte. */
static void fill(const struct rig *rig, const char *name, uint64_t pages)
{
	CLEANUP_FREE uint8_t *data = malloc(pages * RIG_PAGE);
	uint64_t i;

	for (i = 0; i < pages; i++)
		memset(data + i * RIG_PAGE, byte_of(i), RIG_PAGE);
	rig_make(rig, name, data, pages * RIG_PAGE, 0);
}

/* Pages from `first` on are holes in the copy, those before are as they were. */
static void expect_cut(const struct shot *s, const char *name, uint64_t first)
{
	uint32_t item = shot_item(s, name);
	uint64_t pages = num_pages(s->now.list[item].bytes, RIG_PAGE), i;
	CLEANUP_FREE uint8_t *holes = NULL, *content = shot_content(s, item, &holes);

	for (i = 0; i < pages; i++) {
		assert_int_equal(holes[i], i >= first);
		assert_int_equal(content[i * RIG_PAGE + 77], i < first ? byte_of(i) : 0);
	}
}

static void prepare(struct shot *s, const struct rig *rig, struct live_copy_opts opts)
{
	*s = (struct shot){.opts = opts};
	assert_int_equal(shot_prepare(s, rig->dir), 0);
	shot_scan(rig->dir, &s->now);
}

static int take(struct shot *s)
{
	int rc = live_copy_take(s->copy, &s->now, &s->e);

	live_copy_counts(s->copy, &s->counts);
	return rc;
}

/* ---- cut off before, but after the list was made ---- */

/*
 * The extents of the list are gone with the pages, so a cut between list and plan leaves holes,
 * and is no error: what notices it is live_copy_check().
 */
static void test_cut_before_the_plan_is_seen_by_the_check(void **state)
{
	const struct rig *rig = *state;
	struct shot s;

	fill(rig, "f", 100);
	prepare(&s, rig, (struct live_copy_opts){.threads = 1});
	rig_grow(rig, "f", 10 * RIG_PAGE);
	assert_int_equal(take(&s), 0);
	expect_cut(&s, "f", 10);
	assert_int_equal(live_copy_check(s.copy, &s.e), -ESTALE);
	shot_end(&s);
}

/* ---- cut off by the copying itself ---- */

/* A span function that cuts off files when it comes to a page, so that the moment is certain.
 */
static struct {
	const struct rig *rig;
	const char *names[2];
	uint64_t left_pages;
	uint8_t trigger;
	_Atomic bool done;
} cutter;

static size_t cut_and_copy(void *dst, const void *src, size_t pages, size_t page_bytes,
			   uint64_t *ret_zero)
{
	size_t i;

	if (*(const uint8_t *)src == cutter.trigger && !atomic_exchange(&cutter.done, true)) {
		for (i = 0; i < ARRAY_LEN(cutter.names) && cutter.names[i]; i++)
			rig_grow(cutter.rig, cutter.names[i], cutter.left_pages * RIG_PAGE);
	}
	return page_span_copy_find_zero(dst, src, pages, page_bytes, ret_zero);
}

static struct live_copy_opts cutting(const struct rig *rig, const char *name, const char *other,
				     uint64_t left, bool skip)
{
	cutter.rig = rig;
	cutter.names[0] = name;
	cutter.names[1] = other;
	cutter.left_pages = left;
	cutter.trigger = byte_of(0);
	atomic_store(&cutter.done, false);
	return (struct live_copy_opts){
		.threads = 1, .skip_unreadable = skip, .copy_span = cut_and_copy};
}

static void test_cut_pages_are_named(void **state)
{
	static const uint64_t left[] = {0, 1, 100, 511, 512, 513, 900};
	const struct rig *rig = *state;
	size_t i;

	for (i = 0; i < ARRAY_LEN(left); i++) {
		struct shot s;
		char want[64];

		fill(rig, "f", 1000);
		prepare(&s, rig, cutting(rig, "f", NULL, left[i], false));
		snprintf(want, sizeof(want), "/f: pages %u to 999 cannot be read",
			 (unsigned int)left[i]);
		assert_int_equal(take(&s), -EIO);
		if (!strstr(s.e.text, want))
			fail_msg("'%s' is not in '%s'", want, s.e.text);
		shot_end(&s);
	}
}

static void test_cut_pages_are_skipped(void **state)
{
	static const uint64_t left[] = {0, 1, 100, 511, 512, 513, 900, 999};
	const struct rig *rig = *state;
	size_t i;

	for (i = 0; i < ARRAY_LEN(left); i++) {
		struct shot s;

		fill(rig, "f", 1000);
		fill(rig, "other", 50);
		prepare(&s, rig, cutting(rig, "f", NULL, left[i], true));
		assert_int_equal(take(&s), 0);
		expect_cut(&s, "f", left[i]);
		expect_cut(&s, "other", 50);
		assert_int_equal(s.counts.unreadable, (1000 - left[i]) * RIG_PAGE);
		assert_non_null(strstr(memory_warnings_get(s.warnings, 0), "saved as a hole"));
		assert_null(memory_warnings_get(s.warnings, 1));
		shot_end(&s);
	}
}

/* Their mappings lie side by side: neither is taken for a part of the other. */
static void test_two_files_are_cut_at_once(void **state)
{
	const struct rig *rig = *state;
	struct shot s;

	fill(rig, "a", 600);
	fill(rig, "b", 600);
	prepare(&s, rig, cutting(rig, "a", "b", 0, true));
	assert_int_equal(take(&s), 0);
	expect_cut(&s, "a", 0);
	expect_cut(&s, "b", 0);
	assert_int_equal(s.counts.unreadable, 2 * 600 * RIG_PAGE);
	shot_end(&s);
}

/* What a pass could not have is there again when it counts. */
static void test_cut_in_a_pass_and_grown_again(void **state)
{
	const struct rig *rig = *state;
	struct shot s;

	fill(rig, "f", 1000);
	prepare(&s, rig, cutting(rig, "f", NULL, 3, false));
	assert_int_equal(live_copy_pass(s.copy, &s.before, &s.e), 0);
	fill(rig, "f", 1000);
	memory_items_free(&s.now);
	assert_int_equal(shot_take(&s, rig->dir), 0);
	expect_cut(&s, "f", 1000);
	assert_int_equal(s.counts.unreadable, 0);
	shot_end(&s);
}

/* ---- cut off by another thread, at any moment ---- */

#define RACE_PAGES 1500u

struct race {
	const struct rig *rig;
	uint64_t left, after_ns;
	_Atomic bool go;
};

static void *cut_later(void *arg)
{
	struct race *r = arg;
	uint64_t i;

	while (!atomic_load(&r->go))
		;
	for (i = 0; i < r->after_ns; i++)
		__asm__ volatile("");
	rig_grow(r->rig, "f", r->left * RIG_PAGE);
	return NULL;
}

/* Each page is what it was, or a hole that was counted. */
static void check_race(const struct shot *s, uint64_t left)
{
	uint32_t item = shot_item(s, "f");
	CLEANUP_FREE uint8_t *holes = NULL, *content = shot_content(s, item, &holes);
	uint64_t bad = 0, i, j;

	for (i = 0; i < RACE_PAGES; i++) {
		bad += holes[i];
		for (j = 0; j < RIG_PAGE && !holes[i]; j++)
			assert_int_equal(content[i * RIG_PAGE + j], byte_of(i));
		assert_true(!holes[i] || i >= left);
	}
	/* A cut that came before the plan made holes of the file itself. */
	assert_true(s->counts.unreadable == bad * RIG_PAGE || s->counts.unreadable == 0);
}

static void test_cut_at_any_moment(void **state)
{
	const struct rig *rig = *state;
	uint64_t seed = 5;
	int round, cuts = 0;

	for (round = 0; round < 100; round++) {
		struct race race = {.rig = rig, .left = pattern_random(&seed) % RACE_PAGES};
		struct live_copy_opts opts = {
			.threads = 1 + round % 3,
			.no_zero_check = round % 2,
			.skip_unreadable = round % 4 < 3,
		};
		pthread_t thread;
		struct shot s;
		int rc;

		fill(rig, "f", RACE_PAGES);
		race.after_ns = pattern_random(&seed) % 3000000;
		prepare(&s, rig, opts);
		assert_int_equal(pthread_create(&thread, NULL, cut_later, &race), 0);
		atomic_store(&race.go, true);
		rc = take(&s);
		pthread_join(thread, NULL);
		if (!opts.skip_unreadable && rc)
			assert_non_null(strstr(s.e.text, "/f: pages "));
		else
			check_race(&s, race.left);
		assert_int_equal(rc, opts.skip_unreadable || !rc ? 0 : -EIO);
		cuts += rc == -EIO || s.counts.unreadable;
		shot_end(&s);
	}
	/* Some came in the middle. */
	assert_true(cuts > 0);
}

/* ---- files that cannot be mapped ---- */

/* Files of sysfs have a size, and their content is made up by read(2). */
static void test_file_that_is_read(void **state)
{
	static const char path[] = "/sys/kernel/notes";
	struct shot s = {.opts.threads = 1};
	uint8_t want[65536];
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? -1 : pread(fd, want, sizeof(want), 0);
	CLEANUP_FREE uint8_t *holes = NULL, *content = NULL;

	if (bytes <= 0)
		skip();
	assert_int_equal(shot_prepare(&s, path), 0);
	assert_int_equal(shot_take(&s, path), 0);
	assert_int_equal(s.now.list[0].bytes, bytes);
	content = shot_content(&s, 0, &holes);
	assert_memory_equal(content, want, bytes);
	assert_int_equal(s.counts.unreadable, 0);
	shot_end(&s);
}

/* It says a page and gives a line: as if it had been cut off. */
static void test_file_that_gives_less_than_it_says(void **state)
{
	static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
	struct stat st;
	int skip_it;

	if (access(path, R_OK) < 0 || stat(path, &st) < 0 || st.st_size != RIG_PAGE)
		skip();
	for (skip_it = 0; skip_it < 2; skip_it++) {
		struct shot s = {.opts = {.threads = 1, .skip_unreadable = skip_it}};

		assert_int_equal(shot_prepare(&s, path), 0);
		assert_int_equal(shot_take(&s, path), skip_it ? 0 : -EIO);
		if (skip_it)
			assert_int_equal(s.counts.unreadable, RIG_PAGE);
		else
			assert_non_null(
				strstr(s.e.text, "enabled: pages 0 to 0 cannot be read"));
		shot_end(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_cut_before_the_plan_is_seen_by_the_check),
		RIG_TEST(test_cut_pages_are_named),
		RIG_TEST(test_cut_pages_are_skipped),
		RIG_TEST(test_two_files_are_cut_at_once),
		RIG_TEST(test_cut_in_a_pass_and_grown_again),
		RIG_TEST(test_cut_at_any_moment),
		cmocka_unit_test(test_file_that_is_read),
		cmocka_unit_test(test_file_that_gives_less_than_it_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
