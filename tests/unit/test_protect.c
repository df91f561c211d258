// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Snapshots by write protection: what is read is the state at live_protect_now(), whatever the
 * program does meanwhile, and nobody stays stuck in a fault.
 *
 * ThreadSanitizer needs no help here: the library reads the regions by system calls that it
 * does not look into, since it could not know that protection orders these reads and the
 * stores; the test's own reads are ordered by the gate.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "protect_rig.h"

static void test_writers(enum rig_kind kind)
{
	struct rig *r = rig_new(kind, MIB(64), true);
	struct err e;
	int round;

	rig_start(r);
	for (round = 0; round < 4; round++) {
		struct live_protect *p = protect_rig(r);

		rig_await(r, 1000);
		assert_int_equal(live_protect_faults(p), 0);
		assert_int_equal(rig_protect(r, p, &e), 0);
		/* Every second time they have stored to most blocks before the first is read.
		 */
		rig_await(r, round % 2 ? 20000 : 64);
		assert_true(live_protect_faults(p) > 0);
		check_all(p, 0, r, (uint64_t)round + 3);
		live_protect_free(p);
	}
	rig_free(r);
}

static void test_writers_anon(void **state)
{
	test_writers(RIG_ANON);
}

static void test_writers_huge(void **state)
{
	test_writers(RIG_HUGE);
}

static void test_writers_shared(void **state)
{
	test_writers(RIG_SHARED);
}

static void test_writers_memfd(void **state)
{
	test_writers(RIG_MEMFD);
}

/*
 * Pages that come into being after the snapshot began were zero in it.  Nothing may read them
 * before, since that puts zero pages there; with `look` it does so, which are huge ones in huge
 * memory.
 */
static void test_holes(enum rig_kind kind, bool look)
{
	struct rig *r = rig_new(kind, MIB(32), false);
	struct live_protect *p;
	size_t i;

	for (i = MIB(20); i < r->bytes; i += 50 * PAGE)
		rig_fill(r->at + i, PAGE, i);
	for (i = MIB(20); i < r->bytes; i += 50 * PAGE)
		memcpy(r->copy + i, r->at + i, PAGE);
	for (i = 0; i < r->bytes && look; i += PAGE)
		*(volatile uint8_t *)(r->at + i);
	p = protect_rig(r);
	assert_int_equal(live_protect_now(p, NULL), 0);
	rig_start(r);
	rig_await(r, 5000);
	assert_true(live_protect_faults(p) > 0);
	check_all(p, 0, r, 11);
	live_protect_free(p);
	rig_free(r);
}

static void test_writers_holes(void **state)
{
	enum rig_kind kind;

	for (kind = RIG_ANON; kind <= RIG_MEMFD; kind++) {
		test_holes(kind, false);
		test_holes(kind, true);
	}
}

struct reader {
	struct live_protect *p;
	struct rig *r;
	_Atomic uint64_t *next;
	bool good;
};

static void *reader_main(void *arg)
{
	struct reader *me = arg;
	struct rig *r = me->r;
	uint64_t at, step = 37;

	me->good = true;
	while ((at = atomic_fetch_add(me->next, step)) < r->bytes / PAGE) {
		uint64_t n = r->bytes / PAGE - at < step ? r->bytes / PAGE - at : step;

		if (live_protect_read(me->p, 0, at, n, r->buf + at * PAGE, NULL) < 0 ||
		    memcmp(r->buf + at * PAGE, r->copy + at * PAGE, n * PAGE) != 0)
			me->good = false;
	}
	return NULL;
}

/* Readers side by side, whose ranges share blocks. */
static void test_readers(void **state)
{
	struct rig *r = rig_new(RIG_HUGE, MIB(64), true);
	struct live_protect *p = protect_rig(r);
	_Atomic uint64_t next = 0;
	struct reader readers[3];
	pthread_t threads[3];
	struct err e;
	size_t i;

	rig_start(r);
	assert_int_equal(rig_protect(r, p, &e), 0);
	for (i = 0; i < 3; i++) {
		readers[i] = (struct reader){.p = p, .r = r, .next = &next};
		assert_int_equal(pthread_create(&threads[i], NULL, reader_main, &readers[i]),
				 0);
	}
	for (i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		assert_true(readers[i].good);
	}
	live_protect_free(p);
	rig_free(r);
}

struct counters {
	struct rig *r;
	atomic_bool stop;
	pthread_mutex_t gate;
};

#define PAIRS 512

/* A pair of counters lies in two pages far from each other; between two pairs they are equal.
 */
static uint64_t *counter_at(uint8_t *at, size_t bytes, uint64_t pair, bool second)
{
	uint64_t pages = bytes / PAGE,
		 page = pair * (pages / 2 / PAIRS) + (second ? pages / 2 : 0);

	return (uint64_t *)(void *)(at + page * PAGE + 8 * (pair % 512));
}

static void *count(void *arg)
{
	struct counters *c = arg;
	uint64_t seed = 77;

	while (!atomic_load(&c->stop)) {
		uint64_t pair = rig_random(&seed) % PAIRS;

		pthread_mutex_lock(&c->gate);
		++*counter_at(c->r->at, c->r->bytes, pair, false);
		++*counter_at(c->r->at, c->r->bytes, pair, true);
		pthread_mutex_unlock(&c->gate);
	}
	return NULL;
}

static void test_counters(void **state)
{
	struct rig *r = rig_new(RIG_HUGE, MIB(32), true);
	struct counters c = {.r = r, .gate = PTHREAD_MUTEX_INITIALIZER};
	uint64_t seen = 0, sum, i;
	pthread_t thread;
	int round;

	memset(r->at, 0, r->bytes);
	assert_int_equal(pthread_create(&thread, NULL, count, &c), 0);
	for (round = 0; round < 40; round++) {
		struct live_protect *p = protect_rig(r);

		pthread_mutex_lock(&c.gate);
		assert_int_equal(live_protect_now(p, NULL), 0);
		pthread_mutex_unlock(&c.gate);
		assert_int_equal(live_protect_read(p, 0, 0, r->bytes / PAGE, r->buf, NULL), 0);
		live_protect_free(p);
		for (i = 0, sum = 0; i < PAIRS; i++) {
			uint64_t one = *counter_at(r->buf, r->bytes, i, false);

			assert_int_equal(one, *counter_at(r->buf, r->bytes, i, true));
			sum += one;
		}
		assert_true(sum >= seen);
		seen = sum;
	}
	atomic_store(&c.stop, true);
	pthread_join(thread, NULL);
	assert_true(seen > 0);
	rig_free(r);
}

/* Reading a hole of shared memory does not allocate it, and neither does a store nearby. */
static void test_holes_stay(void **state)
{
	struct rig *r = rig_new(RIG_MEMFD, MIB(64), false);
	struct live_protect *p;
	struct stat st;

	rig_fill(r->at + MIB(3), MIB(1), 5);
	memcpy(r->copy + MIB(3), r->at + MIB(3), MIB(1));
	p = protect_rig(r);
	assert_int_equal(live_protect_now(p, NULL), 0);
	r->at[MIB(32)] = 1;
	r->at[MIB(3)] ^= 1;
	assert_int_equal(live_protect_faults(p), 32);
	check_all(p, 0, r, 9);
	assert_int_equal(fstat(r->fd, &st), 0);
	/* As root the file itself can be read; else its holes are touched through the mapping.
	 */
	if (geteuid() == 0)
		assert_int_equal(st.st_blocks * 512, MIB(1) + PAGE);
	live_protect_free(p);
	rig_free(r);
}

/* Stores of the kernel's own: read(2) into pages, from a pipe and across several blocks. */
static void test_kernel_stores(void **state)
{
	struct rig *r = rig_new(RIG_HUGE, MIB(8), true);
	struct live_protect *p = protect_rig(r);
	uint8_t *data = malloc(MIB(1));
	int fds[2], fd = memfd_create("torpor-test", MFD_CLOEXEC);

	rig_fill(data, MIB(1), 99);
	assert_int_equal(write(fd, data, MIB(1)), MIB(1));
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], "xyzzy", 5), 5);
	assert_int_equal(rig_protect(r, p, NULL), 0);
	assert_int_equal(pread(fd, r->at + 12345, MIB(1) - 7, 7), MIB(1) - 7);
	assert_int_equal(read(fds[0], r->at + MIB(5), 5), 5);
	assert_memory_equal(r->at + 12345, data + 7, MIB(1) - 7);
	assert_memory_equal(r->at + MIB(5), "xyzzy", 5);
	assert_int_equal(live_protect_faults(p), 18 * 16);
	check_all(p, 0, r, 1);
	/* What was read is let go of, also where nobody stored. */
	assert_int_equal(rig_protected(r), 0);
	live_protect_free(p);
	close(fd);
	close(fds[0]);
	close(fds[1]);
	free(data);
	rig_free(r);
}

/* A child of the middle of a snapshot stores to all of its memory and is not stopped, nor is it
 * seen. */
static void test_fork(void **state)
{
	struct rig *r = rig_new(RIG_HUGE, MIB(16), true);
	struct live_protect *p = protect_rig(r);
	uint64_t before;
	int status;
	pid_t pid;
	size_t i;

	assert_int_equal(rig_protect(r, p, NULL), 0);
	for (i = 0; i < MIB(1); i += PAGE)
		r->at[i]++;
	before = live_protect_faults(p);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(ALARM_S);
		for (i = 0; i < r->bytes; i += PAGE)
			r->at[i] ^= 0xff;
		/* It has none of the snapshot, and must not end its parent's. */
		live_protect_free(p);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(live_protect_faults(p), before);
	for (i = MIB(4); i < MIB(12); i += PAGE)
		r->at[i]++;
	assert_int_equal(live_protect_faults(p), before + MIB(8) / PAGE);
	check_all(p, 0, r, 2);
	live_protect_free(p);
	for (i = 0; i < r->bytes; i += PAGE)
		r->at[i]++;
	rig_free(r);
}

/* Whoever waits goes on when the snapshot is given up, at whatever moment; a child holds the
 * descriptor open. */
static void test_free_in_the_middle(void **state)
{
	struct rig *r = rig_new(RIG_HUGE, MIB(16), true);
	int round;

	rig_start(r);
	for (round = 0; round < 60; round++) {
		struct live_protect *p = protect_rig(r);
		pid_t pid = -1;

		if (round % 8 == 0)
			pid = rig_bystander();
		if (round % 3)
			assert_int_equal(rig_protect(r, p, NULL), 0);
		if (round % 3 == 2)
			assert_int_equal(live_protect_read(p, 0, 5, 999, r->buf, NULL), 0);
		if (round % 5)
			rig_await(r, (uint64_t)round);
		live_protect_free(p);
		assert_int_equal(rig_protected(r), 0);
		rig_await(r, 1000);
		if (pid > 0) {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
		}
	}
	rig_free(r);
}

/* Regions of all shapes: in no order, one page, two in one block, across huge pages; ranges
 * within blocks. */
static void test_shapes(void **state)
{
	struct rig *r = rig_new(RIG_HUGE, MIB(8), true);
	/* In pages: [5, 6), [1000, 1700), [16, 19), [19, 31), [300, 316) */
	static const uint64_t starts[] = {1000, 5, 19, 16, 300}, pages[] = {700, 1, 12, 3, 16};
	struct live_region regions[5];
	struct live_protect *p;
	uint64_t i;

	for (i = 0; i < 5; i++)
		regions[i] = (struct live_region){.at = r->at + starts[i] * PAGE,
						  .bytes = pages[i] * PAGE};
	p = protect_new(regions, 5);
	assert_int_equal(rig_protect(r, p, NULL), 0);
	/* Outside of all of them. */
	r->at[4 * PAGE]++;
	r->at[6 * PAGE]++;
	r->at[31 * PAGE]++;
	assert_int_equal(live_protect_faults(p), 0);
	/* Part of a block is read, then it changes, then the rest is read. */
	check_pages(p, 0, 1, 3, r->buf, r->copy + 1001 * PAGE);
	check_pages(p, 2, 0, 1, r->buf, r->copy + 19 * PAGE);
	for (i = 0; i < r->bytes; i += 512)
		r->at[i] ^= 0x55;
	check_pages(p, 0, 0, 1, r->buf, r->copy + 1000 * PAGE);
	check_pages(p, 0, 4, 696, r->buf, r->copy + 1004 * PAGE);
	check_pages(p, 1, 0, 1, r->buf, r->copy + 5 * PAGE);
	check_pages(p, 2, 1, 11, r->buf, r->copy + 20 * PAGE);
	check_pages(p, 3, 2, 1, r->buf, r->copy + 18 * PAGE);
	check_pages(p, 3, 0, 2, r->buf, r->copy + 16 * PAGE);
	check_pages(p, 4, 15, 1, r->buf, r->copy + 315 * PAGE);
	check_pages(p, 4, 0, 15, r->buf, r->copy + 300 * PAGE);
	live_protect_free(p);
	rig_free(r);
}

/* Mappings of different kinds and permissions in one region. */
static void test_many_mappings(void **state)
{
	struct rig *r = rig_new(RIG_ANON, MIB(4), true);
	struct live_protect *p;
	struct err e;
	int fd;

	fd = memfd_create("torpor-test", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, (off_t)MIB(1)), 0);
	assert_ptr_equal(mmap(r->at + MIB(1) + PAGE, MIB(1), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_FIXED, fd, 0),
			 r->at + MIB(1) + PAGE);
	rig_fill(r->at + MIB(1) + PAGE, MIB(1), 3);
	assert_int_equal(mprotect(r->at + 9 * PAGE, PAGE, PROT_READ), 0);
	p = protect_rig(r);
	/* The program changes permissions meanwhile: that is no change of the memory. */
	assert_int_equal(mprotect(r->at + MIB(3) + PAGE, PAGE, PROT_READ), 0);
	assert_int_equal(rig_protect(r, p, &e), 0);
	assert_int_equal(mprotect(r->at, MIB(4), PROT_READ | PROT_WRITE), 0);
	for (size_t i = 0; i < r->bytes; i += 3 * PAGE)
		r->at[i]++;
	check_all(p, 0, r, 4);
	live_protect_free(p);
	close(fd);
	rig_free(r);
}

/* The heap itself, with whatever the library has there: the handler must not wait for itself.
 */
static void test_heap(void **state)
{
	struct live_region heap = {0};
	char line[256];
	unsigned long start, end;
	struct live_protect *p;
	FILE *maps;
	void *blocks[1000];
	struct rig *r;
	int i;

	free(malloc(MIB(1) / 16));
	maps = fopen("/proc/self/maps", "re");
	while (fgets(line, sizeof(line), maps)) {
		if (strstr(line, "[heap]") && sscanf(line, "%lx-%lx", &start, &end) == 2)
			heap = (struct live_region){.at = (uint8_t *)start,
						    .bytes = end - start};
	}
	fclose(maps);
	if (!heap.bytes || heap.bytes > MIB(16))
		skip();
	r = rig_new(RIG_ANON, MIB(16), false);
	p = protect_new(&heap, 1);
	assert_int_equal(live_protect_now(p, NULL), 0);
	for (i = 0; i < 1000; i++) {
		blocks[i] = malloc(100);
		memset(blocks[i], i, 100);
	}
	for (i = 0; i < 1000; i++)
		free(blocks[i]);
	assert_true(live_protect_faults(p) > 0);
	assert_int_equal(live_protect_read(p, 0, 0, heap.bytes / PAGE, r->buf, NULL), 0);
	live_protect_free(p);
	rig_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_writers_anon),       cmocka_unit_test(test_writers_huge),
		cmocka_unit_test(test_writers_shared),     cmocka_unit_test(test_writers_memfd),
		cmocka_unit_test(test_writers_holes),      cmocka_unit_test(test_readers),
		cmocka_unit_test(test_counters),           cmocka_unit_test(test_holes_stay),
		cmocka_unit_test(test_kernel_stores),      cmocka_unit_test(test_fork),
		cmocka_unit_test(test_free_in_the_middle), cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_many_mappings),      cmocka_unit_test(test_heap),
	};
	const char *why = rig_cannot();

	if (why) {
		printf("skipped: %s\n", why);
		return 77;
	}
	alarm(ALARM_S);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
