// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor rebuild: a whole image from one that lost its index or its end. */
#include <inttypes.h>

#include "report.h"
#include "text.h"

static const struct opt options[] = {
	{OPT_OUTPUT, "the image to write: a file or a block device"},
	{OPT_FORCE, "replace an image that exists, write to a device"},
	{OPT_PROGRESS, "auto, always or never; default auto: on a\nterminal, after a second"},
	{OPT_QUIET, "no report and no progress"},
	{OPT_JSON, "report as one JSON object, to standard output or\nto descriptor FD"},
	{OPT_HELP, "print this help"},
	{OPT_END, NULL},
};

/* The new image is sound, but whoever loads it must know that memory is missing: damaged. */
static int say_lost(struct op *op, uint64_t lost_bytes)
{
	char size[TEXT_NUMBER_BYTES];

	say_error("%s: %s of memory are lost, their pages are holes in %s", op->cmd->name,
		  text_size(lost_bytes, size), op->args->output);
	return op_failed(op, EXIT_DAMAGED);
}

static int end(struct op *op, int result, uint64_t lost_bytes)
{
	const struct args *args = op->args;
	int code = op_done(op, result);

	if (code == EXIT_DONE && lost_bytes)
		say_lost(op, lost_bytes);
	if (args->json) {
		op_json_begin(op, args->operands[0]);
		if (op->json.f && !result) {
			json_name(&op->json, "output", args->output);
			json_u64(&op->json, "lost_bytes", lost_bytes);
		}
		op_json_end(op);
	} else if (op->code == EXIT_DONE && !args->quiet) {
		puts("rebuilt, nothing is lost");
	}
	return op_end(op);
}

static int run(const struct cmd *cmd, const struct args *args)
{
	uint64_t lost_bytes = 0;
	struct op op;
	int ret;

	if (!args->output)
		return usage_error(cmd, "no new image named: -o NEW");
	ret = image_must_seek(cmd, args->operands[0]);
	if (!ret)
		ret = image_must_seek(cmd, args->output);
	if (!ret)
		ret = op_begin(&op, cmd, args);
	if (ret)
		return ret;
	op_watch(&op, "rebuilding");
	ret = torpor_rebuild(op.ctx, args->operands[0], args->output, args->flags, &lost_bytes);
	return end(&op, ret, lost_bytes);
}

const struct cmd cmd_rebuild = {
	.name = "rebuild",
	.summary = "make a whole image from one that lost its end",
	.operands = "IMAGE -o NEW [OPTION]...",
	.about = "Writes a new, whole image from one whose index or end is lost (a disk that\n"
		 "filled up, a copy that was cut off): what is sound is found by scanning. "
		 "Pages\n"
		 "that are lost become holes; the exit code is 3 when there are any.\n",
	.options = options,
	.notes = "Memory needed: 72 to 144 bytes for each chunk of the image, and up to 216 for\na moment.\n",
	.operands_min = 1,
	.operands_max = 1,
	.run = run,
};
