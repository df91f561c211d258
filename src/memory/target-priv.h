/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files of a target share: place.c makes and names things, target.c keeps files open, fill.c writes pages. */
#ifndef TORPOR_MEMORY_TARGET_PRIV_H
#define TORPOR_MEMORY_TARGET_PRIV_H

#include <stdatomic.h>

#include "base/tmpname.h"
#include "base/wait.h"
#include "memory/target.h"
#include "os/filesystem.h"

enum fill {
	FILL_WRITE,
	FILL_UFFD,
	FILL_HUGE,
};

struct memory_target_file {
	const struct memory_item *item;
	uint64_t number; /* of the item */
	unsigned int users; /* under the target's lock */
	int fd;
	int uffd; /* borrowed */
	_Atomic enum fill fill;
	unsigned char *map;
	size_t map_bytes;
	_Atomic uint64_t unmapped;   /* FILL_UFFD: bytes from the start that need no page table any more */
	_Atomic uint64_t *populated; /* FILL_HUGE: a bit for each huge page */
};

/* One source of the image and what it becomes. */
struct root {
	uint64_t first, end; /* items */
	int parent;          /* folder it is built and named in */
	bool shares_parent;  /* with the root before */
	char *path;          /* for messages */
	char name[TMPNAME_BYTES];
	char tmp[TMPNAME_BYTES]; /* "" when nothing has this name */
	int nameless;            /* O_TMPFILE, or -1 */
	int lock;                /* on what has the name `tmp`, or -1 */
	bool named;              /* stands under `name` */
	bool exchanged;          /* then the old one stands under `tmp` */
	struct os_filesystem fs;
};

#define IDLE_FILES 8

struct memory_target {
	const struct memory_items *items;
	struct memory_target_opts opts;
	struct root *roots;
	uint64_t n_roots;
	uint32_t *root_of; /* of each item */
	char **made_dirs;  /* folders made above the targets, in order */
	size_t n_made_dirs;
	int uffd;
	struct wait_lock lock;
	struct memory_target_file **files; /* of each item, NULL when not open; under lock */
	struct memory_target_file *idle[IDLE_FILES]; /* open without users; under lock */
	unsigned int next_idle;
};

/* place.c: "TMP/rest" of an item below its root's parent. */
int place_path(const struct memory_target *t, uint64_t item, char *buf, size_t bytes);
int place_all(struct memory_target *t, struct err *e);
void place_undo(struct memory_target *t);

/* name.c */
int name_all(struct memory_target *t, struct err *e);
void name_metadata(struct memory_target *t);
void remove_tree(int dir, const char *name);

/* stale.c: holds what stands under `tmp`; removes what others left under such names. */
int stale_lock(const struct root *root);
void stale_remove(const struct root *root);

/* fill.c: decides how pages of an open file are written, and undoes that. */
void fill_start(struct memory_target *t, struct memory_target_file *file);
void fill_stop(struct memory_target_file *file);

#endif
