// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What a snapshot holds, through the public interface: the state at the call, of every kind of
 * memory, while writers go on.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "snapshot_rig.h"

/* ---- the state at the call ---- */

/* Takes it with the gate closed for that long alone. */
static void take_at_gate(struct program *prog, struct place *p, struct torpor_snapshot *s)
{
	pthread_rwlock_wrlock(&prog->gate);
	OK(p->t, torpor_snapshot_take(s));
	pthread_rwlock_unlock(&prog->gate);
}

static void check_content(struct place *p, enum kind kind, uint32_t way)
{
	struct program *prog = program_new(kind, MIB(12));
	struct settings set;
	int round;

	program_start(prog);
	for (round = 0; round < 2; round++) {
		struct torpor_snapshot *s = snapshot_of(p, &prog->m, settings(&set, way));
		struct torpor_report report;
		uint8_t *kept;

		program_await(prog, 500);
		pthread_rwlock_wrlock(&prog->gate);
		kept = keep(&prog->m);
		OK(p->t, torpor_snapshot_take(s));
		pthread_rwlock_unlock(&prog->gate);
		program_await(prog, round % 2 ? 3000 : 16);
		report = wait_for(p, s);
		assert_int_equal(report.copy_used, way);
		torpor_snapshot_free(s);
		check_image(p, "mem", kept, prog->m.bytes);
		munmap(kept, prog->m.bytes);
	}
	program_stop(prog);
	program_free(prog);
}

static void test_content_copied(void **state)
{
	for (enum kind kind = 0; kind < KINDS; kind++)
		check_content(*state, kind, TORPOR_COPY_RAM);
}

static void test_content_protected(void **state)
{
	if (why_not)
		skip();
	for (enum kind kind = 0; kind < KINDS; kind++)
		check_content(*state, kind, TORPOR_COPY_PROTECT);
}

static size_t torn_pairs(const uint8_t *at, size_t bytes)
{
	size_t half = bytes / 2, torn = 0;

	for (size_t i = 0; i < half; i += PAGE)
		torn += word_at(at + i) != word_at(at + half + i);
	return torn;
}

/* Nothing is kept here, so that writers are there again the moment after. */
static void test_invariants(void **state)
{
	struct place *p = *state;
	struct program *prog = program_new(ANON, MIB(8));
	struct settings set;
	size_t w;
	int round;

	program_start(prog);
	for (w = 0; w < ARRAY_LEN(ways); w++) {
		for (round = 0; round < 20 && can(ways[w]); round++) {
			struct torpor_snapshot *s =
				snapshot_of(p, &prog->m, settings(&set, ways[w]));
			uint8_t *at;

			take_at_gate(prog, p, s);
			wait_for(p, s);
			torpor_snapshot_free(s);
			at = read_back(p, "mem", prog->m.bytes);
			assert_int_equal(torn_pairs(at, prog->m.bytes), 0);
			munmap(at, prog->m.bytes);
		}
	}
	program_stop(prog);
	program_free(prog);
}

/* The writers do break the pairs: a save without the gate shows it, so the test above can fail.
 */
static void test_invariants_are_broken_between(void **state)
{
	struct program *prog = program_new(ANON, MIB(8));
	size_t torn = 0;

	program_start(prog);
	while (!torn) {
		uint8_t *kept = mmap(NULL, prog->m.bytes, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (size_t i = 0; i < prog->m.bytes; i += 8)
			put_word(kept + i, __atomic_load_n((uint64_t *)(void *)(prog->m.at + i),
							   __ATOMIC_RELAXED));
		torn = torn_pairs(kept, prog->m.bytes);
		munmap(kept, prog->m.bytes);
	}
	program_stop(prog);
	program_free(prog);
}

/* Stores of the kernel's on behalf of the program, all after the call, none of which is saved.
 */
static void test_read_into_it(void **state)
{
	struct place *p = *state;
	struct settings set;

	for (enum kind kind = 0; kind < KINDS && !why_not; kind++) {
		struct memory m = memory_map(kind, MIB(8));
		struct held h;
		uint8_t *kept;
		int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);

		memory_noise(&m);
		kept = keep(&m);
		h = hold(p, &m, settings(&set, TORPOR_COPY_PROTECT));
		OK(p->t, torpor_snapshot_take(h.snapshot));
		await_held(&h);
		assert_int_equal(read(zero, m.at + 100, m.bytes - 200), m.bytes - 200);
		release_held(p, &h);
		check_image(p, "mem", kept, m.bytes);
		assert_int_equal(word_at(m.at + MIB(3)), 0);
		close(zero);
		munmap(kept, m.bytes);
		memory_unmap(&m);
	}
	if (why_not)
		skip();
}

/* ---- regions ---- */

static void check_regions(struct place *p, uint32_t way)
{
	struct memory a = memory_map(ANON, MIB(4) + 3 * PAGE), b = memory_map(MEMFD, MIB(5));
	struct torpor_region regions[] = {
		{"last", b.at + MIB(1), MIB(4)}, /* a part, and not in the order of addresses */
		{"one page", a.at + PAGE, PAGE},
		{"first", b.at, PAGE},
		{"rest", a.at + 2 * PAGE, MIB(4) + PAGE},
	};
	struct torpor_segment_info info = TORPOR_OPTS(info);
	struct torpor_snapshot *s;
	struct torpor_image *image;
	struct torpor_report report;
	struct settings set;
	size_t i;

	memory_fill(&a, 5);
	memory_noise(&b);
	/* One region in two mappings. */
	assert_int_equal(madvise(a.at + MIB(1), MIB(1), MADV_DONTDUMP), 0);
	OK(p->t,
	   torpor_snapshot_new(p->t, regions, 4, p->image, &settings(&set, way)->opts, &s));
	assert_null(torpor_warning(p->t, 0));
	OK(p->t, torpor_snapshot_take(s));
	report = wait_for(p, s);
	torpor_snapshot_free(s);
	assert_int_equal(report.segments, 4);
	OK(p->t, torpor_image_open(p->t, p->image, 0, &image));
	for (i = 0; i < 4; i++) {
		OK(p->t, torpor_image_segment(image, i, &info));
		assert_string_equal(info.name, regions[i].name);
		assert_string_equal(info.origin, "");
		assert_int_equal(info.bytes, regions[i].bytes);
		assert_int_equal(info.mode, 0600);
		assert_int_equal(info.uid, geteuid());
		check_image(p, regions[i].name, regions[i].at, regions[i].bytes);
	}
	assert_int_equal(torpor_image_segment(image, 4, &info), -ENOENT);
	torpor_image_close(image);
	memory_unmap(&a);
	memory_unmap(&b);
}

static void test_regions(void **state)
{
	for (size_t w = 0; w < ARRAY_LEN(ways); w++)
		if (can(ways[w]))
			check_regions(*state, ways[w]);
}

/* Many small ones, of which every second is in the image: the others' content is not. */
static void test_many_regions(void **state)
{
	struct place *p = *state;
	struct memory m = memory_map(ANON, 2000 * PAGE);
	struct torpor_region *regions = calloc(1000, sizeof(*regions));
	char(*names)[16] = calloc(1000, sizeof(*names));
	struct settings set;
	size_t i, w;

	memory_noise(&m);
	for (i = 0; i < 1000; i++) {
		snprintf(names[i], sizeof(names[i]), "r%zu", i * 7 % 1000);
		regions[i] = (struct torpor_region){names[i], m.at + 2 * i * PAGE, PAGE};
	}
	for (w = 0; w < ARRAY_LEN(ways); w++) {
		struct torpor_snapshot *s;
		struct torpor_report report;

		if (!can(ways[w]))
			continue;
		OK(p->t, torpor_snapshot_new(p->t, regions, 1000, p->image,
					     &settings(&set, ways[w])->opts, &s));
		OK(p->t, torpor_snapshot_take(s));
		report = wait_for(p, s);
		torpor_snapshot_free(s);
		assert_int_equal(report.segments, 1000);
		assert_int_equal(report.data_bytes, 1000 * PAGE);
		for (i = 0; i < 1000; i += 111)
			check_image(p, names[i], regions[i].at, PAGE);
	}
	free(regions);
	free(names);
	memory_unmap(&m);
}

/* torpor_load() makes files of them. */
static void test_load(void **state)
{
	struct place *p = *state;
	struct memory m = memory_map(SHARED, MIB(3));
	struct torpor_load_opts to = TORPOR_OPTS(to);
	struct settings set;
	struct torpor_snapshot *s;
	char path[128];
	struct stat st;
	uint8_t *file;
	int fd;

	memory_fill(&m, 9);
	s = snapshot_of(p, &m, settings(&set, TORPOR_COPY_RAM));
	OK(p->t, torpor_snapshot_take(s));
	wait_for(p, s);
	torpor_snapshot_free(s);
	to.to = p->dir;
	OK(p->t, torpor_load(p->t, p->image, &to, NULL));
	snprintf(path, sizeof(path), "%s/mem", p->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, m.bytes);
	file = mmap(NULL, m.bytes, PROT_READ, MAP_SHARED, fd, 0);
	assert_memory_equal(file, m.at, m.bytes);
	munmap(file, m.bytes);
	close(fd);
	memory_unmap(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_content_copied), TEST(test_content_protected),
		TEST(test_invariants),     TEST(test_invariants_are_broken_between),
		TEST(test_read_into_it),   TEST(test_regions),
		TEST(test_many_regions),   TEST(test_load),
	};

	alarm(ALARM_S);
	look_for_protection();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
