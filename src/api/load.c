// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * torpor_load(), and what it shares with torpor_verify().
 *
 * At random: the index tells of chunks in the order of pages; those that lie one behind the other in
 * the image make a job, which a worker reads at once and decodes.  In one pass: whoever takes a job
 * reads its records from the stream into its own buffer, while others decode.
 */
#include "api/load.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "pipe/pipe.h"

#define SLOTS_MIN 16u

/*
 * The next chunk in the order of the index.  Those without data are few and small, and are read as well: that they have none is
 * not the index's to say.
 */
static int next_entry(struct load *l, struct err *e)
{
	int rc;

	if (l->have_held || l->end)
		return 0;
	rc = image_cursor_next(&l->cursor, &l->held, e);
	l->end = rc == 0;
	l->have_held = rc > 0;
	return rc < 0 ? rc : 0;
}

static int take_indexed(struct load *l, struct unpack_job *job, struct err *e)
{
	int rc = next_entry(l, e);

	if (rc < 0 || !l->have_held)
		return rc;
	*job = (struct unpack_job){.offset = l->held.offset, .indexed = true};
	while (!rc && l->have_held && job->n_records < UNPACK_RECORDS_MAX && job->bytes < UNPACK_BYTES &&
	       l->held.offset == job->offset + job->bytes) {
		job->records[job->n_records++] = (struct unpack_record){
			.at = job->bytes,
			.bytes = l->held.record_bytes,
			.offset = l->held.offset,
			.told = l->held,
		};
		job->bytes += l->held.record_bytes;
		l->have_held = false;
		rc = next_entry(l, e);
	}
	/* A chunk without data stands where the save happened to be. */
	if (job->records[0].told.data_pages)
		readahead_advance(&l->ahead, job->offset + job->bytes);
	return rc < 0 ? rc : 1;
}

static int take_streamed(struct load *l, struct unpack_worker *w, struct unpack_job *job, struct err *e)
{
	size_t bytes;
	uint64_t offset;
	int rc = 1;

	*job = (struct unpack_job){.offset = 0};
	while (!l->end && job->n_records < UNPACK_RECORDS_MAX && job->bytes < UNPACK_BYTES) {
		rc = image_stream_next(l->stream, &bytes, &offset, e);
		if (rc == 0)
			l->end = true;
		if (rc > 0)
			rc = image_stream_read(l->stream, w->in + job->bytes, e);
		if (rc < 0)
			return rc;
		if (l->end)
			break;
		job->records[job->n_records++] = (struct unpack_record){
			.at = job->bytes, .bytes = (uint32_t)bytes, .offset = offset};
		job->bytes += (uint32_t)bytes;
	}
	return job->n_records > 0;
}

static int take(void *arg, void *worker, void *job, struct err *e)
{
	struct load *l = arg;

	return l->stream ? take_streamed(l, worker, job, e) : take_indexed(l, job, e);
}

static int work(void *arg, void *worker_arg, void *job_arg, struct err *e)
{
	struct load *l = arg;
	struct unpack_worker *worker = worker_arg;
	struct unpack_job *job = job_arg;
	int rc = 0;

	if (job->indexed)
		rc = store_input_read(&l->in, worker->in, job->bytes, job->offset, e);
	return rc < 0 ? rc : unpack_records(&l->plan, worker, job, e);
}

static const struct pipe_ops load_ops = {.take = take, .work = work};

static int run(struct load *l)
{
	struct unpack_worker **workers = calloc(l->threads, sizeof(struct unpack_worker *));
	struct pipe_plan plan = {
		.ops = &load_ops,
		.ctx = l,
		.workers = (void *const *)workers,
		.n_workers = l->threads,
		.slots = (unsigned int)num_max(SLOTS_MIN, 4 * (uint64_t)l->threads),
		.job_bytes = num_round_up(sizeof(struct unpack_job), 64),
		.cancel = &l->ctx->cancel,
	};
	struct err *e = &l->ctx->e;
	unsigned int i;
	int rc = workers ? 0 : err_sys(e, -ENOMEM, "cannot make workers");

	for (i = 0; i < l->threads && !rc; i++)
		rc = unpack_worker_new(l->plan.frame->header->chunk_bytes, &workers[i], e);
	if (!rc)
		rc = pipe_run(&plan, &l->threads, e);
	while (workers && i-- > 0)
		unpack_worker_free(workers[i]);
	free(workers);
	return rc;
}

int load_run(struct load *l)
{
	struct torpor_report *r = &l->report;
	int rc = guard_hold(l->opts.guard, &l->guard, r->guard_reason, sizeof(r->guard_reason), &l->ctx->e);

	if (rc < 0)
		return rc;
	r->guard_held = l->guard >= 0;
	l->plan.done_bytes = &l->ctx->done_bytes;
	l->cursor.reader = l->reader;
	if (l->reader)
		readahead_start(&l->ahead, &l->in);
	rc = run(l);
	readahead_stop(&l->ahead);
	guard_release(&l->guard);
	if (!rc)
		l->totals = l->stream ? *image_stream_totals(l->stream) : *image_reader_totals(l->reader);
	return rc;
}

static int open_stream(struct load *l)
{
	struct image_feed feed;
	int rc;

	l->feed.cancel = &l->ctx->cancel;
	if (l->feed.fd >= 0)
		store_stream_widen(l->feed.fd);
	feed = glue_feed(&l->feed);
	rc = image_stream_open(&feed, &l->stream, &l->ctx->e);
	if (!rc)
		l->plan.frame = image_stream_frame(l->stream);
	return rc;
}

static uint64_t memory_bytes(const struct image_reader *r)
{
	const struct image_totals *t = image_reader_totals(r);

	return t->data_bytes + t->zero_bytes + t->hole_bytes + t->unpreserved_bytes;
}

/* What reads in one pass comes to the totals last; where the image can seek they are looked up.  Damage is not this one's to tell. */
static void look_up_total(struct load *l)
{
	struct image_input input = glue_input(&l->in);
	struct image_reader *reader;

	if (image_reader_open(&input, &reader, NULL) < 0)
		return;
	atomic_store(&l->ctx->total_bytes, memory_bytes(reader));
	image_reader_free(reader);
}

static int open_path(struct load *l, const char *image, bool in_one_pass)
{
	struct err *e = &l->ctx->e;
	struct store_input in;
	struct image_input input;
	int rc;

	/* A fifo, as a shell's <(command) is, is opened once: its writer writes when somebody has it open. */
	rc = store_input_open_any(image, &in, e);
	if (rc < 0)
		return rc;
	if (rc > 0) {
		l->fd = l->feed.fd = in.fd;
		return open_stream(l);
	}
	l->in = in;
	if (in_one_pass) {
		look_up_total(l);
		l->feed = (struct glue_feed){.fd = -1, .in = &l->in};
		return open_stream(l);
	}
	input = glue_input(&l->in);
	rc = image_reader_open(&input, &l->reader, e);
	if (rc < 0)
		return rc;
	l->plan.frame = image_reader_frame(l->reader);
	atomic_store(&l->ctx->total_bytes, memory_bytes(l->reader));
	return 0;
}

int load_open(struct load *l, const char *image, const struct torpor_load_opts *opts,
	      const struct torpor_report *ret_report, bool in_one_pass)
{
	const uint32_t known = TORPOR_FORCE | TORPOR_TRUST_PATHS | TORPOR_IMAGE_FD;
	struct err *e = &l->ctx->e;
	int rc = options_check_result(ret_report, e);

	if (!rc)
		rc = options_take(&l->opts, sizeof(l->opts), opts, e);
	l->in.fd = l->fd = l->guard = -1;
	if (!rc && ((l->opts.flags & ~known) || !image == !(l->opts.flags & TORPOR_IMAGE_FD)))
		rc = err_set(e, -EINVAL, "an image is either a path or a descriptor, and flags must be known");
	if (!rc)
		rc = options_threads(l->opts.threads, &l->threads, e);
	if (rc < 0)
		return rc;
	if (image)
		return open_path(l, image, in_one_pass);
	l->feed.fd = l->opts.image_fd;
	return open_stream(l);
}

const struct image_segments *load_segments(const struct load *l)
{
	return l->stream ? image_stream_segments(l->stream) : image_reader_segments(l->reader);
}

int load_close(struct load *l, int rc, uint64_t wall_ns, uint64_t cpu_ns,
	       struct torpor_report *ret_report)
{
	guard_release(&l->guard);
	if (l->plan.frame)
		snprintf(l->report.codec, sizeof(l->report.codec), "%.15s", l->plan.frame->header->codec);
	image_stream_free(l->stream);
	image_reader_free(l->reader);
	store_input_close(&l->in);
	if (l->fd >= 0)
		close(l->fd);
	if (rc < 0)
		return context_end(l->ctx, rc);
	report_totals(&l->report, &l->totals);
	l->report.wall_ns = clock_mono_ns() - wall_ns;
	l->report.cpu_ns = clock_cpu_ns() - cpu_ns;
	l->report.threads = l->threads;
	return options_give(ret_report, &l->report, sizeof(l->report), &l->ctx->e);
}

/* Paths in an image are obeyed only when nobody but the caller or root can have written them. */
static int check_trust(const struct load *l)
{
	struct stat st;

	if (l->opts.to || (l->opts.flags & TORPOR_TRUST_PATHS))
		return 0;
	if (l->stream || fstat(l->in.fd, &st) < 0)
		return err_set(&l->ctx->e, -EPERM,
			       "an image that comes through a pipe cannot say where to restore to; name a folder or trust its paths");
	if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return err_set(&l->ctx->e, -EPERM,
			       "the image may have been written by others (owner %u, mode %04o), so the paths in it are not trusted; name a folder or trust its paths",
			       st.st_uid, st.st_mode & 07777);
	return 0;
}

/* The segments as items; strings are borrowed. */
static int list_items(struct load *l, struct memory_items *items)
{
	const struct image_segments *segs = load_segments(l);
	uint64_t i;

	items->list = calloc(segs->count + 1, sizeof(*items->list));
	if (!items->list)
		return err_sys(&l->ctx->e, -ENOMEM, "cannot restore %" PRIu64 " files", segs->count);
	for (i = 0; i < segs->count; i++) {
		const struct image_segment *seg = &segs->items[i];

		items->list[i] = (struct memory_item){
			.kind = (enum memory_kind)seg->kind,
			.bytes = seg->bytes,
			.page_bytes = seg->page_bytes,
			.huge_page_bytes = seg->huge_page_bytes,
			.mode = seg->mode,
			.uid = seg->uid,
			.gid = seg->gid,
			.mtime_ns = seg->mtime_ns,
			.name = seg->name,
			.origin = seg->origin,
			.link = seg->link,
		};
	}
	items->count = segs->count;
	return 0;
}

static int next_data(void *ctx, struct memory_data *ret, struct err *e)
{
	struct image_entry entry = {.data_pages = 0};
	int rc = 1;

	while (rc > 0 && !entry.data_pages)
		rc = image_cursor_next(ctx, &entry, e);
	if (rc > 0)
		*ret = (struct memory_data){entry.segment, entry.first_page, entry.pages, entry.data_pages};
	return rc;
}

static int restore(struct load *l)
{
	struct image_cursor look_ahead = {.reader = l->reader};
	struct memory_items items = {.count = 0};
	struct memory_target_opts opts = {
		.to = l->opts.to,
		.force = l->opts.flags & TORPOR_FORCE,
		.data_bytes = l->reader ? image_reader_totals(l->reader)->data_bytes : 0,
		.has_image = true,
		.image_fd = l->in.fd >= 0 ? l->in.fd : l->feed.fd,
		.warnings = l->ctx->warnings,
		.next_data = l->reader ? next_data : NULL,
		.data_ctx = &look_ahead,
	};
	struct err *e = &l->ctx->e;
	int rc = check_trust(l);

	if (!rc)
		rc = list_items(l, &items);
	if (!rc)
		rc = memory_target_new(&items, &opts, &l->plan.target, e);
	if (!rc)
		rc = load_run(l);
	if (!rc)
		rc = context_cancelled(l->ctx);
	if (!rc)
		rc = memory_target_commit(l->plan.target, e);
	memory_target_free(l->plan.target);
	free(items.list);
	return rc;
}

API int torpor_load(struct torpor *ctx, const char *image, const struct torpor_load_opts *opts,
		    struct torpor_report *ret_report)
{
	struct load l = {.ctx = ctx, .report = {.size = sizeof(l.report)}};
	uint64_t wall = clock_mono_ns(), cpu = clock_cpu_ns();
	int rc;

	context_begin(ctx);
	rc = load_open(&l, image, opts, ret_report, false);
	if (!rc)
		rc = restore(&l);
	if (rc < 0)
		err_wrap(&ctx->e, rc, "cannot load %s", image ? image : "the image");
	return load_close(&l, rc, wall, cpu, ret_report);
}
