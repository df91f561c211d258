// SPDX-License-Identifier: LGPL-2.1-or-later
/* The shared memory of processes: every kind, once; and nothing else. */
#include "find_rig.h"

#include <sys/ipc.h>
#include <sys/shm.h>
#include <torpor.h>

/* ---- the kinds ---- */

/* Beside the folder. */
static bool make_posix(const struct rig *rig)
{
	char name[96];
	int fd;

	snprintf(name, sizeof(name), "%s.shm", strrchr(rig->dir, '/'));
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	return fd >= 0 && ftruncate(fd, RIG_BYTES) == 0 && pwrite(fd, "p", 1, 0) == 1 &&
	       rig_map_shared(fd);
}

static bool make_anonymous(void)
{
	char *at = mmap(NULL, RIG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			0);

	if (at == MAP_FAILED)
		return false;
	*at = 'a';
	return true;
}

static bool make_kinds(const void *arg)
{
	const struct rig *rig = arg;

	return make_posix(rig) && rig_map_shared(rig_make(rig->dir, "file")) &&
	       make_gone(rig, "gone") && rig_map_shared(rig_memfd("guest")) && make_anonymous();
}

static void test_kinds(void **state)
{
	struct rig *rig = *state;
	char posix[PATH_MAX], file[PATH_MAX];
	struct live_memories m;
	pid_t pid = rig_start(rig, make_kinds, rig);

	assert_int_not_equal(pid, 0);
	m = find(&pid, 1);
	snprintf(posix, sizeof(posix), "%s.shm", rig->dir);
	assert_memory(&m, strrchr(posix, '/') + 1, LIVE_MEMORY_FILE, posix, 'p');
	assert_memory(&m, "file", LIVE_MEMORY_FILE, rig_path(rig->dir, "file", file), 'f');
	assert_memory(&m, "gone", LIVE_MEMORY_DELETED, "", 'g');
	assert_memory(&m, "guest", LIVE_MEMORY_MEMFD, "", 'm');
	assert_memory(&m, "anonymous", LIVE_MEMORY_MEMFD, "", 'a');
	assert_int_equal(m.count, 5);
	for (size_t i = 0; i < m.count; i++)
		assert_int_equal(m.list[i].pid, pid);
	live_memories_free(&m);
}

/*
 * Its node lies on a file system that is memory.  Where there is none that we may open, so be
 * it.
 */
static bool map_device(void)
{
	int fd = open("/dev/loop0", O_RDONLY | O_CLOEXEC);

	return fd < 0 || rig_map(fd, PROT_READ, MAP_SHARED);
}

static bool make_none(const void *arg)
{
	const struct rig *rig = arg;
	int unmapped = rig_memfd("unmapped");

	return unmapped >= 0 && map_device() &&
	       rig_map(rig_make(rig->dir, "private"), PROT_READ | PROT_WRITE, MAP_PRIVATE) &&
	       rig_map(rig_memfd("private"), PROT_READ, MAP_PRIVATE) &&
	       rig_map(-1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS) &&
	       rig_map(open("/dev/zero", O_RDWR | O_CLOEXEC), PROT_READ, MAP_PRIVATE) &&
	       (!rig->disk[0] || rig_map_shared(rig_make(rig->disk, "disk")));
}

/* Private mappings, memory that is not mapped, devices, files on disk. */
static void test_none(void **state)
{
	struct rig *rig = *state;
	struct live_memories m;
	pid_t pid = rig_start(rig, make_none, rig);

	assert_int_not_equal(pid, 0);
	m = find(&pid, 1);
	assert_int_equal(m.count, 0);
	live_memories_free(&m);
}

/* ---- what is not carried ---- */

/* A segment that is gone when its process is; its identifier, -1: none. */
static int attach_segment(int flags)
{
	int id = shmget(IPC_PRIVATE, KIB(2048), flags | IPC_CREAT | 0600);
	void *at;

	if (id < 0)
		return -1;
	at = shmat(id, NULL, 0);
	shmctl(id, IPC_RMID, NULL);
	return at == (void *)-1 ? -1 : id;
}

static bool make_segment(const void *arg)
{
	rig_word.told = attach_segment(0);
	return rig_word.told >= 0;
}

static void assert_not_carried(const struct live_memories *all, const char *name,
			       enum live_memory_kind kind)
{
	const struct live_memory *m = by_name(all, name);

	assert_non_null(m);
	assert_int_equal(m->kind, kind);
	assert_int_equal(m->bytes, KIB(2048));
	assert_false(m->carried);
	assert_true(live_memory_reason(kind)[0]);
	assert_string_equal(m->origin, "");
}

static void test_segment(void **state)
{
	struct rig *rig = *state;
	struct live_memories m;
	char name[32];
	pid_t pid = rig_start(rig, make_segment, NULL);

	assert_int_not_equal(pid, 0);
	m = find(&pid, 1);
	snprintf(name, sizeof(name), "sysv-%d", rig->told);
	assert_not_carried(&m, name, LIVE_MEMORY_SYSV);
	assert_int_equal(m.count, 1);
	live_memories_free(&m);
}

/* A segment with this identifier, where the kernel lets us choose. */
static bool attach_chosen(int id)
{
	FILE *next = fopen("/proc/sys/kernel/shm_next_id", "we");

	if (!next)
		return false;
	fprintf(next, "%d", id);
	if (fclose(next) != 0)
		return false;
	rig_word.told = attach_segment(0);
	return rig_word.told == id;
}

/* The identifier is the inode of a memfd, on the same device: the kernel numbers them apart. */
static bool make_twins(const void *arg)
{
	int fd = rig_memfd("twin");
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_ino <= INT32_MAX && attach_chosen((int)st.st_ino) &&
	       rig_map_shared(fd);
}

static void test_segment_like_memfd(void **state)
{
	struct rig *rig = *state;
	struct live_memories m;
	char name[32];
	pid_t pid = rig_start(rig, make_twins, NULL);

	if (!pid)
		skip();
	m = find(&pid, 1);
	snprintf(name, sizeof(name), "sysv-%d", rig->told);
	assert_not_carried(&m, name, LIVE_MEMORY_SYSV);
	assert_memory(&m, "twin", LIVE_MEMORY_MEMFD, "", 'm');
	assert_int_equal(m.count, 2);
	live_memories_free(&m);
}

static bool make_zero(const void *arg)
{
	return attach_chosen(0);
}

/* The first segment of a system has no inode number to speak of. */
static void test_segment_zero(void **state)
{
	struct live_memories m;
	pid_t pid = rig_start(*state, make_zero, NULL);

	if (!pid)
		skip();
	m = find(&pid, 1);
	assert_not_carried(&m, "sysv-0", LIVE_MEMORY_SYSV);
	live_memories_free(&m);
}

/* Without a reservation no huge page need be there. */
static bool make_huge(const void *arg)
{
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
	int flags = MAP_SHARED | MAP_NORESERVE, prot = PROT_READ | PROT_WRITE;

	if (fd < 0 || ftruncate(fd, KIB(2048)) < 0 ||
	    mmap(NULL, KIB(2048), prot, flags, fd, 0) == MAP_FAILED)
		return false;
	flags |= MAP_ANONYMOUS | MAP_HUGETLB;
	rig_word.told = attach_segment(SHM_HUGETLB | SHM_NORESERVE);
	return mmap(NULL, KIB(2048), prot, flags, -1, 0) != MAP_FAILED &&
	       mmap(NULL, KIB(2048), prot, (flags & ~MAP_SHARED) | MAP_PRIVATE, -1, 0) !=
		       MAP_FAILED;
}

static void test_huge(void **state)
{
	struct rig *rig = *state;
	struct live_memories m;
	char name[32];
	pid_t pid = rig_start(rig, make_huge, NULL);

	if (!pid)
		skip();
	m = find(&pid, 1);
	snprintf(name, sizeof(name), "sysv-%d", rig->told);
	assert_not_carried(&m, "huge", LIVE_MEMORY_HUGETLB);
	assert_not_carried(&m, "anonymous", LIVE_MEMORY_HUGETLB);
	assert_int_equal(m.count, rig->told < 0 ? 2 : 3);
	if (rig->told >= 0)
		assert_not_carried(&m, name, LIVE_MEMORY_SYSV);
	live_memories_free(&m);
}

/* ---- each once ---- */

/* In three pieces, one of them read-only. */
static bool make_pieces(const void *arg)
{
	int fd = rig_memfd("pieces");
	char *at = mmap(NULL, RIG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at != MAP_FAILED &&
	       mprotect(at + RIG_BYTES / 4, RIG_BYTES / 4, PROT_READ) == 0 &&
	       rig_map_shared(fd);
}

static bool map_file(const void *arg)
{
	return rig_map_shared(open(arg, O_RDWR | O_CLOEXEC));
}

static void test_once(void **state)
{
	struct rig *rig = *state;
	struct live_memories m;
	char path[PATH_MAX];
	pid_t pids[3];

	close(rig_make(rig->dir, "both"));
	rig_path(rig->dir, "both", path);
	pids[0] = rig_start(rig, make_pieces, NULL);
	pids[1] = rig_start(rig, map_file, path);
	pids[2] = rig_start(rig, map_file, path);
	m = find(pids, 3);
	assert_int_equal(m.count, 2);
	assert_memory(&m, "pieces", LIVE_MEMORY_MEMFD, "", 'm');
	assert_memory(&m, "both", LIVE_MEMORY_FILE, path, 'b');
	assert_int_equal(m.list[0].pid, pids[0]);
	assert_int_equal(m.list[1].pid, pids[1]);
	live_memories_free(&m);
}

/* ---- without privilege ---- */

#define NOBODY 65534

/* May be looked at by its own user again. */
static bool drop(void)
{
	return getuid() != 0 ||
	       (setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
		setresuid(NOBODY, NOBODY, NOBODY) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
}

static bool make_reachable(const void *arg)
{
	const struct rig *rig = arg;
	char path[PATH_MAX];

	return drop() && rig_map_shared(rig_make(rig->dir, "by path")) &&
	       rig_map_shared(dup(rig_memfd("by fd"))) &&
	       rig_map_shared(dup(rig_make(rig->dir, "gone"))) &&
	       unlink(rig_path(rig->dir, "gone", path)) == 0 && attach_segment(0) >= 0 &&
	       (!rig->disk[0] || chdir("/") == 0);
}

static bool make_unreachable(const void *arg)
{
	return drop() && rig_map_shared(rig_memfd("closed"));
}

/* Looks at what another process of nobody's has; the number of the first step that failed. */
static int look_as_nobody(pid_t reachable, pid_t unreachable, pid_t roots)
{
	struct live_memories m;
	struct err e;

	if (!drop())
		return 1;
	if (live_find(&reachable, 1, &m, &e) < 0 || m.count != 4)
		return 2;
	if (!by_name(&m, "by path") || by_name(&m, "by path")->kind != LIVE_MEMORY_FILE)
		return 3;
	if (!by_name(&m, "by fd") || by_name(&m, "by fd")->kind != LIVE_MEMORY_MEMFD ||
	    strncmp(by_name(&m, "by fd")->open_path, "/proc/", 6))
		return 4;
	if (!by_name(&m, "gone") || by_name(&m, "gone")->kind != LIVE_MEMORY_DELETED)
		return 5;
	if (open(by_name(&m, "by fd")->open_path, O_RDONLY) < 0)
		return 6;
	live_memories_free(&m);
	if (live_find(&unreachable, 1, &m, &e) != -EPERM ||
	    !strstr(e.text, "\"/memfd:closed (deleted)\"") ||
	    !strstr(e.text, "CAP_CHECKPOINT_RESTORE"))
		return 7;
	return !getuid() || live_find(&roots, 1, &m, &e) == -EACCES ? 0 : 8;
}

static void test_unprivileged(void **state)
{
	struct rig *rig = *state;
	pid_t reachable = rig_start(rig, make_reachable, rig),
	      unreachable = rig_start(rig, make_unreachable, rig);
	pid_t roots = rig_start(rig, nothing, NULL), pid;
	int status;

	assert_int_not_equal(reachable, 0);
	assert_int_not_equal(unreachable, 0);
	if (getuid())
		roots = 1;
	pid = fork();
	if (!pid)
		_exit(look_as_nobody(reachable, unreachable, roots));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- the public face ---- */

static bool make_gone_and_segment(const void *arg)
{
	return make_gone(arg, "gone") && attach_segment(0) >= 0;
}

static void test_public(void **state)
{
	struct rig *rig = *state;
	struct torpor_memory_info info = TORPOR_OPTS(info);
	struct torpor_memory *m = NULL;
	struct torpor *ctx;
	int32_t none = 0, pid = rig_start(rig, make_gone_and_segment, rig);
	size_t i, carried = 0;

	assert_int_equal(torpor_new(&ctx), 0);
	assert_int_equal(torpor_memory_list(ctx, &pid, 1, 1, &m), -EINVAL);
	assert_int_equal(torpor_memory_list(ctx, &pid, 0, 0, &m), -EINVAL);
	assert_int_equal(torpor_memory_list(ctx, &none, 1, 0, &m), -EINVAL);
	assert_null(m);
	if (!privileged()) {
		torpor_free(ctx);
		skip();
	}
	assert_int_equal(torpor_memory_list(ctx, &pid, 1, 0, &m), 0);
	for (i = 0; torpor_memory_get(m, i, &info) == 0; i++) {
		carried += info.carried;
		assert_int_equal(info.pid, pid);
		assert_int_equal(info.kind,
				 info.carried ? TORPOR_MEMORY_DELETED : TORPOR_MEMORY_SYSV);
		assert_int_equal(!info.reason[0], info.carried);
		assert_int_equal(info.bytes, info.carried ? RIG_BYTES : KIB(2048));
		assert_int_equal(info.data_bytes, info.carried ? 4096 : 0);
		assert_string_equal(info.origin, "");
		assert_true(info.name[0]);
	}
	assert_int_equal(i, 2);
	assert_int_equal(carried, 1);
	assert_int_equal(torpor_memory_get(m, i, &info), -ENOENT);
	torpor_memory_free(m);
	torpor_memory_free(NULL);
	rig_end(rig, pid);
	assert_int_equal(torpor_memory_list(ctx, &pid, 1, 0, &m), -ESRCH);
	assert_non_null(strstr(torpor_error(ctx), "has ended"));
	torpor_free(ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_kinds),        RIG_TEST(test_none),
		RIG_TEST(test_segment),      RIG_TEST(test_segment_like_memfd),
		RIG_TEST(test_segment_zero), RIG_TEST(test_huge),
		RIG_TEST(test_once),         RIG_TEST(test_unprivileged),
		RIG_TEST(test_public),
	};

	return cmocka_run_group_tests_name("find", tests, NULL, NULL);
}
