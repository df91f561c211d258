/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Options, on top of getopt_long: what each option is called stands in one table, which
 * commands take it and what it means there stands in the command.  This room checks what a user
 * typed by its form (a number, a size, one of several words); what the library must judge, it
 * judges.
 */
#ifndef TORPOR_TOOL_ARGS_H
#define TORPOR_TOOL_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum opt_id {
	OPT_END = 0,
	OPT_OUTPUT,
	OPT_TO,
	OPT_CODEC,
	OPT_LEVEL,
	OPT_CHUNK_SIZE,
	OPT_THREADS,
	OPT_FORCE,
	OPT_SKIP_SPECIAL,
	OPT_TRUST_PATHS,
	OPT_LATENCY_GUARD,
	OPT_OFFSET,
	OPT_LENGTH,
	OPT_INDEX,
	OPT_STOP,
	OPT_FREEZE,
	OPT_TREE,
	OPT_LIST,
	OPT_COPY,
	OPT_PASSES,
	OPT_ZERO_CHECK,
	OPT_SKIP_UNREADABLE,
	OPT_ALLOW_WRITERS,
	OPT_BACKGROUND,
	OPT_PROGRESS,
	OPT_QUIET,
	OPT_JSON,
	OPT_HELP,
	OPT_COUNT,
};

/* An option that a command takes. */
struct opt {
	enum opt_id id;
	const char *help; /* what it means for this command; '\n' begins a new line */
};

enum progress_when { PROGRESS_AUTO, PROGRESS_ALWAYS, PROGRESS_NEVER };

/* What the user asked for; a command looks at the fields of the options that it takes. */
struct args {
	const char *output;
	const char *to;
	const char *codec;
	uint32_t flags; /* enum torpor_flags */
	uint32_t threads;
	uint32_t chunk_bytes;
	int32_t level;
	uint32_t guard; /* enum torpor_guard */
	int32_t *stop_pids; /* of --stop, args_free() */
	size_t n_stop_pids;
	const char *cgroup;
	uint32_t stop_flags; /* enum torpor_stop_flags */
	uint32_t copy;       /* enum torpor_copy */
	uint32_t passes;
	bool list;
	bool has_stop_option; /* one that means nothing without --stop or --freeze */
	uint64_t offset;
	uint64_t length;
	bool has_length;
	uint64_t index;
	bool has_index;
	enum progress_when progress;
	bool quiet;
	bool help;
	bool json;
	int json_fd;     /* 1 unless --json=FD */
	char **operands; /* what is no option, in order */
	int n_operands;
};

struct cmd;

/*
 * Parses the words after the command's name (`argv[0]` is that name).  0, or an exit code after
 * a message was printed.  Nothing is copied: the strings are the caller's.  To be freed.
 */
int args_parse(const struct cmd *cmd, int argc, char **argv, struct args *ret_args);

void args_free(struct args *args);

/* How an option is written in help: "-o, --output IMAGE", "--json[=FD]".  Returns `buf`. */
const char *opt_spelling(enum opt_id id, char *buf, int buf_bytes);

#endif
