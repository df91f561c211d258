// SPDX-License-Identifier: LGPL-2.1-or-later
/* The target's open files and its life; see target.h. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/target-priv.h"
#include "os/uffd.h"

static void file_free(struct memory_target_file *file)
{
	if (!file)
		return;
	fill_stop(file);
	if (file->fd >= 0)
		close(file->fd);
	free(file);
}

static int file_open(struct memory_target *t, uint64_t number, struct memory_target_file **ret)
{
	const struct root *root = &t->roots[t->root_of[number]];
	struct memory_target_file *file = calloc(1, sizeof(*file));
	char path[PATH_MAX];
	int rc = file ? place_path(t, number, path, sizeof(path)) : -ENOMEM;

	if (!rc) {
		file->item = &t->items->list[number];
		file->number = number;
		file->fd = root->nameless >= 0 ? fcntl(root->nameless, F_DUPFD_CLOEXEC, 0)
					       : openat(root->parent, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		rc = file->fd < 0 ? -errno : 0;
	}
	if (rc < 0) {
		free(file);
		return rc;
	}
	fill_start(t, file);
	*ret = file;
	return 0;
}

/* Under the lock.  One more user of an open file, which is then not idle. */
static void use(struct memory_target *t, struct memory_target_file *file)
{
	unsigned int i;

	for (i = 0; i < IDLE_FILES && !file->users; i++) {
		if (t->idle[i] == file)
			t->idle[i] = NULL;
	}
	t->used += !file->users++;
}

/* Under the lock.  An idle file, which is then not known any more; NULL: there is none. */
static struct memory_target_file *give_up_idle(struct memory_target *t)
{
	struct memory_target_file *file = NULL;
	unsigned int i;

	for (i = 0; i < IDLE_FILES && !file; i++) {
		file = t->idle[i];
		t->idle[i] = NULL;
	}
	if (file)
		t->files[file->number] = NULL;
	return file;
}

/*
 * Opens, when descriptors have run out instead of an idle file, or when somebody is done with one: nobody waits here who has one.
 * 1: to be tried again.
 */
static int open_or_wait(struct memory_target *t, uint64_t item, struct memory_target_file **ret)
{
	struct memory_target_file *idle = NULL;
	bool wait = false;
	uint32_t seen;
	int rc = 0;

	wait_lock_acquire(&t->lock);
	seen = t->closed;
	if (!t->files[item])
		rc = file_open(t, item, &t->files[item]);
	if (!rc) {
		use(t, t->files[item]);
		*ret = t->files[item];
	}
	if (rc == -EMFILE || rc == -ENFILE) {
		idle = give_up_idle(t);
		wait = !idle && t->used;
		t->waiting += wait;
	}
	wait_lock_release(&t->lock);
	if (wait) {
		wait_while(&t->closed, seen);
		wait_lock_acquire(&t->lock);
		t->waiting--;
		wait_lock_release(&t->lock);
	}
	file_free(idle);
	return idle || wait ? 1 : rc;
}

int memory_target_open(struct memory_target *t, uint64_t item, struct memory_target_file **ret,
		       struct err *e)
{
	int rc;

	do
		rc = open_or_wait(t, item, ret);
	while (rc > 0);
	return rc < 0 ? err_sys(e, rc, "cannot open the new %s", t->items->list[item].name) : 0;
}

void memory_target_close(struct memory_target *t, struct memory_target_file *file)
{
	struct memory_target_file *old = NULL;
	bool wake = false;
	unsigned int i;

	if (!file)
		return;
	wait_lock_acquire(&t->lock);
	if (!--file->users) {
		i = t->next_idle++ % IDLE_FILES;
		old = t->idle[i];
		t->idle[i] = file;
		if (old)
			t->files[old->number] = NULL;
		t->used--;
		t->closed++;
		wake = t->waiting;
	}
	wait_lock_release(&t->lock);
	file_free(old);
	if (wake)
		wait_wake(&t->closed);
}

static int start(struct memory_target *t, struct err *e)
{
	const struct memory_items *items = t->items;
	uint64_t i;

	t->root_of = calloc(items->count + 1, sizeof(*t->root_of));
	t->files = calloc(items->count + 1, sizeof(struct memory_target_file *));
	for (i = 0; i < items->count; i++)
		t->n_roots += !strchr(items->list[i].name, '/');
	t->roots = calloc(t->n_roots + 1, sizeof(*t->roots));
	if (!t->root_of || !t->files || !t->roots) {
		t->n_roots = 0;
		return err_sys(e, -ENOMEM, "cannot restore %llu files", (unsigned long long)items->count);
	}
	for (i = 0; i < t->n_roots; i++)
		t->roots[i].parent = t->roots[i].nameless = t->roots[i].lock = t->roots[i].old = -1;
	return place_all(t, e);
}

int memory_target_new(const struct memory_items *items, const struct memory_target_opts *opts,
		      struct memory_target **ret, struct err *e)
{
	struct memory_target *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return err_sys(e, -ENOMEM, "cannot restore anything");
	t->items = items;
	t->opts = *opts;
	t->uffd = os_uffd_open();
	rc = start(t, e);
	if (rc < 0) {
		memory_target_free(t);
		return rc;
	}
	*ret = t;
	return 0;
}

static void close_files(struct memory_target *t)
{
	uint64_t i;

	for (i = 0; t->files && i < t->items->count; i++) {
		file_free(t->files[i]);
		t->files[i] = NULL;
	}
	memset(t->idle, 0, sizeof(t->idle));
}

int memory_target_commit(struct memory_target *t, struct err *e)
{
	int rc;

	close_files(t);
	name_metadata(t);
	rc = name_all(t, e);
	if (!rc)
		name_finish(t);
	return rc;
}

void memory_target_free(struct memory_target *t)
{
	if (!t)
		return;
	close_files(t);
	fill_plan_free(t);
	place_undo(t);
	if (t->uffd >= 0)
		close(t->uffd);
	free(t->files);
	free(t->root_of);
	free(t->roots);
	free(t);
}
