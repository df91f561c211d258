/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A copy of a folder of files, prepared and taken, and what is in it page by page. */
#ifndef TORPOR_TESTS_COPY_RIG_H
#define TORPOR_TESTS_COPY_RIG_H

#include "live/copy.h"
#include "memory_rig.h"
#include "os/busguard.h"
#include "page/page.h"

struct shot {
	struct memory_items before, now;
	struct memory_warnings *warnings;
	struct live_copy_opts opts;
	struct live_copy *copy;
	struct live_copy_counts counts;
	struct err e;
	atomic_bool cancel;
};

static inline void shot_scan(const char *path, struct memory_items *ret)
{
	struct memory_scan_opts opts = {.skip_special = false};
	struct err e = {.text = ""};

	if (memory_scan(&path, 1, &opts, ret, &e))
		fail_msg("%s", e.text);
}

/* Options are set before. */
static inline int shot_prepare(struct shot *s, const char *path)
{
	s->warnings = memory_warnings_new();
	s->opts.threads = s->opts.threads ? s->opts.threads : 2;
	s->opts.warnings = s->warnings;
	s->opts.cancel = &s->cancel;
	shot_scan(path, &s->before);
	return live_copy_new(&s->before, &s->opts, &s->copy, &s->e);
}

static inline int shot_take(struct shot *s, const char *path)
{
	int rc;

	shot_scan(path, &s->now);
	rc = live_copy_take(s->copy, &s->now, &s->e);
	live_copy_counts(s->copy, &s->counts);
	return rc;
}

static inline void shot_end(struct shot *s)
{
	live_copy_free(s->copy);
	memory_items_free(&s->before);
	memory_items_free(&s->now);
	memory_warnings_free(s->warnings);
	*s = (struct shot){.copy = NULL};
}

/* The item with this last part of its name. */
static inline uint32_t shot_item(const struct shot *s, const char *name)
{
	uint32_t i;

	for (i = 0; i < s->now.count; i++) {
		const char *slash = strrchr(s->now.list[i].name, '/');

		if (!strcmp(slash ? slash + 1 : s->now.list[i].name, name))
			return i;
	}
	fail_msg("no item %s", name);
	return 0;
}

static inline void shot_add_extent(const struct shot *s, const struct memory_extent *x,
				   uint8_t *content, uint8_t *holes)
{
	uint64_t i;

	for (i = 0; i < x->pages; i++) {
		uint64_t page = x->first_page + i;
		bool zero = x->hole || (x->zero && page_bitmap_test(x->zero, x->zero_at + i));

		holes[page] = x->hole;
		if (zero)
			memset(content + page * RIG_PAGE, 0, RIG_PAGE);
		else
			memcpy(content + page * RIG_PAGE, x->at + i * RIG_PAGE, RIG_PAGE);
		/* A zero page that is not known to be one is for the packer to find, only when
		 * nobody looked. */
		if (!zero && !s->opts.no_zero_check)
			assert_false(page_ops()->is_zero(x->at + i * RIG_PAGE, RIG_PAGE));
	}
}

/* An item's pages, and which are holes; its extents lie end to end.  The caller frees both. */
static inline uint8_t *shot_content(const struct shot *s, uint32_t item, uint8_t **ret_holes)
{
	uint64_t pages = num_pages(s->now.list[item].bytes, RIG_PAGE), page = 0, i;
	const struct memory_view *view = live_copy_view(s->copy);
	uint8_t *content = malloc(pages * RIG_PAGE + 1), *holes = calloc(pages + 1, 1);

	for (i = 0; i < view->n; i++) {
		const struct memory_extent *x = &view->list[i];

		assert_true(!i || view->list[i - 1].item <= x->item);
		if (x->item != item)
			continue;
		assert_int_equal(x->first_page, page);
		assert_true(x->pages > 0 && x->pages <= pages - page);
		assert_true(x->hole || x->at);
		shot_add_extent(s, x, content, holes);
		page += x->pages;
	}
	assert_int_equal(page, pages);
	*ret_holes = holes;
	return content;
}

/* The copy of a file is what is in it now, and behind its end zero. */
static inline void shot_expect(const struct shot *s, const struct rig *rig, const char *name)
{
	uint32_t item = shot_item(s, name);
	uint64_t bytes = s->now.list[item].bytes, whole = num_round_up(bytes, RIG_PAGE);
	CLEANUP_FREE uint8_t *holes = NULL, *got = shot_content(s, item, &holes),
			     *want = calloc(1, whole + 1);
	char path[PATH_MAX];
	CLEANUP_CLOSE int fd = open(rig_path(rig, name, path), O_RDONLY | O_CLOEXEC);
	uint64_t i;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, want, bytes, 0), bytes);
	for (i = 0; i < whole; i++) {
		if (got[i] != want[i])
			fail_msg("%s: byte %llu is %u, not %u", name, (unsigned long long)i,
				 got[i], want[i]);
	}
}

#endif
