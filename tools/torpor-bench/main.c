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
	{"load", "loaders side by side: the kernel's shape, torpor's pipeline, a static split", bench_load},
	{"codec", "codecs, levels and chunk sizes, on one core", bench_codec},
	{"limits", "torpor save and load beside what they cannot beat", bench_limits},
	{"fill", "ways to fill fresh shared memory", bench_fill},
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
		    "  --help        this text\n");
}

static unsigned int number(const char *text, unsigned int max)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end || !n || n > max)
		bench_die("not a number from 1 to %u: %s", max, text);
	return (unsigned int)n;
}

static void parse(int argc, char **argv, struct bench_opts *opts)
{
	static const struct option options[] = {
		{"file", required_argument, NULL, 'f'}, {"runs", required_argument, NULL, 'r'},
		{"threads", required_argument, NULL, 't'}, {"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (c) {
		case 'f':
			opts->file = optarg;
			break;
		case 'r':
			opts->runs = number(optarg, BENCH_RUNS_MAX);
			break;
		case 't':
			opts->threads = number(optarg, BENCH_THREADS_MAX);
			break;
		case 'j':
			opts->json = true;
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			exit(2);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "torpor-bench: one argument too many: %s\n", argv[optind]);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct bench_opts opts = {.runs = 5, .threads = os_cpus_allowed()};
	size_t i;

	if (argc > 1 && !strcmp(argv[1], "--help")) {
		usage(stdout);
		return 0;
	}
	for (i = 0; argc > 1 && i < ARRAY_LEN(benches); i++) {
		if (!strcmp(argv[1], benches[i].name)) {
			parse(argc - 1, argv + 1, &opts);
			opts.threads = (unsigned int)num_min(opts.threads, BENCH_THREADS_MAX);
			return benches[i].run(&opts);
		}
	}
	usage(stderr);
	return 2;
}
