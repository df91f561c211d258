/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The command table's row.  A command is one file that fills in one of these; main.c lists
 * them. A command returns the exit code of the program and has printed all there is to say.
 */
#ifndef TORPOR_TOOL_CMD_H
#define TORPOR_TOOL_CMD_H

#include "args.h"

/* The exit codes, as documented in torpor(1). */
enum exit_code {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_DAMAGED = 3,
};

struct cmd {
	const char *name;
	const char *summary;            /* one line of `torpor --help` */
	const char *operands;           /* "SOURCE... -o IMAGE" */
	const char *about;              /* what --help says before the options, whole lines */
	const struct opt *options;      /* ends with an OPT_END */
	const char *notes;              /* what --help says after the options, or NULL */
	int operands_min, operands_max; /* as many as main.c lets through; max 0: any number */
	/* Runs with parsed arguments; NULL when run_raw is set. */
	int (*run)(const struct cmd *cmd, const struct args *args);
	/* Runs with the words after the command's name as they are (for another program). */
	int (*run_raw)(const struct cmd *cmd, char **words);
};

extern const struct cmd cmd_save, cmd_load, cmd_info, cmd_verify, cmd_cat, cmd_rebuild,
	cmd_thaw, cmd_bench, cmd_help;

/* Prints the help of one command to standard output; all of it fits 80 columns. */
void help_command(const struct cmd *cmd);

/* Prints a wrong use to standard error, with a hint where to read on.  Returns EXIT_USAGE. */
int usage_error(const struct cmd *cmd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
