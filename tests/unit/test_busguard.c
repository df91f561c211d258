// SPDX-License-Identifier: LGPL-2.1-or-later
/* The guard against SIGBUS: what was cut off reads as zero pages and is listed; faults of
 * others are not ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/num.h"
#include "os/busguard.h"

#include <cmocka.h>

#define PAGE 4096u

struct file {
	int fd;
	uint8_t *at;
	size_t bytes;
};

/* A file without a name, each page full of its number from 1 on, mapped for reading at `at`
 * (NULL: anywhere). */
static struct file new_file(size_t pages, void *at)
{
	struct file f = {.fd = memfd_create("busguard", MFD_CLOEXEC), .bytes = pages * PAGE};
	uint8_t page[PAGE];
	size_t i;

	for (i = 0; i < pages; i++) {
		memset(page, (int)(i % 255 + 1), PAGE);
		assert_int_equal(pwrite(f.fd, page, PAGE, (off_t)(i * PAGE)), PAGE);
	}
	f.at = mmap(at, f.bytes, PROT_READ, MAP_SHARED | (at ? MAP_FIXED : 0), f.fd, 0);
	assert_true(f.at != MAP_FAILED);
	return f;
}

static void cut(const struct file *f, size_t bytes)
{
	assert_int_equal(ftruncate(f->fd, (off_t)bytes), 0);
}

static void end_file(struct file *f)
{
	munmap(f->at, f->bytes);
	close(f->fd);
}

static uint8_t load(const struct file *f, size_t page)
{
	return *(volatile uint8_t *)(f->at + page * PAGE);
}

static struct os_guarded guarded(const struct file *f)
{
	return (struct os_guarded){f->at, f->bytes, f->fd};
}

static void expect_range(const struct file *f, const struct os_bad_range *r, size_t page,
			 size_t pages)
{
	assert_int_equal((size_t)(r->at - f->at) / PAGE, page);
	assert_int_equal(r->bytes / PAGE, pages);
}

static void test_nothing_happens(void **state)
{
	struct file f = new_file(4, NULL);
	struct os_guarded g = guarded(&f);
	struct os_bad_range r[1];
	struct sigaction before, after;

	sigaction(SIGBUS, NULL, &before);
	assert_int_equal(os_busguard_hold(&g, 1, NULL), 0);
	assert_int_equal(load(&f, 3), 4);
	assert_int_equal(os_busguard_release(r, 1), 0);
	sigaction(SIGBUS, NULL, &after);
	assert_ptr_equal(before.sa_sigaction, after.sa_sigaction);
	end_file(&f);
}

/* One fault is enough to know all that lies behind the end. */
static void test_behind_the_end_is_one_range(void **state)
{
	static const size_t ends[] = {0,       1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 1000,
				      7 * PAGE};
	size_t i, page;

	for (i = 0; i < ARRAY_LEN(ends); i++) {
		struct file f = new_file(8, NULL);
		struct os_guarded g = guarded(&f);
		struct os_bad_range r[4];
		size_t whole = num_pages(ends[i], PAGE);

		assert_int_equal(os_busguard_hold(&g, 1, NULL), 0);
		cut(&f, ends[i]);
		errno = 4711;
		assert_int_equal(load(&f, 7), 0);
		assert_int_equal(errno, 4711);
		for (page = 0; page < 8; page++)
			assert_int_equal(load(&f, page), page < whole ? page + 1 : 0);
		assert_int_equal(os_busguard_release(r, 4), 1);
		expect_range(&f, r, whole, 8 - whole);
		end_file(&f);
	}
}

/* Without the file's end each page is found by its own fault; neighbours become one range. */
static void test_ranges_are_joined_and_in_order(void **state)
{
	static const size_t order[] = {9, 2, 12, 3, 1, 14, 13, 5};
	struct file f = new_file(16, NULL);
	struct os_guarded g = guarded(&f);
	struct os_bad_range r[8];
	size_t i, n;

	g.fd = -1;
	assert_int_equal(os_busguard_hold(&g, 1, NULL), 0);
	cut(&f, 0);
	for (i = 0; i < ARRAY_LEN(order); i++)
		assert_int_equal(load(&f, order[i]), 0);
	n = os_busguard_release(r, 8);
	assert_int_equal(n, 4);
	expect_range(&f, &r[0], 1, 3);
	expect_range(&f, &r[1], 5, 1);
	expect_range(&f, &r[2], 9, 1);
	expect_range(&f, &r[3], 12, 3);
	end_file(&f);
}

/* Two files that lie side by side in memory: what is bad of each is told apart. */
static void test_ranges_end_with_their_mapping(void **state)
{
	uint8_t *room = mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct file f[2] = {new_file(8, room), new_file(8, room + 8 * PAGE)};
	int first;

	for (first = 0; first < 2; first++) {
		struct os_guarded g[2] = {guarded(&f[0]), guarded(&f[1])};
		struct os_bad_range r[4];

		assert_int_equal(os_busguard_hold(g, 2, NULL), 0);
		cut(&f[0], 5 * PAGE);
		cut(&f[1], 0);
		assert_int_equal(load(&f[first], 7), 0);
		assert_int_equal(load(&f[!first], 7), 0);
		assert_int_equal(os_busguard_release(r, 4), 2);
		expect_range(&f[0], &r[0], 5, 3);
		expect_range(&f[1], &r[1], 0, 8);
		end_file(&f[0]);
		end_file(&f[1]);
		f[0] = new_file(8, room);
		f[1] = new_file(8, room + 8 * PAGE);
	}
	end_file(&f[0]);
	end_file(&f[1]);
}

/* What finds no room is counted. */
static void test_more_ranges_than_are_kept(void **state)
{
	size_t pages = 2 * OS_BUSGUARD_RANGES + 20, i;
	struct file f = new_file(pages, NULL);
	struct os_guarded g = guarded(&f);
	struct os_bad_range r[3];

	g.fd = -1;
	assert_int_equal(os_busguard_hold(&g, 1, NULL), 0);
	cut(&f, 0);
	for (i = 0; i < pages; i += 2)
		assert_int_equal(load(&f, i), 0);
	memset(r, 0xff, sizeof(r));
	assert_int_equal(os_busguard_release(r, 2), pages / 2);
	expect_range(&f, &r[0], 0, 1);
	expect_range(&f, &r[1], 2, 1);
	assert_ptr_equal(r[2].at, (void *)UINTPTR_MAX);
	end_file(&f);
}

static void test_one_at_a_time(void **state)
{
	struct os_bad_range r[1];
	struct err e = {.text = ""};

	assert_int_equal(os_busguard_hold(NULL, 0, NULL), 0);
	assert_int_equal(os_busguard_hold(NULL, 0, &e), -EBUSY);
	assert_non_null(strstr(e.text, "another copy"));
	assert_int_equal(os_busguard_release(r, 1), 0);
	assert_int_equal(os_busguard_hold(NULL, 0, NULL), 0);
	assert_int_equal(os_busguard_release(r, 1), 0);
}

/* ---- faults of others ---- */

static sigjmp_buf jump;
static volatile sig_atomic_t seen;

static void plain_handler(int sig)
{
	seen = 1;
	siglongjmp(jump, 1);
}

static void info_handler(int sig, siginfo_t *info, void *context)
{
	seen = info->si_code == BUS_ADRERR ? 2 : 3;
	siglongjmp(jump, 1);
}

static void test_handler_before_gets_faults_elsewhere(void **state)
{
	struct sigaction actions[2] = {{.sa_handler = plain_handler},
				       {.sa_sigaction = info_handler, .sa_flags = SA_SIGINFO}};
	struct sigaction before;
	struct file ours = new_file(2, NULL), other = new_file(2, NULL);
	struct os_guarded g = guarded(&ours);
	struct os_bad_range r[1];
	int i;

	cut(&other, 0);
	for (i = 0; i < 2; i++) {
		sigaction(SIGBUS, &actions[i], &before);
		seen = 0;
		assert_int_equal(os_busguard_hold(&g, 1, NULL), 0);
		if (!sigsetjmp(jump, 1))
			load(&other, 0);
		assert_int_equal(seen, i + 1);
		assert_int_equal(os_busguard_release(r, 1), 0);
		sigaction(SIGBUS, &before, NULL);
	}
	end_file(&ours);
	end_file(&other);
}

enum ending { FAULT, SENT };

/* How a child ends that holds the guard while that happens. */
static int child(void (*before)(int), enum ending ending)
{
	struct file other = new_file(2, NULL);
	const struct rlimit no_core = {0, 0};
	struct os_bad_range r[1];
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &no_core);
		signal(SIGBUS, before);
		if (os_busguard_hold(NULL, 0, NULL) || ftruncate(other.fd, 0))
			_exit(99);
		if (ending == FAULT)
			load(&other, 0);
		else
			kill(getpid(), SIGBUS);
		os_busguard_release(r, 1);
		_exit(7);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	end_file(&other);
	return status;
}

/* What would have happened without the guard. */
static void test_without_a_handler_before(void **state)
{
	assert_int_equal(WTERMSIG(child(SIG_DFL, FAULT)), SIGBUS);
	assert_int_equal(WTERMSIG(child(SIG_DFL, SENT)), SIGBUS);
	assert_int_equal(WTERMSIG(child(SIG_IGN, FAULT)), SIGBUS);
	assert_int_equal(WEXITSTATUS(child(SIG_IGN, SENT)), 7);
}

/* ---- many threads ---- */

#define THREADS 4
#define MANY 512u

struct reader {
	const struct file *f;
	_Atomic size_t *next;
	uint8_t *got; /* first byte of each page */
};

static void *read_all(void *arg)
{
	struct reader *r = arg;
	size_t page;

	while ((page = atomic_fetch_add(r->next, 1)) < MANY)
		r->got[page] = load(r->f, page);
	return NULL;
}

/* Cut off while all read: every page is what it was, or zero and listed. */
static void test_threads(void **state)
{
	static uint8_t got[MANY];
	int round, t;

	for (round = 0; round < 60; round++) {
		struct file f = new_file(MANY, NULL);
		struct os_guarded g = guarded(&f);
		_Atomic size_t next = 0;
		struct reader reader = {&f, &next, got};
		struct os_bad_range r[2];
		pthread_t threads[THREADS];
		size_t end = (size_t)(round * 8), n, i;

		g.fd = round % 2 ? f.fd : -1;
		assert_int_equal(os_busguard_hold(&g, 1, NULL), 0);
		for (t = 0; t < THREADS; t++)
			assert_int_equal(pthread_create(&threads[t], NULL, read_all, &reader),
					 0);
		cut(&f, end * PAGE);
		for (t = 0; t < THREADS; t++)
			pthread_join(threads[t], NULL);
		n = os_busguard_release(r, 2);
		assert_in_range(n, 0, OS_BUSGUARD_RANGES);
		for (i = 0; i < MANY; i++) {
			bool listed = n && f.at + i * PAGE >= r[0].at;

			assert_true(got[i] == i % 255 + 1 ||
				    (got[i] == 0 && i >= end && listed));
		}
		end_file(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_happens),
		cmocka_unit_test(test_behind_the_end_is_one_range),
		cmocka_unit_test(test_ranges_are_joined_and_in_order),
		cmocka_unit_test(test_ranges_end_with_their_mapping),
		cmocka_unit_test(test_more_ranges_than_are_kept),
		cmocka_unit_test(test_one_at_a_time),
		cmocka_unit_test(test_handler_before_gets_faults_elsewhere),
		cmocka_unit_test(test_without_a_handler_before),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
