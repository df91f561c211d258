// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What /proc tells of processes: odd names, threads, children, tracers, mappings and
 * descriptors.
 */
#include "find_rig.h"

#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <time.h>

#include "os/proc.h"

static bool contains(const pid_t *list, size_t n, pid_t pid)
{
	for (size_t i = 0; i < n; i++) {
		if (list[i] == pid)
			return true;
	}
	return false;
}

/* ---- stat ---- */

static const char *const odd_comms[] = {
	"plain", "two words", "a) R 1 (b", ") ) )", "new\nline", "back\\s\\n", "(((", "", " "};

static bool be_called(const void *name)
{
	return prctl(PR_SET_NAME, name) == 0;
}

static void test_comm(void **state)
{
	struct rig *rig = *state;
	struct os_proc_stat stat;

	for (size_t i = 0; i < ARRAY_LEN(odd_comms); i++) {
		pid_t pid = rig_start(rig, be_called, odd_comms[i]);

		assert_int_equal(os_proc_stat(pid, pid, &stat), 0);
		assert_string_equal(stat.comm, odd_comms[i]);
		assert_int_equal(stat.ppid, getpid());
		assert_true(stat.state == 'S' || stat.state == 'R');
		assert_false(stat.kernel_thread);
		rig_end(rig, pid);
		assert_int_equal(os_proc_stat(pid, pid, &stat), -ESRCH);
	}
}

/* ThreadSanitizer has threads of its own in every process: how many there are, and when the last ends, cannot be told. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN
#endif
#endif

__attribute__((unused)) static void wait_for_state(pid_t pid, char state)
{
	struct os_proc_stat stat = {.state = '?'};
	time_t deadline = time(NULL) + 10;

	while (stat.state != state && time(NULL) < deadline)
		assert_int_equal(os_proc_stat(pid, pid, &stat), 0);
	assert_int_equal(stat.state, state);
}

__attribute__((unused)) static void test_state(void **state)
{
	struct os_proc_stat stat;
	pid_t pid = rig_start(*state, nothing, NULL), tid;

	wait_for_state(pid, 'S');
	kill(pid, SIGSTOP);
	wait_for_state(pid, 'T');
	assert_int_equal(os_proc_living(pid, &tid, &stat), 0);
	assert_int_equal(tid, pid);
	assert_int_equal(stat.state, 'T');
	kill(pid, SIGKILL);
	wait_for_state(pid, 'Z');
	assert_int_equal(os_proc_living(pid, &tid, &stat), -ESRCH);
}

static void test_tracer(void **state)
{
	pid_t pid = rig_start(*state, be_called, "x\nTracerPid:\t1"), tracer = 99;

	assert_int_equal(os_proc_tracer(pid, &tracer), 0);
	assert_int_equal(tracer, 0);
	assert_int_equal(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
	assert_int_equal(os_proc_tracer(pid, &tracer), 0);
	assert_int_equal(tracer, getpid());
	rig_end(*state, pid);
	assert_int_equal(os_proc_tracer(pid, &tracer), -ESRCH);
}

/* ---- threads and children ---- */

#define THREADS 8

static pthread_barrier_t barrier;

static void *have_child(void *arg)
{
	pid_t parent = getpid(), pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (getppid() == parent)
			pause();
		_exit(0);
	}
	*(pid_t *)arg = pid;
	pthread_barrier_wait(&barrier);
	for (;;)
		pause();
	return NULL;
}

static pid_t (*children)[THREADS]; /* shared with the process that makes them */

static bool make_threads(const void *arg)
{
	pthread_t thread;
	bool made = pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0;

	for (size_t i = 0; i < THREADS; i++)
		made = made && pthread_create(&thread, NULL, have_child, &(*children)[i]) == 0;
	return made && (pthread_barrier_wait(&barrier), true);
}

__attribute__((unused)) static void test_threads_and_children(void **state)
{
	pid_t *tids = NULL, *kids = NULL, pid;
	size_t n = 0;

	children = mmap(NULL, sizeof(*children), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(children, MAP_FAILED);
	pid = rig_start(*state, make_threads, NULL);
	assert_int_not_equal(pid, 0);
	assert_int_equal(os_proc_tasks(pid, &tids, &n), 0);
	assert_int_equal(n, THREADS + 1);
	assert_true(contains(tids, n, pid));
	free(tids);
	/* Each thread has one, and all are the process's. */
	for (size_t way = 0; way < 2; way++) {
		assert_int_equal(
			(way ? os_proc_children_scan : os_proc_children)(pid, &kids, &n), 0);
		assert_int_equal(n, THREADS);
		for (size_t i = 0; i < THREADS; i++)
			assert_true(contains(kids, n, (*children)[i]));
		free(kids);
	}
	assert_int_equal(os_proc_children((*children)[0], &kids, &n), 0);
	assert_int_equal(n, 0);
	free(kids);
	assert_int_equal(os_proc_list(&kids, &n), 0);
	assert_true(contains(kids, n, pid) && contains(kids, n, getpid()) &&
		    contains(kids, n, (*children)[0]));
	free(kids);
	rig_end(*state, pid);
	assert_int_equal(os_proc_tasks(pid, &tids, &n), -ESRCH);
	assert_int_equal(os_proc_children(pid, &tids, &n), -ESRCH);
	munmap(children, sizeof(*children));
}

/* ---- mappings ---- */

#define MANY 2000

/* Every second page, so that none are joined: their lines do not fit any buffer at once. */
static void test_many_mappings(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), found = 0;
	struct os_proc_maps *maps;
	struct os_proc_map map;
	CLEANUP_CLOSE int fd = rig_memfd("many");
	char *at = mmap(NULL, MANY * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t last = 0;
	int rc;

	for (size_t i = 0; i < MANY; i += 2)
		assert_ptr_not_equal(
			mmap(at + i * page, page, i % 4 ? PROT_READ : PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_FIXED, fd, (off_t)(i % 4 ? 0 : page)),
			MAP_FAILED);
	assert_int_equal(os_proc_maps_open(getpid(), &maps), 0);
	while ((rc = os_proc_maps_next(maps, &map)) > 0) {
		size_t i = (map.start - (uint64_t)(uintptr_t)at) / page;

		assert_true(map.start >= last && map.end > map.start);
		last = map.end;
		if (strcmp(map.name, "/memfd:many (deleted)"))
			continue;
		found++;
		assert_true(map.shared && map.read && !map.exec);
		assert_int_equal(map.write, !(i % 4));
		assert_int_equal(map.offset, i % 4 ? 0 : page);
		assert_int_equal(map.end - map.start, page);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(found, MANY / 2);
	os_proc_maps_close(maps);
	munmap(at, MANY * page);
}

/* A path as long as they come, each newline of it four characters in the line. */
static void test_long_path(void **state)
{
	struct rig *rig = *state;
	char name[NAME_MAX + 1], path[PATH_MAX], *told;
	struct os_proc_maps *maps;
	struct os_proc_map map;
	bool found = false;
	void *at;
	int fd;

	memset(name, '\n', NAME_MAX);
	name[NAME_MAX] = '\0';
	snprintf(path, sizeof(path), "%s", rig->dir);
	while (strlen(path) + 2 * (NAME_MAX + 1) < PATH_MAX) {
		strcat(strcat(path, "/"), name);
		assert_int_equal(mkdir(path, 0755), 0);
	}
	fd = rig_make(path, name);
	strcat(strcat(path, "/"), name);
	at = mmap(NULL, RIG_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	assert_ptr_not_equal(at, MAP_FAILED);
	assert_int_equal(os_proc_maps_open(getpid(), &maps), 0);
	while (os_proc_maps_next(maps, &map) > 0) {
		if (map.start != (uint64_t)(uintptr_t)at)
			continue;
		found = true;
		assert_string_equal(map.name, path);
		assert_int_equal(os_proc_map_path(getpid(), map.start, map.end, &told), 0);
		assert_string_equal(told, path);
		free(told);
	}
	assert_true(found);
	os_proc_maps_close(maps);
	munmap(at, RIG_BYTES);
}

/* ---- descriptors ---- */

static void test_descriptors(void **state)
{
	static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR, O_PATH};
	struct rig *rig = *state;
	struct os_proc_fds *fds;
	struct os_proc_fd fd;
	char path[PATH_MAX];
	struct stat st;
	int opened[ARRAY_LEN(modes)], flags, rc;
	size_t found = 0;

	close(rig_make(rig->dir, "file"));
	rig_path(rig->dir, "file", path);
	assert_int_equal(stat(path, &st), 0);
	for (size_t i = 0; i < ARRAY_LEN(modes); i++)
		opened[i] = open(path, modes[i] | O_CLOEXEC);
	assert_int_equal(os_proc_fds_open(getpid(), &fds), 0);
	while ((rc = os_proc_fds_next(fds, &fd)) > 0)
		found += fd.dev == st.st_dev && fd.ino == st.st_ino;
	assert_int_equal(rc, 0);
	assert_int_equal(found, ARRAY_LEN(modes));
	os_proc_fds_close(fds);
	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		assert_int_equal(os_proc_fd_flags(getpid(), opened[i], &flags), 0);
		assert_int_equal(flags & (O_ACCMODE | O_PATH), modes[i]);
		close(opened[i]);
	}
	assert_int_equal(os_proc_fd_flags(getpid(), opened[0], &flags), -ENOENT);
}

static void test_mount_type(void **state)
{
	struct rig *rig = *state;
	char type[32];
	struct stat st;
	CLEANUP_CLOSE int fd = rig_memfd("kernel's own");

	assert_int_equal(stat(rig->dir, &st), 0);
	assert_int_equal(os_proc_mount_type(getpid(), st.st_dev, type, sizeof(type)), 0);
	assert_string_equal(type, "tmpfs");
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(os_proc_mount_type(getpid(), st.st_dev, type, sizeof(type)), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_comm),        RIG_TEST(test_tracer),      RIG_TEST(test_many_mappings),
		RIG_TEST(test_long_path),   RIG_TEST(test_descriptors), RIG_TEST(test_mount_type),
#ifndef TSAN
		RIG_TEST(test_state),       RIG_TEST(test_threads_and_children),
#endif
	};

	return cmocka_run_group_tests_name("proc", tests, NULL, NULL);
}
