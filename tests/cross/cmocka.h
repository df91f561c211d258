/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stands in for cmocka where there is none for the target: a cross root has a C library and no
 * more.  Just the part of the interface that the page tests use, in one header for one program;
 * a failed assertion ends its test and the others go on, as with the real one.  Tests that
 * need more belong into the native build.
 */
#ifndef TORPOR_TESTS_CROSS_CMOCKA_H
#define TORPOR_TESTS_CROSS_CMOCKA_H

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
	const char *name;
	void (*run)(void **state);
};

static jmp_buf cmocka_failed;

static inline _Noreturn void cmocka_fail_at(const char *file, int line)
{
	printf("\n%s:%d: error: Failure!\n", file, line);
	longjmp(cmocka_failed, 1);
}

static inline void cmocka_check(int holds, const char *what, const char *file, int line)
{
	if (holds)
		return;
	printf("does not hold: %s", what);
	cmocka_fail_at(file, line);
}

static inline void cmocka_check_int(uintmax_t a, uintmax_t b, const char *file, int line)
{
	if (a == b)
		return;
	printf("%#jx != %#jx", a, b);
	cmocka_fail_at(file, line);
}

static inline void cmocka_check_string(const char *a, const char *b, const char *file, int line)
{
	if (strcmp(a, b) == 0)
		return;
	printf("\"%s\" != \"%s\"", a, b);
	cmocka_fail_at(file, line);
}

#define assert_true(c) cmocka_check(!!(c), #c, __FILE__, __LINE__)
#define assert_non_null(p) cmocka_check((p) != NULL, #p " != NULL", __FILE__, __LINE__)
#define assert_null(p) cmocka_check((p) == NULL, #p " == NULL", __FILE__, __LINE__)
#define assert_int_equal(a, b) \
	cmocka_check_int((uintmax_t)(a), (uintmax_t)(b), __FILE__, __LINE__)
#define assert_string_equal(a, b) cmocka_check_string(a, b, __FILE__, __LINE__)
#define assert_memory_equal(a, b, bytes) \
	cmocka_check(memcmp(a, b, bytes) == 0, #a " is " #b, __FILE__, __LINE__)
#define fail_msg(...)                               \
	do {                                        \
		printf(__VA_ARGS__);                \
		cmocka_fail_at(__FILE__, __LINE__); \
	} while (0)

#define cmocka_unit_test(fn) \
	{                    \
#fn, fn      \
	}

static inline int cmocka_run_one(const struct CMUnitTest *test)
{
	void *state = NULL;

	printf("[ RUN      ] %s\n", test->name);
	/* A forked child must not write what is still buffered here a second time. */
	fflush(stdout);
	if (setjmp(cmocka_failed)) {
		printf("[  FAILED  ] %s\n", test->name);
		return 1;
	}
	test->run(&state);
	printf("[       OK ] %s\n", test->name);
	return 0;
}

/* Returns how many tests failed. */
static inline int cmocka_run_tests(const char *group, const struct CMUnitTest *tests, size_t n)
{
	int failed = 0;

	printf("[==========] %s: Running %zu test(s).\n", group, n);
	for (size_t i = 0; i < n; i++)
		failed += cmocka_run_one(&tests[i]);
	printf("[  PASSED  ] %zu test(s).\n", n - (size_t)failed);
	if (failed)
		printf("[  FAILED  ] %d test(s).\n", failed);
	return failed;
}

/* Set-up and tear-down of a group are not there: they must be NULL. */
#define cmocka_run_group_tests_name(group, tests, setup, teardown)           \
	((void)sizeof(char[(setup) == NULL && (teardown) == NULL ? 1 : -1]), \
	 cmocka_run_tests(group, tests, sizeof(tests) / sizeof((tests)[0])))

#endif
