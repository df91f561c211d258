// SPDX-License-Identifier: LGPL-2.1-or-later
/* Options, on top of getopt_long; see args.h. */
#include "args.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <torpor.h>

#include "base/num.h"
#include "cmd.h"
#include "parse.h"

#define THREADS_MAX 1024

/* What getopt_long() returns for an option without a letter of its own. */
#define LONG_ONLY 256

static const struct {
	const char *name;
	const char *value; /* NULL: takes none; "[=FD]": may take one */
	char letter;
} opt_table[OPT_COUNT] = {
	[OPT_OUTPUT] = {"output", "IMAGE", 'o'},
	[OPT_TO] = {"to", "DIR", 0},
	[OPT_CODEC] = {"codec", "NAME", 0},
	[OPT_LEVEL] = {"level", "N", 0},
	[OPT_CHUNK_SIZE] = {"chunk-size", "SIZE", 0},
	[OPT_THREADS] = {"threads", "N", 0},
	[OPT_FORCE] = {"force", NULL, 'f'},
	[OPT_SKIP_SPECIAL] = {"skip-special", NULL, 0},
	[OPT_TRUST_PATHS] = {"trust-paths", NULL, 0},
	[OPT_LATENCY_GUARD] = {"latency-guard", "WHEN", 0},
	[OPT_OFFSET] = {"offset", "SIZE", 0},
	[OPT_LENGTH] = {"length", "SIZE", 0},
	[OPT_INDEX] = {"index", "N", 0},
	[OPT_STOP] = {"stop", "PID[,PID]...", 0},
	[OPT_FREEZE] = {"freeze", "CGROUP", 0},
	[OPT_TREE] = {"tree", NULL, 0},
	[OPT_LIST] = {"list", NULL, 0},
	[OPT_COPY] = {"copy", "HOW", 0},
	[OPT_PASSES] = {"passes", "N", 0},
	[OPT_ZERO_CHECK] = {"zero-check", "WHEN", 0},
	[OPT_SKIP_UNREADABLE] = {"skip-unreadable", NULL, 0},
	[OPT_ALLOW_WRITERS] = {"allow-writers", NULL, 0},
	[OPT_BACKGROUND] = {"background", NULL, 0},
	[OPT_PROGRESS] = {"progress", "WHEN", 0},
	[OPT_QUIET] = {"quiet", NULL, 'q'},
	[OPT_JSON] = {"json", "[=FD]", 0},
	[OPT_HELP] = {"help", NULL, 'h'},
};

static const char *const guard_words[] = {"auto", "on", "off", NULL};
static const char *const copy_words[] = {"ram", "none", "auto", NULL};
static const char *const switch_words[] = {"on", "off", NULL};
static const char *const progress_words[] = {"auto", "always", "never", NULL};

const char *opt_spelling(enum opt_id id, char *buf, int buf_bytes)
{
	const char *value = opt_table[id].value;
	char letter[5] = "    ";

	if (opt_table[id].letter)
		snprintf(letter, sizeof(letter), "-%c, ", opt_table[id].letter);
	snprintf(buf, (size_t)buf_bytes, "%s--%s%s%s", letter, opt_table[id].name,
		 value && value[0] != '[' ? " " : "", value ? value : "");
	return buf;
}

static int bad_value(const struct cmd *cmd, enum opt_id id, const char *word, const char *want)
{
	return usage_error(cmd, "--%s '%s': %s", opt_table[id].name, word, want);
}

/* Adds to what stands there already: the option may be given again. */
static int store_pids(const struct cmd *cmd, const char *word, struct args *a)
{
	const char *at = word;

	for (;;) {
		size_t digits = strspn(at, "0123456789");
		int32_t *more = reallocarray(a->stop_pids, a->n_stop_pids + 1, sizeof(*more));
		char number[16];

		if (!more)
			return bad_value(cmd, OPT_STOP, word, "no memory");
		a->stop_pids = more;
		snprintf(number, sizeof(number), "%.*s", (int)num_min(digits, sizeof(number) - 1), at);
		if (digits >= sizeof(number) || !parse_i32(number, &more[a->n_stop_pids]) || !more[a->n_stop_pids] ||
		    (at[digits] && at[digits] != ','))
			return bad_value(cmd, OPT_STOP, word, "not numbers of processes, as 123 or 123,456");
		a->n_stop_pids++;
		if (!at[digits])
			return 0;
		at += digits + 1;
	}
}

/* What belongs to stopping processes. */
static int store_stop(const struct cmd *cmd, enum opt_id id, const char *word, struct args *a)
{
	uint32_t choice;
	uint64_t n;

	a->has_stop_option |= id != OPT_STOP && id != OPT_FREEZE;
	switch (id) {
	case OPT_STOP:
		return store_pids(cmd, word, a);
	case OPT_FREEZE:
		a->cgroup = word;
		return *word ? 0 : bad_value(cmd, id, word, "an empty name");
	case OPT_LIST:
		a->list = true;
		return 0;
	case OPT_COPY:
		return parse_choice(word, copy_words, &a->copy) ? 0 : bad_value(cmd, id, word, "not ram, none or auto");
	case OPT_PASSES:
		if (!parse_u64(word, 1, 1000, &n))
			return bad_value(cmd, id, word, "not a number from 1 to 1000");
		a->passes = (uint32_t)n;
		return 0;
	case OPT_ZERO_CHECK:
		if (!parse_choice(word, switch_words, &choice))
			return bad_value(cmd, id, word, "not on or off");
		a->stop_flags &= ~(uint32_t)TORPOR_STOP_NO_ZERO_CHECK;
		a->stop_flags |= choice ? TORPOR_STOP_NO_ZERO_CHECK : 0;
		return 0;
	default:
		a->stop_flags |= id == OPT_TREE		     ? TORPOR_STOP_TREE
				 : id == OPT_SKIP_UNREADABLE ? TORPOR_STOP_SKIP_UNREADABLE
				 : id == OPT_ALLOW_WRITERS   ? TORPOR_STOP_ALLOW_WRITERS
							     : TORPOR_STOP_BACKGROUND;
		return 0;
	}
}

static int store_number(const struct cmd *cmd, enum opt_id id, const char *word, struct args *a)
{
	uint64_t n;

	switch (id) {
	case OPT_LEVEL:
		if (!parse_i32(word, &a->level))
			return bad_value(cmd, id, word, "not a number");
		return 0;
	case OPT_THREADS:
		if (!parse_u64(word, 1, THREADS_MAX, &n))
			return bad_value(cmd, id, word, "not a number from 1 to 1024");
		a->threads = (uint32_t)n;
		return 0;
	case OPT_CHUNK_SIZE:
		if (!parse_size(word, &n) || n < KIB(4) || n > MIB(1) || !num_is_pow2(n))
			return bad_value(cmd, id, word, "not a power of two from 4K to 1M");
		a->chunk_bytes = (uint32_t)n;
		return 0;
	case OPT_OFFSET:
		if (!parse_size(word, &a->offset))
			return bad_value(cmd, id, word, "not a size, as 4096 or 4K");
		return 0;
	case OPT_INDEX:
		if (!parse_u64(word, 0, UINT64_MAX, &a->index))
			return bad_value(cmd, id, word, "not a number");
		a->has_index = true;
		return 0;
	default:
		if (!parse_size(word, &a->length))
			return bad_value(cmd, id, word, "not a size, as 4096 or 4K");
		a->has_length = true;
		return 0;
	}
}

/* The descriptor must be open for writing now: finding out after an hour's save is too late. */
static int store_json(const struct cmd *cmd, const char *word, struct args *a)
{
	uint64_t fd = STDOUT_FILENO;
	int mode;

	a->json = true;
	if (word && !parse_u64(word, 1, INT32_MAX, &fd))
		return bad_value(cmd, OPT_JSON, word, "not a number of an open descriptor");
	a->json_fd = (int)fd;
	if (!word)
		return 0;
	mode = fcntl(a->json_fd, F_GETFL);
	if (mode < 0 || (mode & O_PATH) || (mode & O_ACCMODE) == O_RDONLY)
		return bad_value(cmd, OPT_JSON, word, "not open for writing");
	return 0;
}

static int store(const struct cmd *cmd, enum opt_id id, const char *word, struct args *a)
{
	uint32_t choice;

	switch (id) {
	case OPT_OUTPUT:
		a->output = word;
		return *word ? 0 : bad_value(cmd, id, word, "an empty name");
	case OPT_TO:
		a->to = word;
		return *word ? 0 : bad_value(cmd, id, word, "an empty name");
	case OPT_CODEC:
		a->codec = word;
		return *word ? 0 : bad_value(cmd, id, word, "an empty name");
	case OPT_FORCE:
		a->flags |= TORPOR_FORCE;
		return 0;
	case OPT_SKIP_SPECIAL:
		a->flags |= TORPOR_SKIP_SPECIAL;
		return 0;
	case OPT_TRUST_PATHS:
		a->flags |= TORPOR_TRUST_PATHS;
		return 0;
	case OPT_LATENCY_GUARD:
		if (!parse_choice(word, guard_words, &a->guard))
			return bad_value(cmd, id, word, "not auto, on or off");
		return 0;
	case OPT_STOP ... OPT_BACKGROUND:
		return store_stop(cmd, id, word, a);
	case OPT_PROGRESS:
		if (!parse_choice(word, progress_words, &choice))
			return bad_value(cmd, id, word, "not auto, always or never");
		a->progress = (enum progress_when)choice;
		return 0;
	case OPT_QUIET:
		a->quiet = true;
		return 0;
	case OPT_JSON:
		return store_json(cmd, word, a);
	case OPT_HELP:
		a->help = true;
		return 0;
	default:
		return store_number(cmd, id, word, a);
	}
}

/* getopt_long()'s two descriptions of the options that a command takes. */
struct getopt_form {
	struct option options[OPT_COUNT + 1];
	char letters[2 * OPT_COUNT + 2];
};

static void getopt_form_make(const struct opt *taken, struct getopt_form *form)
{
	char *letter = form->letters;
	struct option *o = form->options;

	memset(form, 0, sizeof(*form));
	*letter++ = ':'; /* a missing value is reported as such, and nothing is printed */
	for (; taken->id != OPT_END; taken++, o++) {
		const char *value = opt_table[taken->id].value;

		o->name = opt_table[taken->id].name;
		o->has_arg = !value            ? no_argument
			     : value[0] == '[' ? optional_argument
					       : required_argument;
		o->val = LONG_ONLY + (int)taken->id;
		if (!opt_table[taken->id].letter)
			continue;
		*letter++ = opt_table[taken->id].letter;
		if (value)
			*letter++ = ':';
	}
}

static enum opt_id opt_of(int found)
{
	if (found >= LONG_ONLY)
		return (enum opt_id)(found - LONG_ONLY);
	for (int id = OPT_END + 1; id < OPT_COUNT; id++) {
		if (opt_table[id].letter == found)
			return (enum opt_id)id;
	}
	return OPT_END;
}

static int not_understood(const struct cmd *cmd, int found, char *const *argv)
{
	const char *word = argv[optind - 1];
	enum opt_id id = opt_of(optopt);

	if (found == ':')
		return usage_error(cmd, "option '%s' needs a value", word);
	if (optopt >= LONG_ONLY && id != OPT_END)
		return usage_error(cmd, "option '--%s' takes no value", opt_table[id].name);
	if (optopt)
		return usage_error(cmd, "unknown option '-%c'", optopt);
	return usage_error(cmd, "unknown option '%s'", word);
}

/* The word that a long option was typed as when that is not its whole name, else NULL. */
static const char *abbreviation(int found, char *const *argv)
{
	const char *word = argv[optind - 1];

	if (found < LONG_ONLY)
		return NULL;
	if (optarg == word) /* its value is a word of its own */
		word = argv[optind - 2];
	return strcspn(word + 2, "=") == strlen(opt_table[opt_of(found)].name) ? NULL : word;
}

void args_free(struct args *args)
{
	free(args->stop_pids);
	args->stop_pids = NULL;
}

int args_parse(const struct cmd *cmd, int argc, char **argv, struct args *ret_args)
{
	struct args a = {.json_fd = STDOUT_FILENO};
	struct getopt_form form;
	int found, ret = 0;

	getopt_form_make(cmd->options, &form);
	opterr = 0;
	while ((found = getopt_long(argc, argv, form.letters, form.options, NULL)) != -1) {
		if (found == '?' || found == ':')
			ret = not_understood(cmd, found, argv);
		else if (abbreviation(found, argv))
			ret = usage_error(cmd, "unknown option '%s'", abbreviation(found, argv));
		else
			ret = store(cmd, opt_of(found), optarg, &a);
		if (ret) {
			args_free(&a);
			return ret;
		}
		if (a.help)
			break;
	}
	a.operands = argv + optind;
	a.n_operands = argc - optind;
	*ret_args = a;
	return 0;
}
