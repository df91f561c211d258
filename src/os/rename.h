/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * renameat2(2) and what stands in for its flags on file systems without them (NFS, 9p, some of
 * FUSE).
 */
#ifndef TORPOR_OS_RENAME_H
#define TORPOR_OS_RENAME_H

/*
 * Renames; -EEXIST when something has the name `to`.  Without RENAME_NOREPLACE files are linked
 * and unlinked, which is as safe; for folders the name is looked up before, and what comes
 * between is -ENOTEMPTY, or an empty folder.
 */
int os_rename_new(int from_dir, const char *from, int to_dir, const char *to);

/*
 * Exchanges what the two names stand for.  Without RENAME_EXCHANGE what is at `to` is set aside
 * in `from_dir`, and comes to `from` at the end.  Files never miss there; where a folder is one
 * of the two, `to` is without anything for a moment, and a process that is killed in it leaves
 * the old one as TMPNAME_OLD (see hidden.h).  Nothing has changed on failure.
 */
int os_rename_exchange(int from_dir, const char *from, int to_dir, const char *to);

#endif
