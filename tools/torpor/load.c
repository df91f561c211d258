// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor load: the memory of an image back to its place. */
#include <unistd.h>

#include "report.h"

static const struct opt options[] = {
	{OPT_TO, "restore under DIR; default: where it came from"},
	{OPT_FORCE, "replace files and folders that exist, a folder with\nall that is in it"},
	{OPT_TRUST_PATHS,
	 "restore to where it came from although others\nmay have written the image"},
	{OPT_THREADS, "workers; default: the CPUs it may use"},
	{OPT_LATENCY_GUARD,
	 "auto, on or off: hold CPUs out of deep idle\nmeanwhile; default auto"},
	{OPT_PROGRESS, "auto, always or never; default auto: on a\nterminal, after a second"},
	{OPT_QUIET, "no report and no progress"},
	{OPT_JSON, "report as one JSON object, to standard output or\nto descriptor FD"},
	{OPT_HELP, "print this help"},
	{OPT_END, NULL},
};

static int run(const struct cmd *cmd, const struct args *args)
{
	struct torpor_load_opts opts = TORPOR_OPTS(opts);
	struct torpor_report report = TORPOR_OPTS(report);
	const char *image = args->operands[0];
	struct op op;
	int ret;

	opts.flags = args->flags;
	opts.threads = args->threads;
	opts.to = args->to;
	opts.guard = args->guard;
	if (image_is_stream(cmd, args, image, STDIN_FILENO, &ret)) {
		if (ret)
			return ret;
		opts.flags |= TORPOR_IMAGE_FD;
		opts.image_fd = STDIN_FILENO;
		image = NULL;
	}
	ret = op_begin(&op, cmd, args);
	if (ret)
		return ret;
	op_watch(&op, "loading");
	ret = torpor_load(op.ctx, image, &opts, &report);
	return report_end(&op, ret, &report, args->operands[0]);
}

const struct cmd cmd_load = {
	.name = "load",
	.summary = "bring the memory of an image back",
	.operands = "IMAGE [--to DIR] [OPTION]...",
	.about = "Brings back what an image holds, byte for byte; - is standard input. Files "
		 "and\n"
		 "folders are built under a temporary name and renamed when all of them are\n"
		 "complete and every checksum was right: a load that fails leaves nothing "
		 "behind.\n",
	.options = options,
	.notes = "Memory needed: less than 64 MiB + 4 MiB a thread, whatever the size of the\n"
		 "image, plus about 300 bytes for each file in it; and room for what is "
		 "restored.\n",
	.operands_min = 1,
	.operands_max = 1,
	.run = run,
};
