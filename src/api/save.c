// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor_save(): files, or the memory of processes that stand still meanwhile, into an image. */
#include <stdio.h>

#include "api/context.h"
#include "api/stopped.h"
#include "api/write.h"
#include "base/clock.h"
#include "image/format.h"

struct save {
	struct write_job write;
	struct memory_items items;
	struct memory_source *source;
	struct stopped stopped;
	int guard;
	char guard_reason[128];
};

static int save_files(struct save *s, const char *const *sources, size_t n, const char *image)
{
	struct memory_scan_opts scan = {
		.skip_special = s->write.opts.flags & TORPOR_SKIP_SPECIAL,
		.warnings = s->write.ctx->warnings,
	};
	struct err *e = &s->write.ctx->e;
	int rc;

	rc = memory_scan(sources, n, &scan, &s->items, e);
	if (!rc)
		rc = glue_spare_sources(image, s->write.opts.flags, s->write.opts.image_fd, &s->items, scan.warnings, e);
	if (!rc)
		rc = memory_source_new(&s->items, scan.warnings, &s->source, e);
	if (!rc)
		rc = write_open(&s->write, image);
	s->write.items = &s->items;
	s->write.source = s->source;
	if (!rc)
		rc = write_pages(&s->write);
	return rc ? rc : write_commit(&s->write);
}

static int write_stopped(struct save *s)
{
	struct stopped *stopped = &s->stopped;
	int rc;

	s->write.items = &stopped->items;
	s->write.source = stopped->source;
	s->write.compatible = stopped->writers ? IMAGE_COMPATIBLE_WRITERS : 0;
	if (stopped->opts.flags & TORPOR_STOP_BACKGROUND && stopped->copy)
		return write_in_background(&s->write);
	rc = write_pages(&s->write);
	/* Nobody stands still for the flush. */
	if (!rc)
		rc = stopped_go(stopped);
	return rc ? rc : write_commit(&s->write);
}

static int save_stopped(struct save *s, const char *const *sources, size_t n, const char *image)
{
	struct torpor *ctx = s->write.ctx;
	struct stopped *stopped = &s->stopped;
	int rc;

	stopped->ctx = ctx;
	stopped->sources = sources;
	stopped->n_sources = n;
	stopped->image = image;
	stopped->image_flags = s->write.opts.flags;
	stopped->image_fd = s->write.opts.image_fd;
	stopped->threads = s->write.threads;
	stopped->scan.skip_special = s->write.opts.flags & TORPOR_SKIP_SPECIAL;
	stopped->scan.warnings = ctx->warnings;
	rc = options_take(&stopped->opts, sizeof(stopped->opts), s->write.opts.stop, &ctx->e);
	if (!rc)
		rc = stopped_prepare(stopped);
	if (!rc)
		rc = write_open(&s->write, image);
	if (!rc)
		write_reserve(&s->write, stopped->expected_bytes);
	if (!rc)
		rc = guard_hold(TORPOR_GUARD_AUTO, &s->guard, s->guard_reason, sizeof(s->guard_reason), &ctx->e);
	if (!rc)
		rc = stopped_take(stopped);
	if (stopped->copy)
		guard_release(&s->guard);
	return rc ? rc : write_stopped(s);
}

static void cleanup(struct save *s)
{
	guard_release(&s->guard);
	stopped_free(&s->stopped);
	write_cleanup(&s->write);
	memory_source_free(s->source);
	memory_items_free(&s->items);
}

static void fill_report(const struct save *s, struct torpor_report *report)
{
	write_report(&s->write, report);
	if (!s->write.opts.stop)
		return;
	stopped_report(&s->stopped, report);
	report->guard_held = !s->guard_reason[0];
	snprintf(report->guard_reason, sizeof(report->guard_reason), "%s", s->guard_reason);
}

API int torpor_save(struct torpor *ctx, const char *const *sources, size_t n_sources,
		    const char *image, const struct torpor_save_opts *opts,
		    struct torpor_report *ret_report)
{
	struct save s = {.guard = -1};
	struct torpor_report report = {.size = sizeof(report)};
	uint64_t wall = clock_mono_ns(), cpu = clock_cpu_ns();
	int rc;

	context_begin(ctx);
	rc = options_check_result(ret_report, &ctx->e);
	if (!rc)
		rc = write_options(&s.write, ctx, opts, image);
	if (!rc)
		rc = s.write.opts.stop ? save_stopped(&s, sources, n_sources, image)
				       : save_files(&s, sources, n_sources, image);
	if (!rc)
		fill_report(&s, &report);
	cleanup(&s);
	if (rc < 0)
		return context_end(ctx, err_wrap(&ctx->e, rc, "cannot save to %s", image ? image : "the stream"));
	report.wall_ns = clock_mono_ns() - wall;
	report.cpu_ns = clock_cpu_ns() - cpu;
	return options_give(ret_report, &report, sizeof(report), &ctx->e);
}
