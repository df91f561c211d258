// SPDX-License-Identifier: LGPL-2.1-or-later
/* Who else could write a file: by a mapping, by a descriptor; and who could not. */
#include "find_rig.h"

#include <sched.h>
#include <sys/mount.h>

#include "os/proc.h"

/*
 * Processes with memory of their own that this one may not look at: there may be some even for
 * root.
 */
static size_t count_hidden(void)
{
	CLEANUP_FREE pid_t *pids = NULL;
	struct os_proc_stat stat;
	size_t n = 0, count = 0;
	char path[64];

	assert_int_equal(os_proc_list(&pids, &n), 0);
	for (size_t i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/proc/%d/maps", pids[i]);
		CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

		count += fd < 0 && errno == EACCES &&
			 os_proc_stat(pids[i], pids[i], &stat) == 0 && !stat.kernel_thread &&
			 stat.state != 'Z';
	}
	return count;
}

static struct live_file_id id_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return (struct live_file_id){st.st_dev, st.st_ino};
}

static struct live_writers writers_of(const char *path, const pid_t *except, size_t n_except)
{
	struct live_file_id id = id_of(path);
	struct live_writers w;
	struct err e = {.text = ""};
	size_t hidden = 99;
	int rc = live_find_writers(&id, 1, except, n_except, &w, &hidden, &e);

	if (rc < 0)
		print_error("%s\n", e.text);
	assert_int_equal(rc, 0);
	/* Those of other users come and go. */
	if (!getuid())
		assert_int_equal(hidden, count_hidden());
	return w;
}

static void assert_writer(const char *path, pid_t pid, bool maps)
{
	struct live_writers w = writers_of(path, NULL, 0);

	assert_int_equal(w.count, 1);
	assert_int_equal(w.list[0].pid, pid);
	assert_int_equal(w.list[0].maps, maps);
	assert_int_equal(w.list[0].file, 0);
	assert_string_equal(w.list[0].comm, program_invocation_short_name);
	live_writers_free(&w);
}

static void assert_none(const char *path)
{
	struct live_writers w = writers_of(path, NULL, 0);

	assert_int_equal(w.count, 0);
	live_writers_free(&w);
}

/* ---- those that could ---- */

/* The descriptor is closed. */
static bool by_mapping(const void *path)
{
	return rig_map_shared(open(path, O_RDWR | O_CLOEXEC));
}

static bool by_descriptor(const void *path)
{
	return open(path, O_RDWR | O_CLOEXEC) >= 0;
}

static bool by_write_only(const void *path)
{
	return open(path, O_WRONLY | O_APPEND | O_CLOEXEC) >= 0;
}

static bool by_both(const void *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	return fd >= 0 && rig_map_shared(dup(fd)) && rig_map_shared(dup(fd)) && dup(fd) >= 0;
}

/* A mapping that is read-only, and the descriptor that would write is still there. */
static bool by_descriptor_only(const void *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	return fd >= 0 && rig_map(dup(fd), PROT_READ, MAP_SHARED);
}

static void check_writers(struct rig *rig, const char *dir)
{
	static const struct {
		bool (*make)(const void *path);
		bool maps;
	} kinds[] = {
		{by_mapping, true}, {by_descriptor, false},      {by_write_only, false},
		{by_both, true},    {by_descriptor_only, false},
	};
	char path[PATH_MAX];

	close(rig_make(dir, "memory"));
	rig_path(dir, "memory", path);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		pid_t pid = rig_start(rig, kinds[i].make, path);

		assert_int_not_equal(pid, 0);
		assert_writer(path, pid, kinds[i].maps);
		rig_end(rig, pid);
		assert_none(path);
	}
}

static void test_writers(void **state)
{
	struct rig *rig = *state;

	check_writers(rig, rig->dir);
}

static void test_writers_on_disk(void **state)
{
	struct rig *rig = *state;

	if (!rig->disk[0])
		skip();
	check_writers(rig, rig->disk);
}

/* ---- those that could not ---- */

static bool by_reading(const void *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd >= 0 && rig_map(dup(fd), PROT_READ, MAP_SHARED) &&
	       rig_map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
}

/* Private stores never reach the file, and O_PATH neither. */
static bool by_private(const void *path)
{
	return rig_map(open(path, O_RDWR | O_CLOEXEC), PROT_READ | PROT_WRITE, MAP_PRIVATE) &&
	       open(path, O_PATH | O_CLOEXEC) >= 0;
}

/* Another file of the same size on the same file system. */
static bool by_neighbour(const void *path)
{
	char other[PATH_MAX + 8];

	snprintf(other, sizeof(other), "%s.other", (const char *)path);
	return rig_map_shared(open(other, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) &&
	       open(other, O_RDWR | O_CLOEXEC) >= 0;
}

static void test_no_writers(void **state)
{
	struct rig *rig = *state;
	char path[PATH_MAX];

	close(rig_make(rig->dir, "memory"));
	rig_path(rig->dir, "memory", path);
	assert_int_not_equal(rig_start(rig, by_reading, path), 0);
	assert_int_not_equal(rig_start(rig, by_private, path), 0);
	assert_int_not_equal(rig_start(rig, by_neighbour, path), 0);
	assert_none(path);
}

/* This process does not name itself, nor those that it stopped. */
static void test_except(void **state)
{
	struct rig *rig = *state;
	char path[PATH_MAX];
	CLEANUP_CLOSE int own = rig_make(rig->dir, "memory");
	struct live_writers w;
	pid_t pids[3], except[2];

	assert_true(own >= 0);
	rig_path(rig->dir, "memory", path);
	assert_none(path);
	for (size_t i = 0; i < 3; i++)
		pids[i] = rig_start(rig, by_mapping, path);
	except[0] = pids[2];
	except[1] = pids[0];
	w = writers_of(path, except, 2);
	assert_int_equal(w.count, 1);
	assert_int_equal(w.list[0].pid, pids[1]);
	live_writers_free(&w);
}

/* ---- several files ---- */

struct pair {
	char first[PATH_MAX], second[PATH_MAX];
};

static bool by_pair(const void *arg)
{
	const struct pair *pair = arg;

	return by_mapping(pair->first) && by_descriptor(pair->second);
}

/* Each file of a process is told once, and of two that are the same the first. */
static void test_files(void **state)
{
	struct rig *rig = *state;
	struct live_file_id ids[4];
	struct live_writers w;
	struct pair pair;
	size_t hidden, told[2] = {0, 0};
	pid_t pids[2];

	close(rig_make(rig->dir, "first"));
	close(rig_make(rig->dir, "second"));
	close(rig_make(rig->dir, "third"));
	rig_path(rig->dir, "third", pair.first);
	ids[0] = id_of(pair.first);
	ids[1] = ids[3] = id_of(rig_path(rig->dir, "second", pair.second));
	ids[2] = id_of(rig_path(rig->dir, "first", pair.first));
	pids[0] = rig_start(rig, by_pair, &pair);
	pids[1] = rig_start(rig, by_pair, &pair);
	assert_int_equal(live_find_writers(ids, 4, NULL, 0, &w, &hidden, NULL), 0);
	assert_int_equal(w.count, 4);
	for (size_t i = 0; i < w.count; i++) {
		assert_true(w.list[i].file == 1 || w.list[i].file == 2);
		assert_int_equal(w.list[i].maps, w.list[i].file == 2);
		assert_true(w.list[i].pid == pids[0] || w.list[i].pid == pids[1]);
		told[w.list[i].pid == pids[1]] += w.list[i].file;
	}
	assert_int_equal(told[0], 3);
	assert_int_equal(told[1], 3);
	live_writers_free(&w);
	assert_int_equal(live_find_writers(ids, 0, NULL, 0, &w, &hidden, NULL), 0);
	assert_int_equal(w.count, 0);
	live_writers_free(&w);
}

/* ---- memory without a path ---- */

static int inherited;

static bool by_inheritance(const void *arg)
{
	return fcntl(inherited, F_GETFL) >= 0;
}

static void test_memfd(void **state)
{
	struct rig *rig = *state;
	char path[64];
	pid_t pid;

	inherited = rig_memfd("inherited");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", inherited);
	pid = rig_start(rig, by_inheritance, NULL);
	assert_writer(path, pid, false);
	close(inherited);
}

/* ---- file systems whose maps tell other numbers than stat(2) ---- */

/* Of two file systems, in a mount namespace of this process alone. */
static bool mount_overlay(const char *dir, const char *below, char merged[PATH_MAX])
{
	char lower[PATH_MAX], upper[PATH_MAX], work[PATH_MAX], options[256];

	mkdir(rig_path(below, "lower", lower), 0755);
	mkdir(rig_path(dir, "upper", upper), 0755);
	mkdir(rig_path(dir, "work", work), 0755);
	mkdir(rig_path(dir, "merged", merged), 0755);
	close(rig_make(lower, "copied"));
	snprintf(options, sizeof(options),
		 "lowerdir=%.60s/lower,upperdir=%.60s/upper,workdir=%.60s/work", below, dir,
		 dir);
	return unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("overlay", merged, "overlay", 0, options) == 0;
}

static void test_overlay(void **state)
{
	struct rig *rig = *state;
	char merged[PATH_MAX], path[PATH_MAX];
	struct live_writers made, copied;
	pid_t pids[2];

	if (!rig->disk[0] || !mount_overlay(rig->dir, rig->disk, merged))
		skip();
	close(rig_make(merged, "made"));
	pids[0] = rig_start(rig, by_mapping, rig_path(merged, "copied", path));
	pids[1] = rig_start(rig, by_mapping, rig_path(merged, "made", path));
	made = writers_of(path, NULL, 0);
	copied = writers_of(rig_path(merged, "copied", path), NULL, 0);
	assert_int_equal(umount2(merged, MNT_DETACH), 0);
	assert_int_equal(made.count, 1);
	assert_int_equal(made.list[0].pid, pids[1]);
	assert_int_equal(copied.count, 1);
	assert_int_equal(copied.list[0].pid, pids[0]);
	live_writers_free(&made);
	live_writers_free(&copied);
}

/* ---- who may not be looked at ---- */

#define NOBODY 65534

static bool as_nobody(const void *path)
{
	return setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
	       setresuid(NOBODY, NOBODY, NOBODY) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0 &&
	       by_mapping(path);
}

/* Sees the other process of the same user, and counts those of others without the kernel's. */
static int look_as_nobody(const char *path, struct live_file_id id, pid_t pid,
			  size_t most_hidden)
{
	struct live_writers w;
	size_t hidden;

	if (!as_nobody(path) || live_find_writers(&id, 1, NULL, 0, &w, &hidden, NULL) < 0)
		return 1;
	if (w.count != 1 || w.list[0].pid != pid || !w.list[0].maps)
		return 2;
	live_writers_free(&w);
	return hidden >= 1 && hidden <= most_hidden ? 0 : 3;
}

static size_t count_processes(bool kernel_threads)
{
	CLEANUP_FREE pid_t *pids = NULL;
	struct os_proc_stat stat;
	size_t n = 0, count = 0;

	assert_int_equal(os_proc_list(&pids, &n), 0);
	for (size_t i = 0; i < n; i++)
		count += os_proc_stat(pids[i], pids[i], &stat) == 0 &&
			 stat.kernel_thread == kernel_threads;
	return count;
}

static void test_hidden(void **state)
{
	struct rig *rig = *state;
	char path[PATH_MAX];
	int status;
	size_t most_hidden;
	pid_t pid, other;

	close(rig_make(rig->dir, "memory"));
	assert_int_equal(chmod(rig_path(rig->dir, "memory", path), 0666), 0);
	other = rig_start(rig, as_nobody, path);
	if (!other)
		skip();
	/* Others start processes meanwhile, but not as many as there are kernel threads. */
	most_hidden = count_processes(false) + count_processes(true) / 2;
	pid = fork();
	if (!pid)
		_exit(look_as_nobody(path, id_of(path), other, most_hidden));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_writers),    RIG_TEST(test_writers_on_disk),
		RIG_TEST(test_no_writers), RIG_TEST(test_except),
		RIG_TEST(test_files),      RIG_TEST(test_memfd),
		RIG_TEST(test_overlay),    RIG_TEST(test_hidden),
	};

	return cmocka_run_group_tests_name("writers", tests, NULL, NULL);
}
