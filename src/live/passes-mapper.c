// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The processes of a pass: soft-dirty bits are in the page tables of those that there are, and
 * in what these map.  What was unmapped, and who has ended, has taken them along; that is found
 * out here, from maps and children before and after.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "live/passes-priv.h"
#include "os/pagemap.h"
#include "os/proc.h"

/* What a failure is called when it is that the process has gone. */
static int fail(struct err *e, int rc, const char *what, pid_t pid)
{
	return rc == -ESRCH || rc == -ENOENT
		       ? -ESRCH
		       : err_sys(e, rc, "cannot %s process %d", what, pid);
}

static int read_maps(pid_t tid, const struct live_copy *c, struct shared_maps *ret)
{
	struct os_proc_maps *maps;
	struct os_proc_map map;
	int rc = os_proc_maps_open(tid, &maps);

	if (rc < 0)
		return rc;
	while ((rc = os_proc_maps_next(maps, &map)) > 0) {
		struct copied_file *f =
			map.shared && map.ino ? copy_file_known(c, map.dev, map.ino) : NULL;

		if (!f)
			continue;
		rc = copy_room((void **)&ret->list, ret->n, &ret->room, sizeof(*ret->list));
		if (rc < 0)
			break;
		ret->list[ret->n++] = (struct shared_map){map.start, map.end, map.offset, f};
	}
	os_proc_maps_close(maps);
	return rc;
}

/*
 * In this order: a store before the maps are read comes before the pass, which copies what it
 * finds.  A child that is made before it is noted is one that the list of processes lacks.
 */
int passes_mapper_new(struct mapper *m, const struct live_copy *c, pid_t pid, struct err *e)
{
	struct os_proc_stat stat;
	int rc;

	*m = (struct mapper){.pid = pid, .pagemap = -1};
	rc = os_proc_living(pid, &m->tid, &stat);
	if (rc < 0)
		return fail(e, rc, "look at", pid);
	m->pagemap = os_pagemap_open(m->tid);
	if (m->pagemap < 0)
		return fail(e, m->pagemap, "look at the pages of", pid);
	rc = os_soft_dirty_clear(m->tid);
	if (rc < 0)
		return fail(e, rc, "clear the soft-dirty bits of", pid);
	rc = os_proc_waited_for(m->tid, &m->waited_for, &m->forgets);
	if (!rc)
		rc = os_proc_children(pid, &m->children, &m->n_children);
	if (!rc)
		rc = read_maps(m->tid, c, &m->maps);
	return rc < 0 ? fail(e, rc, "look at", pid) : 0;
}

void passes_mapper_free(struct mapper *m)
{
	if (m->pagemap >= 0)
		close(m->pagemap);
	free(m->maps.list);
	free(m->children);
}

static bool same_place(const struct shared_map *a, const struct shared_map *b)
{
	return a->file == b->file && a->start - a->offset == b->start - b->offset;
}

static void stale_part(const struct shared_map *m, uint64_t start, uint64_t end)
{
	if (start < end)
		passes_stale(m->file, (start - m->start + m->offset) / MEMORY_PAGE_BYTES,
			     (end - m->start + m->offset) / MEMORY_PAGE_BYTES);
}

/* What `a` shows of files and `b` does not show at the same place is stale. */
static void stale_outside(const struct shared_maps *a, const struct shared_maps *b)
{
	size_t i, j, first = 0;

	for (i = 0; i < a->n; i++) {
		const struct shared_map *m = &a->list[i];
		uint64_t at = m->start;

		while (first < b->n && b->list[first].end <= m->start)
			first++;
		for (j = first; j < b->n && b->list[j].start < m->end; j++) {
			if (!same_place(m, &b->list[j]))
				continue;
			stale_part(m, at, b->list[j].start);
			at = num_min(b->list[j].end, m->end);
		}
		stale_part(m, at, m->end);
	}
}

static bool same_children(const struct mapper *m, const pid_t *pids, size_t n)
{
	return n == m->n_children && (!n || !memcmp(pids, m->children, n * sizeof(*pids)));
}

int passes_mapper_compare(const struct mapper *m, const struct live_copy *c,
			  const char **ret_lost)
{
	CLEANUP_FREE pid_t *children = NULL;
	struct shared_maps now = {.n = 0};
	uint64_t waited_for = 0;
	bool forgets = false;
	size_t n = 0;
	int rc = os_proc_waited_for(m->tid, &waited_for, &forgets);

	if (!rc)
		rc = os_proc_children(m->pid, &children, &n);
	if (!rc)
		rc = read_maps(m->tid, c, &now);
	if (!rc) {
		stale_outside(&m->maps, &now);
		stale_outside(&now, &m->maps);
	}
	free(now.list);
	if (rc == -ENOMEM)
		return rc;
	if (rc < 0)
		*ret_lost = "a process has ended";
	else if (m->forgets || forgets)
		*ret_lost = "a process ignores how its children end (SIGCHLD)";
	else if (waited_for != m->waited_for || !same_children(m, children, n))
		*ret_lost = "processes were made or have ended";
	return 0;
}
