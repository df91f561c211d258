// SPDX-License-Identifier: LGPL-2.1-or-later
/* One operation of the library; see op.h. */
#include "op.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "text.h"

static const int cancelling_signals[] = {SIGINT, SIGTERM, SIGHUP};

/* The signal handler's only way to know what to cancel; one operation runs in a process. */
static struct torpor *volatile cancel_ctx;
static volatile sig_atomic_t cancel_signal;

static void on_signal(int sig)
{
	cancel_signal = sig;
	torpor_cancel(cancel_ctx);
}

int op_begin(struct op *op, const struct cmd *cmd, const struct args *args)
{
	int ret;

	memset(op, 0, sizeof(*op));
	op->cmd = cmd;
	op->args = args;
	ret = torpor_new(&op->ctx);
	if (ret) {
		say_error("%s: %s", cmd->name, strerror(-ret));
		return EXIT_FAILED;
	}
	return 0;
}

void op_watch(struct op *op, const char *verb)
{
	/* Without SA_RESTART a read that waits for a pipe ends, and the library looks up. */
	struct sigaction cancel = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
	struct sigaction before;

	cancel_ctx = op->ctx;
	for (size_t i = 0; i < ARRAY_LEN(cancelling_signals); i++) {
		/* What was to be ignored (nohup) stays ignored. */
		sigaction(cancelling_signals[i], NULL, &before);
		if (before.sa_handler != SIG_IGN)
			sigaction(cancelling_signals[i], &cancel, NULL);
	}
	progress_start(&op->progress, op->ctx, verb,
		       op->args->quiet ? PROGRESS_NEVER : op->args->progress);
}

/* From here on there is nothing to cancel: a signal ends the process as usual. */
static void unwatch(void)
{
	struct sigaction before;

	for (size_t i = 0; i < ARRAY_LEN(cancelling_signals); i++) {
		sigaction(cancelling_signals[i], NULL, &before);
		if (before.sa_handler == on_signal)
			signal(cancelling_signals[i], SIG_DFL);
	}
	cancel_ctx = NULL;
}

static const char *hint_for(const struct op *op)
{
	for (const struct opt *opt = op->cmd->options; opt->id != OPT_END; opt++) {
		if (opt->id == OPT_FORCE && op->result == -EEXIST)
			return "--force replaces it";
		if (opt->id == OPT_CODEC && op->result == -ENOTBLK)
			return "-o - writes to standard output, wherever that leads";
		if (opt->id == OPT_TO && op->result == -EPERM && !op->args->to)
			return "--to DIR restores elsewhere, --trust-paths trusts the image";
	}
	return NULL;
}

static int exit_code(int result)
{
	switch (result) {
	case 0:
		return EXIT_DONE;
	case -EBADMSG:
		return EXIT_DAMAGED;
	case -EINVAL:
		return EXIT_USAGE;
	default:
		return EXIT_FAILED;
	}
}

static void say_failure(const struct op *op)
{
	const char *message = torpor_error(op->ctx), *hint = hint_for(op);

	say_error("%s", *message ? message : strerror(-op->result));
	if (hint)
		fprintf(stderr, "torpor: hint: %s\n", hint);
}

int op_done(struct op *op, int result)
{
	const char *warning;

	progress_stop(&op->progress);
	unwatch();
	op->result = result;
	for (size_t i = 0; (warning = torpor_warning(op->ctx, i)); i++)
		say_warning("%s", warning);
	if (result == -ECANCELED && cancel_signal) {
		say_error("%s: stopped by SIG%s", op->cmd->name, sigabbrev_np(cancel_signal));
		op->code = 128 + cancel_signal;
		return op->code;
	}
	if (result)
		say_failure(op);
	op->code = exit_code(result);
	return op->code;
}

int op_failed(struct op *op, int code)
{
	op->code = code;
	return code;
}

/* Warnings name files: where one of them is no text, all follow as bytes, in the same order. */
static void put_warnings(struct op *op)
{
	struct json *j = &op->json;
	const char *warning;
	bool text = true;

	json_open(j, "warnings", '[');
	for (size_t i = 0; (warning = torpor_warning(op->ctx, i)); i++) {
		json_string(j, NULL, warning);
		text = text && json_is_text(warning);
	}
	json_close(j, ']');
	if (text)
		return;
	json_open(j, "warnings_hex", '[');
	for (size_t i = 0; (warning = torpor_warning(op->ctx, i)); i++)
		json_hex(j, NULL, warning);
	json_close(j, ']');
}

/* What the exit code says, in words; last, so that it holds for all that stands before it. */
static void put_outcome(struct op *op)
{
	const char *message = torpor_error(op->ctx);
	struct json *j = &op->json;

	put_warnings(op);
	if (op->result) {
		json_name(j, "error", *message ? message : strerror(-op->result));
		json_string(j, "error_code", strerrorname_np(-op->result));
	}
	json_i64(j, "exit", op->code);
}

/* Our own copy of the descriptor, so that closing it tells whether all was written. */
static FILE *json_stream(int fd)
{
	int copy = dup(fd);
	FILE *f = copy < 0 ? NULL : fdopen(copy, "w");

	if (!f && copy >= 0)
		close(copy);
	return f;
}

void op_json_begin(struct op *op, const char *image)
{
	op->json.f = json_stream(op->args->json_fd);
	if (!op->json.f)
		return;
	json_open(&op->json, NULL, '{');
	json_string(&op->json, "command", op->cmd->name);
	json_name(&op->json, "image", image);
}

void op_json_end(struct op *op)
{
	FILE *f = op->json.f;
	bool bad = !f;

	if (f) {
		put_outcome(op);
		json_close(&op->json, '}');
		fputc('\n', f);
		errno = 0;
		bad = fflush(f) != 0 || ferror(f);
		fclose(f);
	}
	if (!bad)
		return;
	say_error("%s: cannot write the JSON object to descriptor %d: %s", op->cmd->name,
		  op->args->json_fd, errno ? strerror(errno) : "not all was written");
	if (op->code == EXIT_DONE)
		op->code = EXIT_FAILED;
}

int op_end(struct op *op)
{
	int code = op->code;

	torpor_free(op->ctx);
	if (code > 128) {
		/* A shell script stops at Ctrl-C only when its command died by the signal. */
		fflush(NULL);
		signal(code - 128, SIG_DFL);
		raise(code - 128);
	}
	return code;
}
