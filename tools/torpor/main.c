// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor: the command.  This file finds the command's row in the table and hands over. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <torpor.h>

#include "base/num.h"
#include "cmd.h"
#include "text.h"

static const struct cmd *const commands[] = {
	&cmd_save, &cmd_load, &cmd_info, &cmd_verify, &cmd_cat, &cmd_rebuild,
	&cmd_thaw, &cmd_bench, &cmd_help,
};

static const struct cmd *find_command(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	}
	return NULL;
}

static int help_all(void)
{
	fputs("Usage: torpor COMMAND [ARGUMENT]...\n\n"
	      "Carries big memory across a restart: saves memory files into a compressed,\n"
	      "checksummed image with all CPUs, and brings them back.\n\nCommands:\n",
	      stdout);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		printf("  %-10s%s\n", commands[i]->name, commands[i]->summary);
	fputs("\nOptions:\n"
	      "  -h, --help      print this help; after a command, the command's\n"
	      "  -V, --version   print the version\n\n"
	      "For example:\n"
	      "  torpor save /dev/shm/mc -o mc.torpor    before the restart\n"
	      "  torpor load mc.torpor                   after it\n\n"
	      "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 image damaged.\n",
	      stdout);
	return EXIT_DONE;
}

static int unknown_command(const char *name)
{
	return usage_error(NULL, "unknown command '%s'", name);
}

static int help(const struct cmd *cmd, const struct args *args)
{
	const struct cmd *about;

	if (!args->n_operands)
		return help_all();
	about = find_command(args->operands[0]);
	if (!about)
		return unknown_command(args->operands[0]);
	help_command(about);
	return EXIT_DONE;
}

/* A load of many files from many folders holds a descriptor for each; the soft limit is for those who use select(2). */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static const struct opt help_options[] = {
	{OPT_HELP, "print this help"},
	{OPT_END, NULL},
};

/* It stands here since it looks through the table. */
const struct cmd cmd_help = {
	.name = "help",
	.summary = "show the help of a command",
	.operands = "[COMMAND]",
	.about = "Shows the help of a command, as `torpor COMMAND --help` does, or the list of all\n"
		 "commands.\n",
	.options = help_options,
	.operands_max = 1,
	.run = help,
};

static int run_parsed(const struct cmd *cmd, const struct args *args)
{
	/* A reader that goes away or a limit on file sizes is an error to report, not a death. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	raise_file_limit();
	return cmd->run(cmd, args);
}

static int run_command(const struct cmd *cmd, int argc, char **argv)
{
	struct args args;
	int ret;

	if (cmd->run_raw)
		return cmd->run_raw(cmd, argv);
	ret = args_parse(cmd, argc, argv, &args);
	if (ret)
		return ret;
	if (args.help)
		help_command(cmd);
	else if (args.n_operands < cmd->operands_min)
		ret = usage_error(cmd, "something is missing: %s", cmd->operands);
	else if (cmd->operands_max && args.n_operands > cmd->operands_max)
		ret = usage_error(cmd, "'%s' is too much", args.operands[cmd->operands_max]);
	else
		ret = run_parsed(cmd, &args);
	args_free(&args);
	return ret;
}

/* An option in the place of a command stands alone. */
static int option(int argc, char **argv)
{
	const bool wants_help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;

	if (!wants_help && strcmp(argv[1], "--version") != 0 && strcmp(argv[1], "-V") != 0)
		return usage_error(NULL, "unknown option '%s'", argv[1]);
	if (argc > 2)
		return usage_error(NULL, "'%s' is too much", argv[2]);
	if (wants_help)
		return help_all();
	printf("torpor %s\n", torpor_version());
	return EXIT_DONE;
}

static int dispatch(int argc, char **argv)
{
	const struct cmd *cmd;

	if (argc < 2)
		return usage_error(NULL, "no command named");
	if (argv[1][0] == '-')
		return option(argc, argv);
	cmd = find_command(argv[1]);
	return cmd ? run_command(cmd, argc - 1, argv + 1) : unknown_command(argv[1]);
}

/*
 * Standard descriptors that are closed would be taken by the next file that is opened, and the
 * report would go into the image.  An O_PATH descriptor fails every read and write instead.
 */
static void fill_standard_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/", O_PATH) != fd)
			_exit(EXIT_FAILED);
	}
}

/* A report that could not be written is a failure; a reader that has enough is a silent one. */
static int close_output(int code)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	if (errno != EPIPE)
		say_error("cannot write standard output: %s",
			  errno ? strerror(errno) : "not all was written");
	return code == EXIT_DONE ? EXIT_FAILED : code;
}

int main(int argc, char **argv)
{
	fill_standard_descriptors();
	return close_output(dispatch(argc, argv));
}
