// SPDX-License-Identifier: LGPL-2.1-or-later
/* A source of pages, through the pipeline, into an image; see write.h. */
#include "api/write.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/thread.h"
#include "os/priority.h"
#include "pipe/pipe.h"

#define SLOTS_MIN 32u

static int take(void *arg, void *worker, void *job_arg, struct err *e)
{
	struct write_job *w = arg;
	struct pack_job *job = job_arg;

	job->number = w->jobs++;
	return memory_source_next(w->source, &job->span, e);
}

static int work(void *arg, void *worker, void *job, struct err *e)
{
	return pack_span(worker, job, e);
}

/* In order: tells the writer of a span. */
static int done(void *arg, void *job_arg, struct err *e)
{
	struct write_job *w = arg;
	struct pack_job *job = job_arg;
	uint64_t page = job->span.first_page;
	unsigned int i;
	int rc = 0, released;

	for (i = 0; i < job->n_entries && !rc; i++) {
		rc = image_writer_chunk(w->writer, &job->entries[i], e);
		page = job->entries[i].first_page + job->entries[i].pages;
	}
	for (i = 0; i < job->n_runs && !rc; i++) {
		rc = image_writer_run(w->writer, job->span.item, page, job->runs[i].pages,
				      job->runs[i].kind, e);
		page += job->runs[i].pages;
	}
	released = memory_span_release(&job->span, rc < 0 ? NULL : e);
	return rc < 0 ? rc : released;
}

static void drop(void *arg, void *job)
{
	memory_span_release(&((struct pack_job *)job)->span, NULL);
}

static const struct pipe_ops save_ops = {.take = take, .work = work, .done = done, .drop = drop};

static int run(struct write_job *w)
{
	struct pack_worker **workers = calloc(w->threads, sizeof(struct pack_worker *));
	struct pipe_plan plan = {
		.ops = &save_ops,
		.ctx = w,
		.workers = (void *const *)workers,
		.n_workers = w->threads,
		.slots = (unsigned int)num_max(SLOTS_MIN, 4 * (uint64_t)w->threads),
		.job_bytes = num_round_up(pack_job_bytes(&w->plan), 64),
		.cancel = &w->ctx->cancel,
	};
	unsigned int i;
	int rc = workers ? 0 : err_sys(w->e, -ENOMEM, "cannot make workers");

	for (i = 0; i < w->threads && !rc; i++)
		rc = pack_worker_new(&w->plan, &workers[i], w->e);
	if (!rc)
		rc = pipe_run(&plan, &w->threads, w->e);
	while (workers && i-- > 0)
		pack_worker_free(workers[i]);
	free(workers);
	return rc;
}

static int list_segments(struct write_job *w)
{
	uint64_t i, total = 0;

	w->segments = calloc(w->items->count + 1, sizeof(*w->segments));
	if (!w->segments)
		return err_sys(w->e, -ENOMEM, "cannot save %" PRIu64 " files", w->items->count);
	for (i = 0; i < w->items->count; i++) {
		const struct memory_item *item = &w->items->list[i];

		w->segments[i] = (struct image_segment){
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
	atomic_store(&w->ctx->total_bytes, total);
	return 0;
}

static int start_image(struct write_job *w)
{
	struct image_header header = {
		.created_ns = (int64_t)clock_read_ns(CLOCK_REALTIME),
		.chunk_bytes = w->plan.chunk_bytes,
		.level = w->plan.level,
		.compatible = w->compatible,
	};

	if (getrandom(&header.id, sizeof(header.id), 0) != sizeof(header.id))
		return err_sys(w->e, -errno, "cannot get a random number");
	snprintf(header.codec, sizeof(header.codec), "%s", w->plan.codec->name);
	w->plan.id = header.id;
	w->plan.threads = w->threads;
	w->plan.sink = glue_sink(w->store);
	w->plan.done_bytes = &w->ctx->done_bytes;
	return image_writer_new(&w->plan.sink, &header, w->segments, w->items->count, &w->writer,
				w->e);
}

static int check_chunk_bytes(uint32_t bytes, struct err *e)
{
	if (num_is_pow2(bytes) && bytes >= IMAGE_CHUNK_MIN_BYTES && bytes <= IMAGE_CHUNK_MAX_BYTES)
		return 0;
	return err_set(e, -EINVAL, "chunk size must be a power of two from 4 KiB to 1 MiB");
}

int write_options(struct write_job *w, struct torpor *ctx, const struct torpor_save_opts *opts, const char *image)
{
	struct err *e = &ctx->e;
	const struct torpor_save_opts *o = &w->opts;
	const uint32_t known = TORPOR_FORCE | TORPOR_SKIP_SPECIAL | TORPOR_IMAGE_FD;
	int rc = options_take(&w->opts, sizeof(w->opts), opts, e);

	w->ctx = ctx;
	w->e = e;
	if (rc < 0)
		return rc;
	if ((o->flags & ~known) || !image == !(o->flags & TORPOR_IMAGE_FD))
		return err_set(e, -EINVAL, "an image is either a path or a descriptor, and flags must be known");
	rc = codec_by_name(o->codec ? o->codec : "lz4", &w->plan.codec, e);
	if (rc < 0)
		return rc;
	w->plan.chunk_bytes = o->chunk_bytes			? o->chunk_bytes
			      : w->plan.codec->id == CODEC_ZSTD ? IMAGE_CHUNK_ZSTD_BYTES
								: IMAGE_CHUNK_DEFAULT_BYTES;
	rc = check_chunk_bytes(w->plan.chunk_bytes, e);
	if (!rc)
		rc = codec_level(w->plan.codec, o->level, &w->plan.level, e);
	if (!rc)
		rc = options_threads(o->threads, &w->threads, e);
	return rc == -ERANGE ? -EINVAL : rc;
}

int write_open(struct write_job *w, const char *image)
{
	return glue_create(w->ctx, image, w->opts.flags, w->opts.image_fd, &w->store);
}

/* Memory that is worth saving packs to half or better; what does not is found out when it is written. */
#define RESERVED_PART 2

void write_reserve(struct write_job *w, uint64_t memory_bytes)
{
	struct err e = {.text = ""};

	if (store_reserve(w->store, memory_bytes / RESERVED_PART, &e) < 0)
		memory_warn(w->ctx->warnings, "%s; writing it may fail", e.text);
}

int write_pages(struct write_job *w)
{
	int rc = list_segments(w);

	if (!rc)
		rc = start_image(w);
	if (!rc)
		rc = run(w);
	if (!rc)
		rc = image_writer_finish(w->writer, &w->totals, w->e);
	return rc;
}

int write_commit(struct write_job *w)
{
	if (atomic_load(&w->ctx->cancel))
		return err_set(w->e, -ECANCELED, "cancelled");
	return glue_commit(w->store, image_writer_header(w->writer), w->totals.image_bytes, w->e);
}

struct background {
	struct write_job *w;
	int rc;
};

/* Threads that are started here inherit what is idle. */
static void *write_idly(void *arg)
{
	struct background *b = arg;

	os_priority_idle();
	b->rc = write_pages(b->w);
	if (!b->rc)
		b->rc = write_commit(b->w);
	return NULL;
}

int write_in_background(struct write_job *w)
{
	struct background b = {.w = w};
	pthread_t thread;
	int rc = thread_start(&thread, write_idly, &b);

	if (rc < 0)
		return err_sys(w->e, rc, "cannot start a thread");
	pthread_join(thread, NULL);
	return b.rc;
}

void write_report(const struct write_job *w, struct torpor_report *report)
{
	report_totals(report, &w->totals);
	report->threads = w->threads;
	report->level = w->plan.level;
	snprintf(report->codec, sizeof(report->codec), "%s", w->plan.codec->name);
}

void write_cleanup(struct write_job *w)
{
	image_writer_free(w->writer);
	store_free(w->store);
	free(w->segments);
	w->writer = NULL;
	w->store = NULL;
	w->segments = NULL;
}
