/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is carried: one item a file, folder or symlink, the same for sources and targets.  The
 * memory room knows files and pages; it knows no images.
 */
#ifndef TORPOR_MEMORY_ITEM_H
#define TORPOR_MEMORY_ITEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define MEMORY_PAGE_BYTES 4096u

enum memory_kind {
	MEMORY_FILE = 1,
	MEMORY_DIRECTORY = 2,
	MEMORY_SYMLINK = 3,
};

struct memory_item {
	enum memory_kind kind;
	uint64_t bytes;
	uint32_t page_bytes, huge_page_bytes;
	uint32_t mode, uid, gid;
	int64_t mtime_ns;
	uint64_t data_bytes; /* of a source: allocated */
	uint64_t dev, ino; /* of a source: what tells a file from all others */
	char *name;   /* "mc/mem": the root's name first */
	char *origin; /* roots: the absolute path, "" for memory without one; else "" */
	char *link;   /* symlinks: their text; else "" */
	char *path;   /* a source's root that is not opened by its origin: what to open; else NULL */
};

/* A growing list; items in it own their strings.  Zero it before use. */
struct memory_items {
	struct memory_item *list;
	uint64_t count, room;
};

/* Appends; takes over the strings of `item` also on failure.  -ENOMEM. */
int memory_items_add(struct memory_items *items, const struct memory_item *item, struct err *e);
void memory_items_remove(struct memory_items *items, uint64_t i);
void memory_items_free(struct memory_items *items);

/* Warnings: kept until somebody asks; not thread-safe but for memory_warn() itself. */
struct memory_warnings;

struct memory_warnings *memory_warnings_new(void);
void memory_warnings_free(struct memory_warnings *w);
void memory_warnings_clear(struct memory_warnings *w);
const char *memory_warnings_get(struct memory_warnings *w, size_t i);

/* Adds a warning; `w` may be NULL.  Any thread. */
void memory_warn(struct memory_warnings *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
