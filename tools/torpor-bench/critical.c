// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * torpor-bench critical: what each way of saving a live service's memory costs it.  The kernel's ways (its loop that finds zero
 * pages, and its copy_page without the check) copy on one CPU, as hibernation does; all else is the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <torpor.h>

#include "api/stopped.h"
#include "api/write.h"
#include "critical.h"

#define SERVICE_BYTES ((size_t)2 << 30)

static size_t kernel_loop(void *dst, const void *src, size_t pages, size_t page_bytes, uint64_t *ret_zero)
{
	const unsigned long *from = src;
	unsigned long *to = dst;
	size_t page, i, found = 0;

	for (page = 0; page < pages; page++) {
		unsigned long any = 0;

		for (i = 0; i < page_bytes / sizeof(*from); i++) {
			any |= *from;
			*to++ = *from++;
			/* As the kernel is built: one long at a time. */
			__asm__ volatile("" : "+r"(any) : : "memory");
		}
		ret_zero[page / 64] |= (uint64_t)!any << (page % 64);
		found += !any;
	}
	return found;
}

static size_t kernel_copy_page(void *dst, const void *src, size_t pages, size_t page_bytes, uint64_t *ret_zero)
{
#if defined(__x86_64__)
	size_t page;

	for (page = 0; page < pages; page++) {
		size_t longs = page_bytes / 8;

		__asm__ volatile("rep movsq" : "+D"(dst), "+S"(src), "+c"(longs) : : "memory");
	}
#else
	memcpy(dst, src, pages * page_bytes);
#endif
	return 0;
}

static const struct way {
	const char *name;
	bool inside;
	bool one_cpu;
	uint32_t flags;
	size_t (*copy_span)(void *dst, const void *src, size_t pages, size_t page_bytes, uint64_t *ret_zero);
} ways[] = {
	{"kernel's loop", false, true, 0, kernel_loop},
	{"nozerocheck", false, true, 0, kernel_copy_page},
	{"torpor", false, false, 0, NULL},
	{"torpor --zero-check=off", false, false, TORPOR_STOP_NO_ZERO_CHECK, NULL},
	{"torpor --background", false, false, TORPOR_STOP_BACKGROUND, NULL},
	{CRITICAL_LIMIT, false, false, 0, NULL},
	{"copy", true, false, 0, NULL},
	{"userfaultfd", true, false, 0, NULL},
	{"fork", true, false, 0, NULL},
	{CRITICAL_LIMIT, true, false, 0, NULL},
};

double critical_load(void)
{
	struct torpor_load_opts opts = TORPOR_OPTS(opts);
	struct torpor *ctx;
	uint64_t start;
	double s;

	mkdir(CRITICAL_BACK, 0700);
	bench_warm(SERVICE_BYTES);
	opts.to = CRITICAL_BACK;
	opts.flags = TORPOR_FORCE;
	start = clock_mono_ns();
	if (torpor_new(&ctx) < 0 || torpor_load(ctx, CRITICAL_IMAGE, &opts, NULL) < 0)
		bench_die("%s", torpor_error(ctx));
	s = (double)(clock_mono_ns() - start) / 1e9;
	torpor_free(ctx);
	unlink(CRITICAL_BACK "/mem");
	unlink(CRITICAL_BACK "/memory");
	rmdir(CRITICAL_BACK);
	unlink(CRITICAL_IMAGE);
	return s;
}

static void save_stopped(pid_t pid, const struct way *way, struct torpor_report *report)
{
	struct torpor_save_opts opts = TORPOR_OPTS(opts);
	struct stopped s = {.copy_span = way->copy_span};
	struct write_job w = {.threads = 0};
	struct torpor *ctx;
	const int32_t pids[] = {pid};
	int rc;

	if (torpor_new(&ctx) < 0)
		bench_die("no memory");
	opts.flags = TORPOR_FORCE;
	rc = write_options(&w, ctx, &opts, CRITICAL_IMAGE);
	s.ctx = ctx;
	s.image = CRITICAL_IMAGE;
	s.threads = way->one_cpu ? 1 : w.threads;
	s.opts = (struct torpor_stop){.size = sizeof(s.opts), .flags = way->flags, .pids = pids, .n_pids = 1};
	if (!rc)
		rc = stopped_prepare(&s);
	if (!rc)
		rc = write_open(&w, CRITICAL_IMAGE);
	if (!rc)
		rc = stopped_take(&s);
	w.items = &s.items;
	w.source = s.source;
	if (!rc && way->flags & TORPOR_STOP_BACKGROUND)
		rc = write_in_background(&w);
	else if (!rc)
		rc = write_pages(&w) || write_commit(&w);
	if (rc)
		bench_die("%s", ctx->e.text);
	write_report(&w, report);
	stopped_report(&s, report);
	write_cleanup(&w);
	stopped_free(&s);
	torpor_free(ctx);
}

static void measure(pid_t pid, const struct way *way, struct critical_row *row)
{
	struct torpor_report report = {.size = sizeof(report)};
	uint64_t start;

	bench_warm(SERVICE_BYTES * 2);
	critical_client_start();
	usleep(200000);
	critical_client_reset();
	start = clock_mono_ns();
	save_stopped(pid, way, &report);
	row->save_s = (double)(clock_mono_ns() - start) / 1e9;
	usleep(1000000);
	row->slowest_ms = critical_client_slowest_ms();
	critical_client_end();
	row->critical_ms = (double)report.critical_ns / 1e6;
	row->before_mb = (double)(way->flags & TORPOR_STOP_NO_ZERO_CHECK || way->copy_span == kernel_copy_page
					  ? report.looked_bytes : report.copied_bytes) / 1e6;
	row->after_mb = (double)report.image_bytes / 1e6;
	row->load_s = critical_load();
}

static void put(const struct bench_opts *opts, const struct way *way, struct critical_row *rows)
{
	double v[6][BENCH_RUNS_MAX];
	unsigned int i;

	for (i = 0; i < opts->runs; i++) {
		v[0][i] = rows[i].save_s;
		v[1][i] = rows[i].load_s;
		v[2][i] = rows[i].critical_ms;
		v[3][i] = rows[i].before_mb;
		v[4][i] = rows[i].after_mb;
		v[5][i] = rows[i].slowest_ms;
	}
	printf(opts->json ? "{\"of\": \"%s\", \"way\": \"%s\", \"save_s\": %.2f, \"load_s\": %.2f, \"critical_ms\": %.1f, "
			    "\"before_mb\": %.0f, \"after_mb\": %.0f, \"slowest_request_ms\": %.1f}\n"
			  : "| %-9s | %-23s | %6.2f | %6.2f | %8.1f | %6.0f | %6.0f | %8.1f |\n",
	       way->inside ? "inside" : "memcached", way->name, bench_median(v[0], opts->runs),
	       bench_median(v[1], opts->runs), bench_median(v[2], opts->runs), bench_median(v[3], opts->runs),
	       bench_median(v[4], opts->runs), bench_median(v[5], opts->runs));
	fflush(stdout);
}

int bench_critical(const struct bench_opts *opts)
{
	static struct critical_row rows[ARRAY_LEN(ways)][BENCH_RUNS_MAX];
	struct bench_data data;
	unsigned int run;
	pid_t pid;
	size_t i;

	bench_data_load(opts, &data);
	pid = critical_memcached_start(&data, SERVICE_BYTES);
	if (!opts->json)
		printf("A service of %zu MiB under load, median of %u runs%s\n\n"
		       "| of | way | save s | load s | critical section ms | image before MB | after MB | slowest request ms |\n"
		       "| --- | --- | --- | --- | --- | --- | --- | --- |\n",
		       SERVICE_BYTES >> 20, opts->runs, pid ? "" : " (memcached is not installed)");
	for (run = 0; run < opts->runs && pid; run++) {
		for (i = 0; i < ARRAY_LEN(ways); i++) {
			if (ways[i].inside)
				continue;
			if (strcmp(ways[i].name, CRITICAL_LIMIT) != 0)
				measure(pid, &ways[i], &rows[i][run]);
			else
				rows[i][run].critical_ms = critical_limit_copy_ms(CRITICAL_MEMCACHED "/mem", opts->threads);
		}
	}
	if (pid)
		critical_memcached_end(pid);
	for (run = 0; run < opts->runs; run++) {
		for (i = 0; i < ARRAY_LEN(ways); i++) {
			if (ways[i].inside)
				critical_inside(&data, SERVICE_BYTES, ways[i].name, &rows[i][run]);
		}
	}
	for (i = 0; i < ARRAY_LEN(ways); i++) {
		if (pid || ways[i].inside)
			put(opts, &ways[i], rows[i]);
	}
	return 0;
}
