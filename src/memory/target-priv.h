/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the files of a target share: occupied.c looks at what is in the way, place.c makes
 * things, name.c names them, target.c keeps files open, fill.c writes pages.
 */
#ifndef TORPOR_MEMORY_TARGET_PRIV_H
#define TORPOR_MEMORY_TARGET_PRIV_H

#include <stdatomic.h>

#include "base/num.h"
#include "base/tmpname.h"
#include "base/wait.h"
#include "memory/target.h"
#include "os/filesystem.h"
#include "os/hidden.h"

enum fill {
	FILL_WRITE,
	FILL_UFFD,
	FILL_HUGE,
	FILL_HUGETLB,
};

#define FILL_HUGE_BYTES MIB(2) /* of tmpfs */

/* Longer files are not mapped: two mappings have to fit into an address space. */
#define FILL_MAP_MAX_BYTES (SIZE_MAX / 4 < (uint64_t)1 << 45 ? SIZE_MAX / 4 : (uint64_t)1 << 45)

struct memory_target_file {
	const struct memory_item *item;
	uint64_t number; /* of the item */
	unsigned int users; /* under the target's lock */
	int fd;
	_Atomic enum fill fill;
	int uffd; /* borrowed; -1: `small` is not registered */
	unsigned char *small, *huge; /* mappings of all of it, for pages of a kind, or NULL */
	size_t map_bytes, huge_bytes; /* of a mapping; of a huge page */
	_Atomic uint64_t unmapped;   /* bytes from the start that need no page table any more */
	_Atomic uint64_t *populated; /* a bit for each huge page */
	const uint64_t *dense;       /* FILL_HUGE: a bit for each huge page that is worth it; NULL: none */
	_Atomic uint16_t *filled;    /* FILL_HUGE, when that is not known: pages filled of each */
};

/* One source of the image and what it becomes. */
struct root {
	uint64_t first, end; /* items */
	int parent;          /* folder it is built and named in */
	bool shares_parent;  /* with a root before */
	bool inside;         /* `parent` is the root itself, which stays: what lies in it is built and named in it */
	uint64_t moved;      /* inside: what lies in it before this item has its name */
	char *path;          /* for messages */
	char name[TMPNAME_BYTES];
	char tmp[TMPNAME_BYTES]; /* "" when nothing has this name */
	int nameless;            /* O_TMPFILE, or -1 */
	int lock;                /* what has the name `tmp`, locked, or -1 */
	int old;                 /* what is exchanged, locked, or -1 */
	bool named;              /* stands under `name` */
	bool exchanged;          /* then the old one stands under `tmp` */
	struct os_filesystem fs;
};

/*
 * Each lock needs a descriptor of its own.  Beyond so many roots there is none: those are made
 * under names that nobody takes for left behind, and stay when this process is killed.
 */
#define LOCKED_ROOTS 128

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
	uint64_t **dense;        /* of each item, as in its file; NULL: not known */
	uint64_t rounding_bytes; /* that huge pages take beyond the data in them */
	struct wait_lock lock;
	struct memory_target_file **files; /* of each item, NULL when not open; under lock */
	struct memory_target_file *idle[IDLE_FILES]; /* open without users; under lock */
	unsigned int next_idle;
	uint64_t used;           /* files with users; under lock */
	unsigned int waiting;    /* for one of them to be closed; under lock */
	_Atomic uint32_t closed; /* changes when one is; written under lock */
};

/*
 * occupied.c.  Nothing but an empty folder?  Does a folder have to stay, since it is a mount
 * point, or empty in a folder that this process may not write?
 */
bool occupied_by_nothing(int dir, const char *name);
bool occupied_stays(int dir, const char *name);
/*
 * What stands at a root's place may be replaced; for folders that stay, what lies in them.
 * -EEXIST, -EBUSY.
 */
int occupied_check(const struct memory_target *t, const struct root *root, struct err *e);

/*
 * place.c: "TMP/rest" of an item below its root's parent; the name of an item right below the
 * root, else NULL.
 */
int place_path(const struct memory_target *t, uint64_t item, char *buf, size_t bytes);
const char *place_child(const struct memory_target *t, const struct root *root, uint64_t item);
int place_all(struct memory_target *t, struct err *e);
/* Removes what is hidden: the new, or the old that was replaced. */
void place_remove(const struct memory_target *t, struct root *root);
void place_undo(struct memory_target *t);

/*
 * name.c: metadata before the names; names for all roots or none; what is left to do when all
 * have theirs.
 */
void name_metadata(struct memory_target *t);
int name_all(struct memory_target *t, struct err *e);
void name_finish(struct memory_target *t);

/* fill-plan.c: decides where huge pages go, before anything is made. */
int fill_plan(struct memory_target *t, struct err *e);
void fill_plan_free(struct memory_target *t);

/* fill.c: decides how pages of an open file are written, and undoes that. */
void fill_start(struct memory_target *t, struct memory_target_file *file);
void fill_stop(struct memory_target_file *file);

#endif
