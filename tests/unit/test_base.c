// SPDX-License-Identifier: LGPL-2.1-or-later
/* The lowest floor: messages, numbers, whole reads and writes, the lock, hidden names. */
#include <setjmp.h>
#include <stdarg.h>
#include <limits.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/num.h"
#include "base/thread.h"
#include "base/tmpname.h"
#include "base/wait.h"

#include <cmocka.h>

static void test_err_chain(void **unused)
{
	struct err e = {.text = ""};

	assert_int_equal(err_set(&e, -EBADMSG, "hash %d", 7), -EBADMSG);
	assert_int_equal(err_wrap(&e, -EBADMSG, "chunk %s", "%s%n"), -EBADMSG);
	assert_int_equal(err_wrap(&e, -EBADMSG, "cannot load"), -EBADMSG);
	assert_string_equal(e.text, "cannot load: chunk %s%n: hash 7");
	assert_int_equal(err_sys(&e, -ENOENT, "cannot open %s", "x"), -ENOENT);
	assert_string_equal(e.text, "cannot open x: No such file or directory");
	assert_int_equal(err_set(NULL, -EIO, "nobody"), -EIO);
	assert_int_equal(err_sys(NULL, -EIO, "nobody"), -EIO);
	assert_int_equal(err_wrap(NULL, -EIO, "nobody"), -EIO);
}

/* What is too long is cut, and the outermost sentence stays. */
static void test_err_long(void **unused)
{
	struct err e = {.text = ""};
	char big[2 * ERR_TEXT_BYTES];

	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	err_set(&e, -EIO, "%s", big);
	assert_int_equal(strlen(e.text), ERR_TEXT_BYTES - 1);
	err_sys(&e, -EIO, "%s", big);
	assert_int_equal(strlen(e.text), ERR_TEXT_BYTES - 1);
	for (int i = 0; i < 5; i++)
		err_wrap(&e, -EIO, "outer %d", i);
	assert_int_equal(strncmp(e.text, "outer 4: outer 3: ", 18), 0);
	assert_int_equal(strlen(e.text), ERR_TEXT_BYTES - 1);
}

static void test_numbers(void **unused)
{
	uint64_t sum = 0;
	uint8_t at[9] = {0};

	assert_false(num_add_overflows(UINT64_MAX - 1, 1, &sum));
	assert_true(sum == UINT64_MAX);
	assert_true(num_add_overflows(UINT64_MAX, 1, &sum));
	assert_false(num_mul_overflows((uint64_t)1 << 32, UINT32_MAX, &sum));
	assert_true(num_mul_overflows((uint64_t)1 << 32, (uint64_t)1 << 32, &sum));
	assert_true(num_is_pow2(1) && num_is_pow2((uint64_t)1 << 63));
	assert_false(num_is_pow2(0) || num_is_pow2(3) || num_is_pow2(UINT64_MAX));
	assert_int_equal(num_round_up(0, 8), 0);
	assert_int_equal(num_round_up(1, 8), 8);
	assert_int_equal(num_round_up(8, 8), 8);
	assert_int_equal(num_pages(0, 4096), 0);
	assert_int_equal(num_pages(1, 4096), 1);
	assert_int_equal(num_pages(4097, 4096), 2);
	assert_true(num_pages(UINT64_MAX, 4096) == (uint64_t)1 << 52);
	num_put64(at + 1, 0x0102030405060708);
	assert_memory_equal(at, "\0\x08\x07\x06\x05\x04\x03\x02\x01", 9);
	assert_true(num_get64(at + 1) == 0x0102030405060708);
	assert_int_equal(num_get32(at + 1), 0x05060708);
	assert_int_equal(num_get16(at + 1), 0x0708);
}

/* ---- whole reads and writes ---- */

static void test_io(void **unused)
{
	CLEANUP_CLOSE int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char buf[16] = "";
	size_t got = 99;

	assert_int_equal(io_pwrite(fd, "0123456789", 10, 5), 0);
	assert_int_equal(io_pread(fd, buf, 16, 5, &got), 0);
	assert_int_equal(got, 10);
	assert_memory_equal(buf, "0123456789", 10);
	assert_int_equal(io_pread(fd, buf, 16, 15, &got), 0);
	assert_int_equal(got, 0);
	assert_int_equal(io_pread(-1, buf, 1, 0, &got), -EBADF);
	assert_int_equal(io_pwrite(-1, buf, 1, 0), -EBADF);
}

/* ---- the lock ---- */

#define LOCK_THREADS 6
#define LOCK_ROUNDS 20000

static struct wait_lock lock;
static uint64_t guarded; /* plain: a thread sanitizer sees when the lock does not hold */
static _Atomic uint32_t gate;

static void *count_up(void *unused)
{
	while (!atomic_load(&gate))
		wait_while(&gate, 0);
	for (int i = 0; i < LOCK_ROUNDS; i++) {
		uint64_t was;

		wait_lock_acquire(&lock);
		was = guarded;
		/* Long enough now and then for others to fall asleep. */
		for (volatile int spin = i % 1000 ? 0 : 300000; spin > 0; spin--)
			;
		guarded = was + 1;
		wait_lock_release(&lock);
	}
	return NULL;
}

static void test_lock(void **unused)
{
	pthread_t threads[LOCK_THREADS];

	for (int i = 0; i < LOCK_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
	atomic_store(&gate, 1);
	wait_wake(&gate);
	for (int i = 0; i < LOCK_THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(guarded, LOCK_THREADS * LOCK_ROUNDS);
	assert_int_equal(atomic_load(&lock.state), 0);
}

/* ---- hidden names ---- */

static void test_tmpname(void **unused)
{
	char a[TMPNAME_BYTES], b[TMPNAME_BYTES], name[NAME_MAX + 1];

	tmpname_make("mem", TMPNAME_NEW, a);
	tmpname_make("mem", TMPNAME_NEW, b);
	assert_int_equal(strncmp(a, ".mem.torpor-", 12), 0);
	assert_string_not_equal(a, b);
	memset(name, 'n', NAME_MAX);
	name[NAME_MAX] = '\0';
	tmpname_make(name, TMPNAME_NEW, a);
	assert_true(strlen(a) <= NAME_MAX);
	assert_non_null(strstr(a, ".torpor-"));
}

/* ---- threads ---- */

static void *tell_mask(void *arg)
{
	pthread_sigmask(SIG_SETMASK, NULL, arg);
	return NULL;
}

static void test_threads_take_no_signals(void **unused)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	sigset_t before, blocked, mask;
	pthread_t thread;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGBUS);
	pthread_sigmask(SIG_BLOCK, &blocked, &before);
	assert_int_equal(thread_start(&thread, tell_mask, &mask), 0);
	pthread_join(thread, NULL);
	pthread_sigmask(SIG_SETMASK, &before, &blocked);
	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		assert_false(sigismember(&mask, own[i]));
	assert_true(sigismember(&mask, SIGINT) && sigismember(&mask, SIGALRM) && sigismember(&mask, SIGCHLD));
	/* The maker's is what it was. */
	assert_true(sigismember(&blocked, SIGBUS) && !sigismember(&blocked, SIGINT));
}

/* ---- times ---- */

static void test_times_beyond_64_bits(void **unused)
{
	static const struct {
		struct timespec ts;
		int64_t ns;
	} cases[] = {
		{{0, 0}, 0},
		{{1, 5}, 1000000005},
		{{-1, 999999999}, -1},
		{{9223372036, 854775806}, INT64_MAX - 1},
		{{9223372036, 854775807}, INT64_MAX},
		{{9223372036, 854775808}, INT64_MAX},
		{{9223372037, 0}, INT64_MAX},
		{{10413792000, 0}, INT64_MAX}, /* the year 2300 */
		{{INT64_MAX, 999999999}, INT64_MAX},
		{{-9223372036, 0}, -9223372036000000000},
		{{-9223372038, 0}, INT64_MIN},
		{{INT64_MIN, 0}, INT64_MIN},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_true(clock_timespec_ns(&cases[i].ts) == cases[i].ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_err_chain), cmocka_unit_test(test_err_long),
		cmocka_unit_test(test_numbers),   cmocka_unit_test(test_io),
		cmocka_unit_test(test_lock),      cmocka_unit_test(test_tmpname),
		cmocka_unit_test(test_times_beyond_64_bits),
		cmocka_unit_test(test_threads_take_no_signals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
