// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Plans that are taken over: after a pass the data of a file is not looked for again where
 * nothing can have come or gone.  What passes know from a watch is said here by hand, since not
 * every kernel lets them work.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "copy_rig.h"
#include "live/copy-priv.h"

#define PAGES 1200u

/* Every fourth page is a hole. */
static void make(const struct rig *rig, const char *name)
{
	uint8_t buf[RIG_PAGE];
	unsigned int page;

	rig_make(rig, name, "", 0, 0);
	rig_grow(rig, name, PAGES * RIG_PAGE);
	for (page = 0; page < PAGES; page++) {
		if (page % 4 == 3)
			continue;
		pattern_fill(buf, sizeof(buf), page % 5 == 1 ? PATTERN_ZERO : PATTERN_NOISE,
			     (uint64_t)(unsigned char)name[0] << 20 | (page + 1));
		rig_make(rig, name, buf, sizeof(buf), page * RIG_PAGE);
	}
}

static void store(const struct rig *rig, const char *name, unsigned int page, uint8_t value)
{
	char path[PATH_MAX];
	CLEANUP_CLOSE int fd = open(rig_path(rig, name, path), O_RDWR | O_CLOEXEC);
	volatile uint8_t *at =
		mmap(NULL, PAGES * RIG_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	assert_true(at != MAP_FAILED);
	at[page * RIG_PAGE + 7] = value;
	munmap((void *)at, PAGES * RIG_PAGE);
}

/* Everything but the plan is made anew, so what is wrong is the plan. */
static void set_changed(struct shot *s)
{
	size_t i, j;

	for (i = 0; i < s->copy->n_files; i++) {
		s->copy->files[i]->quiet = true;
		for (j = 0; j < s->copy->files[i]->n_cells; j++)
			memset(s->copy->files[i]->cells[j]->stale, 0xff,
			       sizeof(s->copy->files[i]->cells[j]->stale));
	}
}

static void begin(struct shot *s, const struct rig *rig)
{
	struct memory_items items = {.count = 0};

	assert_int_equal(shot_prepare(s, rig->dir), 0);
	shot_scan(rig->dir, &items);
	assert_int_equal(live_copy_pass(s->copy, &items, &s->e), 0);
	memory_items_free(&items);
	set_changed(s);
}

static void finish(struct shot *s, const struct rig *rig)
{
	assert_int_equal(shot_take(s, rig->dir), 0);
	shot_expect(s, rig, "a");
	shot_expect(s, rig, "b");
	shot_end(s);
}

static void test_stores_to_data(void **state)
{
	struct rig *rig = *state;
	struct shot s = {.copy = NULL};

	begin(&s, rig);
	store(rig, "a", 4, 99);
	store(rig, "b", PAGES - 2, 98);
	finish(&s, rig);
}

static void test_stores_to_holes(void **state)
{
	struct rig *rig = *state;
	struct shot s = {.copy = NULL};

	begin(&s, rig);
	store(rig, "a", 3, 99);
	store(rig, "b", PAGES - 1, 98);
	finish(&s, rig);
}

/* Allocated, and not data before the first store: the number of blocks stays what it was. */
static void test_stores_to_what_was_allocated(void **state)
{
	struct rig *rig = *state;
	struct shot s = {.copy = NULL};
	char path[PATH_MAX];
	CLEANUP_CLOSE int fd = open(rig_path(rig, "a", path), O_RDWR | O_CLOEXEC);

	assert_int_equal(fallocate(fd, 0, 3 * RIG_PAGE, RIG_PAGE), 0);
	begin(&s, rig);
	store(rig, "a", 3, 99);
	finish(&s, rig);
}

/* That it is taken over at all is seen where what was said is not true: there is as much data
 * as before, elsewhere. */
static void test_plan_is_taken_over(void **state)
{
	struct rig *rig = *state;
	struct shot s = {.copy = NULL};
	char path[PATH_MAX];
	CLEANUP_CLOSE int fd = open(rig_path(rig, "a", path), O_RDWR | O_CLOEXEC);
	uint8_t *holes;

	begin(&s, rig);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, RIG_PAGE),
			 0);
	store(rig, "a", 3, 99);
	assert_int_equal(shot_take(&s, rig->dir), 0);
	free(shot_content(&s, shot_item(&s, "a"), &holes));
	assert_true(holes[3] && !holes[0]);
	free(holes);
	shot_end(&s);
}

/* Of a file that comes in between nothing is known. */
static void test_files_come_and_go(void **state)
{
	struct rig *rig = *state;
	struct shot s = {.copy = NULL};
	char path[PATH_MAX];

	begin(&s, rig);
	make(rig, "0");
	assert_int_equal(unlink(rig_path(rig, "a", path)), 0);
	assert_int_equal(shot_take(&s, rig->dir), 0);
	shot_expect(&s, rig, "0");
	shot_expect(&s, rig, "b");
	shot_end(&s);
}

/* It was not in the last plan but in the one before: what that one was is forgotten. */
static void test_file_misses_a_plan(void **state)
{
	struct rig *rig = *state;
	struct shot s = {.copy = NULL};
	struct memory_items items = {.count = 0};
	char path[PATH_MAX], away[PATH_MAX];

	begin(&s, rig);
	snprintf(away, sizeof(away), "%s-away", rig->dir);
	assert_int_equal(rename(rig_path(rig, "a", path), away), 0);
	shot_scan(rig->dir, &items);
	assert_int_equal(live_copy_pass(s.copy, &items, &s.e), 0);
	memory_items_free(&items);
	assert_int_equal(rename(away, path), 0);
	set_changed(&s);
	finish(&s, rig);
}

/* A file with two names. */
static void test_two_names(void **state)
{
	struct rig *rig = *state;
	struct shot s = {.copy = NULL};
	char path[PATH_MAX], other[PATH_MAX];

	assert_int_equal(link(rig_path(rig, "a", path), rig_path(rig, "c", other)), 0);
	begin(&s, rig);
	store(rig, "a", 4, 99);
	assert_int_equal(shot_take(&s, rig->dir), 0);
	shot_expect(&s, rig, "a");
	shot_expect(&s, rig, "b");
	shot_expect(&s, rig, "c");
	shot_end(&s);
}

static int set_up(void **state)
{
	if (rig_set_up(state))
		return -1;
	make(*state, "a");
	make(*state, "b");
	return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_stores_to_data),    TEST(test_plan_is_taken_over),
		TEST(test_stores_to_holes),   TEST(test_stores_to_what_was_allocated),
		TEST(test_files_come_and_go), TEST(test_file_misses_a_plan),
		TEST(test_two_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
