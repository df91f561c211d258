// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor_save(): sources, through the pipeline, into an image. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "api/context.h"
#include "api/pack.h"
#include "base/clock.h"
#include "image/writer.h"
#include "pipe/pipe.h"

#define SLOTS_MIN 32u

struct save {
	struct torpor *ctx;
	struct torpor_save_opts opts;
	struct memory_items items;
	struct memory_source *source;
	struct image_segment *segments;
	struct store *store;
	struct image_writer *writer;
	struct pack_plan plan;
	unsigned int threads;
	uint64_t jobs; /* taken */
	struct image_totals totals;
};

static int take(void *arg, void *worker, void *job_arg, struct err *e)
{
	struct save *s = arg;
	struct pack_job *job = job_arg;

	job->number = s->jobs++;
	return memory_source_next(s->source, &job->span, e);
}

static int work(void *arg, void *worker, void *job, struct err *e)
{
	return pack_span(worker, job, e);
}

/* In order: tells the writer of a span. */
static int done(void *arg, void *job_arg, struct err *e)
{
	struct save *s = arg;
	struct pack_job *job = job_arg;
	uint64_t page = job->span.first_page;
	unsigned int i;
	int rc = 0;

	for (i = 0; i < job->n_entries && !rc; i++) {
		rc = image_writer_chunk(s->writer, &job->entries[i], e);
		page = job->entries[i].first_page + job->entries[i].pages;
	}
	for (i = 0; i < job->n_runs && !rc; i++) {
		rc = image_writer_run(s->writer, job->span.item, page, job->runs[i].pages,
				      job->runs[i].kind, e);
		page += job->runs[i].pages;
	}
	memory_span_release(&job->span);
	return rc;
}

static void drop(void *arg, void *job)
{
	memory_span_release(&((struct pack_job *)job)->span);
}

static const struct pipe_ops save_ops = {.take = take, .work = work, .done = done, .drop = drop};

static int run(struct save *s)
{
	struct pack_worker **workers = calloc(s->threads, sizeof(struct pack_worker *));
	struct pipe_plan plan = {
		.ops = &save_ops,
		.ctx = s,
		.workers = (void *const *)workers,
		.n_workers = s->threads,
		.slots = (unsigned int)num_max(SLOTS_MIN, 4 * (uint64_t)s->threads),
		.job_bytes = num_round_up(pack_job_bytes(&s->plan), 64),
		.cancel = &s->ctx->cancel,
	};
	unsigned int i;
	int rc = workers ? 0 : err_sys(&s->ctx->e, -ENOMEM, "cannot make workers");

	for (i = 0; i < s->threads && !rc; i++)
		rc = pack_worker_new(&s->plan, &workers[i], &s->ctx->e);
	if (!rc)
		rc = pipe_run(&plan, &s->threads, &s->ctx->e);
	while (workers && i-- > 0)
		pack_worker_free(workers[i]);
	free(workers);
	return rc;
}

static int list_segments(struct save *s)
{
	uint64_t i, total = 0;

	s->segments = calloc(s->items.count + 1, sizeof(*s->segments));
	if (!s->segments)
		return err_sys(&s->ctx->e, -ENOMEM, "cannot save %" PRIu64 " files", s->items.count);
	for (i = 0; i < s->items.count; i++) {
		const struct memory_item *item = &s->items.list[i];

		s->segments[i] = (struct image_segment){
			.kind = (enum image_kind)item->kind,
			.bytes = item->bytes,
			.page_bytes = item->page_bytes,
			.huge_page_bytes = item->huge_page_bytes,
			.mode = item->mode,
			.uid = item->uid,
			.gid = item->gid,
			.mtime_ns = item->mtime_ns,
			.name = item->name,
			.origin = item->origin,
			.link = item->link,
		};
		total += num_pages(item->bytes, item->page_bytes) * item->page_bytes;
	}
	atomic_store(&s->ctx->total_bytes, total);
	return 0;
}

static int start_image(struct save *s)
{
	struct image_header header = {
		.created_ns = (int64_t)clock_read_ns(CLOCK_REALTIME),
		.chunk_bytes = s->plan.chunk_bytes,
		.level = s->plan.level,
	};

	if (getrandom(&header.id, sizeof(header.id), 0) != sizeof(header.id))
		return err_sys(&s->ctx->e, -errno, "cannot get a random number");
	snprintf(header.codec, sizeof(header.codec), "%s", s->plan.codec->name);
	s->plan.id = header.id;
	s->plan.sink = glue_sink(s->store);
	s->plan.done_bytes = &s->ctx->done_bytes;
	return image_writer_new(&s->plan.sink, &header, s->segments, s->items.count, &s->writer,
				&s->ctx->e);
}

static int check_chunk_bytes(uint32_t bytes, struct err *e)
{
	if (num_is_pow2(bytes) && bytes >= IMAGE_CHUNK_MIN_BYTES && bytes <= IMAGE_CHUNK_MAX_BYTES)
		return 0;
	return err_set(e, -EINVAL, "chunk size must be a power of two from 4 KiB to 1 MiB");
}

static int check_options(struct save *s, const char *image)
{
	struct err *e = &s->ctx->e;
	const struct torpor_save_opts *o = &s->opts;
	const uint32_t known = TORPOR_FORCE | TORPOR_SKIP_SPECIAL | TORPOR_IMAGE_FD;
	int rc;

	if ((o->flags & ~known) || !image == !(o->flags & TORPOR_IMAGE_FD))
		return err_set(e, -EINVAL, "an image is either a path or a descriptor, and flags must be known");
	rc = codec_by_name(o->codec ? o->codec : "lz4", &s->plan.codec, e);
	if (rc < 0)
		return rc;
	s->plan.chunk_bytes = o->chunk_bytes			? o->chunk_bytes
			      : s->plan.codec->id == CODEC_ZSTD ? IMAGE_CHUNK_ZSTD_BYTES
								: IMAGE_CHUNK_DEFAULT_BYTES;
	rc = check_chunk_bytes(s->plan.chunk_bytes, e);
	if (!rc)
		rc = codec_level(s->plan.codec, o->level, &s->plan.level, e);
	if (!rc)
		rc = options_threads(o->threads, &s->threads, e);
	return rc == -ERANGE ? -EINVAL : rc;
}

static int save(struct save *s, const char *const *sources, size_t n, const char *image)
{
	struct memory_scan_opts scan = {
		.skip_special = s->opts.flags & TORPOR_SKIP_SPECIAL,
		.warnings = s->ctx->warnings,
	};
	struct err *e = &s->ctx->e;
	int rc;

	rc = memory_scan(sources, n, &scan, &s->items, e);
	if (!rc)
		rc = list_segments(s);
	if (!rc)
		rc = memory_source_new(&s->items, &s->source, e);
	if (!rc)
		rc = glue_create(s->ctx, image, s->opts.flags, s->opts.image_fd, &s->store);
	if (!rc)
		rc = start_image(s);
	if (!rc)
		rc = run(s);
	if (!rc)
		rc = image_writer_finish(s->writer, &s->totals, e);
	if (!rc)
		rc = context_cancelled(s->ctx);
	if (!rc)
		rc = glue_commit(s->store, image_writer_header(s->writer), s->totals.image_bytes, e);
	return rc;
}

static void cleanup(struct save *s)
{
	image_writer_free(s->writer);
	store_free(s->store);
	memory_source_free(s->source);
	free(s->segments);
	memory_items_free(&s->items);
}

API int torpor_save(struct torpor *ctx, const char *const *sources, size_t n_sources,
		    const char *image, const struct torpor_save_opts *opts,
		    struct torpor_report *ret_report)
{
	struct save s = {.ctx = ctx};
	struct torpor_report report = {.size = sizeof(report)};
	uint64_t wall = clock_mono_ns(), cpu = clock_cpu_ns();
	int rc;

	context_begin(ctx);
	rc = options_take(&s.opts, sizeof(s.opts), opts, &ctx->e);
	if (!rc)
		rc = check_options(&s, image);
	if (!rc) {
		rc = save(&s, sources, n_sources, image);
		cleanup(&s);
	}
	if (rc < 0)
		return context_end(ctx, err_wrap(&ctx->e, rc, "cannot save to %s", image ? image : "the stream"));
	report_totals(&report, &s.totals);
	report.wall_ns = clock_mono_ns() - wall;
	report.cpu_ns = clock_cpu_ns() - cpu;
	report.threads = s.threads;
	report.level = s.plan.level;
	snprintf(report.codec, sizeof(report.codec), "%s", s.plan.codec->name);
	return options_give(ret_report, &report, sizeof(report));
}
