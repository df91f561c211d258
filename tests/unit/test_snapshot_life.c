// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The life of a snapshot: when its end is told, cancelling and freeing it at any moment, a
 * program that forks meanwhile, one after the other, in the background, and the report.
 */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "snapshot_rig.h"

#define FULL MIB(16) /* more than a pipe holds */

/* Everything of it is stored to: nobody waits in a fault for ever. */
static void overwrite(const struct memory *m, uint64_t seed)
{
	for (size_t i = 0; i < m->bytes; i += PAGE)
		put_word(m->at + i, seed + i);
}

/* ---- the end ---- */

static void test_end_is_told(void **state)
{
	struct place *p = *state;
	struct settings set;

	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		struct memory m = memory_map(ANON, FULL);
		struct torpor_progress progress = TORPOR_OPTS(progress);
		struct held h;
		uint8_t *kept;

		if (!can(ways[w]))
			continue;
		memory_noise(&m);
		kept = keep(&m);
		h = hold(p, &m, settings(&set, ways[w]));
		assert_false(has_ended(h.snapshot, 0));
		OK(p->t, torpor_snapshot_take(h.snapshot));
		overwrite(&m, 1);
		await_held(&h);
		assert_false(has_ended(h.snapshot, 0));
		torpor_progress(p->t, &progress);
		assert_int_equal(progress.total_bytes, m.bytes);
		assert_true(progress.done_bytes < m.bytes);
		release_held(p, &h);
		torpor_progress(p->t, &progress);
		assert_int_equal(progress.done_bytes, m.bytes);
		check_image(p, "mem", kept, m.bytes);
		munmap(kept, m.bytes);
		memory_unmap(&m);
	}
}

static void test_wrong_order(void **state)
{
	struct place *p = *state;
	struct memory m = memory_map(ANON, FULL);
	struct torpor_report first = TORPOR_OPTS(first), second = TORPOR_OPTS(second),
			     bad = {0};
	struct settings set;
	struct torpor_snapshot *s;
	struct held h;

	memory_noise(&m);
	s = snapshot_of(p, &m, settings(&set, TORPOR_COPY_RAM));
	assert_int_equal(torpor_snapshot_wait(s, NULL), -EINVAL);
	assert_non_null(strstr(torpor_error(p->t), "not taken"));
	OK(p->t, torpor_snapshot_take(s));
	assert_int_equal(torpor_snapshot_wait(s, &bad), -EINVAL);
	OK(p->t, torpor_snapshot_wait(s, &first));
	assert_int_equal(torpor_snapshot_take(s), -EINVAL);
	assert_non_null(strstr(torpor_error(p->t), "once"));
	OK(p->t, torpor_snapshot_wait(s, &second));
	OK(p->t, torpor_snapshot_wait(s, NULL));
	assert_memory_equal(&first, &second, sizeof(first));
	assert_true(has_ended(s, 0));
	torpor_snapshot_free(s);
	check_image(p, "mem", m.at, m.bytes);

	/* While it is being saved, and to no harm. */
	h = hold(p, &m, settings(&set, TORPOR_COPY_RAM));
	OK(p->t, torpor_snapshot_take(h.snapshot));
	await_held(&h);
	assert_int_equal(torpor_snapshot_take(h.snapshot), -EINVAL);
	assert_non_null(strstr(torpor_error(p->t), "once"));
	release_held(p, &h);
	check_image(p, "mem", m.at, m.bytes);
	torpor_snapshot_free(NULL);
	memory_unmap(&m);
}

/* ---- ended early ---- */

static void test_freed(void **state)
{
	struct place *p = *state;
	struct settings set;

	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		struct memory m = memory_map(ANON, FULL);
		int before = entries("/proc/self/fd"), tasks = entries("/proc/self/task");
		struct held h;

		if (!can(ways[w]))
			continue;
		memory_noise(&m);
		/* Prepared only. */
		torpor_snapshot_free(snapshot_of(p, &m, settings(&set, ways[w])));
		assert_int_equal(entries(p->dir), 0);
		/* In the middle. */
		h = hold(p, &m, settings(&set, ways[w]));
		OK(p->t, torpor_snapshot_take(h.snapshot));
		await_held(&h);
		torpor_snapshot_free(h.snapshot);
		close(h.pipe[0]);
		close(h.pipe[1]);
		overwrite(&m, 2);
		assert_int_equal(entries("/proc/self/fd"), before);
		await_threads(tasks);
		/* What the free asked for is used up. */
		torpor_snapshot_free(snapshot_of(p, &m, settings(&set, ways[w])));
		memory_unmap(&m);
	}
}

static void test_cancel(void **state)
{
	struct place *p = *state;
	struct settings set;

	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		struct memory m = memory_map(SHARED, FULL);
		int tasks = entries("/proc/self/task");
		struct torpor_snapshot *s;
		struct held h;

		if (!can(ways[w]))
			continue;
		memory_noise(&m);
		h = hold(p, &m, settings(&set, ways[w]));
		OK(p->t, torpor_snapshot_take(h.snapshot));
		await_held(&h);
		torpor_cancel(p->t);
		assert_true(has_ended(h.snapshot, DEADLINE_MS));
		assert_int_equal(torpor_snapshot_wait(h.snapshot, NULL), -ECANCELED);
		assert_non_null(strstr(torpor_error(p->t), "cancelled"));
		assert_int_equal(torpor_snapshot_wait(h.snapshot, NULL), -ECANCELED);
		/* Before it is freed: nothing is protected any more, and nobody waits for
		 * faults. */
		overwrite(&m, 3);
		await_threads(tasks);
		torpor_snapshot_free(h.snapshot);
		close(h.pipe[0]);
		close(h.pipe[1]);

		/* It is used up, and the next one on the same context is whole. */
		s = snapshot_of(p, &m, settings(&set, ways[w]));
		OK(p->t, torpor_snapshot_take(s));
		wait_for(p, s);
		torpor_snapshot_free(s);
		check_image(p, "mem", m.at, m.bytes);
		memory_unmap(&m);
	}
}

/* Asked for before the call that it ends: of the file there is nothing. */
static void test_cancel_before(void **state)
{
	struct place *p = *state;
	struct memory m = memory_map(ANON, FULL);
	struct torpor_region region = {"mem", m.at, m.bytes};
	struct torpor_snapshot *s = NULL;
	struct settings set;

	memory_noise(&m);
	torpor_cancel(p->t);
	settings(&set, TORPOR_COPY_RAM);
	assert_int_equal(torpor_snapshot_new(p->t, &region, 1, p->image, &set.opts, &s),
			 -ECANCELED);
	assert_null(s);
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		int rc;

		if (!can(ways[w]))
			continue;
		s = snapshot_of(p, &m, settings(&set, ways[w]));
		torpor_cancel(p->t);
		rc = torpor_snapshot_take(s);
		assert_int_equal(torpor_snapshot_wait(s, NULL), -ECANCELED);
		assert_int_equal(rc, ways[w] == TORPOR_COPY_RAM ? -ECANCELED : 0);
		torpor_snapshot_free(s);
		assert_int_equal(entries(p->dir), 0);
		overwrite(&m, 4);
	}
	memory_unmap(&m);
}

/* ---- several, forks ---- */

static void test_one_after_the_other(void **state)
{
	struct place *p = *state;
	struct memory m = memory_map(THP, MIB(8));
	struct settings set;

	for (uint64_t i = 0; i < 6; i++) {
		struct torpor_snapshot *s;
		uint8_t *kept;

		if (!can(ways[i % 2]))
			continue;
		memory_fill(&m, i + 1);
		kept = keep(&m);
		s = snapshot_of(p, &m, settings(&set, ways[i % 2]));
		OK(p->t, torpor_snapshot_take(s));
		overwrite(&m, i);
		wait_for(p, s);
		torpor_snapshot_free(s);
		assert_int_equal(entries(p->dir), 1);
		check_image(p, "mem", kept, m.bytes);
		munmap(kept, m.bytes);
	}
	memory_unmap(&m);
}

/* Two contexts at once, of the same memory by copying, and of another one's by protection. */
static void test_two_at_once(void **state)
{
	struct place *p = *state;
	struct place other = *p;
	struct memory a = memory_map(ANON, FULL), b = memory_map(ANON, FULL);
	struct torpor_snapshot *s;
	struct settings set;
	struct held h;

	memory_noise(&a);
	memory_fill(&b, 8);
	OK(NULL, torpor_new(&other.t));
	snprintf(other.image, sizeof(other.image), "%s/y.torpor", p->dir);
	h = hold(p, &a, settings(&set, can(TORPOR_COPY_PROTECT) ? TORPOR_COPY_PROTECT : 0));
	OK(p->t, torpor_snapshot_take(h.snapshot));
	await_held(&h);
	s = snapshot_of(&other, &b,
			settings(&set, can(TORPOR_COPY_PROTECT) ? TORPOR_COPY_PROTECT : 0));
	OK(other.t, torpor_snapshot_take(s));
	wait_for(&other, s);
	torpor_snapshot_free(s);
	check_image(&other, "mem", b.at, b.bytes);
	s = snapshot_of(&other, &a, settings(&set, TORPOR_COPY_RAM));
	OK(other.t, torpor_snapshot_take(s));
	wait_for(&other, s);
	torpor_snapshot_free(s);
	check_image(&other, "mem", a.at, a.bytes);
	release_held(p, &h);
	check_image(p, "mem", a.at, a.bytes);
	torpor_free(other.t);
	memory_unmap(&a);
	memory_unmap(&b);
}

/* What a child sees and does is its own: 0, or the line that is wrong. */
static int child(const struct memory *m, const uint8_t *kept, struct torpor_snapshot *s)
{
	if (memcmp(m->at, kept, m->bytes) != 0)
		return __LINE__;
	overwrite(m, 77);
	/* It is the parent's, and none of these does anything to it. */
	if (torpor_snapshot_take(s) != -EINVAL || torpor_snapshot_wait(s, NULL) != -EINVAL)
		return __LINE__;
	torpor_snapshot_free(s);
	return 0;
}

static void test_fork(void **state)
{
	struct place *p = *state;
	struct settings set;

	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		struct memory m = memory_map(w ? ANON : THP, FULL);
		uint8_t *kept, *now;
		struct held h;
		int status;
		pid_t pid;

		if (!can(ways[w]))
			continue;
		memory_noise(&m);
		kept = keep(&m);
		h = hold(p, &m, settings(&set, ways[w]));
		OK(p->t, torpor_snapshot_take(h.snapshot));
		await_held(&h);
		put_word(m.at, 5);
		now = keep(&m);
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			_exit(child(&m, now, h.snapshot) & 0xff);
		/* Copy on write and protection at once. */
		overwrite(&m, 6);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_int_equal(word_at(m.at + PAGE), 6 + PAGE);
		release_held(p, &h);
		check_image(p, "mem", kept, m.bytes);
		munmap(kept, m.bytes);
		munmap(now, m.bytes);
		memory_unmap(&m);
	}
}

/* ---- in the background ---- */

/* Threads of this process with the scheduling policy for idle times. */
static int idle_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *entry;
	int n = 0;

	while ((entry = readdir(d))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		n += tid && sched_getscheduler(tid) == SCHED_IDLE;
	}
	closedir(d);
	return n;
}

static void test_background(void **state)
{
	struct place *p = *state;
	struct settings set;

	for (size_t w = 0; w < 2 * ARRAY_LEN(ways); w++) {
		struct memory m = memory_map(ANON, FULL);
		bool background = w % 2;
		uint8_t *kept;
		struct held h;

		if (!can(ways[w / 2]))
			continue;
		memory_noise(&m);
		kept = keep(&m);
		settings(&set, ways[w / 2])->opts.stop_flags =
			background ? TORPOR_STOP_BACKGROUND : 0;
		set.save.threads = 2;
		h = hold(p, &m, &set);
		OK(p->t, torpor_snapshot_take(h.snapshot));
		await_held(&h);
		/* The workers, and neither the program nor who serves its faults. */
		assert_int_equal(idle_threads(), background ? 2 : 0);
		assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
		overwrite(&m, 9);
		release_held(p, &h);
		check_image(p, "mem", kept, m.bytes);
		munmap(kept, m.bytes);
		memory_unmap(&m);
	}
}

/* ---- the report ---- */

static void check_report(const struct torpor_report *r, const struct place *p, size_t bytes)
{
	struct stat st;

	assert_int_equal(stat(p->image, &st), 0);
	assert_int_equal(r->image_bytes, st.st_size);
	assert_int_equal(r->segments, 1);
	assert_int_equal(r->memory_bytes, bytes);
	assert_int_equal(r->data_bytes + r->zero_bytes + r->hole_bytes, bytes);
	assert_int_equal(r->unpreserved_bytes, 0);
	assert_int_equal(r->data_bytes, bytes / 2);
	assert_true(r->chunks > 0 && r->level > 0);
	assert_true(r->stored_bytes > 0 && r->stored_bytes < r->data_bytes);
	assert_true(r->stored_bytes < r->image_bytes);
	assert_true(r->copy_ns > 0 && r->copy_ns <= r->critical_ns);
	assert_true(r->critical_ns <= r->wall_ns);
	assert_true(r->cpu_ns > 0);
	assert_int_equal(r->threads, 2);
	assert_string_equal(r->codec, "zstd");
	assert_int_equal(r->passes, 1);
	assert_int_equal(r->processes, 0);
	assert_int_equal(r->stopped_threads, 0);
	assert_int_equal(r->precopied_bytes, 0);
	assert_int_equal(r->unreadable_bytes, 0);
}

static void test_report(void **state)
{
	struct place *p = *state;
	struct memory m = memory_map(ANON, MIB(16));
	struct torpor_segment_info info = TORPOR_OPTS(info);
	struct settings set;

	pattern_fill(m.at, MIB(8), PATTERN_TEXT, 1);
	memset(m.at + MIB(8), 0, MIB(4));
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		bool ram = ways[w] == TORPOR_COPY_RAM;
		struct torpor_image *image;
		struct torpor_snapshot *s;
		struct torpor_report r;
		struct timespec before, after;

		if (!can(ways[w]))
			continue;
		settings(&set, ways[w])->save.threads = 2;
		set.save.codec = "zstd";
		s = snapshot_of(p, &m, &set);
		clock_gettime(CLOCK_REALTIME, &before);
		OK(p->t, torpor_snapshot_take(s));
		clock_gettime(CLOCK_REALTIME, &after);
		r = wait_for(p, s);
		torpor_snapshot_free(s);
		check_report(&r, p, m.bytes);
		assert_int_equal(r.copy_used, ways[w]);
		assert_int_equal(r.copied_bytes, ram ? MIB(8) : 0);
		assert_int_equal(r.looked_bytes, ram ? MIB(12) : 0);
		/* The memory is as old as the moment that it was taken at. */
		OK(p->t, torpor_image_open(p->t, p->image, 0, &image));
		OK(p->t, torpor_image_segment(image, 0, &info));
		assert_true(info.mtime_ns >= before.tv_sec * 1000000000 + before.tv_nsec);
		assert_true(info.mtime_ns <= after.tv_sec * 1000000000 + after.tv_nsec);
		torpor_image_close(image);
	}
	memory_unmap(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_end_is_told),   TEST(test_wrong_order),
		TEST(test_freed),         TEST(test_cancel),
		TEST(test_cancel_before), TEST(test_one_after_the_other),
		TEST(test_two_at_once),   TEST(test_fork),
		TEST(test_background),    TEST(test_report),
	};

	alarm(ALARM_S);
	look_for_protection();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
