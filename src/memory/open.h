/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Opening the files of a list of items, some time after the scan.  Whoever may write in a source may have moved its folders and put
 * symlinks in their place; what is opened is what was scanned, or nothing.
 */
#ifndef TORPOR_MEMORY_OPEN_H
#define TORPOR_MEMORY_OPEN_H

#include <sys/stat.h>

#include "memory/item.h"

/* Keeps the folder open that the last file lay below. */
struct memory_open {
	const struct memory_items *items; /* borrowed */
	uint64_t root; /* item of the folder */
	int fd;        /* -1: none is open */
};

void memory_open_begin(struct memory_open *o, const struct memory_items *items);
void memory_open_end(struct memory_open *o);

/*
 * Opens the file of item `i` for reading, quickest in the order of the list.  `ret_st` may be NULL.  -ESTALE when it is another one than the
 * scan saw, or behind a symlink now; -EMFILE, ...
 */
int memory_open_file(struct memory_open *o, uint64_t i, int *ret_fd, struct stat *ret_st, struct err *e);

#endif
