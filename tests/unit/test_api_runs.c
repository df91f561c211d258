// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor_image_read() of chunks with many runs: what it reads, in any order, and that reading on does not begin at the first run again. */
#include "image_rig.h"

#include <errno.h>
#include <sys/mman.h>
#include <torpor.h>
#include <unistd.h>

#include "base/clock.h"

#define RUNS 60000u /* of a page: a map of one chunk has no room for more */

struct opened {
	struct torpor *ctx;
	struct torpor_image *image;
	int fd;
};

static struct opened open_image(const struct rig_segment *segs, uint32_t chunk_bytes)
{
	struct rig_model model = {.segs = segs, .n = 1, .chunk_bytes = chunk_bytes, .codec = "none"};
	struct memory_image m = MEMORY_IMAGE_NEW;
	struct opened o = {.fd = memfd_create("image", 0)};
	char path[64];

	assert_int_equal(rig_write(&m, &model, NULL), 0);
	assert_int_equal(pwrite(o.fd, m.data, m.used, 0), m.used);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", o.fd);
	assert_int_equal(torpor_new(&o.ctx), 0);
	assert_int_equal(torpor_image_open(o.ctx, path, 0, &o.image), 0);
	free(m.data);
	return o;
}

static void close_image(struct opened *o)
{
	torpor_image_close(o->image);
	torpor_free(o->ctx);
	close(o->fd);
}

static void test_reading_on_is_linear(void **unused)
{
	char *map = calloc(RUNS, 4);
	struct rig_segment segs[] = {{.name = "s", .map = map}};
	uint8_t *buf = malloc(MIB(1));
	uint64_t at, n, start;
	struct opened o;

	for (unsigned int i = 0; i < RUNS; i++)
		memcpy(map + (size_t)i * 3, i % 2 ? "h1 " : "z1 ", 3);
	o = open_image(segs, 4096);
	start = clock_cpu_ns();
	for (at = 0; at < (uint64_t)RUNS * RIG_PAGE; at += n) {
		n = num_min(MIB(1), (uint64_t)RUNS * RIG_PAGE - at);
		assert_int_equal(torpor_image_read(o.image, 0, at, buf, n), 0);
	}
	print_message("%u runs in %llu ms\n", RUNS, (unsigned long long)((clock_cpu_ns() - start) / 1000000));
	/* A few times 10 ms; beginning anew for each run took seconds. */
	assert_true(clock_cpu_ns() - start < 1500000000);
	close_image(&o);
	free(map);
	free(buf);
}

/* The page as the map has it. */
static void expect_page(const struct rig_segment *s, uint64_t page, uint8_t *want)
{
	struct image_segment seg = rig_describe(s);
	enum image_run_kind kind = IMAGE_RUN_KINDS;
	const char *map = s->map;
	uint64_t pages, at = 0;

	while (rig_next_run(&map, &kind, &pages) && page >= at + pages)
		at += pages;
	if (kind == IMAGE_RUN_DATA)
		rig_page(&seg, 0, page, want);
	else
		memset(want, 0, RIG_PAGE);
}

static void test_any_order(void **unused)
{
	struct rig_segment segs[] = {{.name = "s", .map = "d1 z1 d2 h3 d1 u1 d3 z2 d1 h1 d5 z1 d1 h9 d2"}};
	uint64_t pages = rig_describe(&segs[0]).bytes / RIG_PAGE, seed = 5;
	uint8_t want[2 * RIG_PAGE], got[2 * RIG_PAGE];
	struct opened o = open_image(segs, 32768);

	for (unsigned int i = 0; i < 5000; i++) {
		uint64_t page = pattern_random(&seed) % (pages - 1), within = pattern_random(&seed) % RIG_PAGE;
		uint64_t bytes = 1 + pattern_random(&seed) % RIG_PAGE;

		expect_page(&segs[0], page, want);
		expect_page(&segs[0], page + 1, want + RIG_PAGE);
		assert_int_equal(torpor_image_read(o.image, 0, page * RIG_PAGE + within, got, bytes), 0);
		assert_memory_equal(got, want + within, bytes);
	}
	close_image(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reading_on_is_linear),
		cmocka_unit_test(test_any_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
