// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * torpor bench: executes torpor-bench, which lies beside this program, beside its folder in a
 * build, where it was installed, or in PATH.  It has words and options of its own.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "text.h"

#define PROGRAM "torpor-bench"

static const struct opt options[] = {
	{OPT_HELP, "print this help"},
	{OPT_END, NULL},
};

/* Executes `dir`/`rest`; returns only when that did not work, with errno set. */
static void try_exec(const char *dir, const char *rest, char **words)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", dir, rest) < (int)sizeof(path))
		execv(path, words);
	else
		errno = ENAMETOOLONG;
}

/* The folder that this program lies in; false when the kernel does not tell. */
static bool own_folder(char *dir, size_t bytes)
{
	ssize_t len = readlink("/proc/self/exe", dir, bytes - 1);
	char *slash;

	if (len < 0)
		return false;
	dir[len] = '\0';
	slash = strrchr(dir, '/');
	if (slash)
		*slash = '\0';
	return slash != NULL;
}

static int run_raw(const struct cmd *cmd, char **words)
{
	char dir[PATH_MAX];

	if (!words[1])
		return usage_error(cmd, "no benchmark named");
	if (strcmp(words[1], "--help") == 0 || strcmp(words[1], "-h") == 0) {
		help_command(cmd);
		return EXIT_DONE;
	}
	words[0] = (char *)PROGRAM;
	if (own_folder(dir, sizeof(dir))) {
		try_exec(dir, PROGRAM, words);
		try_exec(dir, "../" PROGRAM "/" PROGRAM, words);
	}
	try_exec(TORPOR_LIBEXECDIR, PROGRAM, words);
	execvp(PROGRAM, words);
	say_error("%s: cannot execute %s: %s", cmd->name, PROGRAM, strerror(errno));
	return EXIT_FAILED;
}

const struct cmd cmd_bench = {
	.name = "bench",
	.summary = "measure loading, codecs and more on this machine",
	.operands = "NAME [ARGUMENT]...",
	.about = "Runs a benchmark of torpor-bench on this machine:\n\n"
		 "  load      loaders side by side, with the latency guard and without\n"
		 "  codec     ratio and speed of each codec\n"
		 "  limits    save and load beside what they cannot beat\n"
		 "  critical  a live service's memory saved, and what it feels of it\n"
		 "  copy      ways to copy pages and to find the zero ones among them\n"
		 "  fill      ways to fill fresh shared memory\n"
		 "  keep      ways to say which pages are preserved, and to hand that over\n\n"
		 "`torpor bench NAME --help` shows what a benchmark takes.\n",
	.options = options,
	.run_raw = run_raw,
};
