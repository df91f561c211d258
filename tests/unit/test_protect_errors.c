// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Snapshots by write protection that cannot be, or go wrong: what is refused and why, and that
 * the program goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "protect_rig.h"

static void test_wrong_reads(void **state)
{
	struct rig *r = rig_new(RIG_ANON, MIB(1), true);
	struct live_protect *p = protect_rig(r);
	struct err e = {.text = ""};

	assert_int_equal(live_protect_read(p, 0, 0, 1, r->buf, &e), -EINVAL);
	assert_int_equal(rig_protect(r, p, NULL), 0);
	assert_int_equal(rig_protected(r), r->bytes / PAGE);
	assert_int_equal(live_protect_now(p, &e), -EINVAL);
	assert_int_equal(live_protect_read(p, 1, 0, 1, r->buf, &e), -EINVAL);
	assert_int_equal(live_protect_read(p, 0, 256, 1, r->buf, &e), -EINVAL);
	assert_int_equal(live_protect_read(p, 0, 1, UINT64_MAX, r->buf, &e), -EINVAL);
	assert_int_equal(live_protect_read(p, 0, 0, 1, r->at + MIB(1) - 1, &e), -EINVAL);
	check_pages(p, 0, 0, 16, r->buf, r->copy);
	assert_int_equal(live_protect_read(p, 0, 15, 2, r->buf, &e), -EINVAL);
	assert_non_null(strstr(e.text, "read before"));
	check_pages(p, 0, 16, 240, r->buf, r->copy + 16 * PAGE);
	live_protect_free(p);
	rig_free(r);
}

/* What the program must not do does not end it: the pages are lost, and others are not. */
static void test_unmapped(void **state)
{
	struct rig *r = rig_new(RIG_ANON, MIB(4), true);
	struct live_protect *p = protect_rig(r);
	struct err e = {.text = ""};

	assert_int_equal(rig_protect(r, p, NULL), 0);
	assert_int_equal(munmap(r->at + MIB(1), MIB(1)), 0);
	assert_int_equal(munmap(r->at + MIB(3) + PAGE, PAGE), 0);
	/* The rest of a block whose page is gone. */
	r->at[MIB(3)]++;
	assert_int_equal(live_protect_read(p, 0, 256, 256, r->buf, &e), -EFAULT);
	assert_int_equal(live_protect_read(p, 0, 768, 1, r->buf, &e), -EFAULT);
	check_pages(p, 0, 0, 256, r->buf, r->copy);
	check_pages(p, 0, 512, 256, r->buf, r->copy + MIB(2));
	check_pages(p, 0, 784, 240, r->buf, r->copy + 784 * PAGE);
	live_protect_free(p);
	r->at[MIB(3)]++;
	rig_free(r);
}

/* In the middle of protecting a mapping turns out to be another one. */
static void test_now_fails(void **state)
{
	struct rig *r = rig_new(RIG_HUGE, MIB(16), true);
	struct live_region regions[] = {{r->at, MIB(8)}, {r->at + MIB(8), MIB(8)}};
	struct live_protect *p = protect_new(regions, 2);
	struct err e = {.text = ""};
	size_t i;

	assert_ptr_equal(mmap(r->at + MIB(12), MIB(1), PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 r->at + MIB(12));
	assert_true(live_protect_now(p, &e) < 0);
	assert_non_null(strstr(e.text, "region 1"));
	assert_int_equal(rig_protected(r), 0);
	for (i = 0; i < r->bytes; i += PAGE)
		r->at[i]++;
	assert_int_equal(live_protect_faults(p), 0);
	assert_int_equal(live_protect_read(p, 0, 0, 1, r->buf, &e), -EINVAL);
	live_protect_free(p);
	rig_free(r);
}

static void refused(uint8_t *at, size_t bytes, int code, const char *text)
{
	struct live_region region = {.at = at, .bytes = bytes};
	struct live_protect *p = NULL;
	struct err e = {.text = ""};

	assert_int_equal(live_protect_new(&region, 1, &p, &e), code);
	if (!strstr(e.text, text))
		print_message("%s\n", e.text);
	assert_non_null(strstr(e.text, text));
	assert_null(p);
}

static void test_refused(void **state)
{
	struct rig *r = rig_new(RIG_MEMFD, MIB(4), true);
	struct live_region overlap[] = {{r->at, MIB(2)}, {r->at + MIB(1), PAGE}};
	uint8_t *other, *mine;
	struct live_protect *p = NULL;
	struct err e = {.text = ""};

	refused(r->at + 1, PAGE, -EINVAL, "whole pages");
	refused(r->at, 0, -EINVAL, "whole pages");
	assert_int_equal(live_protect_new(overlap, 0, &p, &e), -EINVAL);
	assert_int_equal(live_protect_new(overlap, 2, &p, &e), -EINVAL);
	assert_non_null(strstr(e.text, "overlap"));

	other = mmap(NULL, MIB(4), PROT_READ | PROT_WRITE, MAP_PRIVATE, r->fd, 0);
	refused(other, MIB(4), -EOPNOTSUPP, "private one of a file");
	munmap(other, MIB(4));

	mine = mmap(NULL, MIB(1), PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, (off_t)MIB(1));
	refused(r->at, r->bytes, -EBUSY, "second one");
	refused(r->at + MIB(1), PAGE, -EBUSY, "second one");
	/* Another part of the file, and one that cannot be written. */
	live_protect_free(protect_new(&(struct live_region){r->at, MIB(1)}, 1));
	live_protect_free(protect_new(&(struct live_region){r->at + MIB(2), MIB(2)}, 1));
	mprotect(mine, MIB(1), PROT_READ);
	live_protect_free(protect_rig(r));
	munmap(mine, MIB(1));

	munmap(r->at + MIB(1), PAGE);
	refused(r->at, r->bytes, -EFAULT, "nothing is mapped");
	rig_free(r);
}

static void test_refused_file(void **state)
{
	char name[] = "/var/tmp/torpor-protect-XXXXXX";
	int fd = mkstemp(name);
	struct statfs fs;
	uint8_t *at;

	assert_true(fd >= 0);
	unlink(name);
	assert_int_equal(fstatfs(fd, &fs), 0);
	if (fs.f_type == TMPFS_MAGIC) {
		close(fd);
		skip();
	}
	assert_int_equal(ftruncate(fd, (off_t)PAGE), 0);
	at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	refused(at, PAGE, -EOPNOTSUPP, "region 0");
	munmap(at, PAGE);
	close(fd);
}

/* A child that has shared memory mapped could write it. */
static void test_refused_writer(void **state)
{
	static const enum rig_kind kinds[] = {RIG_SHARED, RIG_MEMFD};
	size_t i;

	for (i = 0; i < 2; i++) {
		struct rig *r = rig_new(kinds[i], MIB(1), true);
		char number[32];
		pid_t pid = rig_bystander();

		snprintf(number, sizeof(number), "process %d", pid);
		refused(r->at, r->bytes, -EBUSY, number);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		live_protect_free(protect_rig(r));
		rig_free(r);
	}
}

/* Without the capability, and without the device. */
static void test_not_permitted(void **state)
{
	struct rig *r = rig_new(RIG_ANON, MIB(1), true);
	struct live_region region = {.at = r->at, .bytes = r->bytes};
	struct live_protect *p = NULL;
	int status, sysctl;
	char byte;
	pid_t pid;

	sysctl = open("/proc/sys/vm/unprivileged_userfaultfd", O_RDONLY);
	status = sysctl >= 0 && read(sysctl, &byte, 1) == 1 && byte == '1';
	close(sysctl);
	if (geteuid() || status)
		skip();
	pid = fork();
	if (!pid) {
		if (setgid(65534) || setuid(65534))
			_exit(2);
		if (access("/dev/userfaultfd", R_OK | W_OK) == 0)
			_exit(0);
		_exit(live_protect_new(&region, 1, &p, NULL) == -EPERM ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	rig_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong_reads),   cmocka_unit_test(test_unmapped),
		cmocka_unit_test(test_now_fails),     cmocka_unit_test(test_refused),
		cmocka_unit_test(test_refused_file),  cmocka_unit_test(test_refused_writer),
		cmocka_unit_test(test_not_permitted),
	};
	const char *why = rig_cannot();

	if (why) {
		printf("skipped: %s\n", why);
		return 77;
	}
	alarm(ALARM_S);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
