// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor-bench: a table of benchmarks and their common options. */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "os/cpus.h"

static const struct {
	const char *name, *what;
	int (*run)(const struct bench_opts *opts);
} benches[] = {
	{"load", "loaders side by side: the kernel's shape, torpor's, a static split", bench_load},
	{"codec", "codecs, levels and chunk sizes, on one core", bench_codec},
	{"limits", "torpor save and load beside what they cannot beat", bench_limits},
	{"critical", "a live service's memory saved, and what it feels of it", bench_critical},
	{"copy", "ways to copy pages and to find the zero ones among them", bench_copy},
	{"fill", "ways to fill fresh shared memory", bench_fill},
	{"keep", "ways to say which pages are preserved, and to hand that over", bench_keep},
};

void bench_die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "torpor-bench: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(1);
}

static void usage(FILE *to)
{
	size_t i;

	fprintf(to, "Usage: torpor bench NAME [OPTION...]\n\n");
	for (i = 0; i < ARRAY_LEN(benches); i++)
		fprintf(to, "  %-8s %s\n", benches[i].name, benches[i].what);
	fprintf(to, "\n"
		    "  --file PATH   data (default: 1 GiB of this machine's programs, zero\n"
		    "                pages and noise)\n"
		    "  --runs N      runs, of which the median counts (default 5)\n"
		    "  --threads N   threads (default: the CPUs this process may use)\n"
		    "  --json        one JSON object a line\n"
		    "  -h, --help    this text\n");
}

/* Exit code 2, as everywhere in torpor. */
static void __attribute__((format(printf, 1, 2), noreturn)) wrong_usage(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "torpor-bench: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\nTry 'torpor bench --help'.\n");
	va_end(ap);
	exit(2);
}

static unsigned int number(const char *name, const char *text, unsigned int max)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || !n || n > max)
		wrong_usage("--%s '%s': not a number from 1 to %u", name, text, max);
	return (unsigned int)n;
}

static const struct option options[] = {
	{"file", required_argument, NULL, 'f'}, {"runs", required_argument, NULL, 'r'},
	{"threads", required_argument, NULL, 't'}, {"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
};

/* The next option's letter, or -1; abbreviated ones are refused, as by torpor. */
static int next_option(int argc, char **argv)
{
	int i = -1, c = getopt_long(argc, argv, ":h", options, &i);
	const char *word;

	if (c < 0)
		return c;
	word = argv[optind - 1];
	if (c == ':')
		wrong_usage("option '%s' needs a value", word);
	if (c == '?' && optopt && word[1] == '-')
		wrong_usage("option '%s' takes no value", word);
	if (c == '?' && optopt)
		wrong_usage("unknown option '-%c'", optopt);
	if (optarg == word)
		word = argv[optind - 2];
	if (c == '?' || (i >= 0 && strcspn(word, "=") != 2 + strlen(options[i].name)))
		wrong_usage("unknown option '%s'", word);
	return c;
}

static void parse(int argc, char **argv, struct bench_opts *opts)
{
	int c;

	opterr = 0;
	while ((c = next_option(argc, argv)) >= 0) {
		switch (c) {
		case 'f':
			opts->file = optarg;
			break;
		case 'r':
			opts->runs = number("runs", optarg, BENCH_RUNS_MAX);
			break;
		case 't':
			opts->threads = number("threads", optarg, BENCH_THREADS_MAX);
			break;
		case 'j':
			opts->json = true;
			break;
		default:
			usage(stdout);
			exit(0);
		}
	}
	if (optind < argc)
		wrong_usage("'%s' is too much", argv[optind]);
}

int main(int argc, char **argv)
{
	struct bench_opts opts = {.runs = 5, .threads = os_cpus_allowed()};
	size_t i;

	if (argc < 2)
		wrong_usage("no benchmark named");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		usage(stdout);
		return 0;
	}
	for (i = 0; i < ARRAY_LEN(benches); i++) {
		if (!strcmp(argv[1], benches[i].name)) {
			parse(argc - 1, argv + 1, &opts);
			opts.threads = (unsigned int)num_min(opts.threads, BENCH_THREADS_MAX);
			return benches[i].run(&opts);
		}
	}
	wrong_usage("unknown benchmark '%s'", argv[1]);
}
