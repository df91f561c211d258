// SPDX-License-Identifier: LGPL-2.1-or-later
/* Streams: what goes in comes out, in few and large steps, whatever is at the other end; and a cancel ends the wait for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "../pattern.h"
#include "base/num.h"
#include "store/store.h"

#include <cmocka.h>

#define BYTES MIB(24)
#define PIECE KIB(640)

enum kind { PIPE, SOCKET, TERMINAL };

/* Writes to ends[1] are read from ends[0]. */
static bool open_ends(enum kind kind, int ends[2])
{
	struct termios raw;

	if (kind == PIPE)
		return pipe2(ends, O_CLOEXEC) == 0;
	if (kind == SOCKET)
		return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
	ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (ends[0] < 0 || grantpt(ends[0]) || unlockpt(ends[0]))
		return false;
	ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (ends[1] < 0)
		return false;
	assert_int_equal(tcgetattr(ends[1], &raw), 0);
	cfmakeraw(&raw);
	return tcsetattr(ends[1], TCSANOW, &raw) == 0;
}

struct reader {
	int fd;
	uint8_t *got;
	size_t bytes;
};

static void *read_all(void *arg)
{
	struct reader *r = arg;
	size_t at = 0;
	ssize_t n;

	while (at < r->bytes && (n = read(r->fd, r->got + at, r->bytes - at)) > 0)
		at += (size_t)n;
	r->bytes = at;
	return NULL;
}

/* Calls of write(2) and the like by this process; 0 where that is not told. */
static unsigned long long calls_that_write(void)
{
	FILE *f = fopen("/proc/self/io", "re");
	unsigned long long n = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "syscw: %llu", &n) == 1)
			break;
	}
	if (f)
		fclose(f);
	return n;
}

static void pass_through(enum kind kind, size_t bytes)
{
	uint8_t *want = malloc(bytes);
	struct reader reader = {.got = calloc(1, bytes), .bytes = bytes};
	unsigned long long calls = calls_that_write();
	struct store *store;
	uint64_t offset;
	pthread_t thread;
	int ends[2], flags[2];

	if (!open_ends(kind, ends)) {
		print_message("kind %d is not to be had here\n", kind);
		goto out;
	}
	pattern_fill(want, bytes, PATTERN_NOISE, 1);
	flags[0] = fcntl(ends[0], F_GETFL);
	flags[1] = fcntl(ends[1], F_GETFL);
	reader.fd = ends[0];
	assert_int_equal(store_create_stream(ends[1], NULL, &store, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, read_all, &reader), 0);
	for (size_t at = 0, n; at < bytes; at += n) {
		n = num_min(PIECE, bytes - at);
		assert_int_equal(store_append(store, want + at, n, &offset, NULL), 0);
		assert_int_equal(offset, at);
	}
	assert_int_equal(store_flush(store, NULL), 0);
	pthread_join(thread, NULL);
	/* Whoever else has them sees no change. */
	assert_int_equal(fcntl(ends[0], F_GETFL), flags[0]);
	assert_int_equal(fcntl(ends[1], F_GETFL), flags[1]);
	store_free(store);
	assert_int_equal(reader.bytes, bytes);
	assert_memory_equal(reader.got, want, bytes);
	calls = calls_that_write() - calls;
	print_message("kind %d: %llu calls for %zu KiB\n", kind, calls, bytes / KIB(1));
	if (kind != TERMINAL)
		assert_true(calls <= bytes / KIB(32));
	close(ends[0]);
	close(ends[1]);
out:
	free(reader.got);
	free(want);
}

static void test_what_goes_in_comes_out(void **unused)
{
	pass_through(PIPE, BYTES);
	pass_through(SOCKET, BYTES);
	pass_through(TERMINAL, KIB(256));
}

struct waiter {
	struct store *store;
	const void *data;
	int rc;
};

static void *append_much(void *arg)
{
	struct waiter *w = arg;
	uint64_t offset;

	w->rc = store_append(w->store, w->data, BYTES, &offset, NULL);
	return NULL;
}

/* Without a signal: another thread says so. */
static void test_a_cancel_ends_the_wait_for_a_reader(void **unused)
{
	void *data = calloc(1, BYTES);

	for (enum kind kind = PIPE; kind < TERMINAL; kind++) {
		struct waiter w = {.data = data};
		atomic_bool cancel = false;
		struct pollfd full;
		pthread_t thread;
		int ends[2];

		if (!open_ends(kind, ends))
			continue;
		full = (struct pollfd){.fd = ends[1], .events = POLLOUT};
		assert_int_equal(store_create_stream(ends[1], &cancel, &w.store, NULL), 0);
		assert_int_equal(pthread_create(&thread, NULL, append_much, &w), 0);
		while (poll(&full, 1, 0) == 1)
			sched_yield();
		atomic_store(&cancel, true);
		pthread_join(thread, NULL);
		assert_int_equal(w.rc, -ECANCELED);
		store_free(w.store);
		close(ends[0]);
		close(ends[1]);
	}
	free(data);
}

static void test_an_end_for_reading_is_not_written(void **unused)
{
	struct store *store;
	int ends[2];

	assert_true(open_ends(PIPE, ends));
	assert_int_equal(store_create_stream(ends[0], NULL, &store, NULL), -EBADF);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(store_create_stream(-1, NULL, &store, NULL), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_goes_in_comes_out),
		cmocka_unit_test(test_a_cancel_ends_the_wait_for_a_reader),
		cmocka_unit_test(test_an_end_for_reading_is_not_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
