// SPDX-License-Identifier: LGPL-2.1-or-later
/* Targets: the ways of writing pages, commit and rollback, and that nothing is left. */
#include "memory_rig.h"

#include <pthread.h>
#include <sys/resource.h>

#include "memory/target-priv.h"

static struct memory_item file_item(const char *name, uint64_t bytes)
{
	return (struct memory_item){
		.kind = MEMORY_FILE,
		.bytes = bytes,
		.page_bytes = RIG_PAGE,
		.mode = 0640,
		.uid = geteuid(),
		.gid = getegid(),
		.mtime_ns = 1000000000123456789,
		.name = (char *)(uintptr_t)name,
		.origin = (char *)(uintptr_t) "",
		.link = (char *)(uintptr_t) "",
	};
}

static int start(const struct rig *rig, const struct memory_items *items, bool force,
		 struct memory_target **ret)
{
	struct memory_target_opts opts = {.to = rig->dir, .force = force};

	return memory_target_new(items, &opts, ret, NULL);
}

/* Every third page stays a hole; written from the end, in pieces. */
static void write_pages(struct memory_target *t, uint64_t item, uint8_t *want, uint64_t pages)
{
	struct memory_target_file *file;
	uint8_t *page = aligned_alloc(RIG_PAGE, RIG_PAGE);

	assert_int_equal(memory_target_open(t, item, &file, NULL), 0);
	for (uint64_t i = pages; i-- > 0;) {
		if (i % 3 == 1)
			continue;
		pattern_fill(page, RIG_PAGE, PATTERN_NOISE, i);
		if (i == pages - 1)
			memset(page + 100, 0, RIG_PAGE - 100);
		memcpy(want + i * RIG_PAGE, page, RIG_PAGE);
		assert_int_equal(memory_target_write(file, i, 1, page, NULL), 0);
	}
	memory_target_close(t, file);
	free(page);
}

static void expect_content(const struct rig *rig, const char *name, const uint8_t *want,
			   uint64_t bytes)
{
	char path[PATH_MAX];
	CLEANUP_CLOSE int fd = open(rig_path(rig, name, path), O_RDONLY | O_CLOEXEC);
	uint8_t *got = malloc(bytes + 1);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, bytes);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_true(st.st_mtim.tv_sec == 1000000000 && st.st_mtim.tv_nsec == 123456789);
	assert_int_equal(read(fd, got, bytes + 1), bytes);
	assert_memory_equal(got, want, bytes);
	free(got);
}

/* All of it is data. */
static int next_data(void *ctx, struct memory_data *ret, struct err *e)
{
	uint64_t *pages = ctx;

	*ret = (struct memory_data){.item = 0, .first_page = 0, .pages = *pages, .data_pages = *pages};
	*pages = 0;
	return ret->pages > 0;
}

/* The way that `fill` names is taken when the file is opened; a way that is refused is left
 * alone. */
static void check_way(const struct rig *rig, enum fill fill)
{
	const uint64_t pages = 1500, bytes = (pages - 1) * RIG_PAGE + 100;
	uint64_t left = pages;
	struct memory_item list[] = {file_item("f", bytes)};
	struct memory_items items = {.list = list, .count = 1};
	uint8_t *want = calloc(pages, RIG_PAGE);
	struct memory_target_file *file;
	struct memory_target *t;

	assert_int_equal(start(rig, &items, true, &t), 0);
	if (fill == FILL_HUGE) {
		t->roots[0].fs.huge = true;
		t->opts.next_data = next_data;
		t->opts.data_ctx = &left;
		assert_int_equal(fill_plan(t, NULL), 0);
	}
	if (fill == FILL_WRITE)
		t->roots[0].fs.tmpfs = false;
	assert_int_equal(memory_target_open(t, 0, &file, NULL), 0);
	if (file->fill != fill) {
		print_message("way %d is not to be had here\n", fill);
		assert_int_equal(fill, FILL_UFFD); /* the others always are */
	}
	if (fill == FILL_HUGE)
		assert_non_null(memory_target_place(file, 4, 3));
	else
		assert_null(memory_target_place(file, 4, 3));
	memory_target_close(t, file);
	write_pages(t, 0, want, pages);
	assert_int_equal(memory_target_commit(t, NULL), 0);
	memory_target_free(t);
	expect_content(rig, "f", want, bytes);
	free(want);
}

static void test_ways_of_writing(void **state)
{
	check_way(*state, FILL_WRITE);
	check_way(*state, FILL_UFFD);
	check_way(*state, FILL_HUGE);
	assert_int_equal(rig_entries(((struct rig *)*state)->dir), 1);
}

static void test_free_without_commit(void **state)
{
	struct memory_item list[] = {file_item("f", 3 * RIG_PAGE), file_item("t", 0),
				     file_item("t/l", 0), file_item("t/f", MIB(2))};
	struct memory_items items = {.list = list, .count = 4};
	uint8_t *want = calloc(1, MIB(2));
	struct memory_target *t;

	list[1].kind = MEMORY_DIRECTORY;
	list[2].kind = MEMORY_SYMLINK;
	list[2].link = (char *)(uintptr_t) "x";
	for (int i = 0; i < 2; i++) {
		assert_int_equal(start(*state, &items, i, &t), 0);
		write_pages(t, 3, want, 512);
		memory_target_free(t);
		assert_int_equal(rig_entries(((struct rig *)*state)->dir), 0);
	}
	free(want);
}

static void test_existing_and_force(void **state)
{
	const struct rig *rig = *state;
	struct memory_item list[] = {file_item("f", RIG_PAGE), file_item("g", RIG_PAGE)};
	struct memory_items items = {.list = list, .count = 2};
	uint8_t want[RIG_PAGE] = {0}, zeros[RIG_PAGE] = {0};
	struct memory_target *t;
	char path[PATH_MAX];

	rig_make(rig, "f", "old", 3, 0);
	assert_int_equal(start(rig, &items, false, &t), -EEXIST);
	assert_int_equal(rig_entries(rig->dir), 1);
	assert_int_equal(start(rig, &items, true, &t), 0);
	write_pages(t, 0, want, 1);
	assert_int_equal(memory_target_commit(t, NULL), 0);
	memory_target_free(t);
	expect_content(rig, "f", want, RIG_PAGE);
	expect_content(rig, "g", zeros, RIG_PAGE);
	assert_int_equal(rig_entries(rig->dir), 2);
	/* What comes up only after the beginning is not replaced either, and everything is as
	 * it was. */
	unlink(rig_path(rig, "f", path));
	unlink(rig_path(rig, "g", path));
	assert_int_equal(start(rig, &items, false, &t), 0);
	rig_make(rig, "g", "new", 3, 0);
	assert_int_equal(memory_target_commit(t, NULL), -EEXIST);
	memory_target_free(t);
	assert_int_equal(rig_entries(rig->dir), 1);
	assert_int_equal(access(rig_path(rig, "f", path), F_OK), -1);
}

/* The first root was exchanged already when the second one fails: it is exchanged back. */
static void test_rollback_of_exchange(void **state)
{
	const struct rig *rig = *state;
	struct memory_item list[] = {file_item("f", RIG_PAGE), file_item("d", 0),
				     file_item("g", RIG_PAGE)};
	struct memory_items items = {.list = list, .count = 3};
	char path[PATH_MAX], text[4] = "";
	struct memory_target *t;
	int fd;

	list[1].kind = MEMORY_DIRECTORY;
	rig_make(rig, "f", "old", 3, 0);
	mkdir(rig_path(rig, "d", path), 0755);
	rig_make(rig, "d/inside", "old", 3, 0);
	assert_int_equal(start(rig, &items, true, &t), 0);
	snprintf(t->roots[2].name, sizeof(t->roots[2].name), "not/there");
	assert_int_equal(memory_target_commit(t, NULL), -ENOENT);
	memory_target_free(t);
	assert_int_equal(rig_entries(rig->dir), 2);
	assert_int_equal(access(rig_path(rig, "d/inside", path), F_OK), 0);
	fd = open(rig_path(rig, "f", path), O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, text, 3), 3);
	close(fd);
	assert_string_equal(text, "old");
}

/* More files than are kept open, opened again and again. */
static void test_many_files(void **state)
{
	const uint64_t n = 60;
	struct memory_item list[61] = {file_item("t", 0)};
	struct memory_items items = {.list = list, .count = n + 1};
	struct memory_target_file *file, *again;
	struct memory_target *t;
	uint8_t page[RIG_PAGE];
	char names[60][16];
	uint64_t seed = 1;

	list[0].kind = MEMORY_DIRECTORY;
	list[0].mode = 0700;
	for (uint64_t i = 1; i <= n; i++) {
		snprintf(names[i - 1], sizeof(names[i - 1]), "t/%02u", (unsigned int)i);
		list[i] = file_item(names[i - 1], 8 * RIG_PAGE);
	}
	assert_int_equal(start(*state, &items, false, &t), 0);
	for (uint64_t step = 0; step < 8 * n; step++) {
		uint64_t i = 1 + step * 7 % n;

		pattern_fill(page, RIG_PAGE, PATTERN_TEXT, i);
		assert_int_equal(memory_target_open(t, i, &file, NULL), 0);
		assert_int_equal(memory_target_open(t, i, &again, NULL), 0);
		assert_ptr_equal(file, again);
		assert_int_equal(memory_target_write(file, step / n, 1, page, NULL), 0);
		memory_target_close(t, again);
		memory_target_close(t, file);
		/* Held over others now and then. */
		if (pattern_random(&seed) % 4 == 0) {
			assert_int_equal(memory_target_open(t, 1 + step % n, &again, NULL), 0);
			memory_target_close(t, again);
		}
	}
	assert_true(rig_entries("/proc/self/fd") < ((struct rig *)*state)->fds + 30);
	assert_int_equal(memory_target_commit(t, NULL), 0);
	memory_target_free(t);
	for (uint64_t i = 1; i <= n; i++) {
		uint8_t want[8 * RIG_PAGE];

		for (uint64_t j = 0; j < 8; j++)
			pattern_fill(want + j * RIG_PAGE, RIG_PAGE, PATTERN_TEXT, i);
		expect_content(*state, names[i - 1], want, sizeof(want));
	}
}

/* Items of several roots, mixed, one of which is the beginning of another's name. */
static void test_mixed_roots(void **state)
{
	static const struct {
		const char *name;
		uint32_t root;
	} want[] = {{"b", 0},   {"a", 1},   {"ab", 2},  {"a/x", 1}, {"b/x", 0}, {"ab/x", 2},
		    {"a/y", 1}, {"ab/y", 2}, {"c", 3},  {"b/y", 0}, {"a/x/z", 1}};
	struct memory_item list[ARRAY_LEN(want)];
	struct memory_items items = {.list = list, .count = ARRAY_LEN(want)};
	struct memory_target *t;
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		list[i] = file_item(want[i].name, 0);
		if (want[i].root != 3 && !strchr(want[i].name, 'y') && !strchr(want[i].name, 'z'))
			list[i].kind = MEMORY_DIRECTORY;
		list[i].mode = 0700;
	}
	assert_int_equal(start(*state, &items, false, &t), 0);
	for (size_t i = 0; i < ARRAY_LEN(want); i++)
		assert_int_equal(t->root_of[i], want[i].root);
	assert_int_equal(memory_target_commit(t, NULL), 0);
	memory_target_free(t);
	for (size_t i = 0; i < ARRAY_LEN(want); i++)
		assert_int_equal(access(rig_path(*state, want[i].name, path), F_OK), 0);
	/* What lies nowhere. */
	list[0] = file_item("a/x", 0);
	list[1] = file_item("b", 0);
	items.count = 2;
	assert_int_equal(start(*state, &items, true, &t), -EINVAL);
	items.count = 1;
	assert_int_equal(start(*state, &items, true, &t), -EINVAL);
}

struct opener {
	struct memory_target *t;
	struct memory_target_file *file;
	_Atomic int rc;
};

static void *open_sixth(void *arg)
{
	struct opener *o = arg;

	o->rc = memory_target_open(o->t, 6, &o->file, NULL);
	return NULL;
}

/* Whoever needs one more waits until somebody is done; idle files are given up; alone it is an error. */
static void test_descriptors_run_out(void **state)
{
	struct memory_item list[] = {file_item("t", 0),     file_item("t/1", 10), file_item("t/2", 10),
				     file_item("t/3", 10), file_item("t/4", 10), file_item("t/5", 10),
				     file_item("t/6", 10)};
	struct memory_items items = {.list = list, .count = 7};
	struct memory_target_file *files[6];
	struct opener o = {.rc = 1};
	struct rlimit before, few;
	pthread_t thread;
	int fds[6];

	list[0].kind = MEMORY_DIRECTORY;
	list[0].mode = 0700;
	assert_int_equal(start(*state, &items, false, &o.t), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	/* Which numbers the next ones will have. */
	for (int i = 0; i < 6; i++)
		fds[i] = open("/", O_PATH | O_CLOEXEC);
	for (int i = 0; i < 6; i++)
		close(fds[i]);
	few = before;
	few.rlim_cur = (rlim_t)fds[0];
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(memory_target_open(o.t, 1, &files[1], NULL), -EMFILE);
	few.rlim_cur = (rlim_t)fds[5];
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (uint64_t i = 1; i <= 5; i++)
		assert_int_equal(memory_target_open(o.t, i, &files[i], NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, open_sixth, &o), 0);
	for (bool waits = false; !waits;) {
		wait_lock_acquire(&o.t->lock);
		waits = o.t->waiting;
		wait_lock_release(&o.t->lock);
		assert_int_equal(o.rc, 1);
	}
	memory_target_close(o.t, files[3]);
	pthread_join(thread, NULL);
	assert_int_equal(o.rc, 0);
	memory_target_close(o.t, o.file);
	assert_int_equal(memory_target_open(o.t, 3, &files[3], NULL), 0);
	for (uint64_t i = 1; i <= 5; i++)
		memory_target_close(o.t, files[i]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	memory_target_free(o.t);
}

static void test_no_room(void **state)
{
	struct memory_item list[] = {file_item("f", RIG_PAGE)};
	struct memory_items items = {.list = list, .count = 1};
	struct memory_target_opts opts = {.to = ((struct rig *)*state)->dir,
					  .data_bytes = UINT64_MAX / 2};
	struct err e = {.text = ""};
	struct memory_target *t;

	assert_int_equal(memory_target_new(&items, &opts, &t, &e), -ENOSPC);
	assert_non_null(strstr(e.text, "not enough room"));
	assert_int_equal(rig_entries(opts.to), 0);
	opts.to = "/nonexistent/folder";
	assert_int_equal(memory_target_new(&items, &opts, &t, &e), -ENOENT);
	opts.to = NULL; /* the item does not say where it came from */
	assert_int_equal(memory_target_new(&items, &opts, &t, &e), -EINVAL);
	memory_target_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_ways_of_writing),    RIG_TEST(test_free_without_commit),
		RIG_TEST(test_existing_and_force), RIG_TEST(test_rollback_of_exchange),
		RIG_TEST(test_many_files),         RIG_TEST(test_no_room),
		RIG_TEST(test_descriptors_run_out), RIG_TEST(test_mixed_roots),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
