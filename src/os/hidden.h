/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Things that have a hidden name until they are complete.  Their maker holds a lock (flock(2))
 * on them for as long as it lives, so that what a killed process has left behind can be told
 * from what another one is making: at any moment, since whoever has just made something makes
 * it again when it was taken for left behind before it was locked.
 *
 * Where a file system has no locks nothing is ever taken for left behind.
 */
#ifndef TORPOR_OS_HIDDEN_H
#define TORPOR_OS_HIDDEN_H

#include "base/tmpname.h"

/*
 * Makes a file (0600), or a folder (0700), with a hidden name for `name`.  Its lock goes with
 * *ret_fd.
 */
int os_hidden_file(int dir, const char *name, char ret_tmp[TMPNAME_BYTES], int *ret_fd);
int os_hidden_folder(int dir, const char *name, char ret_tmp[TMPNAME_BYTES], int *ret_fd);

/* Locks a file that has no name yet and may get a hidden one.  Best effort. */
void os_hidden_lock(int fd);

/*
 * Opens and locks what has `name`, which is about to get a hidden name instead; -1 when it
 * cannot be.
 */
int os_hidden_hold(int dir, const char *name);

/*
 * Removes what killed processes left under hidden names for `name`.  What was set aside and has
 * no successor gets its name back.
 */
void os_hidden_tidy(int dir, const char *name);

/* Removes a file, or a folder with all in it, or as much of it as can be: the first error. */
int os_hidden_remove(int dir, const char *name);

#endif
