// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The shared memory of processes: under every name, and of processes that end, change, or have
 * lost their head.
 */
#include "find_rig.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

#include "os/proc.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

/* ---- names ---- */

static const char *const odd_files[] = {
	"new\nline", "a space ", "back\\slash", "octal\\012newline", "lost (deleted)", "\\012",
	"\xff\xfe",  "[heap]",   "...",
};

static bool make_odd_files(const void *arg)
{
	const struct rig *rig = arg;
	bool made = true;

	for (size_t i = 0; i < ARRAY_LEN(odd_files); i++)
		made = made && rig_map_shared(rig_make(rig->dir, odd_files[i]));
	return made;
}

static void test_odd_files(void **state)
{
	struct rig *rig = *state;
	struct live_memories m;
	char path[PATH_MAX];
	pid_t pid = rig_start(rig, make_odd_files, rig);

	assert_int_not_equal(pid, 0);
	m = find(&pid, 1);
	assert_int_equal(m.count, ARRAY_LEN(odd_files));
	for (size_t i = 0; i < ARRAY_LEN(odd_files); i++)
		assert_memory(&m, odd_files[i], LIVE_MEMORY_FILE,
			      rig_path(rig->dir, odd_files[i], path), odd_files[i][0]);
	live_memories_free(&m);
}

static bool make_odd_memfds(const void *arg)
{
	static const char *const names[] = {"",     ".",           "..",   "a/../b",
					    "x\ny", "x (deleted)", "same", "same.2",
					    "same", "same"};
	char longest[250];
	bool made = true;

	memset(longest, 'n', sizeof(longest));
	longest[249] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		made = made && rig_map_shared(rig_memfd(names[i]));
	return made && rig_map_shared(rig_memfd(longest)) && rig_map_shared(rig_memfd(longest));
}

static void test_odd_memfds(void **state)
{
	static const char *const names[] = {"memory", "memory.2",    "memory.3", "a_.._b",
					    "x\ny",   "x (deleted)", "same"};
	struct rig *rig = *state;
	struct live_memories m;
	pid_t pid = rig_start(rig, make_odd_memfds, rig);

	assert_int_not_equal(pid, 0);
	m = find(&pid, 1);
	assert_int_equal(m.count, 12);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_memory(&m, names[i], LIVE_MEMORY_MEMFD, "", 'm');
	for (size_t i = 0; i < m.count; i++) {
		const char *name = m.list[i].name;

		assert_true(strlen(name) > 0 && strlen(name) <= NAME_MAX && !strchr(name, '/'));
		assert_ptr_equal(by_name(&m, name), &m.list[i]);
	}
	live_memories_free(&m);
}

/* As long as names may be, so that a number needs room; the cut must not split a character. */
static bool make_long_names(const void *arg)
{
	const struct rig *rig = arg;
	char name[NAME_MAX + 1], sub[PATH_MAX];

	memset(name, 'l', NAME_MAX);
	name[NAME_MAX] = '\0';
	memcpy(name + NAME_MAX - 3, "\xe2\x82\xac", 3);
	return mkdir(rig_path(rig->dir, "sub", sub), 0755) == 0 &&
	       rig_map_shared(rig_make(rig->dir, name)) && rig_map_shared(rig_make(sub, name));
}

static void test_long_names(void **state)
{
	struct rig *rig = *state;
	struct live_memories m;
	char cut[NAME_MAX + 1];
	pid_t pid = rig_start(rig, make_long_names, rig);

	assert_int_not_equal(pid, 0);
	m = find(&pid, 1);
	assert_int_equal(m.count, 2);
	memset(cut, 'l', NAME_MAX - 3);
	strcpy(cut + NAME_MAX - 3, ".2");
	assert_true(by_name(&m, cut));
	live_memories_free(&m);
}

static bool make_called(const void *arg)
{
	char *at = mmap(NULL, RIG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			0);

	*at = 'c';
	return prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, RIG_BYTES, "called so") == 0;
}

/* Shared anonymous memory that has been named.  Not every kernel lets it. */
static void test_called(void **state)
{
	struct live_memories m;
	pid_t pid = rig_start(*state, make_called, NULL);

	if (!pid)
		skip();
	m = find(&pid, 1);
	assert_int_equal(m.count, 1);
	assert_memory(&m, "called so", LIVE_MEMORY_MEMFD, "", 'c');
	live_memories_free(&m);
}

/* Another file has the name now; and one that was deleted came back by its other link. */
static bool make_replaced(const void *arg)
{
	const struct rig *rig = arg;
	char path[PATH_MAX], other[PATH_MAX];

	rig_path(rig->dir, "back", path);
	if (!make_gone(rig, "taken") || !rig_map_shared(rig_make(rig->dir, "back")) ||
	    link(path, rig_path(rig->dir, "spare", other)) < 0 || unlink(path) < 0 ||
	    rename(other, path) < 0)
		return false;
	close(rig_make(rig->dir, "taken"));
	return true;
}

static void test_replaced(void **state)
{
	struct rig *rig = *state;
	struct live_memories m;
	char path[PATH_MAX];
	pid_t pid = rig_start(rig, make_replaced, rig);

	assert_int_not_equal(pid, 0);
	m = find(&pid, 1);
	assert_int_equal(m.count, 2);
	assert_memory(&m, "taken", LIVE_MEMORY_DELETED, "", 't');
	assert_memory(&m, "back", LIVE_MEMORY_FILE, rig_path(rig->dir, "back", path), 'b');
	live_memories_free(&m);
}

/* ---- processes in odd states ---- */

static int fails(pid_t pid, struct err *ret)
{
	struct live_memories m;

	ret->text[0] = '\0';
	return live_find(&pid, 1, &m, ret);
}

static void test_ended(void **state)
{
	struct rig *rig = *state;
	siginfo_t info;
	struct err e;
	pid_t pid = rig_start(rig, nothing, NULL);

	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	/* A zombie, and then nothing at all. */
	assert_int_equal(fails(pid, &e), -ESRCH);
	rig_end(rig, pid);
	assert_int_equal(fails(pid, &e), -ESRCH);
	assert_non_null(strstr(e.text, "has ended"));
}

static void test_kernel_thread(void **state)
{
	struct os_proc_stat stat;
	struct err e;

	/* In a container there is none to be seen. */
	if (os_proc_stat(2, 2, &stat) < 0 || !stat.kernel_thread)
		skip();
	assert_int_equal(fails(2, &e), -EINVAL);
	assert_non_null(strstr(e.text, "kernel thread"));
}

static void *wait_for_ever(void *arg)
{
	char word = 'y';

	if (write(*(int *)arg, &word, 1) == 1)
		close(*(int *)arg);
	for (;;)
		pause();
	return NULL;
}

/* Its first thread ends, the memory stays. */
static pid_t start_headless(struct rig *rig, const char *path)
{
	int ready[2];
	pthread_t thread;
	char word;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!rig_map_shared(open(path, O_RDWR | O_CLOEXEC)) ||
		    pthread_create(&thread, NULL, wait_for_ever, &ready[1]) != 0)
			_exit(1);
		syscall(SYS_exit, 0);
	}
	rig->pids[rig->n_pids++] = pid;
	close(ready[1]);
	assert_int_equal(read(ready[0], &word, 1), 1);
	close(ready[0]);
	return pid;
}

static void wait_for_zombie(pid_t pid)
{
	struct os_proc_stat stat = {.state = '?'};
	time_t deadline = time(NULL) + 10;

	while (stat.state != 'Z' && time(NULL) < deadline)
		assert_int_equal(os_proc_stat(pid, pid, &stat), 0);
	assert_int_equal(stat.state, 'Z');
}

static void test_headless(void **state)
{
	struct rig *rig = *state;
	struct live_writers w;
	struct live_memories m;
	char path[PATH_MAX];
	size_t hidden;
	pid_t pid;

	close(rig_make(rig->dir, "headless"));
	pid = start_headless(rig, rig_path(rig->dir, "headless", path));
	wait_for_zombie(pid);
	m = find(&pid, 1);
	assert_int_equal(m.count, 1);
	assert_memory(&m, "headless", LIVE_MEMORY_FILE, path, 'h');
	assert_int_equal(live_find_writers(&m.list[0].id, 1, NULL, 0, &w, &hidden, NULL), 0);
	assert_int_equal(w.count, 1);
	assert_int_equal(w.list[0].pid, pid);
	live_writers_free(&w);
	live_memories_free(&m);
}

/*
 * Maps and unmaps memory, and changes the bounds of a mapping that is there all the time,
 * though not so often that nobody could read them.
 */
static void *churn(void *arg)
{
	struct timespec nap = {.tv_nsec = 100000};
	char *at = arg;

	for (size_t pages = 1;; pages = 3 - pages) {
		int fd = rig_memfd("passing");
		char *passing =
			mmap(NULL, RIG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		at = mremap(at, (3 - pages) * 4096, pages * 4096, MREMAP_MAYMOVE);
		close(fd);
		munmap(passing, RIG_BYTES);
		nanosleep(&nap, NULL);
	}
	return NULL;
}

static bool make_churn(const void *arg)
{
	int fd = rig_memfd("lasting");
	char *at = mmap(NULL, KIB(8), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pthread_t thread;

	close(fd);
	return at != MAP_FAILED && pthread_create(&thread, NULL, churn, at) == 0;
}

static void test_churn(void **state)
{
	pid_t pid = rig_start(*state, make_churn, NULL);

	assert_int_not_equal(pid, 0);
	for (int i = 0; i < 1000; i++) {
		struct live_memories m = find(&pid, 1);

		assert_non_null(by_name(&m, "lasting"));
		live_memories_free(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_odd_files),     RIG_TEST(test_odd_memfds),
		RIG_TEST(test_long_names),    RIG_TEST(test_called),
		RIG_TEST(test_replaced),      RIG_TEST(test_ended),
		RIG_TEST(test_kernel_thread), RIG_TEST(test_headless),
		RIG_TEST(test_churn),
	};

	return cmocka_run_group_tests_name("find_names", tests, NULL, NULL);
}
