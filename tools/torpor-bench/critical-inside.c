// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A program that saves its own memory while a thread of it serves requests, each of which changes some pages: by
 * copying, by write protection, and by fork(2) and copy on write, as Redis does it.  A request waits for what the way
 * needs: while copying, writers are kept quiet by a lock.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <torpor.h>

#include "api/write.h"
#include "critical.h"

#define PAGES_A_REQUEST 8
#define AFTER_NS 1000000000u

static struct {
	uint8_t *at;
	size_t bytes;
	pthread_mutex_t quiet;
	atomic_bool stop;
	_Atomic uint64_t slowest_ns;
} service = {.quiet = PTHREAD_MUTEX_INITIALIZER};

static void *serve(void *arg)
{
	unsigned int seed = 7, i;

	while (!atomic_load(&service.stop)) {
		uint64_t start = clock_mono_ns(), took;

		pthread_mutex_lock(&service.quiet);
		for (i = 0; i < PAGES_A_REQUEST; i++) {
			size_t page = (size_t)rand_r(&seed) % (service.bytes / 4096);

			service.at[page * 4096 + (size_t)seed % 4096]++;
		}
		pthread_mutex_unlock(&service.quiet);
		took = clock_mono_ns() - start;
		if (took > atomic_load(&service.slowest_ns))
			atomic_store(&service.slowest_ns, took);
		usleep(200);
	}
	return NULL;
}

static void check(struct torpor *ctx, int rc)
{
	if (rc < 0)
		bench_die("%s", torpor_error(ctx));
}

static void by_snapshot(struct torpor *ctx, uint32_t copy, struct critical_row *row)
{
	struct torpor_save_opts save = TORPOR_OPTS(save);
	struct torpor_snapshot_opts opts = TORPOR_OPTS(opts);
	struct torpor_region region = {.name = "memory", .at = service.at, .bytes = service.bytes};
	struct torpor_report report = TORPOR_OPTS(report);
	struct torpor_snapshot *snapshot;
	uint64_t start;

	save.flags = TORPOR_FORCE;
	opts.save = &save;
	opts.copy = copy;
	check(ctx, torpor_snapshot_new(ctx, &region, 1, CRITICAL_IMAGE, &opts, &snapshot));
	if (torpor_warning(ctx, 0))
		bench_die("%s", torpor_warning(ctx, 0));
	pthread_mutex_lock(&service.quiet);
	start = clock_mono_ns();
	check(ctx, torpor_snapshot_take(snapshot));
	row->critical_ms = (double)(clock_mono_ns() - start) / 1e6;
	pthread_mutex_unlock(&service.quiet);
	check(ctx, torpor_snapshot_wait(snapshot, &report));
	torpor_snapshot_free(snapshot);
	row->before_mb = (double)(report.data_bytes + (copy == TORPOR_COPY_RAM ? 0 : report.zero_bytes)) / 1e6;
	row->after_mb = (double)report.image_bytes / 1e6;
}

/* The child: its memory does not change, so it is compressed from where it lies. */
static int save_own(struct torpor *ctx, struct torpor_report *report)
{
	struct torpor_save_opts save = TORPOR_OPTS(save);
	struct memory_item item = {.kind = MEMORY_FILE, .bytes = service.bytes, .page_bytes = 4096, .mode = 0600,
				   .name = (char *)"memory", .origin = (char *)"", .link = (char *)""};
	struct memory_items items = {.list = &item, .count = 1};
	struct memory_extent all = {.pages = service.bytes / 4096, .at = service.at};
	struct memory_view view = {.list = &all, .n = 1};
	struct write_job w = {.items = &items};
	int rc;

	save.flags = TORPOR_FORCE;
	rc = write_options(&w, ctx, &save, CRITICAL_IMAGE);
	if (!rc)
		rc = memory_source_new_view(&items, &view, &w.source, &ctx->e);
	if (!rc)
		rc = write_open(&w, CRITICAL_IMAGE);
	if (!rc)
		rc = write_pages(&w);
	if (!rc)
		rc = write_commit(&w);
	if (!rc)
		write_report(&w, report);
	return rc;
}

static void by_fork(struct torpor *ctx, struct critical_row *row)
{
	struct torpor_report *report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t start;
	pid_t child;
	int status = 1;

	if (report == MAP_FAILED)
		bench_die("no memory");
	pthread_mutex_lock(&service.quiet);
	start = clock_mono_ns();
	child = fork();
	if (child == 0)
		_exit(save_own(ctx, report) < 0);
	row->critical_ms = (double)(clock_mono_ns() - start) / 1e6;
	pthread_mutex_unlock(&service.quiet);
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		bench_die("the child cannot save");
	row->before_mb = (double)(report->data_bytes + report->zero_bytes) / 1e6;
	row->after_mb = (double)report->image_bytes / 1e6;
	munmap(report, sizeof(*report));
}

static void wait_until(uint64_t ns)
{
	while (clock_mono_ns() < ns)
		usleep(10000);
}

void critical_inside(const struct bench_data *data, size_t bytes, const char *way, struct critical_row *ret)
{
	struct torpor *ctx;
	pthread_t thread;
	uint64_t start;
	size_t i, n;

	service.at = bench_memory(bytes);
	service.bytes = bytes;
	for (i = 0; i < bytes; i += n) {
		n = num_min(data->bytes, bytes - i);
		memcpy(service.at + i, data->at, n);
	}
	if (!strcmp(way, CRITICAL_LIMIT)) {
		ret->critical_ms = critical_limit_protect_ms(service.at, bytes);
		munmap(service.at, bytes);
		return;
	}
	atomic_store(&service.stop, false);
	if (torpor_new(&ctx) < 0 || pthread_create(&thread, NULL, serve, NULL) != 0)
		bench_die("cannot start the service");
	wait_until(clock_mono_ns() + AFTER_NS / 5);
	atomic_store(&service.slowest_ns, 0);
	start = clock_mono_ns();
	if (!strcmp(way, "fork"))
		by_fork(ctx, ret);
	else
		by_snapshot(ctx, !strcmp(way, "copy") ? TORPOR_COPY_RAM : TORPOR_COPY_PROTECT, ret);
	ret->save_s = (double)(clock_mono_ns() - start) / 1e9;
	wait_until(clock_mono_ns() + AFTER_NS);
	ret->slowest_ms = (double)atomic_load(&service.slowest_ns) / 1e6;
	atomic_store(&service.stop, true);
	pthread_join(thread, NULL);
	torpor_free(ctx);
	munmap(service.at, bytes);
	ret->load_s = critical_load();
}
