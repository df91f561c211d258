// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Every byte of a small image flipped, and the image cut off at every length: torpor_verify() sees each of them,
 * torpor_load() refuses, naming the image, and leaves nothing behind, or brings back the original.  Both are tried at random (by
 * path) and in one pass (by descriptor).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <torpor.h>

#include "../reseal.h"
#include "base/cleanup.h"
#include "base/num.h"

#include <cmocka.h>

#define PAGE 4096
#define MEM_BYTES (12 * PAGE)

struct place {
	struct torpor *ctx;
	char dir[64], top[96], to[96], path[64];
	uint8_t *image;
	size_t bytes;
	int fd; /* the variant under test, a memfd; `path` names it */
	uint64_t harmless, refused;
};

static uint8_t mem[MEM_BYTES], got[MEM_BYTES + 1];

static void put(const char *dir, const char *name, const void *data, size_t bytes)
{
	char path[192];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0640);

	/* Zero pages but the third stay holes. */
	for (size_t at = 0; at < bytes; at += PAGE)
		if (((const uint8_t *)data)[at] || at == 2 * PAGE)
			assert_int_equal(pwrite(fd, (const uint8_t *)data + at, num_min(PAGE, bytes - at), (off_t)at),
					 num_min(PAGE, bytes - at));
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
}

static void make_source(const char *top)
{
	char path[192];

	assert_int_equal(mkdir(top, 0750), 0);
	for (size_t i = 0; i < PAGE + 100; i++)
		mem[i] = (uint8_t) "text that packs "[i % 16];
	for (size_t i = 0; i < 100; i++)
		mem[5 * PAGE + i] = (uint8_t)(i * 167 + 1);
	put(top, "mem", mem, MEM_BYTES);
	put(top, "tail", "short", 5);
	snprintf(path, sizeof(path), "%s/link", top);
	assert_int_equal(symlink("mem", path), 0);
}

static void read_image(struct place *p, const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	p->bytes = (size_t)st.st_size;
	p->image = malloc(p->bytes);
	assert_int_equal(read(fd, p->image, p->bytes), p->bytes);
}

static int set_up(void **state)
{
	struct torpor_save_opts opts = TORPOR_OPTS(opts);
	struct place *p = calloc(1, sizeof(*p));
	char image[96];

	snprintf(p->dir, sizeof(p->dir), "/dev/shm/torpor-damage-XXXXXX");
	if (!mkdtemp(p->dir) || torpor_new(&p->ctx))
		return -1;
	snprintf(p->top, sizeof(p->top), "%s/top", p->dir);
	snprintf(p->to, sizeof(p->to), "%s/to", p->dir);
	snprintf(image, sizeof(image), "%s/x.torpor", p->dir);
	mkdir(p->to, 0755);
	make_source(p->top);
	opts.threads = 1;
	if (torpor_save(p->ctx, (const char *const[]){p->top}, 1, image, &opts, NULL))
		return -1;
	read_image(p, image);
	p->fd = memfd_create("variant", 0);
	snprintf(p->path, sizeof(p->path), "/proc/self/fd/%d", p->fd);
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", p->dir);
	torpor_free(p->ctx);
	close(p->fd);
	free(p->image);
	free(p);
	return system(command);
}

static int entries(const char *dir)
{
	DIR *d = opendir(dir);
	int n = -2;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void expect_file(const struct place *p, const char *name, const void *want, size_t bytes)
{
	char path[192];
	struct stat st;

	snprintf(path, sizeof(path), "%s/top/%s", p->to, name);
	CLEANUP_CLOSE int fd = open(path, O_RDONLY);

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(read(fd, got, sizeof(got)), bytes);
	assert_memory_equal(got, want, bytes);
	assert_int_equal(unlink(path), 0);
}

/* What was loaded is the original; it is then removed. */
static void expect_original(const struct place *p)
{
	char path[192], link[16] = "";

	expect_file(p, "mem", mem, MEM_BYTES);
	expect_file(p, "tail", "short", 5);
	snprintf(path, sizeof(path), "%s/top/link", p->to);
	assert_int_equal(readlink(path, link, sizeof(link) - 1), 3);
	assert_string_equal(link, "mem");
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/top", p->to);
	assert_int_equal(rmdir(path), 0);
}

static void set_variant(struct place *p, const uint8_t *image, size_t bytes)
{
	assert_int_equal(ftruncate(p->fd, 0), 0);
	assert_int_equal(pwrite(p->fd, image, bytes, 0), bytes);
}

/* Options for the variant, at random or in one pass; the image's name for the call goes to *ret_path. */
static struct torpor_load_opts options(struct place *p, bool in_one_pass, const char **ret_path)
{
	struct torpor_load_opts opts = TORPOR_OPTS(opts);

	opts.threads = 1;
	opts.guard = TORPOR_GUARD_OFF;
	opts.to = p->to;
	opts.flags = in_one_pass ? TORPOR_IMAGE_FD : 0;
	opts.image_fd = p->fd;
	assert_int_equal(lseek(p->fd, 0, SEEK_SET), 0);
	*ret_path = in_one_pass ? NULL : p->path;
	return opts;
}

static void try_verify(struct place *p, bool in_one_pass, size_t at)
{
	const char *path;
	struct torpor_load_opts opts = options(p, in_one_pass, &path);
	int rc = torpor_verify(p->ctx, path, &opts, NULL);

	if (rc != -EBADMSG)
		fail_msg("verify, byte %zu: %d %s", at, rc, torpor_error(p->ctx));
	assert_non_null(strstr(torpor_error(p->ctx), path ? path : "the image"));
}

static void try_load(struct place *p, bool in_one_pass, size_t at)
{
	const char *path;
	struct torpor_load_opts opts = options(p, in_one_pass, &path);
	int rc = torpor_load(p->ctx, path, &opts, NULL);

	if (!rc) {
		expect_original(p);
		p->harmless++;
	} else if (rc != -EBADMSG) {
		fail_msg("load, byte %zu: %d %s", at, rc, torpor_error(p->ctx));
	} else {
		assert_non_null(strstr(torpor_error(p->ctx), path ? path : "the image"));
		p->refused++;
	}
	assert_int_equal(entries(p->to), 0);
}

static void try_all(struct place *p, size_t at)
{
	for (int in_one_pass = 0; in_one_pass < 2; in_one_pass++) {
		try_verify(p, in_one_pass, at);
		try_load(p, in_one_pass, at);
	}
}

static void test_the_whole_image_is_sound(void **state)
{
	struct place *p = *state;

	set_variant(p, p->image, p->bytes);
	for (int in_one_pass = 0; in_one_pass < 2; in_one_pass++) {
		const char *path;
		struct torpor_load_opts opts = options(p, in_one_pass, &path);

		assert_int_equal(torpor_verify(p->ctx, path, &opts, NULL), 0);
		opts = options(p, in_one_pass, &path);
		assert_int_equal(torpor_load(p->ctx, path, &opts, NULL), 0);
		expect_original(p);
	}
}

static void test_every_byte_that_changes_is_found_or_harmless(void **state)
{
	struct place *p = *state;

	p->harmless = p->refused = 0;
	for (size_t at = 0; at < p->bytes; at++) {
		p->image[at] ^= 0xff;
		set_variant(p, p->image, p->bytes);
		p->image[at] ^= 0xff;
		try_all(p, at);
	}
	assert_int_equal(p->harmless + p->refused, 2 * p->bytes);
	print_message("%zu bytes: %llu loads refused, %llu harmless\n", p->bytes, (unsigned long long)p->refused,
		      (unsigned long long)p->harmless);
}

static void test_every_length_but_the_whole_is_refused(void **state)
{
	struct place *p = *state;

	p->harmless = p->refused = 0;
	for (size_t bytes = 0; bytes < p->bytes; bytes++) {
		set_variant(p, p->image, bytes);
		try_all(p, bytes);
	}
	assert_int_equal(p->harmless, 0);
	assert_int_equal(p->refused, 2 * p->bytes);
}

/* ---- an index that lies: all hashes are right, it tiles every segment, and the root's totals are its own ---- */

struct lie {
	const char *what;
	/* Fields of the first entry and of the root, and what is added to them. */
	struct {
		unsigned int at;
		int add;
	} entry[2], root[3];
};

enum { ENTRY_ZERO = 16, ENTRY_UNPRESERVED = 24, ENTRY_DATA = 56, ENTRY_STORED = 60 };
enum { ROOT_CHUNKS = 40, ROOT_DATA = 56, ROOT_ZERO = 64, ROOT_HOLE = 72, ROOT_UNPRESERVED = 80, ROOT_STORED = 88 };

/* "mem" is one chunk of 3 pages of data, 1 of zeros, and holes. */
static const struct lie lies[] = {
	{"data is a hole", {{ENTRY_DATA, -3}}, {{ROOT_DATA, -3 * PAGE}, {ROOT_HOLE, 3 * PAGE}, {ROOT_CHUNKS, -1}}},
	{"some data is a hole", {{ENTRY_DATA, -1}}, {{ROOT_DATA, -PAGE}, {ROOT_HOLE, PAGE}}},
	{"data is zero", {{ENTRY_DATA, -3}, {ENTRY_ZERO, 3}}, {{ROOT_DATA, -3 * PAGE}, {ROOT_ZERO, 3 * PAGE}, {ROOT_CHUNKS, -1}}},
	{"zero is a hole", {{ENTRY_ZERO, -1}}, {{ROOT_ZERO, -PAGE}, {ROOT_HOLE, PAGE}}},
	{"zero is unpreserved", {{ENTRY_ZERO, -1}, {ENTRY_UNPRESERVED, 1}}, {{ROOT_ZERO, -PAGE}, {ROOT_UNPRESERVED, PAGE}}},
	{"stored bytes", {{ENTRY_STORED, 1}}, {{ROOT_STORED, 1}}},
};

static void add(uint8_t *at, unsigned int width, int add)
{
	if (width == 4)
		num_put32(at, num_get32(at) + (uint32_t)add);
	else
		num_put64(at, num_get64(at) + (uint64_t)(int64_t)add);
}

static void tell(uint8_t *image, size_t bytes, const struct lie *lie)
{
	uint8_t *entry = image + reseal_find(image, bytes, IMAGE_HEADER_BYTES, IMAGE_INDEX) + IMAGE_INDEX_HEAD_BYTES;
	uint8_t *root = image + reseal_find(image, bytes, IMAGE_HEADER_BYTES, IMAGE_ROOT);

	assert_int_equal(num_get32(entry + ENTRY_DATA), 3);
	assert_int_equal(num_get64(entry + ENTRY_ZERO), 1);
	for (size_t i = 0; i < ARRAY_LEN(lie->entry) && lie->entry[i].at; i++)
		add(entry + lie->entry[i].at, lie->entry[i].at >= ENTRY_DATA ? 4 : 8, lie->entry[i].add);
	for (size_t i = 0; i < ARRAY_LEN(lie->root) && lie->root[i].at; i++)
		add(root + lie->root[i].at, 8, lie->root[i].add);
	reseal_image(image, bytes);
}

static void expect_unreadable(struct place *p)
{
	struct torpor_image *image;
	uint64_t i;

	assert_int_equal(torpor_image_open(p->ctx, p->path, 0, &image), 0);
	assert_int_equal(torpor_image_find(image, "top/mem", &i), 0);
	assert_int_equal(torpor_image_read(image, i, 0, got, PAGE), -EBADMSG);
	torpor_image_close(image);
}

static void test_an_index_that_lies_is_not_obeyed(void **state)
{
	struct place *p = *state;
	uint8_t *image = malloc(p->bytes);

	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		print_message("%s\n", lies[i].what);
		memcpy(image, p->image, p->bytes);
		tell(image, p->bytes, &lies[i]);
		set_variant(p, image, p->bytes);
		p->harmless = 0;
		try_all(p, i);
		assert_int_equal(p->harmless, 0);
		expect_unreadable(p);
	}
	free(image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_index_that_lies_is_not_obeyed),
		cmocka_unit_test(test_the_whole_image_is_sound),
		cmocka_unit_test(test_every_byte_that_changes_is_found_or_harmless),
		cmocka_unit_test(test_every_length_but_the_whole_is_refused),
	};

	return cmocka_run_group_tests_name("api_damage", tests, set_up, tear_down);
}
