// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The public interface through the header: reports, cancelling from another
 * thread, warnings, reading at random against the source, and two contexts at once.
 */
#include <stdatomic.h>

#include "api_rig.h"
#include "base/err.h"

static void test_wrong_use(void **state)
{
	const struct place *p = *state;
	const char *sources[] = {p->source};
	struct torpor *t = context();
	struct torpor_load_opts l = TORPOR_OPTS(l);
	struct torpor_save_opts wrong[] = {
		{.flags = 1u << 30},        {.codec = "zip"},         {.chunk_bytes = 5000},
		{.chunk_bytes = 2048},      {.chunk_bytes = 2 << 20}, {.threads = 100000},
		{.flags = TORPOR_IMAGE_FD}, {.level = 1 << 30},
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		wrong[i].size = sizeof(wrong[i]);
		if (torpor_save(t, sources, 1, p->image, &wrong[i], NULL) != -EINVAL ||
		    !*torpor_error(t))
			fail_msg("options %zu: \"%s\"", i, torpor_error(t));
	}
	assert_int_equal(torpor_save(t, sources, 0, p->image, NULL, NULL), -EINVAL);
	assert_int_equal(torpor_save(t, sources, 1, NULL, NULL, NULL), -EINVAL);
	assert_int_equal(entries(p->dir), 2);
	l.guard = 3;
	save(t, p);
	assert_int_equal(torpor_verify(t, p->image, &l, NULL), -EINVAL);
	assert_int_equal(torpor_load(t, "/nonexistent", NULL, NULL), -ENOENT);
	assert_non_null(strstr(torpor_error(t), "cannot load /nonexistent"));
	assert_int_equal(torpor_verify(t, p->image, NULL, NULL), 0);
	assert_string_equal(torpor_error(t), "");
	torpor_free(t);
	torpor_free(NULL);
	torpor_image_close(NULL);
}

static void expect_progress(const struct torpor *t, uint64_t done, uint64_t total)
{
	struct torpor_progress progress = TORPOR_OPTS(progress);

	torpor_progress(t, &progress);
	assert_int_equal(progress.done_bytes, done);
	assert_int_equal(progress.total_bytes, total);
}

/* What was done in the end is what there was to do. */
static void test_progress(void **state)
{
	const struct place *p = *state;
	const uint64_t memory = num_round_up(FILE_BYTES, 4096);
	struct torpor_load_opts l = TORPOR_OPTS(l);
	struct torpor *t = context();
	char rebuilt[128];
	struct stat st;

	save(t, p);
	expect_progress(t, memory, memory);
	assert_int_equal(torpor_verify(t, p->image, NULL, NULL), 0);
	expect_progress(t, memory, memory);
	l.to = p->to;
	assert_int_equal(torpor_load(t, p->image, &l, NULL), 0);
	expect_progress(t, memory, memory);
	l.flags = TORPOR_IMAGE_FD;
	l.image_fd = open(p->image, O_RDONLY | O_CLOEXEC);
	assert_int_equal(torpor_verify(t, NULL, &l, NULL), 0);
	expect_progress(t, memory, 0);
	close(l.image_fd);
	snprintf(rebuilt, sizeof(rebuilt), "%s/rebuilt", p->dir);
	assert_int_equal(torpor_rebuild(t, p->image, rebuilt, 0, NULL), 0);
	assert_int_equal(stat(p->image, &st), 0);
	expect_progress(t, 2 * (uint64_t)st.st_size, 2 * (uint64_t)st.st_size);
	torpor_free(t);
}

static void test_report(void **state)
{
	const struct place *p = *state;
	const char *sources[] = {p->source};
	struct torpor_report r = TORPOR_OPTS(r);
	struct torpor_save_opts o = TORPOR_OPTS(o);
	struct torpor_progress progress = TORPOR_OPTS(progress);
	struct torpor *t = context();
	struct stat st;

	o.threads = 3;
	assert_int_equal(torpor_save(t, sources, 1, p->image, &o, &r), 0);
	assert_int_equal(stat(p->image, &st), 0);
	assert_int_equal(r.image_bytes, st.st_size);
	assert_int_equal(r.threads, 3);
	assert_string_equal(r.codec, "lz4");
	assert_int_equal(r.hole_bytes, MIB(1));
	assert_int_equal(r.zero_bytes, KIB(512));
	assert_int_equal(r.data_bytes, MIB(1) + KIB(512) + 4096);
	assert_int_equal(r.memory_bytes, MIB(3) + 4096);
	assert_true(r.stored_bytes < r.data_bytes && r.stored_bytes > KIB(512));
	assert_true(r.wall_ns > 0 && r.cpu_ns > 0);
	torpor_progress(t, &progress);
	assert_int_equal(progress.done_bytes, r.memory_bytes);
	assert_int_equal(progress.total_bytes, r.memory_bytes);
	torpor_free(t);
}

/* ---- reading ---- */

static void test_read(void **state)
{
	const struct place *p = *state;
	struct torpor_image *image;
	struct torpor *t = context();
	uint8_t *buf = malloc(FILE_BYTES);
	uint64_t seed = 5, number;

	save(t, p);
	assert_int_equal(torpor_image_open(t, p->image, 0, &image), 0);
	assert_int_equal(torpor_image_find(image, "mem", &number), 0);
	assert_int_equal(torpor_image_find(image, "me", &number), -ENOENT);
	assert_int_equal(torpor_image_find(image, "", &number), -ENOENT);
	assert_int_equal(torpor_image_read(image, 0, 0, buf, FILE_BYTES), 0);
	assert_memory_equal(buf, p->data, FILE_BYTES);
	for (int i = 0; i < 3000; i++) {
		uint64_t at = pattern_random(&seed) % FILE_BYTES;
		size_t n = pattern_random(&seed) %
			   num_min(i % 10 ? 9000 : FILE_BYTES, FILE_BYTES - at);

		memset(buf, 0x5a, n + 1);
		assert_int_equal(torpor_image_read(image, 0, at, buf, n), 0);
		assert_memory_equal(buf, p->data + at, n);
		assert_int_equal(buf[n], 0x5a);
	}
	assert_int_equal(torpor_image_read(image, 0, FILE_BYTES, buf, 0), 0);
	assert_int_equal(torpor_image_read(image, 0, FILE_BYTES, buf, 1), -ERANGE);
	assert_int_equal(torpor_image_read(image, 0, UINT64_MAX, buf, 1), -ERANGE);
	assert_int_equal(torpor_image_read(image, 0, 1, buf, SIZE_MAX), -ERANGE);
	assert_int_equal(torpor_image_read(image, 1, 0, buf, 1), -ENOENT);
	torpor_image_close(image);
	free(buf);
	torpor_free(t);
}

static void test_warnings(void **state)
{
	const struct place *p = *state;
	const char *sources[] = {p->to};
	struct torpor_save_opts o = TORPOR_OPTS(o);
	struct torpor *t = context();
	char path[160];
	int n = 0;

	for (int i = 0; i < 40; i++) {
		snprintf(path, sizeof(path), "%s/fifo%02d", p->to, i);
		assert_int_equal(mkfifo(path, 0600), 0);
	}
	assert_int_equal(torpor_save(t, sources, 1, p->image, &o, NULL), -ENOTSUP);
	assert_non_null(strstr(torpor_error(t), "fifo00"));
	o.flags = TORPOR_SKIP_SPECIAL;
	assert_int_equal(torpor_save(t, sources, 1, p->image, &o, NULL), 0);
	while (torpor_warning(t, (size_t)n))
		n++;
	assert_int_equal(n, 32);
	assert_non_null(strstr(torpor_warning(t, 0), "fifo00"));
	assert_null(strstr(torpor_warning(t, 31), "fifo"));
	assert_int_equal(torpor_verify(t, p->image, NULL, NULL), 0);
	assert_null(torpor_warning(t, 0));
	torpor_free(t);
}

/* ---- threads ---- */

struct canceller {
	struct torpor *t;
	uint64_t after_bytes;
	atomic_bool stop;
};

/* Cancels once the operation has done so much. */
static void *cancel_later(void *arg)
{
	struct canceller *c = arg;
	struct torpor_progress progress = TORPOR_OPTS(progress);

	do
		torpor_progress(c->t, &progress);
	while (progress.done_bytes < c->after_bytes && !atomic_load(&c->stop));
	torpor_cancel(c->t);
	return NULL;
}

static int save_cancelled(struct torpor *t, const struct place *p, uint64_t after)
{
	struct canceller c = {.t = t, .after_bytes = after};
	const char *sources[] = {p->source};
	pthread_t thread;
	int rc;

	assert_int_equal(pthread_create(&thread, NULL, cancel_later, &c), 0);
	rc = torpor_save(t, sources, 1, p->image, NULL, NULL);
	atomic_store(&c.stop, true);
	pthread_join(thread, NULL);
	return rc;
}

static int load_cancelled(struct torpor *t, const struct place *p, uint64_t after)
{
	struct canceller c = {.t = t, .after_bytes = after};
	struct torpor_load_opts o = TORPOR_OPTS(o);
	pthread_t thread;
	int rc;

	o.to = p->to;
	assert_int_equal(pthread_create(&thread, NULL, cancel_later, &c), 0);
	rc = torpor_load(t, p->image, &o, NULL);
	atomic_store(&c.stop, true);
	pthread_join(thread, NULL);
	return rc;
}

/* Either it came too late, or nothing is left; how often each was is not for a test to say. */
static void test_cancel_from_a_thread(void **state)
{
	const struct place *p = *state;

	for (uint64_t i = 0; i < 12; i++) {
		struct torpor *t = context();
		int rc = save_cancelled(t, p, i * KIB(200));

		assert_true(rc == 0 || rc == -ECANCELED);
		assert_int_equal(entries(p->dir), rc ? 2 : 3);
		unlink(p->image);
		torpor_free(t);
	}
	for (uint64_t i = 0; i < 12; i++) {
		struct torpor *t = context();
		char path[128];
		int rc;

		if (!i)
			save(t, p);
		rc = load_cancelled(t, p, i * KIB(200));
		assert_true(rc == 0 || rc == -ECANCELED);
		assert_int_equal(entries(p->to), rc ? 0 : 1);
		snprintf(path, sizeof(path), "%s/mem", p->to);
		unlink(path);
		torpor_free(t);
	}
}

static void test_cancel_before_is_used_up(void **state)
{
	const struct place *p = *state;
	const char *sources[] = {p->source};
	struct torpor_load_opts o = TORPOR_OPTS(o);
	struct torpor *t = context();

	torpor_cancel(t);
	assert_int_equal(torpor_save(t, sources, 1, p->image, NULL, NULL), -ECANCELED);
	assert_int_equal(entries(p->dir), 2);
	assert_int_equal(torpor_save(t, sources, 1, p->image, NULL, NULL), 0);
	o.to = p->to;
	torpor_cancel(t);
	assert_int_equal(torpor_load(t, p->image, &o, NULL), -ECANCELED);
	assert_int_equal(entries(p->to), 0);
	torpor_cancel(t);
	assert_int_equal(torpor_verify(t, p->image, NULL, NULL), -ECANCELED);
	assert_int_equal(torpor_verify(t, p->image, NULL, NULL), 0);
	torpor_free(t);
}

struct two {
	const struct place *p;
	unsigned int number;
	int rc;
	char says[ERR_TEXT_BYTES];
};

static void *one_of_two(void *arg)
{
	struct two *two = arg;
	const char *sources[] = {two->p->source};
	struct torpor *t = NULL;
	char image[128], to[128];

	two->rc = torpor_new(&t);
	for (unsigned int i = 0; i < 5 && !two->rc; i++) {
		struct torpor_load_opts o = TORPOR_OPTS(o);

		snprintf(image, sizeof(image), "%s/%u-%u.torpor", two->p->dir, two->number, i);
		snprintf(to, sizeof(to), "%s/%u-%u", two->p->to, two->number, i);
		o.to = to;
		mkdir(to, 0755);
		two->rc = torpor_save(t, sources, 1, image, NULL, NULL);
		if (!two->rc)
			two->rc = torpor_load(t, image, &o, NULL);
		if (!two->rc && torpor_load(t, image, &o, NULL) != -EEXIST)
			two->rc = -EINVAL;
	}
	if (two->rc)
		snprintf(two->says, sizeof(two->says), "%s", torpor_error(t));
	torpor_free(t);
	return NULL;
}

static void test_two_contexts(void **state)
{
	struct two twos[2] = {{.p = *state, .number = 0}, {.p = *state, .number = 1}};
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, one_of_two, &twos[i]), 0);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		if (twos[i].rc)
			fail_msg("%d: %s", twos[i].rc, twos[i].says);
	}
}

static void test_nothing_stays_open(void **state)
{
	const struct place *p = *state;
	struct torpor *t = context();
	int before = entries("/proc/self/fd");
	char rebuilt[PATH_MAX + 8];

	snprintf(rebuilt, sizeof(rebuilt), "%s.new", p->image);
	save(t, p);
	for (int i = 0; i < 3; i++) {
		struct torpor_load_opts o = TORPOR_OPTS(o);

		o.to = p->to;
		torpor_load(t, p->image, &o, NULL);
		torpor_verify(t, p->image, NULL, NULL);
		torpor_verify(t, p->source, NULL, NULL);
		assert_int_equal(torpor_rebuild(t, p->image, rebuilt, TORPOR_FORCE, NULL), 0);
		assert_int_equal(torpor_rebuild(t, p->image, p->image, TORPOR_FORCE, NULL), -EINVAL);
		assert_int_equal(torpor_rebuild(t, p->source, p->image, TORPOR_FORCE, NULL),
				 -EBADMSG);
	}
	assert_int_equal(entries("/proc/self/fd"), before);
	torpor_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_wrong_use),
		TEST(test_report),
		TEST(test_progress),
		TEST(test_read),
		TEST(test_warnings),
		TEST(test_cancel_from_a_thread),
		TEST(test_cancel_before_is_used_up),
		TEST(test_two_contexts),
		TEST(test_nothing_stays_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
