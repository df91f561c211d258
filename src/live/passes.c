// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Copying in passes; see passes.h.  Whatever may hide a change makes all of the memory, or of a
 * file, be copied again, and never fails: a pass that was in vain costs time, one that is
 * wrongly believed costs the image.
 */
#include "live/passes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "live/passes-priv.h"
#include "os/pagemap.h"
#include "os/vmstat.h"
#include "os/watch.h"

int live_passes_new(struct live_copy *copy, struct live_passes **ret, struct err *e)
{
	struct live_passes *p;

	if (!os_soft_dirty_works())
		return err_set(e, -EOPNOTSUPP,
			       "passes need soft-dirty bits, which this kernel does not keep "
			       "(CONFIG_MEM_SOFT_DIRTY)");
	p = calloc(1, sizeof(*p));
	if (!p)
		return err_sys(e, -ENOMEM, "cannot copy in passes");
	p->copy = copy;
	p->watch = -1;
	*ret = p;
	return 0;
}

static void forget_mappers(struct live_passes *p)
{
	size_t i;

	for (i = 0; i < p->n_mappers; i++)
		passes_mapper_free(&p->mappers[i]);
	free(p->mappers);
	p->mappers = NULL;
	p->n_mappers = 0;
}

static void mark_all(struct live_passes *p)
{
	size_t i;

	for (i = 0; i < p->copy->n_files; i++)
		passes_stale(p->copy->files[i], 0, UINT64_MAX);
}

/* A new watch: what happened before is known already. */
static int watch_files(struct live_passes *p, struct err *e)
{
	size_t i;

	if (p->watch >= 0)
		close(p->watch);
	p->watch = os_watch_open();
	free(p->watched);
	free(p->files);
	p->n_files = p->copy->n_files;
	p->watched = calloc(p->n_files + 1, sizeof(*p->watched));
	p->files = calloc(p->n_files + 1, sizeof(*p->files));
	if (p->watch < 0 || !p->watched || !p->files)
		return err_sys(e, p->watch < 0 ? p->watch : -ENOMEM,
			       "cannot watch the memory for writes");
	for (i = 0; i < p->n_files; i++) {
		p->files[i] = p->copy->files[i];
		p->files[i]->quiet = false;
		p->watched[i] = os_watch_add(p->watch, p->files[i]->fd);
		if (p->watched[i] < 0)
			return err_sys(e, p->watched[i], "cannot watch %zu files for writes",
				       p->n_files);
	}
	return 0;
}

static int add_mappers(struct live_passes *p, const pid_t *pids, size_t n, struct err *e)
{
	size_t i;

	p->mappers = calloc(n + 1, sizeof(*p->mappers));
	if (!p->mappers)
		return err_sys(e, -ENOMEM, "cannot copy in passes");
	for (i = 0; i < n; i++) {
		int rc = passes_mapper_new(&p->mappers[p->n_mappers++], p->copy, pids[i], e);

		if (rc == -ESRCH)
			p->lost = "a process has ended";
		else if (rc < 0)
			return rc;
	}
	return 0;
}

int live_passes_begin(struct live_passes *p, const pid_t *pids, size_t n, struct err *e)
{
	int rc = watch_files(p, e);

	p->lost = NULL;
	forget_mappers(p);
	if (os_vmstat_dropped(&p->dropped) < 0)
		p->lost = "/proc/vmstat cannot be read";
	if (!rc)
		rc = add_mappers(p, pids, n, e);
	return rc ? rc : passes_look_begin(p, e);
}

/* Files that were changed past all mappings are copied anew; of the others, it is known that
 * they were not. */
static void mark_watched(struct live_passes *p)
{
	size_t i;
	int number;

	for (i = 0; i < p->n_files; i++)
		p->files[i]->quiet = true;
	while ((number = os_watch_next(p->watch)) != -EAGAIN) {
		for (i = 0; i < p->n_files; i++) {
			if (number >= 0 && p->watched[i] != number)
				continue;
			p->files[i]->quiet = false;
			passes_stale(p->files[i], 0, UINT64_MAX);
		}
		if (number < 0)
			return;
	}
}

static bool is_known(const struct live_passes *p, pid_t pid)
{
	size_t i;

	for (i = 0; i < p->n_mappers; i++) {
		if (p->mappers[i].pid == pid)
			return true;
	}
	return false;
}

/* Why the bits do not tell all; NULL: they do. */
static int compare(struct live_passes *p, const pid_t *pids, size_t n, struct err *e)
{
	uint64_t dropped = 0;
	size_t i;
	int rc = 0;

	for (i = 0; i < n && !p->lost; i++) {
		if (!is_known(p, pids[i]))
			p->lost = "processes were made";
	}
	for (i = 0; i < p->n_mappers && !p->lost && !rc; i++)
		rc = passes_mapper_compare(&p->mappers[i], p->copy, &p->lost);
	if (rc < 0)
		return err_sys(e, rc, "cannot look at what changed");
	if (!p->lost && (os_vmstat_dropped(&dropped) < 0 || dropped != p->dropped))
		p->lost = "the kernel reclaims memory, or makes huge pages of it";
	return 0;
}

int live_passes_mark(struct live_passes *p, const pid_t *pids, size_t n, struct err *e)
{
	int rc;

	mark_watched(p);
	rc = compare(p, pids, n, e);
	if (rc < 0)
		return rc;
	if (!p->lost)
		return passes_look_again(p, e);
	memory_warn(p->copy->opts.warnings, "what passes copied has to be copied again: %s",
		    p->lost);
	mark_all(p);
	return 0;
}

void live_passes_free(struct live_passes *p)
{
	if (!p)
		return;
	if (p->watch >= 0)
		close(p->watch);
	forget_mappers(p);
	free(p->watched);
	free(p->files);
	free(p->looks);
	free(p);
}
