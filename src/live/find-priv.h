/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What finding memory and its writers share; and names for the image: one component each, no
 * two the same.
 */
#ifndef TORPOR_LIVE_FIND_PRIV_H
#define TORPOR_LIVE_FIND_PRIV_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "os/proc.h"

/*
 * The kernel's own mount of tmpfs, where memory lies that never had a path: memfds, shared
 * anonymous, SysV.
 */
int find_kernel_dev(dev_t *ret, struct err *e);

/* Is it a SysV segment?  Then its inode is not the identity of a file. */
bool find_is_sysv(const struct os_proc_map *map, dev_t kernel_dev);

/* The names that are taken; zero it before use. */
struct find_names {
	void *tree;
};

/*
 * Takes `wanted`, or it with ".2", ".3", ... at its end.  *ret is the caller's to free.
 * -ENOMEM.
 */
int find_name_take(struct find_names *names, const char *wanted, char **ret);
void find_names_free(struct find_names *names);

/* Cuts off the " (deleted)" that the kernel writes behind a path.  False: there is none. */
bool find_name_cut_deleted(char *path);

/*
 * What a mapped file is to be called, from its path or the text that the kernel puts in its
 * place, without " (deleted)".  `nameless`: it has no path of its own.  *ret is the caller's to
 * free.  -ENOMEM.
 */
int find_name_wish(const char *path, bool nameless, char **ret);

#endif
