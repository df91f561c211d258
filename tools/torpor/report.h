/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What save, load and verify did, for people and as JSON; and where `-` may stand for an image.
 */
#ifndef TORPOR_TOOL_REPORT_H
#define TORPOR_TOOL_REPORT_H

#include "op.h"

/*
 * Ends an operation: prints what op_done() says, then the report as the options ask for it (to
 * standard error when standard output is the image), and returns the exit code.
 */
int report_end(struct op *op, int result, const struct torpor_report *report,
	       const char *image);

/*
 * Whether `image` is "-", which stands for `fd`, and is to be read from or written to it.  *ret
 * is an exit code after a message when that makes no sense: the descriptor is a terminal, or
 * the JSON object would go into the image.
 */
bool image_is_stream(const struct cmd *cmd, const struct args *args, const char *image, int fd,
		     int *ret);

/* A usage error when `image` is "-"; for commands that must seek in it.  0 or an exit code. */
int image_must_seek(const struct cmd *cmd, const char *image);

#endif
