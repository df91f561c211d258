// SPDX-License-Identifier: LGPL-2.1-or-later
/* Options and results of the public interface that are older or newer than the library, or cannot be. */
#include "api_rig.h"

struct bigger_opts {
	struct torpor_save_opts opts;
	uint64_t tail[4];
};

static void test_option_sizes(void **state)
{
	const struct place *p = *state;
	const char *sources[] = {p->source};
	struct bigger_opts o = {.opts = {.size = sizeof(o), .flags = TORPOR_FORCE}};
	struct torpor *t = context();

	assert_int_equal(torpor_save(t, sources, 1, p->image, &o.opts, NULL), 0);
	o.tail[3] = 1;
	assert_int_equal(torpor_save(t, sources, 1, p->image, &o.opts, NULL), -EINVAL);
	assert_non_null(strstr(torpor_error(t), "does not know"));
	/* From before there were codecs: what lies beyond is not looked at. */
	o.opts.size = offsetof(struct torpor_save_opts, codec);
	o.opts.codec = (const char *)(uintptr_t)8;
	assert_int_equal(torpor_save(t, sources, 1, p->image, &o.opts, NULL), 0);
	o.opts.codec = NULL;
	for (size_t size = 0; size < sizeof(size_t); size++) {
		o.opts.size = size;
		assert_int_equal(torpor_save(t, sources, 1, p->image, &o.opts, NULL), -EINVAL);
	}
	o.opts.size = SIZE_MAX;
	assert_int_equal(torpor_save(t, sources, 1, p->image, &o.opts, NULL), -EINVAL);
	assert_int_equal(torpor_save(t, sources, 1, p->image, NULL, NULL), -EEXIST);
	torpor_free(t);
}

static void test_result_sizes(void **state)
{
	const struct place *p = *state;
	struct {
		struct torpor_report report;
		uint64_t tail[2];
	} r = {.report = {.size = sizeof(r)}, .tail = {7, 7}};
	struct torpor *t = context();

	save(t, p);
	assert_int_equal(torpor_verify(t, p->image, NULL, &r.report), 0);
	assert_int_equal(r.report.size, sizeof(r));
	assert_int_equal(r.report.segments, 1);
	assert_int_equal(r.tail[0], 7);
	memset(&r, 0xff, sizeof(r));
	r.report.size = offsetof(struct torpor_report, chunks);
	assert_int_equal(torpor_verify(t, p->image, NULL, &r.report), 0);
	assert_int_equal(r.report.segments, 1);
	assert_int_equal(r.report.chunks, UINT64_MAX);
	torpor_free(t);
}

/* A result that cannot be is seen before there is anything to tell, and nothing was done. */
static void test_impossible_result_sizes(void **state)
{
	static const size_t sizes[] = {0, sizeof(size_t) - 1, SIZE_MAX};
	const struct place *p = *state;
	const char *sources[] = {p->source};
	struct torpor *t = context();
	struct torpor_image *image;

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct torpor_report report = {.size = sizes[i]};

		assert_int_equal(torpor_save(t, sources, 1, p->image, NULL, &report), -EINVAL);
		assert_non_null(strstr(torpor_error(t), "impossible size"));
		assert_int_equal(access(p->image, F_OK), -1);
	}
	save(t, p);
	unlink(p->source);
	assert_int_equal(torpor_image_open(t, p->image, 0, &image), 0);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct torpor_report report = {.size = sizes[i]};
		struct torpor_image_info info = {.size = sizes[i]};
		struct torpor_segment_info segment = {.size = sizes[i]};

		assert_int_equal(torpor_image_info(image, &info), -EINVAL);
		assert_non_null(strstr(torpor_error(t), "impossible size"));
		assert_int_equal(torpor_image_segment(image, 1000, &segment), -ENOENT);
		assert_int_equal(torpor_image_segment(image, 0, &segment), -EINVAL);
		assert_non_null(strstr(torpor_error(t), "impossible size"));
		assert_int_equal(torpor_load(t, p->image, NULL, &report), -EINVAL);
		assert_non_null(strstr(torpor_error(t), "impossible size"));
		assert_int_equal(access(p->source, F_OK), -1);
		assert_int_equal(torpor_verify(t, p->image, NULL, &report), -EINVAL);
	}
	torpor_image_close(image);
	torpor_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_option_sizes),
		TEST(test_result_sizes),
		TEST(test_impossible_result_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
