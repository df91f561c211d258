/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory with writers in it, and images of it, for tests of snapshots through the public
 * interface.  Writers take a gate that the taker of a snapshot closes for the length of the
 * call alone.  A snapshot can be held in the middle of its saving: its image goes to a pipe
 * that nobody reads yet.
 */
#ifndef TORPOR_TESTS_SNAPSHOT_RIG_H
#define TORPOR_TESTS_SNAPSHOT_RIG_H

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <torpor.h>

#include "../pattern.h"
#include "base/num.h"

#define PAGE ((size_t)4096)
#define HUGE MIB(2)
#define WRITERS 3
#define DEADLINE_MS 60000
#define ALARM_S 280 /* nobody may be stuck for ever, least of all the test */

/* ---- memory ---- */

enum kind { ANON, THP, SHARED, MEMFD, KINDS };

struct memory {
	uint8_t *at;
	size_t bytes;
	int fd; /* of a memfd, else -1 */
};

static inline struct memory memory_map(enum kind kind, size_t bytes)
{
	const int flags = kind == ANON || kind == THP ? MAP_PRIVATE : MAP_SHARED;
	struct memory m = {.bytes = bytes, .fd = -1};

	if (kind == MEMFD) {
		m.fd = memfd_create("torpor-test", MFD_CLOEXEC);
		assert_true(m.fd >= 0);
		assert_int_equal(ftruncate(m.fd, (off_t)bytes), 0);
		m.at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, m.fd, 0);
	} else if (kind == THP) {
		/* With room to begin at a huge page; what is left over stays, and is never
		 * touched. */
		m.at = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS,
			    -1, 0);
		assert_ptr_not_equal(m.at, MAP_FAILED);
		m.at = (uint8_t *)num_round_up((uintptr_t)m.at, HUGE);
		madvise(m.at, bytes, MADV_HUGEPAGE);
	} else {
		m.at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	}
	assert_ptr_not_equal(m.at, MAP_FAILED);
	return m;
}

static inline void memory_unmap(struct memory *m)
{
	munmap(m->at, m->bytes);
	if (m->fd >= 0)
		close(m->fd);
}

/* A mixture: noise, text, zero pages that exist, and pages that do not. */
static inline void memory_fill(const struct memory *m, uint64_t seed)
{
	static const enum pattern patterns[] = {PATTERN_NOISE, PATTERN_TEXT, PATTERN_ZERO};
	size_t at, run;

	for (at = 0; at < m->bytes; at += run) {
		uint64_t random = pattern_random(&seed);

		run = num_min(m->bytes - at, (1 + random % 100) * PAGE);
		if (random >> 32 & 3)
			pattern_fill(m->at + at, run, patterns[(random >> 32 & 3) - 1], seed);
	}
}

static inline void memory_noise(const struct memory *m)
{
	pattern_fill(m->at, m->bytes, PATTERN_NOISE, 7);
}

/* ---- writers ---- */

struct program {
	struct memory m;
	pthread_rwlock_t gate;
	atomic_bool stop;
	_Atomic uint64_t stores;
	_Atomic uint32_t names;
	pthread_t writers[WRITERS];
};

static inline void put_word(uint8_t *at, uint64_t value)
{
	/* Writers store to one word by chance: relaxed, so that it is no race. */
	__atomic_store_n((uint64_t *)(void *)at, value, __ATOMIC_RELAXED);
}

static inline uint64_t word_at(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

/*
 * Page i and page i of the other half begin with the same word, whenever the gate is closed;
 * the pairs of a writer are its own.  Besides, words anywhere behind that are stored to.
 */
static inline void *writer(void *arg)
{
	struct program *p = arg;
	const size_t half = p->m.bytes / 2, pairs = half / PAGE;
	const uint32_t me = atomic_fetch_add(&p->names, 1) % WRITERS;
	uint64_t seed = 88172645463325252u + me;

	while (!atomic_load(&p->stop)) {
		pthread_rwlock_rdlock(&p->gate);
		for (int i = 0; i < 8; i++) {
			size_t pair = pattern_random(&seed) % (pairs / WRITERS) * WRITERS + me;
			uint8_t *any =
				p->m.at + pattern_random(&seed) % (p->m.bytes / PAGE) * PAGE;

			put_word(p->m.at + pair * PAGE, seed);
			put_word(any + 8 + (seed >> 20) % 511 * 8, seed);
			put_word(p->m.at + half + pair * PAGE, seed);
		}
		pthread_rwlock_unlock(&p->gate);
		atomic_fetch_add(&p->stores, 8);
	}
	return NULL;
}

static inline struct program *program_new(enum kind kind, size_t bytes)
{
	struct program *p = calloc(1, sizeof(*p));
	pthread_rwlockattr_t attr;

	p->m = memory_map(kind, bytes);
	memory_fill(&p->m, 3);
	for (size_t i = 0; i < bytes; i += PAGE)
		if (word_at(p->m.at + i))
			put_word(p->m.at + i, 0);
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&p->gate, &attr);
	return p;
}

static inline void program_start(struct program *p)
{
	atomic_store(&p->stop, false);
	for (size_t i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&p->writers[i], NULL, writer, p), 0);
}

static inline void program_stop(struct program *p)
{
	atomic_store(&p->stop, true);
	for (size_t i = 0; i < WRITERS; i++)
		pthread_join(p->writers[i], NULL);
}

static inline void program_free(struct program *p)
{
	memory_unmap(&p->m);
	pthread_rwlock_destroy(&p->gate);
	free(p);
}

/* Waits until the writers have done so much more; the alarm is the deadline. */
static inline void program_await(struct program *p, uint64_t more)
{
	uint64_t until = atomic_load(&p->stores) + more;

	while (atomic_load(&p->stores) < until)
		sched_yield();
}

/* ---- places, contexts ---- */

struct place {
	char dir[64], image[96];
	struct torpor *t;
};

static inline int set_up(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	snprintf(p->dir, sizeof(p->dir), "/dev/shm/torpor-snapshot-XXXXXX");
	if (!mkdtemp(p->dir) || torpor_new(&p->t))
		return -1;
	snprintf(p->image, sizeof(p->image), "%s/x.torpor", p->dir);
	*state = p;
	return 0;
}

static inline int tear_down(void **state)
{
	struct place *p = *state;
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", p->dir);
	torpor_free(p->t);
	free(p);
	return system(command);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

static inline int entries(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

/* Waits until so many threads are left: one that was joined is seen for a moment more. */
static inline void await_threads(int n)
{
	struct timespec a_moment = {.tv_nsec = 1000000};

	for (int i = 0; i < DEADLINE_MS && entries("/proc/self/task") != n; i++)
		nanosleep(&a_moment, NULL);
	assert_int_equal(entries("/proc/self/task"), n);
}

/* ---- snapshots ---- */

#define OK(t, call)                                                 \
	do {                                                        \
		int ok_rc = (call);                                 \
		if (ok_rc)                                          \
			fail_msg("%d: %s", ok_rc, torpor_error(t)); \
	} while (0)

/* Defaults, and the image replaced. */
struct settings {
	struct torpor_save_opts save;
	struct torpor_snapshot_opts opts;
};

static inline struct settings *settings(struct settings *s, uint32_t copy)
{
	*s = (struct settings){.save = TORPOR_OPTS(s->save), .opts = TORPOR_OPTS(s->opts)};
	s->save.flags = TORPOR_FORCE;
	s->opts.copy = copy;
	s->opts.save = &s->save;
	return s;
}

/* One region named "mem", to the place's image, as `s` says; by protection only where asked. */
static inline struct torpor_snapshot *snapshot_of(struct place *p, const struct memory *m,
						  const struct settings *s)
{
	struct torpor_region region = {.name = "mem", .at = m->at, .bytes = m->bytes};
	const bool piped = s->save.flags & TORPOR_IMAGE_FD;
	struct torpor_snapshot *snapshot = NULL;

	OK(p->t,
	   torpor_snapshot_new(p->t, &region, 1, piped ? NULL : p->image, &s->opts, &snapshot));
	if (s->opts.copy == TORPOR_COPY_PROTECT && torpor_warning(p->t, 0))
		fail_msg("%s", torpor_warning(p->t, 0));
	return snapshot;
}

static inline struct torpor_report wait_for(struct place *p, struct torpor_snapshot *snapshot)
{
	struct torpor_report report = TORPOR_OPTS(report);

	OK(p->t, torpor_snapshot_wait(snapshot, &report));
	return report;
}

/* All of a segment. */
static inline uint8_t *read_back(struct place *p, const char *name, size_t bytes)
{
	uint8_t *at =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct torpor_image *image = NULL;
	uint64_t i = 0;

	assert_ptr_not_equal(at, MAP_FAILED);
	OK(p->t, torpor_image_open(p->t, p->image, 0, &image));
	OK(p->t, torpor_image_find(image, name, &i));
	OK(p->t, torpor_image_read(image, i, 0, at, bytes));
	torpor_image_close(image);
	return at;
}

static inline void check_image(struct place *p, const char *name, const uint8_t *expected,
			       size_t bytes)
{
	uint8_t *at = read_back(p, name, bytes);

	for (size_t i = 0; i < bytes; i += PAGE)
		if (memcmp(at + i, expected + i, PAGE) != 0)
			fail_msg("page %zu of \"%s\" is not as it was", i / PAGE, name);
	munmap(at, bytes);
}

static inline uint8_t *keep(const struct memory *m)
{
	uint8_t *copy = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(copy, MAP_FAILED);
	memcpy(copy, m->at, m->bytes);
	return copy;
}

/* ---- held in the middle of saving ---- */

struct held {
	struct torpor_snapshot *snapshot;
	int pipe[2];
};

/* Is the end told by now? */
static inline bool has_ended(const struct torpor_snapshot *s, int timeout_ms)
{
	struct pollfd fd = {.fd = torpor_snapshot_fd(s), .events = POLLIN};

	return poll(&fd, 1, timeout_ms) == 1;
}

/* Prepared, not taken.  The memory is noise, and more than a pipe holds. */
static inline struct held hold(struct place *p, const struct memory *m, struct settings *s)
{
	struct held h;

	assert_int_equal(pipe2(h.pipe, O_CLOEXEC), 0);
	s->save.flags = TORPOR_IMAGE_FD;
	s->save.image_fd = h.pipe[1];
	h.snapshot = snapshot_of(p, m, s);
	return h;
}

/* Waits until the pipe is full: then it saves, and comes to no end. */
static inline void await_held(const struct held *h)
{
	struct pollfd fd = {.fd = h->pipe[1], .events = POLLOUT};

	while (poll(&fd, 1, 0) == 1)
		sched_yield();
}

struct drain {
	int from;
	const char *to;
};

static inline void *drain(void *arg)
{
	struct drain *d = arg;
	int to = open(d->to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	static char buf[65536];
	ssize_t n;

	while ((n = read(d->from, buf, sizeof(buf))) > 0)
		if (write(to, buf, (size_t)n) != n)
			abort();
	close(to);
	return NULL;
}

/* Lets it come to its end; the image is then the place's. */
static inline void release_held(struct place *p, struct held *h)
{
	struct drain d = {.from = h->pipe[0], .to = p->image};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, drain, &d), 0);
	assert_true(has_ended(h->snapshot, DEADLINE_MS));
	wait_for(p, h->snapshot);
	torpor_snapshot_free(h->snapshot);
	close(h->pipe[1]);
	pthread_join(thread, NULL);
	close(h->pipe[0]);
}

/* ---- the two ways ---- */

static const uint32_t ways[] = {TORPOR_COPY_RAM, TORPOR_COPY_PROTECT};

static const char *why_not; /* nothing can be protected here */

static inline void look_for_protection(void)
{
	static char text[512];
	struct memory m = memory_map(ANON, PAGE);
	struct torpor_region region = {.name = "mem", .at = m.at, .bytes = m.bytes};
	struct torpor_snapshot *s = NULL;
	struct settings set;
	struct torpor *t;

	settings(&set, TORPOR_COPY_PROTECT)->save.flags = TORPOR_IMAGE_FD;
	set.save.image_fd = STDERR_FILENO;
	if (torpor_new(&t) || torpor_snapshot_new(t, &region, 1, NULL, &set.opts, &s))
		abort();
	if (torpor_warning(t, 0)) {
		snprintf(text, sizeof(text), "%s", torpor_warning(t, 0));
		why_not = text;
		print_message("protection is not tested: %s\n", text);
	}
	torpor_snapshot_free(s);
	torpor_free(t);
	memory_unmap(&m);
}

/* Can the kernel be asked which pages of a shared mapping there are? */
static inline bool can_ask_files(void)
{
	struct memory m = memory_map(SHARED, PAGE);
	char link[96];
	int fd;

	snprintf(link, sizeof(link), "/proc/self/map_files/%lx-%lx", (unsigned long)m.at,
		 (unsigned long)m.at + PAGE);
	fd = open(link, O_RDONLY | O_CLOEXEC);
	memory_unmap(&m);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static inline bool can(uint32_t way)
{
	return way == TORPOR_COPY_RAM || !why_not;
}

#endif
