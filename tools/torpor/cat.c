// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * torpor cat: the bytes of one segment to standard output, without restoring the image.  It
 * stops at the first chunk that is damaged; what it wrote before was checked.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "report.h"
#include "text.h"

#define PIECE_BYTES MIB(1)

static const struct opt options[] = {
	{OPT_INDEX, "the segment by its number, as `torpor info` shows it"},
	{OPT_OFFSET, "begin so many bytes into the segment; default 0"},
	{OPT_LENGTH, "write so many bytes; default: to the end"},
	{OPT_HELP, "print this help"},
	{OPT_END, NULL},
};

/* 0, or an exit code; a reader that has enough and goes away is not worth a message. */
static int write_all(const struct cmd *cmd, const char *buf, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(STDOUT_FILENO, buf, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EPIPE)
			say_error("%s: cannot write standard output: %s", cmd->name,
				  strerror(errno));
		if (n < 0)
			return EXIT_FAILED;
		buf += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* What the user asked for, checked against the segment: a short answer would pass for a whole
 * one. */
static int choose_range(const struct op *op, const struct torpor_segment_info *segment,
			uint64_t *ret_end)
{
	const struct args *args = op->args;
	uint64_t end = segment->bytes;

	if (segment->kind == TORPOR_KIND_DIRECTORY || segment->kind == TORPOR_KIND_SYMLINK) {
		say_error("%s: %s is a %s and has no memory", op->cmd->name, segment->name,
			  segment->kind == TORPOR_KIND_SYMLINK ? "symlink" : "folder");
		return EXIT_FAILED;
	}
	if (args->has_length && num_add_overflows(args->offset, args->length, &end))
		end = UINT64_MAX;
	if (args->offset > segment->bytes || end > segment->bytes) {
		say_error("%s: %s has %" PRIu64 " bytes, what is asked for ends beyond them",
			  op->cmd->name, segment->name, segment->bytes);
		return EXIT_FAILED;
	}
	*ret_end = end;
	return 0;
}

static int copy_out(struct op *op, struct torpor_image *image, uint64_t i, uint64_t end)
{
	CLEANUP_FREE char *buf = malloc(PIECE_BYTES);
	uint64_t at = op->args->offset;

	if (!buf) {
		say_error("%s: %s", op->cmd->name, strerror(ENOMEM));
		return op_failed(op, EXIT_FAILED);
	}
	while (at < end) {
		/* Pieces end at multiples of their size: no chunk is decoded twice. */
		uint64_t stop = num_min(end, (at / PIECE_BYTES + 1) * PIECE_BYTES);
		int ret = torpor_image_read(image, i, at, buf, (size_t)(stop - at));

		if (ret)
			return op_done(op, ret);
		ret = write_all(op->cmd, buf, (size_t)(stop - at));
		if (ret)
			return op_failed(op, ret);
		at = stop;
	}
	return 0;
}

static int cat(struct op *op, struct torpor_image *image)
{
	struct torpor_segment_info segment = TORPOR_OPTS(segment);
	uint64_t i, end;
	int ret = 0;

	i = op->args->index;
	if (!op->args->has_index)
		ret = torpor_image_find(image, op->args->operands[1], &i);
	if (!ret)
		ret = torpor_image_segment(image, i, &segment);
	if (ret)
		return op_done(op, ret);
	ret = choose_range(op, &segment, &end);
	if (ret)
		return op_failed(op, ret);
	return copy_out(op, image, i, end);
}

static int run(const struct cmd *cmd, const struct args *args)
{
	struct torpor_image *image = NULL;
	struct op op;
	int ret;

	if (args->has_index && args->n_operands > 1)
		return usage_error(cmd, "a segment is named or has its --index, not both");
	if (!args->has_index && args->n_operands < 2)
		return usage_error(cmd, "no segment named");
	ret = image_must_seek(cmd, args->operands[0]);
	if (!ret)
		ret = op_begin(&op, cmd, args);
	if (ret)
		return ret;
	ret = torpor_image_open(op.ctx, args->operands[0], 0, &image);
	if (ret)
		op_done(&op, ret);
	else
		cat(&op, image);
	torpor_image_close(image);
	return op_end(&op);
}

const struct cmd cmd_cat = {
	.name = "cat",
	.summary = "write the bytes of one segment to standard output",
	.operands = "IMAGE SEGMENT|--index N [OPTION]...",
	.about =
		"Writes the bytes of one segment to standard output; nothing is restored, and\n"
		"only the chunks that are needed are read and checked. `torpor info IMAGE` "
		"names\n"
		"the segments.\n",
	.options = options,
	.notes = "A SIZE is a number of bytes, or of KiB, MiB, GiB, TiB or PiB with K, M, G, T or\n"
		 "P behind it. A name is given as it is, not as `torpor info` shows odd ones (\\n,\n"
		 "\\xHH): use --index for these.\n",
	.operands_min = 1,
	.operands_max = 2,
	.run = run,
};
