/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One operation of the library from the command's side: the context, the signals that cancel
 * it, the progress bar, and what is said when it has ended.  The order of calls is
 *
 *     op_begin, op_watch, (the operation), op_done, (the report), op_end
 *
 * where a command that only reads leaves out op_watch(): a signal then ends it as any program.
 */
#ifndef TORPOR_TOOL_OP_H
#define TORPOR_TOOL_OP_H

#include <torpor.h>

#include "cmd.h"
#include "json.h"
#include "progress.h"

struct op {
	const struct cmd *cmd;
	const struct args *args;
	struct torpor *ctx;
	struct progress progress;
	int code;   /* op_done()'s answer */
	int result; /* what the library returned */
	struct json json;
};

/* Makes the context.  0, or an exit code after a message. */
int op_begin(struct op *op, const struct cmd *cmd, const struct args *args);

/*
 * SIGINT, SIGTERM and SIGHUP cancel the operation from here on; a second one of the same kind
 * ends the process at once.  `verb` stands before the progress bar ("saving").
 */
void op_watch(struct op *op, const char *verb);

/*
 * The operation returned `result`: takes the bar away and prints warnings and the error.
 * Returns the exit code: 128 + the signal when a signal had cancelled it.
 */
int op_done(struct op *op, int result);

/* As op_done(), for a failure that the command found itself and has already printed. */
int op_failed(struct op *op, int code);

/*
 * Begins and ends the JSON object on its descriptor; between them the command writes its own
 * keys to op->json.  `image` is what the user named.
 */
void op_json_begin(struct op *op, const char *image);
void op_json_end(struct op *op);

/* Frees everything and returns the exit code; after a cancelling signal it does not return. */
int op_end(struct op *op);

#endif
