// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Snapshots of this process's own memory; see torpor.h and docs/design/live.md.  What the
 * program calls and what the saving thread does meet in few places: the thread has a message of
 * its own, and everything else of the snapshot until it was joined.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/context.h"
#include "api/write.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/num.h"
#include "base/thread.h"
#include "image/segment.h"
#include "live/regions.h"
#include "os/priority.h"

enum state { PREPARED, SAVING, ENDED, FAILED };

struct torpor_snapshot {
	struct torpor *ctx;
	pid_t pid; /* whose it is: a child of fork(2) has neither the threads nor the copy */
	struct torpor_snapshot_opts opts;
	struct write_job write;
	struct memory_items items;
	struct memory_source *source;
	struct live_region *regions;
	struct live_regions *copy; /* one of the two */
	struct live_protect *protect;
	struct memory_extent *extents; /* of `protect`: a region each */
	struct memory_view view;       /* likewise */
	char *image;

	enum state state;
	pthread_t thread;
	int event;
	int rc;       /* of the thread */
	struct err e; /* likewise */
	uint64_t taken_ns, ended_ns, taken_cpu_ns, ended_cpu_ns;
	struct torpor_report report;
};

static int read_protected(void *ctx, uint32_t item, uint64_t first_page, uint64_t pages,
			  void *buf, struct err *e)
{
	struct torpor_snapshot *s = ctx;

	return live_protect_read(s->protect, item, first_page, pages, buf, e);
}

/* ---- preparing ---- */

static int check_region(const struct torpor_region *region, size_t i, struct err *e)
{
	uint64_t end;

	if (!region->name || !image_name_valid(region->name) || strchr(region->name, '/'))
		return err_set(e, -EINVAL, "region %zu: its name cannot be one in an image", i);
	if ((uintptr_t)region->at % MEMORY_PAGE_BYTES || region->bytes % MEMORY_PAGE_BYTES ||
	    !region->bytes || num_add_overflows((uintptr_t)region->at, region->bytes, &end))
		return err_set(e, -EINVAL, "region \"%s\" is not whole pages of 4096 bytes",
			       region->name);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct torpor_region *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static int by_address(const void *a, const void *b)
{
	const struct torpor_region *const *x = a, *const *y = b;

	return (*x)->at < (*y)->at ? -1 : (*x)->at > (*y)->at;
}

static int check_regions(const struct torpor_region *regions, size_t n, struct err *e)
{
	CLEANUP_FREE const struct torpor_region **list = calloc(n + 1, sizeof(*list));
	size_t i;
	int rc;

	if (!n)
		return err_set(e, -EINVAL, "no regions");
	if (!list)
		return err_sys(e, -ENOMEM, "cannot hold the regions");
	for (i = 0; i < n; i++) {
		list[i] = &regions[i];
		rc = check_region(&regions[i], i, e);
		if (rc < 0)
			return rc;
	}
	qsort(list, n, sizeof(*list), by_name);
	for (i = 1; i < n; i++) {
		if (!strcmp(list[i - 1]->name, list[i]->name))
			return err_set(e, -EINVAL, "two regions are named \"%s\"",
				       list[i]->name);
	}
	qsort(list, n, sizeof(*list), by_address);
	for (i = 1; i < n; i++) {
		if ((uintptr_t)list[i - 1]->at + list[i - 1]->bytes > (uintptr_t)list[i]->at)
			return err_set(e, -EINVAL, "regions \"%s\" and \"%s\" overlap",
				       list[i - 1]->name, list[i]->name);
	}
	return 0;
}

static int take_regions(struct torpor_snapshot *s, const struct torpor_region *regions,
			size_t n)
{
	struct err *e = &s->ctx->e;
	size_t i;
	int rc = check_regions(regions, n, e);

	if (rc < 0)
		return rc;
	s->regions = calloc(n, sizeof(*s->regions));
	s->extents = calloc(n, sizeof(*s->extents));
	if (!s->regions || !s->extents)
		return err_sys(e, -ENOMEM, "cannot hold the regions");
	for (i = 0; i < n && !rc; i++) {
		struct memory_item item = {
			.kind = MEMORY_FILE,
			.bytes = regions[i].bytes,
			.page_bytes = MEMORY_PAGE_BYTES,
			.mode = 0600,
			.uid = geteuid(),
			.gid = getegid(),
			.name = strdup(regions[i].name),
			.origin = strdup(""),
			.link = strdup(""),
		};

		s->regions[i] = (struct live_region){regions[i].at, regions[i].bytes};
		s->extents[i] = (struct memory_extent){
			.item = (uint32_t)i,
			.pages = regions[i].bytes / MEMORY_PAGE_BYTES,
		};
		rc = memory_items_add(&s->items, &item, e);
	}
	return rc;
}

static int prepare_protect(struct torpor_snapshot *s)
{
	struct err *e = &s->ctx->e;
	int rc = live_protect_new(s->regions, s->items.count, &s->protect, e);

	/* Regions that cannot be copied either. */
	if (!rc || rc == -EINVAL || rc == -EFAULT)
		return rc;
	memory_warn(s->ctx->warnings,
		    "the memory cannot be write-protected and is copied instead: %s", e->text);
	e->text[0] = '\0';
	e->system = 0;
	return 0;
}

static int prepare_copy(struct torpor_snapshot *s)
{
	struct live_copy_opts opts = {
		.threads = s->write.threads,
		.no_zero_check = s->opts.stop_flags & TORPOR_STOP_NO_ZERO_CHECK,
		.cancel = &s->ctx->cancel,
	};

	return live_regions_new(s->regions, s->items.count, &opts, &s->copy, &s->ctx->e);
}

static int prepare_memory(struct torpor_snapshot *s)
{
	int rc = s->opts.copy == TORPOR_COPY_PROTECT ? prepare_protect(s) : 0;

	if (!rc && !s->protect)
		rc = prepare_copy(s);
	if (rc < 0)
		return rc;
	s->view = (struct memory_view){
		.list = s->extents,
		.n = s->items.count,
		.ctx = s,
		.read = read_protected,
	};
	return memory_source_new_view(&s->items,
				      s->copy ? live_regions_view(s->copy) : &s->view,
				      &s->source, &s->ctx->e);
}

static int check_options(const struct torpor_snapshot *s)
{
	const uint32_t known = TORPOR_STOP_BACKGROUND | TORPOR_STOP_NO_ZERO_CHECK;

	if ((s->opts.copy != TORPOR_COPY_RAM && s->opts.copy != TORPOR_COPY_PROTECT) ||
	    s->opts.stop_flags & ~known)
		return err_set(&s->ctx->e, -EINVAL,
			       "a flag of the snapshot, or its way of copying, is not known");
	return 0;
}

/* What is found wrong at once comes before what takes long. */
static int prepare(struct torpor_snapshot *s, const struct torpor_region *regions, size_t n,
		   const struct torpor_snapshot_opts *opts)
{
	struct err *e = &s->ctx->e;
	int rc = options_take(&s->opts, sizeof(s->opts), opts, e);

	if (!rc)
		rc = check_options(s);
	if (!rc)
		rc = write_options(&s->write, s->ctx, s->opts.save, s->image);
	if (!rc && s->write.opts.stop)
		rc = err_set(e, -EINVAL, "a snapshot stops nobody: `stop` must be NULL");
	if (!rc)
		rc = take_regions(s, regions, n);
	if (!rc)
		rc = write_open(&s->write, s->image);
	if (!rc)
		rc = prepare_memory(s);
	s->write.items = &s->items;
	s->write.source = s->source;
	s->write.e = &s->e;
	return rc;
}

static int failed(struct torpor_snapshot *s, int rc)
{
	s->state = FAILED;
	s->rc = context_end(s->ctx, err_wrap(&s->ctx->e, rc, "cannot save a snapshot to %s",
					     s->image ? s->image : "the stream"));
	return s->rc;
}

API int torpor_snapshot_new(struct torpor *ctx, const struct torpor_region *regions,
			    size_t n_regions, const char *image,
			    const struct torpor_snapshot_opts *opts,
			    struct torpor_snapshot **ret_snapshot)
{
	struct torpor_snapshot *s;
	int rc;

	context_begin(ctx);
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_sys(&ctx->e, -ENOMEM, "cannot prepare a snapshot");
	s->ctx = ctx;
	s->pid = getpid();
	s->image = image ? strdup(image) : NULL;
	s->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->event < 0)
		rc = err_sys(&ctx->e, -errno, "cannot make an eventfd");
	else if (image && !s->image)
		rc = err_sys(&ctx->e, -ENOMEM, "cannot prepare a snapshot");
	else
		rc = prepare(s, regions, n_regions, opts);
	if (rc < 0) {
		rc = failed(s, rc);
		torpor_snapshot_free(s);
		return rc;
	}
	*ret_snapshot = s;
	return 0;
}

/* ---- taking and saving ---- */

/* Gives back what the regions and their copy take up; what is written does not need them. */
static void let_go(struct torpor_snapshot *s)
{
	live_protect_free(s->protect);
	memory_source_free(s->source);
	live_regions_free(s->copy);
	s->protect = NULL;
	s->source = NULL;
	s->copy = NULL;
}

static void *save(void *arg)
{
	struct torpor_snapshot *s = arg;
	uint64_t one = 1;

	if (s->opts.stop_flags & TORPOR_STOP_BACKGROUND)
		os_priority_idle();
	s->rc = write_pages(&s->write);
	let_go(s);
	if (!s->rc)
		s->rc = write_commit(&s->write);
	/* Whoever hears that it failed finds the room on the disk free again. */
	write_cleanup(&s->write);
	s->ended_ns = clock_mono_ns();
	s->ended_cpu_ns = clock_cpu_ns();
	/* The counter of an eventfd that was just made has room for one. */
	if (write(s->event, &one, sizeof(one)) != sizeof(one))
		return NULL;
	return NULL;
}

static int start_saving(struct torpor_snapshot *s)
{
	int rc = thread_start(&s->thread, save, s);

	return rc < 0 ? err_sys(&s->ctx->e, rc, "cannot start a thread") : 0;
}

static int check_owner(const struct torpor_snapshot *s)
{
	if (s->pid == getpid())
		return 0;
	return err_set(&s->ctx->e, -EINVAL, "the snapshot is the parent's, not this process's");
}

/* What is known of the critical section; the thread that is about to start owns the rest. */
static void note_taken(struct torpor_snapshot *s)
{
	struct live_copy_counts counts = {.looked = 0};
	int64_t now = (int64_t)clock_read_ns(CLOCK_REALTIME);
	uint64_t i;

	if (s->copy)
		live_regions_counts(s->copy, &counts);
	s->report.copy_ns = clock_mono_ns() - s->taken_ns;
	s->report.copied_bytes = counts.copied;
	s->report.looked_bytes = counts.looked;
	s->report.copy_used = s->copy ? TORPOR_COPY_RAM : TORPOR_COPY_PROTECT;
	s->report.passes = 1;
	for (i = 0; i < s->items.count; i++)
		s->items.list[i].mtime_ns = now;
}

API int torpor_snapshot_take(struct torpor_snapshot *s)
{
	struct err *e = &s->ctx->e;
	int rc = check_owner(s);

	if (rc < 0)
		return rc;
	if (s->state != PREPARED)
		return err_set(e, -EINVAL, "a snapshot is taken once");
	s->taken_ns = clock_mono_ns();
	s->taken_cpu_ns = clock_cpu_ns();
	rc = s->protect ? live_protect_now(s->protect, e) : live_regions_take(s->copy, e);
	if (!rc) {
		note_taken(s);
		rc = start_saving(s);
	}
	if (rc < 0) {
		let_go(s);
		write_cleanup(&s->write);
		return failed(s, rc);
	}
	s->state = SAVING;
	s->report.critical_ns = clock_mono_ns() - s->taken_ns;
	return 0;
}

API int torpor_snapshot_fd(const struct torpor_snapshot *s)
{
	return s->event;
}

API int torpor_snapshot_wait(struct torpor_snapshot *s, struct torpor_report *ret_report)
{
	int rc = check_owner(s);

	if (!rc)
		rc = options_check_result(ret_report, &s->ctx->e);
	if (rc < 0)
		return rc;
	if (s->state == PREPARED)
		return err_set(&s->ctx->e, -EINVAL, "the snapshot was not taken");
	if (s->state == SAVING) {
		pthread_join(s->thread, NULL);
		s->state = ENDED;
		if (s->rc < 0) {
			s->ctx->e = s->e;
			return failed(s, s->rc);
		}
		write_report(&s->write, &s->report);
		s->report.wall_ns = s->ended_ns - s->taken_ns;
		s->report.cpu_ns = s->ended_cpu_ns - s->taken_cpu_ns;
	}
	return s->state == FAILED
		       ? s->rc
		       : options_give(ret_report, &s->report, sizeof(s->report), &s->ctx->e);
}

API void torpor_snapshot_free(struct torpor_snapshot *s)
{
	/* A child that let go of it would take away what its parent is writing to. */
	if (!s || s->pid != getpid())
		return;
	if (s->state == SAVING) {
		torpor_cancel(s->ctx);
		pthread_join(s->thread, NULL);
		/* It may have come too late, and must not end what the context does next. */
		atomic_store(&s->ctx->cancel, false);
	}
	let_go(s);
	write_cleanup(&s->write);
	memory_items_free(&s->items);
	free(s->regions);
	free(s->extents);
	free(s->image);
	if (s->event >= 0)
		close(s->event);
	free(s);
}
