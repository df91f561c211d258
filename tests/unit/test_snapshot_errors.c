// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Snapshots that cannot be, or not as asked for: what is refused and why, when the memory is
 * copied instead, and a disk that fills up.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "snapshot_rig.h"

/* ---- refused ---- */

/* Either way, with a message that says `text`; nothing comes of it. */
static void refused(struct place *p, const struct torpor_region *regions, size_t n, int code,
		    const char *text)
{
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		struct torpor_snapshot *s = NULL;
		struct settings set;
		int before = entries(p->dir), rc;

		settings(&set, ways[w])->save.flags = 0;
		rc = torpor_snapshot_new(p->t, regions, n, p->image, &set.opts, &s);
		if (rc != code || !strstr(torpor_error(p->t), text))
			fail_msg("%d: %s; not %d: %s", rc, torpor_error(p->t), code, text);
		assert_null(s);
		assert_int_equal(entries(p->dir), before);
	}
}

static void test_regions(void **state)
{
	struct place *p = *state;
	struct memory m = memory_map(ANON, MIB(2));
	struct torpor_region r[] = {{"a", m.at, PAGE}, {"b", m.at + PAGE, PAGE}};

	refused(p, r, 0, -EINVAL, "no regions");
	r[0].at = m.at + 1;
	refused(p, r, 2, -EINVAL, "\"a\" is not whole pages");
	r[0].at = m.at;
	r[1].bytes = PAGE - 1;
	refused(p, r, 2, -EINVAL, "\"b\" is not whole pages");
	r[1].bytes = 0;
	refused(p, r, 2, -EINVAL, "\"b\" is not whole pages");
	/* Whole pages, but not of this address space; and two that together come to nothing. */
	r[1].bytes = UINT64_MAX - PAGE + 1;
	refused(p, r, 2, -EINVAL, "\"b\" is not whole pages");
	r[0] = (struct torpor_region){"a", (void *)PAGE, UINT64_C(1) << 63};
	r[1] = (struct torpor_region){"b", (void *)((UINT64_C(1) << 63) - PAGE),
				      UINT64_C(1) << 63};
	refused(p, r, 2, -EINVAL, "overlap");
	r[0] = (struct torpor_region){"a", m.at + PAGE, 2 * PAGE};
	r[1] = (struct torpor_region){"b", m.at, 2 * PAGE};
	refused(p, r, 2, -EINVAL, "overlap");
	memory_unmap(&m);
}

static void test_names(void **state)
{
	struct place *p = *state;
	struct memory m = memory_map(ANON, MIB(2));
	struct torpor_region r[] = {
		{"a", m.at, PAGE}, {"b", m.at + PAGE, PAGE}, {"a", m.at + MIB(1), PAGE}};
	char name[257];
	const char *const bad[] = {NULL, "", ".", "..", "a/b", "/", "/a", "a/", "../a", name};
	struct torpor_snapshot *s;
	struct settings set;

	memset(name, 'x', sizeof(name) - 1);
	name[256] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		r[1].name = bad[i];
		refused(p, r, 2, -EINVAL, "region 1: its name");
	}
	r[1].name = "b";
	refused(p, r, 3, -EINVAL, "two regions are named \"a\"");
	/* As long as a name can be, and what only looks like something else. */
	name[255] = '\0';
	r[0].name = name;
	r[1].name = "...";
	r[2].name = " -\n";
	memory_noise(&m);
	OK(p->t, torpor_snapshot_new(p->t, r, 3, p->image, &settings(&set, 0)->opts, &s));
	OK(p->t, torpor_snapshot_take(s));
	wait_for(p, s);
	torpor_snapshot_free(s);
	for (size_t i = 0; i < 3; i++)
		check_image(p, r[i].name, r[i].at, PAGE);
	memory_unmap(&m);
}

/* Part of it is not mapped, or may not be read: an error, and not a signal when it is taken. */
static void test_not_there(void **state)
{
	struct place *p = *state;
	struct memory m = memory_map(SHARED, MIB(8));
	struct torpor_region r[] = {{"a", m.at, MIB(1)}, {"b", m.at + MIB(2), MIB(6)}};

	memory_noise(&m);
	assert_int_equal(mprotect(m.at + MIB(5), PAGE, PROT_NONE), 0);
	refused(p, r, 2, -EFAULT, "cannot be read");
	assert_int_equal(mprotect(m.at + MIB(5), PAGE, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(munmap(m.at + MIB(5), PAGE), 0);
	refused(p, r, 2, -EFAULT, "region 1: nothing is mapped");
	assert_int_equal(munmap(m.at + MIB(8) - PAGE, PAGE), 0);
	r[1].at = m.at + MIB(6);
	r[1].bytes = MIB(2);
	refused(p, r, 2, -EFAULT, "region 1: nothing is mapped");
	memory_unmap(&m);
}

static void test_images(void **state)
{
	struct place *p = *state;
	struct memory m = memory_map(ANON, PAGE);
	struct torpor_region r = {"a", m.at, PAGE};
	struct place other = *p;
	int fd = open(p->image, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(write(fd, "old", 3), 3);
	close(fd);
	refused(p, &r, 1, -EEXIST, p->image);
	snprintf(other.image, sizeof(other.image), "%s", p->dir);
	refused(&other, &r, 1, -EISDIR, p->dir);
	snprintf(other.image, sizeof(other.image), "%s/none/x", p->dir);
	refused(&other, &r, 1, -ENOENT, "none/x");
	memory_unmap(&m);
}

static void test_options(void **state)
{
	struct place *p = *state;
	struct memory m = memory_map(ANON, PAGE);
	struct torpor_region r = {"a", m.at, PAGE};
	struct torpor_stop stop = TORPOR_OPTS(stop);
	struct torpor_snapshot *s = NULL;

	for (int i = 0; i < 9; i++) {
		struct settings set;

		settings(&set, i == 0   ? TORPOR_COPY_NONE
			       : i == 1 ? TORPOR_COPY_AUTO
			       : i == 2 ? 4
					: 0);
		if (i == 3)
			set.opts.stop_flags = TORPOR_STOP_TREE;
		if (i == 4)
			set.save.stop = &stop;
		if (i == 5)
			set.save.chunk_bytes = 12345;
		if (i == 6)
			set.save.flags |= TORPOR_IMAGE_FD;
		if (i == 7)
			set.save.flags |= 1u << 30;
		if (i == 8)
			set.opts.size = 3;
		assert_int_equal(torpor_snapshot_new(p->t, &r, 1, p->image, &set.opts, &s),
				 -EINVAL);
		assert_true(strlen(torpor_error(p->t)) > 20);
		assert_null(s);
	}
	/* None at all are the defaults. */
	OK(p->t, torpor_snapshot_new(p->t, &r, 1, p->image, NULL, &s));
	OK(p->t, torpor_snapshot_take(s));
	assert_int_equal(wait_for(p, s).copy_used, TORPOR_COPY_RAM);
	torpor_snapshot_free(s);
	memory_unmap(&m);
}

/* ---- copied instead ---- */

/* By protection as asked for, copied as it could not be, and right: else the line that is
 * wrong. */
static int fall_back(struct place *p, const struct memory *m, const char *why)
{
	struct torpor_region region = {"mem", m->at, m->bytes};
	struct torpor_report report = TORPOR_OPTS(report);
	struct settings set;
	struct torpor_snapshot *s;
	uint8_t *kept, *now;
	int same;

	settings(&set, TORPOR_COPY_PROTECT);
	if (torpor_snapshot_new(p->t, &region, 1, p->image, &set.opts, &s))
		return __LINE__;
	if (!torpor_warning(p->t, 0) || !strstr(torpor_warning(p->t, 0), "copied instead") ||
	    !strstr(torpor_warning(p->t, 0), why)) {
		print_message("%s\n",
			      torpor_warning(p->t, 0) ? torpor_warning(p->t, 0) : "none");
		return __LINE__;
	}
	if (strlen(torpor_error(p->t)))
		return __LINE__;
	kept = keep(m);
	if (torpor_snapshot_take(s))
		return __LINE__;
	for (size_t i = 0; i < m->bytes; i += PAGE)
		put_word(m->at + i, i);
	if (torpor_snapshot_wait(s, &report) || report.copy_used != TORPOR_COPY_RAM)
		return __LINE__;
	torpor_snapshot_free(s);
	now = read_back(p, "mem", m->bytes);
	same = !memcmp(now, kept, m->bytes);
	munmap(now, m->bytes);
	munmap(kept, m->bytes);
	return same ? 0 : __LINE__;
}

/* Its own pages are copied, and for others the file's, whose holes do not become pages by that.
 */
static void test_private_file(void **state)
{
	struct place *p = *state;
	struct memory file = memory_map(MEMFD, MIB(8)), m = {.bytes = MIB(8), .fd = -1};
	struct stat before, after;
	struct torpor_snapshot *s;
	struct torpor_report report;
	struct settings set;

	pattern_fill(file.at, MIB(3), PATTERN_NOISE, 5);
	m.at = mmap(NULL, m.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.fd, 0);
	assert_ptr_not_equal(m.at, MAP_FAILED);
	pattern_fill(m.at + MIB(1), MIB(1), PATTERN_TEXT, 6);
	put_word(m.at + MIB(6), 7);
	assert_int_equal(fstat(file.fd, &before), 0);
	s = snapshot_of(p, &m, settings(&set, TORPOR_COPY_RAM));
	OK(p->t, torpor_snapshot_take(s));
	report = wait_for(p, s);
	torpor_snapshot_free(s);
	assert_int_equal(fstat(file.fd, &after), 0);
	if (can_ask_files()) {
		assert_int_equal(before.st_blocks, after.st_blocks);
		assert_int_equal(report.data_bytes, MIB(3) + PAGE);
	}
	check_image(p, "mem", m.at, m.bytes);
	if (!why_not)
		assert_int_equal(fall_back(p, &m, "private one of a file"), 0);
	munmap(m.at, m.bytes);
	memory_unmap(&file);
}

/* A child that has it mapped could store to it past the protection. */
static void test_other_mapper(void **state)
{
	struct place *p = *state;

	for (enum kind kind = SHARED; kind < KINDS && !why_not; kind++) {
		struct memory m = memory_map(kind, MIB(4));
		char number[32];
		pid_t pid;

		memory_fill(&m, 4);
		pid = fork();
		assert_true(pid >= 0);
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			pause();
			_exit(0);
		}
		snprintf(number, sizeof(number), "process %d ", pid);
		assert_int_equal(fall_back(p, &m, number), 0);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		memory_unmap(&m);
	}
	if (why_not)
		skip();
}

/* Makes a system call fail in this process, for ever. */
static int forbid(long number)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = ARRAY_LEN(filter), .filter = filter};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* An empty /dev, in which the image may lie; 77 where that is not permitted. */
static int without_uffd(struct place *p, const struct memory *m, long number, const char *why)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/dev", "tmpfs", 0, NULL))
		return 77;
	snprintf(p->image, sizeof(p->image), "/dev/x.torpor");
	if (forbid(number))
		return 77;
	return fall_back(p, m, why);
}

static void test_not_permitted(void **state)
{
	static const struct {
		long number;
		const char *why;
	} calls[] = {
		{SYS_userfaultfd, "userfaultfd is not permitted"},
		{SYS_process_vm_writev, "process_vm_writev"},
	};
	struct place *p = *state;
	struct memory m = memory_map(ANON, MIB(4));

	memory_fill(&m, 4);
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		int status;
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (!pid)
			_exit(without_uffd(p, &m, calls[i].number, calls[i].why) & 0xff);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			skip();
		assert_int_equal(status, 0);
	}
	memory_unmap(&m);
}

/* ---- a disk that fills up ---- */

static uint64_t free_bytes(const char *dir)
{
	struct statfs fs;

	assert_int_equal(statfs(dir, &fs), 0);
	return fs.f_bfree * (uint64_t)fs.f_bsize;
}

static void test_full(void **state)
{
	struct place *p = *state;
	struct program *prog = program_new(ANON, MIB(16));
	struct settings set;
	char small[80];
	uint64_t before;

	snprintf(small, sizeof(small), "%s/small", p->dir);
	assert_int_equal(mkdir(small, 0700), 0);
	/* A mount of this process alone. */
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", small, "tmpfs", 0, "size=2m"))
		skip();
	snprintf(p->image, sizeof(p->image), "%s/x.torpor", small);
	before = free_bytes(small);
	memory_noise(&prog->m);
	program_start(prog);
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		struct torpor_snapshot *s;

		if (!can(ways[w]))
			continue;
		s = snapshot_of(p, &prog->m, settings(&set, ways[w]));
		pthread_rwlock_wrlock(&prog->gate);
		OK(p->t, torpor_snapshot_take(s));
		pthread_rwlock_unlock(&prog->gate);
		assert_true(has_ended(s, DEADLINE_MS));
		assert_int_equal(torpor_snapshot_wait(s, NULL), -ENOSPC);
		assert_non_null(strstr(torpor_error(p->t), p->image));
		/* Before it is freed the program goes on, and the disk has its room again. */
		assert_int_equal(free_bytes(small), before);
		assert_int_equal(entries(small), 0);
		program_await(prog, 2000);
		assert_int_equal(torpor_snapshot_wait(s, NULL), -ENOSPC);
		torpor_snapshot_free(s);
	}
	program_stop(prog);
	program_free(prog);
	assert_int_equal(umount2(small, MNT_DETACH), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_regions),      TEST(test_names),         TEST(test_not_there),
		TEST(test_images),       TEST(test_options),       TEST(test_private_file),
		TEST(test_other_mapper), TEST(test_not_permitted), TEST(test_full),
	};

	alarm(ALARM_S);
	look_for_protection();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
