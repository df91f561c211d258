// SPDX-License-Identifier: LGPL-2.1-or-later
/* The critical section of a save; see stopped.h and docs/design/live.md. */
#include "api/stopped.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/num.h"
#include "os/proc.h"

#define FIND_TRIES 16

/* One item for a piece of memory that was found. */
static int add_found(struct memory_items *items, const struct live_memory *m, struct err *e)
{
	struct memory_item item = {.kind = MEMORY_FILE, .page_bytes = MEMORY_PAGE_BYTES};
	struct stat st;

	if (stat(m->open_path, &st) < 0)
		return err_sys(e, -errno, "cannot look at %s", m->open_path);
	item.bytes = (uint64_t)st.st_size;
	item.data_bytes = (uint64_t)st.st_blocks * 512;
	item.mode = st.st_mode & 07777;
	item.uid = st.st_uid;
	item.gid = st.st_gid;
	item.mtime_ns = clock_timespec_ns(&st.st_mtim);
	item.dev = st.st_dev;
	item.ino = st.st_ino;
	item.name = strdup(m->name);
	item.origin = strdup(m->origin);
	item.link = strdup("");
	item.path = strdup(m->open_path);
	if (!item.path) {
		free(item.name);
		item.name = NULL;
	}
	return memory_items_add(items, &item, e);
}

static const char *not_carried(const struct live_memory *m)
{
	return m->kind == LIVE_MEMORY_SYSV ? "a SysV segment" : "memory on hugetlbfs";
}

static int find(struct stopped *s, struct memory_items *ret, struct err *e)
{
	struct live_memories found = {.count = 0};
	struct memory_items items = {.count = 0};
	const pid_t *pids;
	size_t n, i;
	int rc;

	pids = live_stop_pids(s->stop, &n);
	rc = live_find(pids, n, &found, e);
	/* While they run, those that were not named may end at any time. */
	for (i = 0; rc == -ESRCH && s->first_look && i < FIND_TRIES; i++) {
		live_stop_forget_ended(s->stop);
		pids = live_stop_pids(s->stop, &n);
		rc = live_find(pids, n, &found, e);
	}
	for (i = 0; i < found.count && !rc; i++) {
		if (found.list[i].carried)
			rc = add_found(&items, &found.list[i], e);
		else if (s->first_look)
			memory_warn(s->ctx->warnings, "process %d has %s, %s, which is not carried yet",
				    found.list[i].pid, not_carried(&found.list[i]), found.list[i].name);
	}
	if (!rc && !items.count)
		rc = err_set(e, -ENODATA, "%zu process%s stopped, and %s no shared memory that can be saved", n,
			     n == 1 ? " was to be" : "es were to be", n == 1 ? "it has" : "they have");
	live_memories_free(&s->ctx->found);
	s->ctx->found = found;
	if (rc < 0)
		memory_items_free(&items);
	else
		*ret = items;
	return rc;
}

/* The memory as it is now. */
static int look(struct stopped *s, struct memory_items *ret)
{
	struct err *e = &s->ctx->e;
	int rc = s->n_sources ? memory_scan(s->sources, s->n_sources, &s->scan, ret, e) : find(s, ret, e);

	return rc ? rc : glue_spare_sources(s->image, s->image_flags, s->image_fd, ret,
					    s->first_look ? s->ctx->warnings : NULL, e);
}

/* Names those that could write, as many as a message holds. */
static int name_writers(const struct stopped *s, const struct live_writers *w, struct err *e)
{
	char text[512] = "";
	size_t i, used = 0;

	for (i = 0; i < w->count && used < sizeof(text) - 128; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%sprocess %d (%s) %s", i ? ", " : "",
					 w->list[i].pid, w->list[i].comm,
					 w->list[i].maps ? "maps it writably" : "holds it open for writing");
	if (i < w->count)
		snprintf(text + used, sizeof(text) - used, " and %zu more", w->count - i);
	if (!(s->opts.flags & TORPOR_STOP_ALLOW_WRITERS))
		return err_set(e, -EBUSY, "not everybody who could write the memory is stopped: %s", text);
	memory_warn(s->ctx->warnings, "not everybody who could write the memory is stopped: %s", text);
	return 0;
}

static void drop_excused(const struct stopped *s, struct live_writers *w)
{
	size_t i, n = 0;

	for (i = 0; i < w->count; i++) {
		if (!live_stop_excuses(s->stop, &w->list[i].origin))
			w->list[n++] = w->list[i];
	}
	w->count = n;
}

static int check_writers(struct stopped *s, const struct memory_items *items)
{
	CLEANUP_FREE struct live_file_id *files = calloc(items->count + 1, sizeof(*files));
	struct live_writers found = {.count = 0};
	size_t n = 0, n_pids, hidden = 0;
	const pid_t *pids = live_stop_pids(s->stop, &n_pids);
	uint64_t i;
	int rc;

	if (!files)
		return err_sys(&s->ctx->e, -ENOMEM, "cannot look for writers");
	for (i = 0; i < items->count; i++) {
		if (items->list[i].kind == MEMORY_FILE)
			files[n++] = (struct live_file_id){items->list[i].dev, items->list[i].ino};
	}
	rc = live_find_writers(files, n, pids, n_pids, &found, &hidden, &s->ctx->e);
	if (!rc)
		drop_excused(s, &found);
	if (!rc && hidden && s->first_look)
		memory_warn(s->ctx->warnings, "%zu process%s may not be looked at, and could write without being found",
			    hidden, hidden == 1 ? "" : "es");
	if (!rc && found.count && !s->writers) {
		rc = name_writers(s, &found, &s->ctx->e);
		s->writers = true;
	}
	live_writers_free(&found);
	return rc;
}

static int prepare_copy(struct stopped *s, const struct memory_items *items)
{
	struct live_copy_opts opts = {
		.threads = s->threads,
		.no_zero_check = s->opts.flags & TORPOR_STOP_NO_ZERO_CHECK,
		.skip_unreadable = s->opts.flags & TORPOR_STOP_SKIP_UNREADABLE,
		.warnings = s->ctx->warnings,
		.cancel = &s->ctx->cancel,
		.copy_span = s->copy_span,
	};
	int rc;

	if (s->opts.copy == TORPOR_COPY_NONE)
		return 0;
	rc = live_copy_new(items, &opts, &s->copy, &s->ctx->e);
	if (rc != -ENOMEM || s->opts.copy != TORPOR_COPY_AUTO)
		return rc;
	memory_warn(s->ctx->warnings, "%s: they stand still until all is written", s->ctx->e.text);
	s->ctx->e.text[0] = '\0';
	return 0;
}

/* Stands still for as long as it takes to see what changed, and to forget it. */
static int pause_and_mark(struct stopped *s, struct memory_items *ret_items)
{
	uint64_t start = clock_mono_ns();
	struct err *e = &s->ctx->e;
	const pid_t *pids;
	size_t n;
	int rc = live_stop_now(s->stop, &s->ctx->cancel, e);

	if (rc < 0)
		return rc;
	pids = live_stop_pids(s->stop, &n);
	rc = look(s, ret_items);
	if (!rc)
		rc = live_passes_mark(s->passes, pids, n, e);
	if (!rc)
		rc = live_passes_begin(s->passes, pids, n, e);
	live_stop_go(s->stop, rc < 0 ? NULL : e);
	s->pause_ns += clock_mono_ns() - start;
	return rc;
}

/* All passes but the last. */
static int make_passes(struct stopped *s, const struct memory_items *items)
{
	struct err *e = &s->ctx->e;
	const pid_t *pids;
	size_t n;
	uint32_t i;
	int rc;

	if (s->opts.passes < 2 || !s->copy)
		return 0;
	if (s->writers)
		return err_set(e, -EBUSY, "passes need everybody stopped who could write the memory");
	rc = live_passes_new(s->copy, &s->passes, e);
	pids = live_stop_pids(s->stop, &n);
	if (!rc)
		rc = live_passes_begin(s->passes, pids, n, e);
	if (!rc)
		rc = live_copy_pass(s->copy, items, e);
	for (i = 2; i < s->opts.passes && !rc; i++) {
		struct memory_items now = {.count = 0};

		rc = pause_and_mark(s, &now);
		if (!rc)
			rc = live_copy_pass(s->copy, &now, e);
		memory_items_free(&now);
	}
	return rc;
}

static int check_stop_options(const struct stopped *s)
{
	const uint32_t known = TORPOR_STOP_TREE | TORPOR_STOP_ALLOW_WRITERS | TORPOR_STOP_SKIP_UNREADABLE |
			       TORPOR_STOP_BACKGROUND | TORPOR_STOP_NO_ZERO_CHECK;
	struct err *e = &s->ctx->e;

	if ((s->opts.flags & ~known) || s->opts.copy > TORPOR_COPY_AUTO)
		return err_set(e, -EINVAL, "a flag of the stop, or its way of copying, is not known");
	if (!s->opts.n_pids && !s->opts.cgroup)
		return err_set(e, -EINVAL, "no process and no control group to be stopped");
	if (s->opts.passes > 1 && s->opts.copy == TORPOR_COPY_NONE)
		return err_set(e, -EINVAL, "passes need a copy in memory");
	return 0;
}

/* What there is to be written: of files as much as they have allocated. */
static uint64_t data_bytes(const struct stopped *s, const struct memory_items *items)
{
	uint64_t i, total = 0;

	if (s->copy)
		return live_copy_expected(s->copy);
	for (i = 0; i < items->count; i++)
		total += items->list[i].data_bytes;
	return total;
}

/* Where a process that was named is gone, that is what went wrong, whatever it led to. */
static int blame_ended(const struct stopped *s, int rc)
{
	struct os_proc_stat stat = {.ending = false};
	pid_t tid;
	size_t i;

	if (rc != -ENOENT && rc != -ESRCH && rc != -ENODATA)
		return rc;
	for (i = 0; i < s->opts.n_pids; i++) {
		if (os_proc_living(s->opts.pids[i], &tid, &stat) == -ESRCH || stat.ending)
			return err_set(&s->ctx->e, -ESRCH, "process %d has ended", s->opts.pids[i]);
	}
	return rc;
}

int stopped_prepare(struct stopped *s)
{
	struct live_stop_spec spec = {
		.pids = (const pid_t *)s->opts.pids,
		.n_pids = s->opts.n_pids,
		.tree = s->opts.flags & TORPOR_STOP_TREE,
		.cgroup = s->opts.cgroup,
	};
	struct memory_items items = {.count = 0};
	int rc = check_stop_options(s);

	s->first_look = true;
	if (!rc)
		rc = live_stop_new(&spec, &s->stop, &s->ctx->e);
	if (!rc)
		rc = look(s, &items);
	if (!rc)
		rc = check_writers(s, &items);
	if (!rc)
		rc = prepare_copy(s, &items);
	if (!rc)
		rc = make_passes(s, &items);
	if (rc < 0 && s->stop)
		rc = blame_ended(s, rc);
	s->expected_bytes = data_bytes(s, &items);
	s->first_look = false;
	s->scan.warnings = NULL;
	memory_items_free(&items);
	return rc;
}

/* What happens between stop and go. */
static int take_stopped(struct stopped *s)
{
	struct err *e = &s->ctx->e;
	const pid_t *pids;
	size_t n;
	int rc = look(s, &s->items);

	pids = live_stop_pids(s->stop, &n);
	if (!rc && s->passes)
		rc = live_passes_mark(s->passes, pids, n, e);
	if (!rc && s->copy)
		rc = live_copy_take(s->copy, &s->items, e);
	if (!rc && s->copy && !(s->opts.flags & TORPOR_STOP_ALLOW_WRITERS))
		rc = live_copy_check(s->copy, e);
	s->copied_ns = clock_mono_ns();
	return rc;
}

/* A group that somebody thawed meanwhile makes it an error: it did not stand still. */
static int let_go(struct stopped *s, int rc)
{
	struct err e = {.text = ""};
	int gone;

	if (s->gone_ns)
		return rc;
	gone = live_stop_go(s->stop, &e);
	s->gone_ns = clock_mono_ns();
	if (!rc && gone < 0)
		s->ctx->e = e;
	return rc ? rc : gone;
}

int stopped_take(struct stopped *s)
{
	struct err *e = &s->ctx->e;
	size_t n;
	int rc;

	s->asked_ns = clock_mono_ns();
	rc = live_stop_now(s->stop, &s->ctx->cancel, e);
	if (rc < 0)
		return rc;
	s->stopped_ns = clock_mono_ns();
	s->stopped_threads = (uint32_t)live_stop_threads(s->stop);
	rc = blame_ended(s, take_stopped(s));
	if (rc < 0 || s->copy)
		rc = let_go(s, rc);
	live_stop_pids(s->stop, &n);
	s->processes = (uint32_t)n;
	if (!rc && s->copy)
		rc = check_writers(s, &s->items);
	if (!rc && s->copy)
		rc = memory_source_new_view(&s->items, live_copy_view(s->copy), &s->source, e);
	else if (!rc)
		rc = memory_source_new(&s->items, s->ctx->warnings, &s->source, e);
	return rc;
}

int stopped_go(struct stopped *s)
{
	int rc = 0;

	if (!s->copy)
		rc = check_writers(s, &s->items);
	return let_go(s, rc);
}

void stopped_report(const struct stopped *s, struct torpor_report *report)
{
	struct live_copy_counts counts = {.looked = 0};

	if (s->copy)
		live_copy_counts(s->copy, &counts);
	report->critical_ns = s->gone_ns - s->asked_ns;
	report->stop_ns = s->stopped_ns - s->asked_ns;
	report->copy_ns = s->copy ? s->copied_ns - s->stopped_ns : 0;
	report->copied_bytes = counts.copied;
	report->looked_bytes = counts.looked;
	report->precopied_bytes = counts.precopied;
	report->unreadable_bytes = counts.unreadable;
	report->processes = s->processes;
	report->stopped_threads = s->stopped_threads;
	report->passes = s->passes ? s->opts.passes : 1;
	report->pause_ns = s->pause_ns;
	report->copy_used = s->copy ? TORPOR_COPY_RAM : TORPOR_COPY_NONE;
}

void stopped_free(struct stopped *s)
{
	live_stop_free(s->stop);
	memory_source_free(s->source);
	live_passes_free(s->passes);
	live_copy_free(s->copy);
	memory_items_free(&s->items);
}
