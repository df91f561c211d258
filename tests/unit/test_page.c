/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Page kernels: every path this CPU can run against the generic one, and all of them against
 * what the test knows about the page it made.  The resolver keeps its choice for the life of a
 * process, so whatever depends on that choice (TORPOR_CPU, the span functions) runs in forked
 * children; the parent never asks for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#include <cmocka.h>

#include "../guard.h"
#include "../pattern.h"
#include "base/num.h"
#include "page/page.h"

#define ALIGNMENTS 64
#define MARGIN_BYTES 128
#define PAGE_MAX_BYTES KIB(64)
#define ROOM_BYTES (MARGIN_BYTES + ALIGNMENTS + PAGE_MAX_BYTES + MARGIN_BYTES)
#define CANARY 0xa5
#define BESIDE 0xff /* around a source: who reads too far takes zero for not zero */

static _Alignas(4096) uint8_t src_room[ROOM_BYTES];
static _Alignas(4096) uint8_t dst_room[ROOM_BYTES];
static _Alignas(4096) uint8_t expected_room[ROOM_BYTES];

static const size_t page_sizes[] = {512, 1024, KIB(4), KIB(16), KIB(16) + 512, KIB(64)};

/* Where a page lies in a room; offset 0 is a whole number of cache lines. */
static uint8_t *place(uint8_t *room, size_t off)
{
	return room + MARGIN_BYTES + off;
}

enum kernel { COPY, COPY_STREAM, COPY_UNLESS_ZERO, KERNELS };

static bool run_kernel(const struct page_ops *ops, enum kernel kernel, void *dst,
		       const void *src, size_t bytes)
{
	switch (kernel) {
	case COPY:
		ops->copy(dst, src, bytes);
		return false;
	case COPY_STREAM:
		ops->copy_stream(dst, src, bytes);
		return false;
	default:
		return ops->copy_unless_zero(dst, src, bytes);
	}
}

/* Runs all of a path on one page; compares results, the target and what surrounds it. */
static void check_page(const struct page_ops *ops, size_t src_off, size_t dst_off, size_t bytes,
		       bool zero)
{
	const size_t room_bytes = MARGIN_BYTES + ALIGNMENTS + bytes + MARGIN_BYTES;
	const uint8_t *src = place(src_room, src_off);

	if (ops->is_zero(src, bytes) != zero)
		fail_msg("%s: is_zero is wrong: %zu bytes at +%zu", ops->name, bytes, src_off);
	for (enum kernel kernel = 0; kernel < KERNELS; kernel++) {
		const bool skips = kernel == COPY_UNLESS_ZERO && zero;

		memset(dst_room, CANARY, room_bytes);
		memset(expected_room, CANARY, room_bytes);
		if (!skips)
			memcpy(place(expected_room, dst_off), src, bytes);
		if (run_kernel(ops, kernel, place(dst_room, dst_off), src, bytes) != skips)
			fail_msg("%s: kernel %d: wrong result: %zu bytes at +%zu", ops->name,
				 (int)kernel, bytes, src_off);
		if (memcmp(dst_room, expected_room, room_bytes) != 0)
			fail_msg("%s: kernel %d: wrong target: %zu bytes, +%zu to +%zu",
				 ops->name, (int)kernel, bytes, src_off, dst_off);
	}
}

static void check_page_all_paths(size_t src_off, size_t dst_off, size_t bytes, bool zero)
{
	for (const struct page_ops *const *ops = page_ops_all(); *ops; ops++)
		check_page(*ops, src_off, dst_off, bytes, zero);
}

static void make_zero_page(size_t off, size_t bytes)
{
	memset(src_room, BESIDE, sizeof(src_room));
	memset(place(src_room, off), 0, bytes);
}

/* ---- the paths ---- */

/* Asks the kernel, not the compiler's library, which is what the resolver asks. */
static bool cpu_has_avx2(void)
{
#if defined(__x86_64__)
	FILE *file = fopen("/proc/cpuinfo", "r");
	char *line = NULL;
	size_t room = 0;
	bool has = false;

	assert_non_null(file);
	while (!has && getline(&line, &room, file) > 0)
		has = strncmp(line, "flags", 5) == 0 && strstr(line, " avx2 ");
	free(line);
	fclose(file);
	return has;
#else
	return false;
#endif
}

static bool cpu_has_neon(void)
{
#if defined(__aarch64__)
	return true;
#else
	return false;
#endif
}

static void test_list_has_what_the_cpu_has(void **state)
{
	const struct page_ops *const *ops = page_ops_all();

	assert_string_equal((*ops++)->name, "generic");
	if (cpu_has_avx2()) {
		assert_non_null(*ops);
		assert_string_equal((*ops++)->name, "avx2");
	}
	if (cpu_has_neon()) {
		assert_non_null(*ops);
		assert_string_equal((*ops++)->name, "neon");
	}
	assert_null(*ops);
}

static void test_noise_at_all_alignments(void **state)
{
	pattern_fill_noise(src_room, sizeof(src_room), 1);
	for (size_t src_off = 0; src_off < ALIGNMENTS; src_off++)
		for (size_t dst_off = 0; dst_off < ALIGNMENTS; dst_off++)
			check_page_all_paths(src_off, dst_off, KIB(4), false);
}

static void test_noise_of_all_sizes(void **state)
{
	pattern_fill_noise(src_room, sizeof(src_room), 2);
	for (size_t i = 0; i < ARRAY_LEN(page_sizes); i++)
		for (size_t off = 0; off < ALIGNMENTS; off += 7) {
			check_page_all_paths(off, 0, page_sizes[i], false);
			check_page_all_paths(0, off, page_sizes[i], false);
		}
}

static void test_zero_pages_leave_the_target_alone(void **state)
{
	for (size_t off = 0; off < ALIGNMENTS; off++)
		for (size_t i = 0; i < ARRAY_LEN(page_sizes); i++) {
			make_zero_page(off, page_sizes[i]);
			check_page_all_paths(off, 0, page_sizes[i], true);
			check_page_all_paths(off, 33, page_sizes[i], true);
		}
}

/* One bit set at byte `at` of a page that is otherwise zero. */
static void check_bit(size_t at, size_t bytes)
{
	static const size_t offs[][2] = {{0, 0}, {13, 0}, {0, 32}, {0, 33}};

	for (size_t i = 0; i < ARRAY_LEN(offs); i++) {
		uint8_t *byte = place(src_room, offs[i][0]) + at;

		make_zero_page(offs[i][0], bytes);
		*byte = (uint8_t)(1u << at % 8);
		check_page_all_paths(offs[i][0], offs[i][1], bytes, false);
	}
}

static void test_bit_at_each_byte(void **state)
{
	for (size_t at = 0; at < KIB(4); at++)
		check_bit(at, KIB(4));
}

static void test_bit_in_larger_pages(void **state)
{
	static const size_t sizes[] = {KIB(16), KIB(64)};

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		for (size_t at = 0; at < sizes[i]; at += 509)
			check_bit(at, sizes[i]);
		for (size_t back = 1; back <= 65; back++)
			check_bit(sizes[i] - back, sizes[i]);
	}
}

/* Zero up to some point, noise after it: what is not looked at again must still be copied. */
static void test_noise_behind_zeros(void **state)
{
	for (size_t zeros = 0; zeros < KIB(4); zeros += 31) {
		make_zero_page(0, KIB(4));
		pattern_fill_noise(place(src_room, zeros), KIB(4) - zeros, zeros + 1);
		place(src_room, zeros)[0] |= 1;
		check_page_all_paths(0, 0, KIB(4), false);
		check_page_all_paths(0, 1, KIB(4), false);
	}
}

/* Neither side may be touched beyond the page: there is no memory there. */
static void test_pages_at_the_edge_of_memory(void **state)
{
	struct guard from = guard_new(PAGE_MAX_BYTES);
	struct guard to = guard_new(PAGE_MAX_BYTES);

	for (const struct page_ops *const *ops = page_ops_all(); *ops; ops++)
		for (size_t i = 0; i < 4 * ARRAY_LEN(page_sizes); i++) {
			const size_t bytes = page_sizes[i / 4];
			uint8_t *src = i & 1 ? guard_at_start(&from, bytes)
					     : guard_at_end(&from, bytes);
			uint8_t *dst =
				i & 1 ? guard_at_start(&to, bytes) : guard_at_end(&to, bytes);
			const bool zero = i & 2;

			memset(src, 0, bytes);
			if (!zero)
				src[i & 1 ? 0 : bytes - 1] = 1;
			assert_int_equal((*ops)->is_zero(src, bytes), zero);
			for (enum kernel kernel = 0; kernel < KERNELS; kernel++) {
				memset(dst, 0, bytes);
				run_kernel(*ops, kernel, dst, src, bytes);
				assert_memory_equal(dst, src, bytes);
				assert_true(guard_intact(&to));
			}
		}
	guard_free(&from);
	guard_free(&to);
}

/* ---- what depends on the path in use: children ---- */

struct child {
	int status;
	char said[512];
};

/* What a child does; what it returns is what it says ("" when all is well). */
typedef const char *(*child_fn)(void);

/* Runs `fn` in a child under TORPOR_CPU=value (NULL: unset). */
static struct child run_child(const char *value, child_fn fn)
{
	struct child child = {0};
	size_t used = 0;
	ssize_t n;
	int ends[2];
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		const char *said;

		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGABRT, SIG_DFL);
		if (value)
			setenv("TORPOR_CPU", value, 1);
		else
			unsetenv("TORPOR_CPU");
		dup2(ends[1], STDERR_FILENO);
		said = fn();
		_exit(write(ends[1], said, strlen(said)) < 0);
	}
	close(ends[1]);
	while ((n = read(ends[0], child.said + used, sizeof(child.said) - 1 - used)) > 0)
		used += (size_t)n;
	close(ends[0]);
	assert_int_equal(waitpid(pid, &child.status, 0), pid);
	return child;
}

static void check_child_says(const char *value, child_fn fn, const char *expected)
{
	const struct child child = run_child(value, fn);

	assert_string_equal(child.said, expected);
	assert_int_equal(child.status, 0);
}

static const char *name_path(void)
{
	return page_ops()->name;
}

static const char *find_none(void)
{
	uint64_t zero;

	page_span_find_zero(src_room, 1, KIB(4), &zero);
	return "went on";
}

static void test_environment_forces_a_path(void **state)
{
	for (const struct page_ops *const *ops = page_ops_all(); *ops; ops++)
		check_child_says((*ops)->name, name_path, (*ops)->name);
}

static void test_best_path_without_environment(void **state)
{
	const struct page_ops *const *best = page_ops_all();

	while (best[1])
		best++;
	check_child_says(NULL, name_path, (*best)->name);
	check_child_says("", name_path, (*best)->name);
}

/* The child must end by SIGABRT, having named the variable, its value and the reason. */
static void check_child_aborts(const char *value, child_fn fn, const char *reason)
{
	const struct child child = run_child(value, fn);
	char quoted[64];

	snprintf(quoted, sizeof(quoted), "\"%s\"", value);
	assert_true(WIFSIGNALED(child.status));
	assert_int_equal(WTERMSIG(child.status), SIGABRT);
	assert_non_null(strstr(child.said, "TORPOR_CPU"));
	assert_non_null(strstr(child.said, quoted));
	assert_non_null(strstr(child.said, reason));
}

static void test_unknown_path_aborts(void **state)
{
	static const char *const names[] = {"sse9", "avx",          "avx22",
					    "AVX2", "generic,avx2", " "};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		check_child_aborts(names[i], name_path, "not a path");
	check_child_aborts("sse9", find_none, "not a path");
}

static void test_path_of_another_cpu_aborts(void **state)
{
	if (!cpu_has_neon())
		check_child_aborts("neon", name_path, "cannot run");
	if (!cpu_has_avx2())
		check_child_aborts("avx2", name_path, "cannot run");
}

static void *resolve_in_thread(void *ret)
{
	*(const struct page_ops **)ret = page_ops();
	return NULL;
}

static const char *resolve_in_threads(void)
{
	const struct page_ops *seen[8] = {NULL};
	pthread_t threads[8];

	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		if (pthread_create(&threads[i], NULL, resolve_in_thread, &seen[i]))
			return "no thread";
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		if (!seen[i] || seen[i] != page_ops())
			return "threads differ";
	return "";
}

static void test_threads_agree(void **state)
{
	check_child_says(NULL, resolve_in_threads, "");
}

/* ---- spans ---- */

#define SPAN_PAGES 1000

/* Pages of zeros and of a single bit; returns the zero ones, as bitmap and number. */
static size_t make_span(uint8_t *src, size_t pages, size_t page_bytes, uint64_t *ret_zero)
{
	uint64_t seed = pages + page_bytes;
	size_t zeros = 0;

	memset(src, 0, pages * page_bytes);
	memset(ret_zero, 0, page_bitmap_words(pages) * sizeof(*ret_zero));
	for (size_t i = 0; i < pages; i++) {
		if (pattern_random(&seed) >> 32 & 1) {
			ret_zero[i / 64] |= UINT64_C(1) << i % 64;
			zeros++;
		} else {
			src[i * page_bytes + pattern_random(&seed) % page_bytes] = 0x80;
		}
	}
	return zeros;
}

static const char *check_bitmap(const uint64_t *got, const uint64_t *expected, size_t pages)
{
	if (memcmp(got, expected, page_bitmap_words(pages) * sizeof(*got)) != 0)
		return "wrong bitmap";
	return got[page_bitmap_words(pages)] == UINT64_MAX ? "" : "written past the bitmap";
}

static const char *check_span(uint8_t *dst, uint8_t *src, size_t pages, size_t page_bytes)
{
	uint64_t expected[SPAN_PAGES / 64 + 2], got[SPAN_PAGES / 64 + 2];
	const size_t zeros = make_span(src, pages, page_bytes, expected);
	const char *said;

	memset(got, 0xff, sizeof(got));
	if (page_span_find_zero(src, pages, page_bytes, got) != zeros)
		return "page_span_find_zero: wrong number";
	said = check_bitmap(got, expected, pages);
	if (*said)
		return said;
	memset(got, 0xff, sizeof(got));
	memset(dst, CANARY, (pages + 1) * page_bytes);
	if (page_span_copy_find_zero(dst, src, pages, page_bytes, got) != zeros)
		return "page_span_copy_find_zero: wrong number";
	said = check_bitmap(got, expected, pages);
	if (*said)
		return said;
	/* A page that was skipped still has the canary; so has the one behind the span. */
	for (size_t i = 0; i <= pages; i++) {
		if (i == pages || page_bitmap_test(expected, i))
			memset(src + i * page_bytes, CANARY, page_bytes);
		if (memcmp(dst + i * page_bytes, src + i * page_bytes, page_bytes) != 0)
			return "wrong target";
	}
	return "";
}

static const char *check_spans(void)
{
	static const size_t counts[] = {0, 1, 2, 63, 64, 65, 127, 128, 129, SPAN_PAGES};
	static const size_t sizes[] = {512, KIB(4), KIB(16)};
	const size_t room = (SPAN_PAGES + 1) * KIB(16) + ALIGNMENTS;
	uint8_t *src = malloc(room), *dst = malloc(room);
	const char *said = src && dst ? "" : "no memory";

	for (size_t i = 0; !*said && i < ARRAY_LEN(counts) * ARRAY_LEN(sizes); i++)
		for (size_t off = 0; !*said && off < ALIGNMENTS; off += 16)
			said = check_span(dst + off, src, counts[i / ARRAY_LEN(sizes)],
					  sizes[i % ARRAY_LEN(sizes)]);
	free(src);
	free(dst);
	return said;
}

static void test_spans_on_every_path(void **state)
{
	for (const struct page_ops *const *ops = page_ops_all(); *ops; ops++)
		check_child_says((*ops)->name, check_spans, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_list_has_what_the_cpu_has),
		cmocka_unit_test(test_noise_at_all_alignments),
		cmocka_unit_test(test_noise_of_all_sizes),
		cmocka_unit_test(test_zero_pages_leave_the_target_alone),
		cmocka_unit_test(test_bit_at_each_byte),
		cmocka_unit_test(test_bit_in_larger_pages),
		cmocka_unit_test(test_noise_behind_zeros),
		cmocka_unit_test(test_pages_at_the_edge_of_memory),
		cmocka_unit_test(test_environment_forces_a_path),
		cmocka_unit_test(test_best_path_without_environment),
		cmocka_unit_test(test_unknown_path_aborts),
		cmocka_unit_test(test_path_of_another_cpu_aborts),
		cmocka_unit_test(test_threads_agree),
		cmocka_unit_test(test_spans_on_every_path),
	};

	return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}
