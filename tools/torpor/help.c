// SPDX-License-Identifier: LGPL-2.1-or-later
/* Help and hints.  Help goes to standard output, since it was asked for; hints do not. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "text.h"

/* Where the text of an option begins; the rest of 80 columns is for it. */
#define HELP_COLUMN 28

static void put_option(const struct opt *opt)
{
	char spelling[64];
	const char *line = opt->help;

	printf("  %-*s", HELP_COLUMN - 2, opt_spelling(opt->id, spelling, sizeof(spelling)));
	for (;;) {
		size_t len = strcspn(line, "\n");

		printf("%.*s\n", (int)len, line);
		if (!line[len])
			return;
		line += len + 1;
		printf("%*s", HELP_COLUMN, "");
	}
}

void help_command(const struct cmd *cmd)
{
	printf("Usage: torpor %s %s\n\n%s\nOptions:\n", cmd->name, cmd->operands, cmd->about);
	for (const struct opt *opt = cmd->options; opt->id != OPT_END; opt++)
		put_option(opt);
	if (cmd->notes)
		printf("\n%s", cmd->notes);
}

int usage_error(const struct cmd *cmd, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (cmd) {
		say_error("%s: %s", cmd->name, text);
		fprintf(stderr, "Try 'torpor %s --help'.\n", cmd->name);
	} else {
		say_error("%s", text);
		fputs("Try 'torpor --help'.\n", stderr);
	}
	return EXIT_USAGE;
}
