// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor save: memory into an image. */
#include <unistd.h>

#include "list.h"
#include "report.h"

static const struct opt options[] = {
	{OPT_OUTPUT, "the image to write: a file, a block device, or\n- for standard output"},
	{OPT_CODEC, "none, lz4, zstd or lzo; default lz4"},
	{OPT_LEVEL, "lz4: acceleration; zstd: level, also negative;\ndefault 1"},
	{OPT_CHUNK_SIZE, "memory compressed as one, 4K to 1M (128K, zstd 512K)"},
	{OPT_THREADS, "workers; default: the CPUs it may use"},
	{OPT_STOP, "stop these processes, copy their memory, let them\ngo on, then write the copy"},
	{OPT_FREEZE, "the same with all of a control group (version 2)"},
	{OPT_TREE, "stop what descends from the processes too"},
	{OPT_LIST, "only list the shared memory of the processes"},
	{OPT_COPY, "ram (default), none: they stand still until all\nis written, or auto: ram if it fits"},
	{OPT_PASSES, "copy N-1 times while they run, then only what\nchanged since; default 1"},
	{OPT_ZERO_CHECK, "on (default), or off: zero pages are copied and\nfound later"},
	{OPT_SKIP_UNREADABLE, "save pages that cannot be read as holes"},
	{OPT_ALLOW_WRITERS, "save though others could write the memory"},
	{OPT_BACKGROUND, "compress and write at idle priority"},
	{OPT_FORCE, "replace an image that exists, write to a device"},
	{OPT_SKIP_SPECIAL, "pass over sockets, fifos and devices"},
	{OPT_PROGRESS, "auto, always or never; default auto: on a\nterminal, after a second"},
	{OPT_QUIET, "no report and no progress"},
	{OPT_JSON, "report as one JSON object, to standard output or\nto descriptor FD"},
	{OPT_HELP, "print this help"},
	{OPT_END, NULL},
};

/* Which options go together. */
static int check(const struct cmd *cmd, const struct args *args)
{
	bool stops = args->n_stop_pids || args->cgroup;

	if (args->has_stop_option && !stops)
		return usage_error(cmd, "nothing to be stopped: --stop PID or --freeze CGROUP");
	if (args->list && (args->cgroup || args->n_operands))
		return usage_error(cmd, "--list takes --stop PID alone");
	if (!args->n_operands && !stops)
		return usage_error(cmd, "no SOURCE named");
	if (!args->output && !args->list)
		return usage_error(cmd, "no image named: -o IMAGE");
	return 0;
}

static int run(const struct cmd *cmd, const struct args *args)
{
	struct torpor_save_opts opts = TORPOR_OPTS(opts);
	struct torpor_stop stop = TORPOR_OPTS(stop);
	struct torpor_report report = TORPOR_OPTS(report);
	const char *image = args->output;
	struct op op;
	int ret;

	ret = check(cmd, args);
	if (ret || args->list)
		return ret ? ret : list_memory(cmd, args);
	opts.flags = args->flags;
	opts.threads = args->threads;
	opts.codec = args->codec;
	opts.level = args->level;
	opts.chunk_bytes = args->chunk_bytes;
	stop.flags = args->stop_flags;
	stop.copy = args->copy;
	stop.pids = args->stop_pids;
	stop.n_pids = args->n_stop_pids;
	stop.cgroup = args->cgroup;
	stop.passes = args->passes;
	if (stop.n_pids || stop.cgroup)
		opts.stop = &stop;
	if (image_is_stream(cmd, args, image, STDOUT_FILENO, &ret)) {
		if (ret)
			return ret;
		opts.flags |= TORPOR_IMAGE_FD;
		opts.image_fd = STDOUT_FILENO;
		image = NULL;
	}
	ret = op_begin(&op, cmd, args);
	if (ret)
		return ret;
	op_watch(&op, "saving");
	ret = torpor_save(op.ctx, (const char *const *)args->operands, (size_t)args->n_operands,
			  image, &opts, &report);
	return report_end(&op, ret, &report, args->output);
}

const struct cmd cmd_save = {
	.name = "save",
	.summary = "save memory files into an image",
	.operands = "SOURCE... -o IMAGE [OPTION]...",
	.about = "Saves memory that lies in files (on tmpfs, DAX or any filesystem) into one\n"
		 "compressed, checksummed image. A SOURCE is a file or a folder with all it "
		 "holds.\n"
		 "The sources must not be written meanwhile. The image gets its name when it "
		 "is\n"
		 "complete and flushed: until then an old one of that name stays whole.\n",
	.options = options,
	.notes = "Memory needed: less than 64 MiB + 4 MiB a thread, whatever the size of the\n"
		 "sources, plus about 300 bytes for each file.\n",
	.run = run,
};
