// SPDX-License-Identifier: LGPL-2.1-or-later
/* The copy of the critical section: what is in it, whatever the files are like and whatever
 * becomes of them. */
#include <sys/mman.h>
#include <unistd.h>

#include "copy_rig.h"

/* ---- what is in it ---- */

enum fill { EMPTY, DATA, ZERO, MIXED, SECOND, CLUSTERS, LAST };

struct content {
	uint64_t bytes;
	enum fill fill;
};

static const struct content contents[] = {
	{0, EMPTY},
	{1, DATA},
	{1, ZERO},
	{RIG_PAGE - 1, DATA},
	{RIG_PAGE, DATA},
	{RIG_PAGE, ZERO},
	{RIG_PAGE + 1, DATA},
	{RIG_PAGE + 1, EMPTY},
	{512 * RIG_PAGE, DATA},
	{512 * RIG_PAGE + 1, DATA},
	{511 * RIG_PAGE + 7, ZERO},
	{MIB(3) + 123, DATA},
	{MIB(3) + 123, MIXED},
	{MIB(5), ZERO},
	{MIB(4) + 5, EMPTY},
	{MIB(4) + 5, SECOND},
	{MIB(9) + 4095, CLUSTERS},
	{MIB(9), MIXED},
	{GIB(1) + 17, LAST},
};

static bool has_data(enum fill fill, uint64_t page, uint64_t pages)
{
	switch (fill) {
	case DATA:
	case ZERO:
		return true;
	case MIXED:
		return page % 16 < 11;
	case SECOND:
		return page % 2;
	case CLUSTERS:
		return page / 37 % 3 == 1 || page % 101 == 0;
	case LAST:
		return page + 1 == pages;
	default:
		return false;
	}
}

static void make(const struct rig *rig, const char *name, const struct content *c)
{
	uint64_t pages = num_pages(c->bytes, RIG_PAGE), page;
	uint8_t buf[RIG_PAGE];

	rig_make(rig, name, "", 0, 0);
	rig_grow(rig, name, c->bytes);
	for (page = 0; page < pages; page++) {
		if (!has_data(c->fill, page, pages))
			continue;
		pattern_fill(buf, sizeof(buf),
			     c->fill == ZERO || page % 5 == 3 ? PATTERN_ZERO : PATTERN_NOISE,
			     page + 1);
		rig_make(rig, name, buf, num_min(RIG_PAGE, c->bytes - page * RIG_PAGE),
			 page * RIG_PAGE);
	}
}

static const struct live_copy_opts ways[] = {
	{.threads = 1},
	{.threads = 4},
	{.threads = 1, .no_zero_check = true},
	{.threads = 4, .no_zero_check = true},
};

static uint64_t blocks_of(const struct rig *rig, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	assert_int_equal(stat(rig_path(rig, name, path), &st), 0);
	return (uint64_t)st.st_blocks;
}

/* Holes stay holes in the copy, and in the file: reading it allocates nothing. */
static void test_contents(void **state)
{
	const struct rig *rig = *state;
	size_t i, w;

	for (i = 0; i < ARRAY_LEN(contents); i++) {
		uint64_t blocks;

		make(rig, "f", &contents[i]);
		blocks = blocks_of(rig, "f");
		for (w = 0; w < ARRAY_LEN(ways); w++) {
			struct shot s = {.opts = ways[w]};

			assert_int_equal(shot_prepare(&s, rig->dir), 0);
			assert_int_equal(shot_take(&s, rig->dir), 0);
			/* LAST is a gigabyte of hole. */
			if (contents[i].fill != LAST)
				shot_expect(&s, rig, "f");
			assert_int_equal(s.counts.looked, num_round_up(blocks * 512, RIG_PAGE));
			assert_int_equal(s.counts.late, 0);
			assert_int_equal(s.counts.unreadable, 0);
			assert_true(s.opts.no_zero_check
					    ? s.counts.copied <= s.counts.looked
					    : contents[i].fill != ZERO || s.counts.copied == 0);
			assert_int_equal(live_copy_check(s.copy, &s.e), 0);
			assert_int_equal(blocks_of(rig, "f"), blocks);
			shot_end(&s);
		}
		rig_make(rig, "f", "", 0, 0);
		rig_grow(rig, "f", 0);
	}
}

/* Extents of holes are what the file says, not what is zero. */
static void test_holes_are_told_from_zero_pages(void **state)
{
	const struct rig *rig = *state;
	struct shot s = {.opts.threads = 1};
	uint8_t zeros[3 * RIG_PAGE] = {0};
	CLEANUP_FREE uint8_t *holes = NULL, *content = NULL;
	uint64_t i;

	rig_make(rig, "f", zeros, sizeof(zeros), 2 * RIG_PAGE);
	rig_grow(rig, "f", 8 * RIG_PAGE);
	assert_int_equal(shot_prepare(&s, rig->dir), 0);
	assert_int_equal(shot_take(&s, rig->dir), 0);
	content = shot_content(&s, shot_item(&s, "f"), &holes);
	for (i = 0; i < 8; i++)
		assert_int_equal(holes[i], i < 2 || i > 4);
	assert_int_equal(s.counts.looked, 3 * RIG_PAGE);
	assert_int_equal(s.counts.copied, 0);
	shot_end(&s);
}

/* Through a mapping somebody may store behind the end of a file, in its last page. */
static void test_behind_the_end_is_zero(void **state)
{
	static const uint64_t ends[] = {1, 100, RIG_PAGE - 1, RIG_PAGE + 1,
					3 * RIG_PAGE + 2048};
	const struct rig *rig = *state;
	size_t i, w, zero;

	for (i = 0; i < ARRAY_LEN(ends) * 2; i++) {
		uint64_t bytes = ends[i / 2], whole = num_round_up(bytes, RIG_PAGE);
		CLEANUP_FREE uint8_t *data = malloc(bytes);
		char path[PATH_MAX];
		int fd = open(rig_path(rig, "f", path), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC,
			      0644);
		uint8_t *map;

		zero = i % 2;
		memset(data, zero ? 0 : 'd', bytes);
		assert_int_equal(pwrite(fd, data, bytes, 0), bytes);
		map = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		memset(map + bytes, 'x', whole - bytes);
		for (w = 0; w < ARRAY_LEN(ways); w++) {
			struct shot s = {.opts = ways[w]};

			assert_int_equal(shot_prepare(&s, rig->dir), 0);
			assert_int_equal(shot_take(&s, rig->dir), 0);
			shot_expect(&s, rig, "f");
			assert_int_equal(map[bytes], 'x');
			shot_end(&s);
		}
		munmap(map, whole);
		close(fd);
	}
}

/* ---- between preparing and taking ---- */

static void test_files_change_before_the_take(void **state)
{
	static const struct content grown = {MIB(2) + 77, DATA}, small = {5 * RIG_PAGE, DATA},
				    big = {MIB(3), MIXED};
	const struct rig *rig = *state;
	char path[PATH_MAX], other[PATH_MAX];
	size_t w;

	for (w = 0; w < ARRAY_LEN(ways); w++) {
		struct shot s = {.opts = ways[w]};

		make(rig, "grows", &small);
		make(rig, "shrinks", &big);
		make(rig, "to-nothing", &small);
		make(rig, "exchanged", &small);
		make(rig, "vanishes", &big);
		make(rig, "punched", &big);
		assert_int_equal(shot_prepare(&s, rig->dir), 0);
		make(rig, "grows", &grown);
		rig_grow(rig, "shrinks", MIB(1) + 1);
		rig_grow(rig, "to-nothing", 0);
		make(rig, "new", &big);
		assert_int_equal(
			rename(rig_path(rig, "new", path), rig_path(rig, "exchanged", other)),
			0);
		unlink(rig_path(rig, "vanishes", path));
		make(rig, "appears", &big);
		rig_grow(rig, "punched", 0);
		rig_grow(rig, "punched", MIB(3));
		rig_make(rig, "punched", "late", 4, MIB(2));
		assert_int_equal(shot_take(&s, rig->dir), 0);
		assert_int_equal(s.now.count, 1 + 6);
		shot_expect(&s, rig, "grows");
		shot_expect(&s, rig, "shrinks");
		shot_expect(&s, rig, "to-nothing");
		shot_expect(&s, rig, "exchanged");
		shot_expect(&s, rig, "appears");
		shot_expect(&s, rig, "punched");
		assert_true(s.counts.late >= MIB(2));
		shot_end(&s);
		unlink(rig_path(rig, "appears", path));
	}
}

/* A name that leads to another file between the list and the copy is not what was asked for. */
static void test_exchanged_after_the_list(void **state)
{
	static const struct content small = {5 * RIG_PAGE, DATA};
	const struct rig *rig = *state;
	char path[PATH_MAX], other[PATH_MAX];
	struct shot s = {.opts.threads = 1};

	make(rig, "a", &small);
	assert_int_equal(shot_prepare(&s, rig->dir), 0);
	make(rig, "b", &small);
	shot_scan(rig->dir, &s.now);
	make(rig, "c", &small);
	assert_int_equal(rename(rig_path(rig, "c", path), rig_path(rig, "b", other)), 0);
	assert_int_equal(live_copy_take(s.copy, &s.now, &s.e), -ESTALE);
	assert_non_null(strstr(s.e.text, "/b was exchanged"));
	shot_end(&s);
}

static void test_written_meanwhile_is_noticed(void **state)
{
	static const struct content content = {MIB(1), DATA};
	const struct rig *rig = *state;
	struct shot s = {.opts.threads = 1};

	make(rig, "a", &content);
	make(rig, "b", &content);
	assert_int_equal(shot_prepare(&s, rig->dir), 0);
	assert_int_equal(shot_take(&s, rig->dir), 0);
	assert_int_equal(live_copy_check(s.copy, &s.e), 0);
	/* The clock of files is coarse: until it has moved. */
	do {
		rig_make(rig, "b", "x", 1, 5);
	} while (live_copy_check(s.copy, &s.e) == 0);
	assert_int_equal(live_copy_check(s.copy, &s.e), -ESTALE);
	assert_non_null(strstr(s.e.text, "/b was written"));
	shot_end(&s);
}

/* ---- several files, and again ---- */

static void test_many_files(void **state)
{
	const struct rig *rig = *state;
	struct shot s = {.opts.threads = 4};
	char name[32];
	size_t i;

	for (i = 0; i < 300; i++) {
		struct content c = {i * 1777, i % 3 ? DATA : MIXED};

		snprintf(name, sizeof(name), "f%zu", i);
		make(rig, name, &c);
	}
	assert_int_equal(shot_prepare(&s, rig->dir), 0);
	assert_int_equal(shot_take(&s, rig->dir), 0);
	for (i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "f%zu", i);
		shot_expect(&s, rig, name);
	}
	assert_int_equal(s.counts.late, 0);
	shot_end(&s);
}

/* A pass copies; the take then looks at what is new only. */
static void test_take_after_a_pass(void **state)
{
	static const struct content content = {MIB(4) + 9, MIXED}, more = {MIB(1), DATA};
	const struct rig *rig = *state;
	struct shot s = {.opts.threads = 2};
	uint64_t looked;

	make(rig, "f", &content);
	looked = blocks_of(rig, "f") * 512;
	assert_int_equal(shot_prepare(&s, rig->dir), 0);
	assert_int_equal(live_copy_pass(s.copy, &s.before, &s.e), 0);
	make(rig, "g", &more);
	assert_int_equal(shot_take(&s, rig->dir), 0);
	shot_expect(&s, rig, "f");
	shot_expect(&s, rig, "g");
	assert_int_equal(s.counts.precopied, looked);
	assert_int_equal(s.counts.looked, MIB(1));
	shot_end(&s);
}

/* ---- memory ---- */

static uint64_t rss_kib(void)
{
	unsigned long long kib = 0;
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];

	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "RssAnon: %llu", &kib) == 1)
			break;
	}
	fclose(f);
	return kib;
}

/* All that was read is given back while the rest is still there. */
static void test_release_gives_memory_back(void **state)
{
	static const struct content content = {MIB(64) + 3 * RIG_PAGE, DATA};
	const struct rig *rig = *state;
	struct shot s = {.opts.threads = 2};
	const struct memory_view *view;
	uint64_t full, half = 0, i, n;

	make(rig, "f", &content);
	assert_int_equal(shot_prepare(&s, rig->dir), 0);
	/* All of it is there before the take. */
	full = rss_kib();
	assert_int_equal(shot_take(&s, rig->dir), 0);
	assert_in_range(rss_kib(), full - 512, full + 1024);
	view = live_copy_view(s.copy);
	for (i = 0; i < view->n; i++) {
		const struct memory_extent *x = &view->list[i];

		/* In pieces, as a span does it. */
		for (n = 0; n < x->pages && x->at; n += num_min(100, x->pages - n))
			view->release(view->ctx, x->at + n * RIG_PAGE,
				      num_min(100, x->pages - n));
		if (x->first_page <= 32 * 256 && x->first_page + x->pages > 32 * 256)
			half = rss_kib();
	}
	assert_in_range(full - half, MIB(28) >> 10, MIB(36) >> 10);
	assert_true(full - rss_kib() >= MIB(62) >> 10);
	shot_end(&s);
}

static void test_cancel(void **state)
{
	static const struct content content = {MIB(8), DATA};
	const struct rig *rig = *state;
	struct shot s = {.opts.threads = 2};

	make(rig, "f", &content);
	assert_int_equal(shot_prepare(&s, rig->dir), 0);
	atomic_store(&s.cancel, true);
	assert_int_equal(shot_take(&s, rig->dir), -ECANCELED);
	shot_end(&s);
	s.cancel = true;
	assert_int_equal(shot_prepare(&s, rig->dir), -ECANCELED);
	shot_end(&s);
}

static void test_one_copy_at_a_time(void **state)
{
	static const struct content content = {MIB(1), DATA};
	const struct rig *rig = *state;
	struct shot s = {.opts.threads = 1};

	make(rig, "f", &content);
	assert_int_equal(shot_prepare(&s, rig->dir), 0);
	assert_int_equal(os_busguard_hold(NULL, 0, NULL), 0);
	assert_int_equal(shot_take(&s, rig->dir), -EBUSY);
	assert_int_equal(os_busguard_release(NULL, 0), 0);
	shot_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_contents),
		RIG_TEST(test_holes_are_told_from_zero_pages),
		RIG_TEST(test_behind_the_end_is_zero),
		RIG_TEST(test_files_change_before_the_take),
		RIG_TEST(test_exchanged_after_the_list),
		RIG_TEST(test_written_meanwhile_is_noticed),
		RIG_TEST(test_many_files),
		RIG_TEST(test_take_after_a_pass),
		RIG_TEST(test_release_gives_memory_back),
		RIG_TEST(test_cancel),
		RIG_TEST(test_one_copy_at_a_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
