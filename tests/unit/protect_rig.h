/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory with writers in it, for tests of snapshots by write protection: several threads that
 * store to pages at random, and a gate that holds them for the moment in which the snapshot
 * begins.
 */
#ifndef TORPOR_TESTS_PROTECT_RIG_H
#define TORPOR_TESTS_PROTECT_RIG_H

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "live/protect.h"

#define PAGE ((size_t)4096)
#define MIB(n) ((size_t)(n) << 20)
#define RIG_WRITERS 4
#define ALARM_S 280 /* nobody may be stuck for ever, least of all the test */

enum rig_kind { RIG_ANON, RIG_HUGE, RIG_SHARED, RIG_MEMFD };

struct rig {
	uint8_t *at;
	size_t bytes;
	int fd; /* of a memfd, else -1 */
	uint8_t *copy, *buf;
	uint64_t begin, end; /* pages that writers store to */
	pthread_rwlock_t gate;
	atomic_bool stop;
	_Atomic uint64_t stores;
	pthread_t writers[RIG_WRITERS];
	size_t n_writers;
};

static inline uint64_t rig_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static inline uint8_t *rig_map(enum rig_kind kind, size_t bytes, int *ret_fd)
{
	int flags = kind >= RIG_SHARED ? MAP_SHARED : MAP_PRIVATE;
	uint8_t *raw;

	*ret_fd = -1;
	if (kind == RIG_MEMFD) {
		*ret_fd = memfd_create("torpor-test", MFD_CLOEXEC);
		if (*ret_fd < 0 || ftruncate(*ret_fd, (off_t)bytes))
			abort();
		raw = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, *ret_fd, 0);
	} else {
		/* With room to begin at a huge page; the rest stays, and is never touched. */
		raw = mmap(NULL, bytes + (2u << 20), PROT_READ | PROT_WRITE,
			   flags | MAP_ANONYMOUS, -1, 0);
	}
	if (raw == MAP_FAILED)
		abort();
	if (kind == RIG_ANON || kind == RIG_HUGE) {
		raw = (uint8_t *)(((uintptr_t)raw + (2u << 20) - 1) &
				  ~(uintptr_t)((2u << 20) - 1));
		madvise(raw, bytes, kind == RIG_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	}
	return raw;
}

/* Something different in each word. */
static inline void rig_fill(uint8_t *at, size_t bytes, uint64_t seed)
{
	size_t i;

	seed = seed * 2654435761u + 1;
	for (i = 0; i < bytes; i += sizeof(seed)) {
		uint64_t word = rig_random(&seed);

		memcpy(at + i, &word, sizeof(word));
	}
}

static inline struct rig *rig_new(enum rig_kind kind, size_t bytes, bool fill)
{
	struct rig *r = calloc(1, sizeof(*r));
	pthread_rwlockattr_t attr;

	if (!r)
		abort();
	r->bytes = bytes;
	r->at = rig_map(kind, bytes, &r->fd);
	r->copy = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	r->buf = r->copy + bytes;
	r->end = bytes / PAGE;
	if (fill)
		rig_fill(r->at, bytes, 1);
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&r->gate, &attr);
	return r;
}

static inline void *rig_writer(void *arg)
{
	struct rig *r = arg;
	uint64_t seed = (uintptr_t)&seed | 1;
	int i;

	while (!atomic_load(&r->stop)) {
		pthread_rwlock_rdlock(&r->gate);
		for (i = 0; i < 16; i++) {
			uint64_t page = r->begin + rig_random(&seed) % (r->end - r->begin);
			uint64_t *word = (uint64_t *)(void *)(r->at + page * PAGE +
							      rig_random(&seed) % PAGE / 8 * 8);

			/* Several threads store to one word by chance: relaxed, so that it is
			 * no race. */
			__atomic_store_n(word, seed, __ATOMIC_RELAXED);
		}
		pthread_rwlock_unlock(&r->gate);
		atomic_fetch_add(&r->stores, 16);
	}
	return NULL;
}

static inline void rig_start(struct rig *r)
{
	while (r->n_writers < RIG_WRITERS)
		if (pthread_create(&r->writers[r->n_writers++], NULL, rig_writer, r))
			abort();
}

static inline void rig_stop(struct rig *r)
{
	atomic_store(&r->stop, true);
	while (r->n_writers)
		pthread_join(r->writers[--r->n_writers], NULL);
}

static inline void rig_free(struct rig *r)
{
	rig_stop(r);
	munmap(r->at, r->bytes);
	munmap(r->copy, 2 * r->bytes);
	if (r->fd >= 0)
		close(r->fd);
	pthread_rwlock_destroy(&r->gate);
	free(r);
}

/* Holds the writers, keeps a copy of everything, and protects. */
static inline int rig_protect(struct rig *r, struct live_protect *p, struct err *e)
{
	int rc;

	pthread_rwlock_wrlock(&r->gate);
	memcpy(r->copy, r->at, r->bytes);
	rc = live_protect_now(p, e);
	pthread_rwlock_unlock(&r->gate);
	return rc;
}

/* Pages that are write-protected by userfaultfd now. */
static inline uint64_t rig_protected(const struct rig *r)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry, n = 0, i;

	for (i = 0; i < r->bytes / PAGE; i++) {
		if (pread(fd, &entry, sizeof(entry),
			  (off_t)(((uintptr_t)r->at / PAGE + i) * sizeof(entry))) !=
		    sizeof(entry))
			abort();
		n += entry >> 57 & 1;
	}
	close(fd);
	return n;
}

/* A child that does nothing but be there, for no longer than the test. */
static inline pid_t rig_bystander(void)
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	return pid;
}

/* Waits until the writers have done so many stores more; the test's timeout is the deadline. */
static inline void rig_await(struct rig *r, uint64_t more)
{
	uint64_t until = atomic_load(&r->stores) + more;

	while (atomic_load(&r->stores) < until)
		sched_yield();
}

static inline struct live_protect *protect_new(const struct live_region *regions, size_t n)
{
	struct live_protect *p = NULL;
	struct err e = {.text = ""};
	int rc = live_protect_new(regions, n, &p, &e);

	if (rc < 0)
		print_message("%s\n", e.text);
	assert_int_equal(rc, 0);
	return p;
}

static inline struct live_protect *protect_rig(struct rig *r)
{
	struct live_region region = {.at = r->at, .bytes = r->bytes};

	return protect_new(&region, 1);
}

static inline void check_pages(struct live_protect *p, size_t region, uint64_t first,
			       uint64_t pages, uint8_t *buf, const uint8_t *expected)
{
	struct err e = {.text = ""};
	int rc = live_protect_read(p, region, first, pages, buf, &e);

	if (rc < 0)
		print_message("%s\n", e.text);
	assert_int_equal(rc, 0);
	assert_memory_equal(buf, expected, pages * PAGE);
}

/* All pages in ranges of random lengths, the ranges in random order, from one thread. */
static inline void check_all(struct live_protect *p, size_t region, struct rig *r,
			     uint64_t seed)
{
	uint64_t pages = r->bytes / PAGE, n = 0, i;
	uint64_t *starts = malloc((pages + 1) * sizeof(*starts));
	uint64_t *order = malloc((pages + 1) * sizeof(*order));

	for (i = 0; i < pages; i += 1 + rig_random(&seed) % 100)
		starts[n++] = i;
	starts[n] = pages;
	for (i = 0; i < n; i++) {
		uint64_t other = rig_random(&seed) % (i + 1);

		order[i] = order[other];
		order[other] = i;
	}
	for (i = 0; i < n; i++) {
		uint64_t first = starts[order[i]], count = starts[order[i] + 1] - first;

		check_pages(p, region, first, count, r->buf + first * PAGE,
			    r->copy + first * PAGE);
	}
	free(starts);
	free(order);
}

/* The reason why nothing can be tested here, or NULL. */
static inline const char *rig_cannot(void)
{
	static char text[sizeof(struct err)];
	struct rig *r = rig_new(RIG_ANON, PAGE, true);
	struct live_region region = {.at = r->at, .bytes = r->bytes};
	struct live_protect *p = NULL;
	struct err e = {.text = ""};
	int rc = live_protect_new(&region, 1, &p, &e);

	snprintf(text, sizeof(text), "%s", e.text);
	live_protect_free(p);
	rig_free(r);
	return rc == -EPERM || rc == -EOPNOTSUPP ? text : NULL;
}

#endif
