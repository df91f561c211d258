// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Snapshots of memory that is not all there: of what does not exist nothing is made, neither in
 * the memory nor in the copy nor in the image.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "snapshot_rig.h"

/* What a region takes up, as the kernel counts it: of a file its pages, else those that are
 * mapped. */
static uint64_t resident(const struct memory *m)
{
	char line[256];
	unsigned long long start, end, kib, sum = 0;
	bool ours = false;
	FILE *f = fopen("/proc/self/smaps", "re");
	struct stat st;

	if (m->fd >= 0 && fstat(m->fd, &st) == 0) {
		fclose(f);
		return (uint64_t)st.st_blocks * 512;
	}
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx-%llx ", &start, &end) == 2 &&
		    strchr(line, '-') < line + 17)
			ours = start < (uintptr_t)m->at + m->bytes && (uintptr_t)m->at < end;
		else if (ours && sscanf(line, "Rss: %llu kB", &kib) == 1)
			sum += kib << 10;
	}
	fclose(f);
	return sum;
}

static const size_t touched[] = {0, 1, 511, 512, 4095, 10000, 16383};

static void check_sparse(struct place *p, enum kind kind, uint32_t way, uint32_t flags)
{
	struct memory m = memory_map(kind, 16384 * PAGE);
	struct torpor_snapshot *s;
	struct torpor_report report;
	struct settings set;
	uint64_t before, pages = ARRAY_LEN(touched);
	uint8_t *at;
	size_t i;

	for (i = 0; i < ARRAY_LEN(touched); i++)
		memset(m.at + touched[i] * PAGE, (int)i, PAGE);
	before = resident(&m);
	assert_int_equal(before, pages * PAGE);
	settings(&set, way)->opts.stop_flags = flags;
	s = snapshot_of(p, &m, &set);
	OK(p->t, torpor_snapshot_take(s));
	report = wait_for(p, s);
	assert_int_equal(resident(&m), before);
	torpor_snapshot_free(s);
	assert_int_equal(resident(&m), before);
	assert_int_equal(report.memory_bytes, m.bytes);
	assert_int_equal(report.data_bytes, (pages - 1) * PAGE);
	if (way == TORPOR_COPY_RAM) {
		assert_int_equal(report.zero_bytes, PAGE);
		assert_int_equal(report.hole_bytes, m.bytes - pages * PAGE);
		assert_int_equal(report.looked_bytes, pages * PAGE);
	}
	at = read_back(p, "mem", m.bytes);
	for (i = 0; i < ARRAY_LEN(touched); i++) {
		assert_memory_equal(at + touched[i] * PAGE, m.at + touched[i] * PAGE, PAGE);
		memset(at + touched[i] * PAGE, 0, PAGE);
	}
	for (i = 0; i < m.bytes; i += 8)
		assert_int_equal(word_at(at + i), 0);
	munmap(at, m.bytes);
	memory_unmap(&m);
}

static void test_sparse(void **state)
{
	check_sparse(*state, ANON, TORPOR_COPY_RAM, 0);
	check_sparse(*state, ANON, TORPOR_COPY_RAM, TORPOR_STOP_NO_ZERO_CHECK);
	if (!why_not)
		check_sparse(*state, ANON, TORPOR_COPY_PROTECT, 0);
}

/* Where it can be asked which pages a file has. */
static void test_sparse_shared(void **state)
{
	if (!can_ask_files())
		skip();
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		if (!can(ways[w]))
			continue;
		check_sparse(*state, SHARED, ways[w], 0);
		check_sparse(*state, MEMFD, ways[w], 0);
	}
}

/* Address space of more than the machine has memory: the copy takes what there is of it. */
static void test_reserved(void **state)
{
	struct place *p = *state;
	struct memory m = {.bytes = GIB(64), .fd = -1};
	const size_t places[] = {0, GIB(40) + 5 * PAGE, GIB(64) - PAGE};
	struct torpor_snapshot *s;
	struct torpor_report report;
	struct torpor_image *image;
	struct settings set;
	uint8_t page[4096];
	size_t i;

	m.at = mmap(NULL, m.bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m.at == MAP_FAILED)
		skip();
	for (i = 0; i < ARRAY_LEN(places) - 1; i++)
		memset(m.at + places[i], (int)i + 1, PAGE);
	s = snapshot_of(p, &m, settings(&set, TORPOR_COPY_RAM));
	/* One that was empty when the copy was prepared. */
	memset(m.at + places[i], (int)i + 1, PAGE);
	OK(p->t, torpor_snapshot_take(s));
	report = wait_for(p, s);
	torpor_snapshot_free(s);
	assert_int_equal(report.data_bytes, 3 * PAGE);
	assert_int_equal(report.hole_bytes, m.bytes - 3 * PAGE);
	OK(p->t, torpor_image_open(p->t, p->image, 0, &image));
	for (i = 0; i < ARRAY_LEN(places); i++) {
		OK(p->t, torpor_image_read(image, 0, places[i], page, PAGE));
		assert_memory_equal(page, m.at + places[i], PAGE);
	}
	torpor_image_close(image);
	memory_unmap(&m);
}

/* Between preparing and the call memory comes into being, and goes. */
static void test_changed_after_new(void **state)
{
	struct place *p = *state;
	struct settings set;

	for (enum kind kind = 0; kind < KINDS; kind++) {
		struct memory m = memory_map(kind, MIB(12));
		struct torpor_snapshot *s;
		uint8_t *kept;

		pattern_fill(m.at, MIB(4), PATTERN_NOISE, 1);
		s = snapshot_of(p, &m, settings(&set, TORPOR_COPY_RAM));
		assert_int_equal(
			madvise(m.at, MIB(3),
				kind == ANON || kind == THP ? MADV_DONTNEED : MADV_REMOVE),
			0);
		pattern_fill(m.at + MIB(7), MIB(2) + 5, PATTERN_NOISE, 2);
		kept = keep(&m);
		OK(p->t, torpor_snapshot_take(s));
		wait_for(p, s);
		torpor_snapshot_free(s);
		assert_int_equal(word_at(kept + MIB(1)), 0);
		check_image(p, "mem", kept, m.bytes);
		munmap(kept, m.bytes);
		memory_unmap(&m);
	}
}

/* A file that ends within its mapping: behind it is nothing, and no signal. */
static void test_beyond_the_file(void **state)
{
	struct place *p = *state;
	struct memory m = memory_map(MEMFD, MIB(4));
	struct torpor_report report;
	struct torpor_snapshot *s;
	struct settings set;
	uint8_t *at;

	if (!can_ask_files())
		skip();
	memory_noise(&m);
	assert_int_equal(ftruncate(m.fd, (off_t)MIB(1) + 100), 0);
	s = snapshot_of(p, &m, settings(&set, TORPOR_COPY_RAM));
	OK(p->t, torpor_snapshot_take(s));
	report = wait_for(p, s);
	torpor_snapshot_free(s);
	assert_int_equal(report.data_bytes, MIB(1) + PAGE);
	assert_int_equal(report.hole_bytes, MIB(3) - PAGE);
	at = read_back(p, "mem", m.bytes);
	assert_memory_equal(at, m.at, MIB(1) + PAGE);
	munmap(at, m.bytes);
	memory_unmap(&m);
}

/* The image is the same whether zero pages are looked for early or late. */
static void test_zero_check(void **state)
{
	struct place *p = *state;
	struct memory m = memory_map(ANON, MIB(16));
	struct torpor_report reports[2];
	struct settings set;
	uint8_t *at[2];

	memory_fill(&m, 11);
	for (uint32_t i = 0; i < 2; i++) {
		struct torpor_snapshot *s;

		settings(&set, TORPOR_COPY_RAM)->opts.stop_flags =
			i ? TORPOR_STOP_NO_ZERO_CHECK : 0;
		s = snapshot_of(p, &m, &set);
		OK(p->t, torpor_snapshot_take(s));
		reports[i] = wait_for(p, s);
		torpor_snapshot_free(s);
		at[i] = read_back(p, "mem", m.bytes);
	}
	/* Only now, since looking at holes fills them. */
	for (size_t i = 0; i < 2; i++) {
		assert_memory_equal(at[i], m.at, m.bytes);
		munmap(at[i], m.bytes);
	}
	assert_true(reports[0].zero_bytes > 0 && reports[0].hole_bytes > 0);
	assert_int_equal(reports[0].data_bytes, reports[1].data_bytes);
	assert_int_equal(reports[0].zero_bytes, reports[1].zero_bytes);
	assert_int_equal(reports[0].hole_bytes, reports[1].hole_bytes);
	assert_int_equal(reports[0].stored_bytes, reports[1].stored_bytes);
	assert_int_equal(reports[0].copied_bytes, reports[0].data_bytes);
	assert_int_equal(reports[1].copied_bytes,
			 reports[1].data_bytes + reports[1].zero_bytes);
	memory_unmap(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_sparse),          TEST(test_sparse_shared),
		TEST(test_reserved),        TEST(test_changed_after_new),
		TEST(test_beyond_the_file), TEST(test_zero_check),
	};

	alarm(ALARM_S);
	look_for_protection();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
