/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A file on tmpfs, with data and a hole, and names for its image and for a folder to load into: for each test of the public interface. */
#ifndef TORPOR_TESTS_API_RIG_H
#define TORPOR_TESTS_API_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <torpor.h>

#include "../pattern.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/num.h"

#include <cmocka.h>

#define FILE_BYTES (MIB(3) + 1234)

struct place {
	char dir[64], source[96], image[96], to[96];
	uint8_t *data;
};

static inline void put_file(const char *path, const uint8_t *data, size_t bytes)
{
	CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);

	for (size_t at = 0; at < bytes; at += 4096) {
		size_t n = num_min(4096, bytes - at);
		bool hole = at / MIB(1) == 1;

		if (!hole)
			assert_int_equal(pwrite(fd, data + at, n, (off_t)at), n);
	}
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
}

static inline int set_up(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	snprintf(p->dir, sizeof(p->dir), "/dev/shm/torpor-api-XXXXXX");
	if (!mkdtemp(p->dir))
		return -1;
	snprintf(p->source, sizeof(p->source), "%s/mem", p->dir);
	snprintf(p->image, sizeof(p->image), "%s/x.torpor", p->dir);
	snprintf(p->to, sizeof(p->to), "%s/to", p->dir);
	mkdir(p->to, 0755);
	p->data = calloc(1, FILE_BYTES);
	pattern_fill(p->data, MIB(1), PATTERN_TEXT, 1);
	pattern_fill(p->data + MIB(2), KIB(512), PATTERN_NOISE, 2);
	pattern_fill(p->data + FILE_BYTES - 1234, 1234, PATTERN_TEXT, 3);
	put_file(p->source, p->data, FILE_BYTES);
	*state = p;
	return 0;
}

static inline int tear_down(void **state)
{
	struct place *p = *state;
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", p->dir);
	free(p->data);
	free(p);
	return system(command);
}

static inline int entries(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static inline struct torpor *context(void)
{
	struct torpor *t = NULL;

	assert_int_equal(torpor_new(&t), 0);
	return t;
}

static inline void save(struct torpor *t, const struct place *p)
{
	const char *sources[] = {p->source};
	struct torpor_save_opts o = TORPOR_OPTS(o);

	o.flags = TORPOR_FORCE;
	if (torpor_save(t, sources, 1, p->image, &o, NULL))
		fail_msg("%s", torpor_error(t));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
