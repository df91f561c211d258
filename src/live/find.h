/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The shared memory of processes, found in their maps; and who else could write it.  Reads
 * /proc, stops and changes nothing.
 */
#ifndef TORPOR_LIVE_FIND_H
#define TORPOR_LIVE_FIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "live/lineage.h"

enum live_memory_kind {
	LIVE_MEMORY_FILE = 1,    /* on tmpfs, with a path: POSIX shared memory too */
	LIVE_MEMORY_MEMFD = 2,   /* also shared anonymous memory */
	LIVE_MEMORY_DELETED = 3, /* on tmpfs, its name is gone, or cannot be seen from here */
	LIVE_MEMORY_SYSV = 4,    /* not carried yet */
	LIVE_MEMORY_HUGETLB = 5, /* not carried yet */
};

/* What tells one file from all others, as stat(2) says. */
struct live_file_id {
	dev_t dev;
	ino_t ino;
};

/* One file or segment, however many mappings of it there are. */
struct live_memory {
	enum live_memory_kind kind;
	bool carried;
	struct live_file_id id; /* of a SysV segment the inode is its identifier */
	pid_t pid;              /* the first process that maps it */
	uint64_t bytes;         /* size of the file */
	uint64_t data_bytes;    /* of it allocated; 0 also where that is not told */
	char *name;             /* for the image: one component, no two the same in a list */
	char *origin;           /* absolute path; "" when it has none */
	char *open_path; /* what to open: the origin, or in /proc/PID map_files/... or fd/N */
};

struct live_memories {
	struct live_memory *list;
	size_t count;
};

/*
 * Lists the shared memory of the processes, in the order of `pids` and of their addresses.
 * Memory is what a shared mapping shows of a regular file on tmpfs, ramfs or hugetlbfs; one
 * that is mapped for reading counts.
 *
 * While the processes run they may change what they map: whoever opens `open_path` compares the
 * identity.
 *
 * -ESRCH a process ended; -EACCES, -EPERM its maps cannot be read, or memory without a path
 * cannot be opened, which needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE unless the process has
 * it open; -EINVAL a kernel thread; -EAGAIN the process maps and unmaps faster than its maps
 * can be read.
 */
int live_find(const pid_t *pids, size_t n, struct live_memories *ret, struct err *e);
void live_memories_free(struct live_memories *m);

/* Why memory of this kind is not carried; "" when it is. */
const char *live_memory_reason(enum live_memory_kind kind);

/* A process that could write. */
struct live_writer {
	pid_t pid;
	char comm[16];
	bool maps; /* it maps the file writably and shared; else it holds it open for writing */
	size_t file; /* index into what was asked for; of several that are one, the first */
	struct live_origin origin;
};

struct live_writers {
	struct live_writer *list;
	size_t count;
};

/*
 * Finds the processes, but those in `except` and this one, that could write any of the files.
 * A process that ends meanwhile is passed over; one that may not be looked at is counted in
 * *ret_hidden.  Once a process and file.
 *
 * Not found, since /proc does not tell: a descriptor that is on its way through a socket
 * (SCM_RIGHTS), registered with an io_uring or held by the kernel (a loop device, swap); one
 * that a single thread has for itself (unshare(2) with CLONE_FILES); processes that are not in
 * this /proc, such as those outside of our PID namespace; a process made during the look.  A
 * shared mapping that is read-only now is not a writer, though mprotect(2) may make it one.
 * Without CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, mappings on file systems whose maps name
 * another device than stat(2) (btrfs, overlayfs) are not found either; on tmpfs the two are the
 * same.
 */
int live_find_writers(const struct live_file_id *files, size_t n_files, const pid_t *except,
		      size_t n_except, struct live_writers *ret, size_t *ret_hidden,
		      struct err *e);
void live_writers_free(struct live_writers *w);

#endif
