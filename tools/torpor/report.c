// SPDX-License-Identifier: LGPL-2.1-or-later
/* Reports; see report.h.  The keys of the JSON object are those of struct torpor_report. */
#include "report.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "list.h"
#include "text.h"

/*
 * Rates and ratios count the memory that is there: a terabyte of hole is saved in no time, and
 * counting it would only flatter.
 */
static uint64_t present_bytes(const struct torpor_report *r)
{
	return r->data_bytes + r->zero_bytes;
}

static double bytes_per_second(const struct torpor_report *r)
{
	return r->wall_ns ? (double)present_bytes(r) * 1e9 / (double)r->wall_ns : 0;
}

static double quotient(uint64_t a, uint64_t b)
{
	return b ? (double)a / (double)b : 0;
}

static void put_size(FILE *f, const char *label, uint64_t bytes)
{
	char size[TEXT_NUMBER_BYTES];

	fprintf(f, "%-10s%12s", label, text_size(bytes, size));
}

static void put_memory(FILE *f, const struct torpor_report *r)
{
	put_size(f, "memory", r->memory_bytes);
	fprintf(f, "   %" PRIu64 " segment%s\n", r->segments, r->segments == 1 ? "" : "s");
	put_size(f, "  data", r->data_bytes);
	fprintf(f, "   %" PRIu64 " chunk%s\n", r->chunks, r->chunks == 1 ? "" : "s");
	put_size(f, "  zero", r->zero_bytes);
	fputc('\n', f);
	put_size(f, "  hole", r->hole_bytes);
	fputc('\n', f);
	if (r->unpreserved_bytes) {
		put_size(f, "  left out", r->unpreserved_bytes);
		fputc('\n', f);
	}
}

/* The critical section, where there was one. */
static void put_critical(FILE *f, const struct torpor_report *r)
{
	double copy_s = (double)r->copy_ns / 1e9;

	if (!r->critical_ns)
		return;
	fprintf(f, "%-10s%10.1f ms  %u process%s, %u thread%s stood still", "critical", (double)r->critical_ns / 1e6,
		r->processes, r->processes == 1 ? "" : "es", r->stopped_threads, r->stopped_threads == 1 ? "" : "s");
	if (r->copy_used == TORPOR_COPY_NONE)
		fputs(" until all was written\n", f);
	else
		fprintf(f, "; stop %.1f ms, copy %.1f ms (%.2f GB/s)\n", (double)r->stop_ns / 1e6, copy_s * 1e3,
			r->copy_ns ? (double)r->looked_bytes / 1e9 / copy_s : 0);
	if (r->passes > 1)
		fprintf(f, "%-10s%10u     %.2f GB copied before the stop, %.2f GB in it\n", "passes", r->passes,
			(double)r->precopied_bytes / 1e9, (double)r->looked_bytes / 1e9);
	if (r->unreadable_bytes) {
		put_size(f, "unreadable", r->unreadable_bytes);
		fputs("   saved as holes\n", f);
	}
}

static void put_report(FILE *f, const struct op *op, const struct torpor_report *r)
{
	put_memory(f, r);
	put_size(f, "stored", r->stored_bytes);
	fputs("   codec ", f);
	text_put_name(f, r->codec);
	if (op->cmd == &cmd_save)
		fprintf(f, " (level %d)", r->level);
	fprintf(f, ", ratio %.2f\n", quotient(r->data_bytes, r->stored_bytes));
	put_size(f, "image", r->image_bytes);
	fprintf(f, "   ratio %.2f\n", quotient(present_bytes(r), r->image_bytes));
	fprintf(f, "%-10s%10.2f s   %.2f GB/s, CPU %.2f s, %u thread%s\n", "time",
		(double)r->wall_ns / 1e9, bytes_per_second(r) / 1e9, (double)r->cpu_ns / 1e9,
		r->threads, r->threads == 1 ? "" : "s");
	put_critical(f, r);
	if (op->cmd == &cmd_save)
		return;
	fputs(r->guard_held ? "latency guard held" : "latency guard not held: ", f);
	if (!r->guard_held)
		text_put_sentence(f, r->guard_reason);
	fputc('\n', f);
}

static void put_json(struct json *j, const struct op *op, const struct torpor_report *r)
{
	json_u64(j, "segments", r->segments);
	json_u64(j, "chunks", r->chunks);
	json_u64(j, "memory_bytes", r->memory_bytes);
	json_u64(j, "data_bytes", r->data_bytes);
	json_u64(j, "zero_bytes", r->zero_bytes);
	json_u64(j, "hole_bytes", r->hole_bytes);
	json_u64(j, "unpreserved_bytes", r->unpreserved_bytes);
	json_u64(j, "stored_bytes", r->stored_bytes);
	json_u64(j, "image_bytes", r->image_bytes);
	json_real(j, "ratio", quotient(present_bytes(r), r->image_bytes));
	json_u64(j, "wall_ns", r->wall_ns);
	json_u64(j, "cpu_ns", r->cpu_ns);
	json_real(j, "bytes_per_second", bytes_per_second(r));
	json_u64(j, "threads", r->threads);
	json_string(j, "codec", r->codec);
	if (op->cmd == &cmd_save)
		json_i64(j, "level", r->level);
	if (r->critical_ns) {
		json_u64(j, "critical_ns", r->critical_ns);
		json_u64(j, "stop_ns", r->stop_ns);
		json_u64(j, "copy_ns", r->copy_ns);
		json_u64(j, "pause_ns", r->pause_ns);
		json_u64(j, "copied_bytes", r->copied_bytes);
		json_u64(j, "looked_bytes", r->looked_bytes);
		json_u64(j, "precopied_bytes", r->precopied_bytes);
		json_u64(j, "unreadable_bytes", r->unreadable_bytes);
		json_u64(j, "processes", r->processes);
		json_u64(j, "stopped_threads", r->stopped_threads);
		json_u64(j, "passes", r->passes);
		json_string(j, "copy", r->copy_used == TORPOR_COPY_RAM ? "ram" : "none");
	}
	if (op->cmd == &cmd_save && !r->critical_ns)
		return;
	json_bool(j, "guard_held", r->guard_held != 0);
	json_string(j, "guard_reason", r->guard_reason);
}

int report_end(struct op *op, int result, const struct torpor_report *report, const char *image)
{
	const struct args *args = op->args;
	struct torpor_memory *found = NULL;
	int code = op_done(op, result);
	bool image_on_stdout = args->output && strcmp(args->output, "-") == 0;

	if (code == EXIT_DONE)
		torpor_memory_saved(op->ctx, &found);
	if (args->json) {
		op_json_begin(op, image);
		if (op->json.f && code == EXIT_DONE)
			put_json(&op->json, op, report);
		if (op->json.f && found)
			list_put_json(&op->json, found);
		op_json_end(op);
	} else if (code == EXIT_DONE && !args->quiet) {
		put_report(image_on_stdout ? stderr : stdout, op, report);
		if (found)
			list_put(image_on_stdout ? stderr : stdout, found);
	}
	torpor_memory_free(found);
	return op_end(op);
}

bool image_is_stream(const struct cmd *cmd, const struct args *args, const char *image, int fd,
		     int *ret)
{
	*ret = 0;
	if (strcmp(image, "-") != 0)
		return false;
	if (isatty(fd))
		*ret = usage_error(cmd, fd == STDIN_FILENO
						? "an image cannot be read from a terminal"
						: "an image is not written to a terminal");
	else if (args->json && args->json_fd == fd)
		*ret = usage_error(cmd, "the image goes to standard output: "
					"--json=FD names another descriptor for JSON");
	return true;
}

int image_must_seek(const struct cmd *cmd, const char *image)
{
	if (strcmp(image, "-") != 0)
		return 0;
	return usage_error(
		cmd, "needs an image that can seek, not '-' (a file of that name is ./-)");
}
