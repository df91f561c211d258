/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What /proc tells of processes: which there are, their threads, children, state, mappings and
 * descriptors.  Reads only; opens nothing that a process has open.
 *
 * All return 0 (next: 1, and 0 at the end) or a negative errno: -ESRCH it has ended, -EACCES or
 * -EPERM it may not be looked at.  Wherever a `pid` is asked for, the number of one of its
 * threads does as well: a process whose first thread has ended shows its mappings and
 * descriptors only there.
 */
#ifndef TORPOR_OS_PROC_H
#define TORPOR_OS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- processes and threads ---- */

/* All processes there are, ascending.  The caller frees the list, here and below. */
int os_proc_list(pid_t **ret_pids, size_t *ret_n);

/* The threads of a process. */
int os_proc_tasks(pid_t pid, pid_t **ret_tids, size_t *ret_n);

/*
 * The processes whose parent is any thread of this one.  Whole when they stand still; of those
 * that run one may be missed that was just made.
 */
int os_proc_children(pid_t pid, pid_t **ret_pids, size_t *ret_n);

/* The same by asking everybody for its parent, as the above does on kernels without lists. */
int os_proc_children_scan(pid_t pid, pid_t **ret_pids, size_t *ret_n);

struct os_proc_stat {
	char comm[64];
	char state; /* 'R', 'S', 'D', 'T', 't', 'Z', 'X', ... */
	pid_t ppid;
	bool kernel_thread;
	bool ending; /* its memory is gone, or soon will be */
	unsigned int threads; /* of the process, with those that are about to be gone; 0: it is gone */
	uint64_t start_ticks; /* when it was made; see struct os_proc_moment */
};

/* Anybody may ask that of anything. */
int os_proc_stat(pid_t pid, pid_t tid, struct os_proc_stat *ret);

/*
 * A moment: the kernel's coarse clock of starts, and within a tick the last number that was given to a
 * process, which grows from one to the next.
 */
struct os_proc_moment {
	uint64_t ticks;
	pid_t last_pid;
};

int os_proc_now(struct os_proc_moment *ret);

/*
 * A thread of the process that lives, the first one if it does, and what it is.  Mappings and
 * descriptors are seen through one that lives only.  -ESRCH there is none.
 */
int os_proc_living(pid_t pid, pid_t *ret_tid, struct os_proc_stat *ret);

/* Who traces the thread; 0 nobody, or somebody who cannot be seen from here. */
int os_proc_tracer(pid_t tid, pid_t *ret_tracer);

/*
 * A number that grows with each child of the process that ends and is waited for: its page faults, of which a process that was forked
 * has some.  *ret_forgets: the process ignores SIGCHLD, so its children end without a trace.
 */
int os_proc_waited_for(pid_t pid, uint64_t *ret_faults, bool *ret_forgets);

/* ---- mappings ---- */

struct os_proc_map {
	uint64_t start, end, offset;
	bool read, write, exec, shared;
	dev_t dev;  /* of the superblock: on btrfs and overlayfs not what stat(2) says */
	ino_t ino;  /* 0: no file, or the first SysV segment */
	char *name; /* the iterator's; "", "[heap]", or a path, perhaps with " (deleted)" */
};

/*
 * A newline in a name is told as "\012", and a backslash as itself: so a name with these four
 * characters in it comes out wrong here, and right from os_proc_map_path().
 */
struct os_proc_maps;

int os_proc_maps_open(pid_t pid, struct os_proc_maps **ret);
int os_proc_maps_next(struct os_proc_maps *m, struct os_proc_map *ret);
void os_proc_maps_close(struct os_proc_maps *m);

#define OS_PROC_PATH_BYTES 80

/*
 * "/proc/PID/map_files/START-END": opens the mapped file itself, with CAP_SYS_ADMIN or
 * CAP_CHECKPOINT_RESTORE.
 */
void os_proc_map_link(pid_t pid, uint64_t start, uint64_t end, char ret[OS_PROC_PATH_BYTES]);

/* The path of a mapped file as it is, perhaps with " (deleted)".  *ret is the caller's. */
int os_proc_map_path(pid_t pid, uint64_t start, uint64_t end, char **ret);

/* ---- descriptors ---- */

struct os_proc_fd {
	int fd;
	dev_t dev; /* as stat(2) says */
	ino_t ino;
};

/* The descriptors of a process; those that are closed meanwhile are passed over. */
struct os_proc_fds;

int os_proc_fds_open(pid_t pid, struct os_proc_fds **ret);
int os_proc_fds_next(struct os_proc_fds *f, struct os_proc_fd *ret);
void os_proc_fds_close(struct os_proc_fds *f);

/* What it was opened with: O_ACCMODE, O_PATH and the rest.  -ENOENT it was closed. */
int os_proc_fd_flags(pid_t pid, int fd, int *ret_flags);

/* ---- files ---- */

/* Device and inode of what a path or link leads to; never waits for a server to tell. */
int os_proc_identify(int dir, const char *path, bool follow, dev_t *ret_dev, ino_t *ret_ino);

/*
 * The type of the file system with this device number, among those that a process sees:
 * "tmpfs".  -ENOENT it sees none: a mount of the kernel's own, or one that was let go of.
 */
int os_proc_mount_type(pid_t pid, dev_t dev, char *ret, size_t bytes);

#endif
