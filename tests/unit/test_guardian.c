// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The guardian: whatever ends the process that has frozen a group, the group goes on; and
 * nothing of a guardian is left behind, or seen by the program that it serves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <pthread.h>
#include <sys/socket.h>

#include "freeze_rig.h"
#include "live/freeze.h"

#define KILLS 100

/* What a process that freezes tells the test. */
struct told {
	atomic_ulong freezes; /* how often it has frozen */
	atomic_int frozen;
	pid_t child;
};

static struct told *told;

static int set_up(void **state)
{
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		    0);
	return rig_set_up(state);
}

static int tear_down(void **state)
{
	munmap(told, sizeof(*told));
	return rig_tear_down(state);
}

/* Freezes and thaws until it is killed, as torpor would; sometimes with a new guardian. */
static _Noreturn void freeze_for_ever(const struct rig *r, unsigned int seed)
{
	for (;;) {
		struct live_freeze *f;
		int i;

		if (live_freeze_new(r->path, &f, NULL) < 0)
			_exit(1);
		for (i = rand_r(&seed) % 4; i >= 0; i--) {
			if (live_freeze_now(f, NULL, NULL) < 0)
				_exit(2);
			atomic_store(&told->frozen, 1);
			atomic_fetch_add(&told->freezes, 1);
			rig_nap(rand_r(&seed) % 500);
			atomic_store(&told->frozen, 0);
			if (live_freeze_thaw(f, NULL) < 0)
				_exit(3);
		}
		live_freeze_free(f);
	}
}

/* Dead by this signal, the group thawed and running, the guardians gone. */
static void assert_goes_on(struct rig *r, pid_t killed)
{
	int status;

	assert_int_equal(waitpid(killed, &status, 0), killed);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_true(RIG_WAIT(rig_reap_guardians()));
	assert_false(rig_freezes(r, "a"));
	assert_true(rig_runs(r, 0));
}

static void test_killed_at_random_moments(void **state)
{
	struct rig *r = rig_or_skip(state);
	unsigned int seed = (unsigned int)clock_mono_ns(), first = seed;
	int i, while_frozen = 0;

	rig_worker(r, "a");
	assert_true(rig_runs(r, 0));
	for (i = 0; i < KILLS; i++) {
		pid_t pid;

		memset(told, 0, sizeof(*told));
		pid = fork();
		if (pid == 0)
			freeze_for_ever(r, rand_r(&seed));
		/* Some are killed while they prepare for the first time. */
		if (rand_r(&seed) % 4)
			assert_true(RIG_WAIT(atomic_load(&told->freezes) > 0));
		rig_nap(rand_r(&seed) % 2000);
		kill(pid, SIGKILL);
		while_frozen += atomic_load(&told->frozen);
		assert_goes_on(r, pid);
	}
	print_message("seed %u: %d of %d while frozen\n", first, while_frozen, KILLS);
	assert_true(while_frozen >= KILLS / 20);
}

/* Freezes, tells, and waits to be killed. */
static pid_t start_frozen(const struct rig *r, const char *in, void (*before_waiting)(void))
{
	pid_t pid = fork();

	if (pid == 0) {
		struct live_freeze *f;

		if (in && !rig_write(r, in, "cgroup.procs", "0"))
			_exit(1);
		if (live_freeze_new(r->path, &f, NULL) < 0 ||
		    live_freeze_now(f, NULL, NULL) < 0)
			_exit(2);
		if (before_waiting)
			before_waiting();
		atomic_store(&told->frozen, 1);
		for (;;)
			pause();
	}
	assert_true(RIG_WAIT(atomic_load(&told->frozen)));
	assert_true(rig_frozen(r, "a"));
	return pid;
}

static void fork_a_child(void)
{
	pid_t pid = fork();

	while (pid == 0)
		pause();
	told->child = pid;
}

/* A program's own child has copies of all descriptors, and may live for long. */
static void test_a_child_that_holds_copies_of_the_descriptors(void **state)
{
	struct rig *r = rig_or_skip(state);
	pid_t pid;

	rig_worker(r, "a");
	pid = start_frozen(r, NULL, fork_a_child);
	kill(pid, SIGKILL);
	assert_goes_on(r, pid);
	assert_int_equal(kill(told->child, 0), 0);
	kill(told->child, SIGKILL);
	assert_int_equal(waitpid(told->child, NULL, 0), told->child);
}

static void *sleep_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void end_the_first_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, sleep_for_ever, NULL);
	atomic_store(&told->frozen, 1);
	pthread_exit(NULL);
}

/* The process lives on in its other thread: the group stays frozen until that ends as well. */
static void test_the_first_thread_ends(void **state)
{
	struct rig *r = rig_or_skip(state);
	struct os_proc_stat stat = {.state = '?'};
	pid_t pid, guardian = 0;

	rig_worker(r, "a");
	pid = start_frozen(r, NULL, end_the_first_thread);
	assert_true(RIG_WAIT(os_proc_stat(pid, pid, &stat) == 0 && stat.state == 'Z'));
	assert_true(rig_stands(r, 0));
	assert_int_equal(rig_guardians(pid, &guardian), 1);
	kill(pid, SIGKILL);
	assert_goes_on(r, pid);
}

static void test_its_group_is_killed_as_a_whole(void **state)
{
	struct rig *r = rig_or_skip(state);
	pid_t pid;

	if (access(rig_file(r, "own", "cgroup.kill"), W_OK) < 0)
		skip();
	rig_worker(r, "a");
	pid = start_frozen(r, "own", NULL);
	assert_true(rig_write(r, "own", "cgroup.kill", "1"));
	assert_goes_on(r, pid);
}

static void become_another_program(void)
{
	atomic_store(&told->frozen, 1);
	execlp("sleep", "sleep", "60", NULL);
}

static void test_it_becomes_another_program(void **state)
{
	struct rig *r = rig_or_skip(state);
	pid_t pid;

	rig_worker(r, "a");
	pid = fork();
	if (pid == 0) {
		struct live_freeze *f;

		if (live_freeze_new(r->path, &f, NULL) == 0 &&
		    live_freeze_now(f, NULL, NULL) == 0)
			become_another_program();
		_exit(1);
	}
	assert_true(RIG_WAIT(atomic_load(&told->frozen)));
	assert_true(RIG_WAIT(!rig_freezes(r, "a")));
	assert_true(rig_runs(r, 0));
	kill(pid, SIGKILL);
	assert_goes_on(r, pid);
}

static void test_guardian_that_was_killed_is_missed(void **state)
{
	struct rig *r = rig_or_skip(state);
	struct live_freeze *f;
	struct err e;
	pid_t guardian = 0;

	rig_worker(r, "a");
	assert_int_equal(live_freeze_new(r->path, &f, NULL), 0);
	assert_int_equal(rig_guardians(getpid(), &guardian), 1);
	kill(guardian, SIGKILL);
	assert_int_equal(live_freeze_now(f, NULL, &e), -EPIPE);
	assert_non_null(strstr(e.text, "guardian"));
	assert_false(rig_freezes(r, "a"));
	assert_true(rig_runs(r, 0));
	live_freeze_free(f);
	assert_true(RIG_WAIT(rig_reap_guardians()));
}

static bool has_line(pid_t pid, const char *file, const char *begins, char *ret, size_t bytes)
{
	char path[64];
	FILE *f;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	f = fopen(path, "re");
	while (f && !found && fgets(ret, (int)bytes, f))
		found = strncmp(ret, begins, strlen(begins)) == 0;
	if (f)
		fclose(f);
	return found;
}

/* Signals, descriptors, session and group. */
static void test_guardian_shares_nothing_that_could_end_it_or_be_held(void **state)
{
	static const int sent[] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT,
				   SIGPIPE, SIGUSR1, SIGTSTP, SIGALRM};
	struct rig *r = rig_or_skip(state);
	struct live_freeze *f;
	pid_t guardian = 0;
	char line[256], path[64], target[PATH_MAX];
	unsigned int fds = 0, fd;
	size_t i;

	assert_int_equal(live_freeze_new(r->path, &f, NULL), 0);
	assert_int_equal(rig_guardians(getpid(), &guardian), 1);
	assert_int_equal(getsid(guardian), guardian);
	assert_int_equal(getpgid(guardian), guardian);
	for (i = 0; i < ARRAY_LEN(sent); i++)
		kill(guardian, sent[i]);
	for (fd = 0; fd < 1024; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%d/fd/%u", guardian, fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n < 0 ? 0 : n] = '\0';
		fds += n > 0;
		assert_true(n < 0 || !strncmp(target, "socket:", 7) ||
			    strstr(target, "pidfd") || strstr(target, "/a/cgroup.freeze"));
	}
	assert_int_equal(fds, 3);
	assert_true(has_line(guardian, "cgroup", "0::", line, sizeof(line)));
	assert_null(strstr(line, r->name));
	assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
	assert_int_equal(live_freeze_thaw(f, NULL), 0);
	live_freeze_free(f);
	assert_int_equal(rig_guardians(getpid(), &guardian), 0);
}

static atomic_int child_signals;

static void on_child(int signal)
{
	(void)signal;
	atomic_fetch_add(&child_signals, 1);
}

static void test_the_program_does_not_notice(void **state)
{
	struct rig *r = rig_or_skip(state);
	struct sigaction count = {.sa_handler = on_child}, before;
	int fds = rig_count_fds(), i;
	sigset_t mask_before, mask_after; /* the kernel fills NSIG bits */

	sigaction(SIGCHLD, &count, &before);
	sigprocmask(SIG_SETMASK, NULL, &mask_before);
	for (i = 0; i < 20; i++) {
		struct live_freeze *f;

		assert_int_equal(live_freeze_new(r->path, &f, NULL), 0);
		/* No child, for one that waits for any. */
		assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
		assert_int_equal(errno, ECHILD);
		if (i % 2) {
			assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
			assert_int_equal(live_freeze_thaw(f, NULL), 0);
		}
		live_freeze_free(f);
		/* Not even a zombie. */
		assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1);
		assert_int_equal(errno, ECHILD);
	}
	sigaction(SIGCHLD, &before, NULL);
	sigprocmask(SIG_SETMASK, NULL, &mask_after);
	assert_memory_equal(&mask_before, &mask_after, NSIG / 8);
	assert_int_equal(atomic_load(&child_signals), 0);
	assert_int_equal(rig_count_fds(), fds);
	live_freeze_new("torpor-no-such-group", &(struct live_freeze *){NULL}, NULL);
	assert_int_equal(rig_count_fds(), fds);
}

/* The second guardian was forked when the first one's socket was open here. */
static void test_two_at_once(void **state)
{
	struct rig *r = rig_or_skip(state);
	struct live_freeze *a, *ab;
	char name[64];
	pid_t pid;

	snprintf(name, sizeof(name), "%s", rig_name(r, "ab"));
	rig_worker(r, "a");
	rig_worker(r, "ab");
	assert_int_equal(live_freeze_new(r->path, &a, NULL), 0);
	assert_int_equal(live_freeze_new(name, &ab, NULL), 0);
	assert_int_equal(live_freeze_now(a, NULL, NULL), 0);
	assert_int_equal(live_freeze_now(ab, NULL, NULL), 0);
	/* Would wait for ever if the other guardian held the socket. */
	live_freeze_free(a);
	assert_true(rig_runs(r, 0));
	assert_true(rig_stands(r, 1));
	live_freeze_free(ab);
	assert_true(rig_runs(r, 1));

	pid = fork();
	if (pid == 0) {
		if (live_freeze_new(r->path, &a, NULL) < 0 ||
		    live_freeze_new(name, &ab, NULL) < 0 ||
		    live_freeze_now(a, NULL, NULL) < 0 || live_freeze_now(ab, NULL, NULL) < 0)
			_exit(1);
		atomic_store(&told->frozen, 1);
		for (;;)
			pause();
	}
	assert_true(RIG_WAIT(atomic_load(&told->frozen)));
	kill(pid, SIGKILL);
	assert_goes_on(r, pid);
	assert_false(rig_freezes(r, "ab"));
	assert_true(rig_runs(r, 1));
}

static atomic_bool stop_allocating;

static void *allocate(void *unused)
{
	while (!atomic_load(&stop_allocating)) {
		void *volatile p = malloc(100000);

		free(p);
	}
	return unused;
}

/* Locks that other threads hold at the fork stay locked in the child for ever: it must not need
 * one. */
static void test_from_a_program_with_threads(void **state)
{
	struct rig *r = rig_or_skip(state);
	pthread_t threads[3];
	size_t i;

	atomic_store(&stop_allocating, false);
	for (i = 0; i < ARRAY_LEN(threads); i++)
		pthread_create(&threads[i], NULL, allocate, NULL);
	for (i = 0; i < 50; i++) {
		struct live_freeze *f;

		assert_int_equal(live_freeze_new(r->path, &f, NULL), 0);
		assert_int_equal(live_freeze_now(f, NULL, NULL), 0);
		live_freeze_free(f);
	}
	atomic_store(&stop_allocating, true);
	for (i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_killed_at_random_moments),
		TEST(test_a_child_that_holds_copies_of_the_descriptors),
		TEST(test_the_first_thread_ends),
		TEST(test_its_group_is_killed_as_a_whole),
		TEST(test_it_becomes_another_program),
		TEST(test_guardian_that_was_killed_is_missed),
		TEST(test_guardian_shares_nothing_that_could_end_it_or_be_held),
		TEST(test_the_program_does_not_notice),
		TEST(test_two_at_once),
		TEST(test_from_a_program_with_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
