/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libtorpor: carry big memory across a restart.
 *
 * This is the only installed header, and it is the contract.  Conventions, where a comment does not say otherwise:
 *
 * - Functions return 0 or a negative errno.  The context then holds one message, whole and readable, from the outermost
 *   layer to the innermost: "cannot load x.torpor: chunk at offset 4096 (segment "mem", pages 0-31): hash differs".  The
 *   library never prints, but for one thing: when the environment's TORPOR_CPU, a means for tests, names nothing that this
 *   CPU can run, it says so and aborts.
 * - Codes with a meaning of their own: -EBADMSG, the image is damaged, and the message says where; -EOPNOTSUPP, the image
 *   is sound but needs something that this library does not know (a newer version, a codec that was not built in);
 *   -ECANCELED, torpor_cancel() was called; -EINVAL, wrong use of the interface (an EINVAL of the system's comes as -EIO).
 *   Other codes are the system's.
 * - Outputs are named ret_*, and are untouched on failure.  Free functions accept NULL.
 * - Options and results are structs that begin with their own size.  Zero all of it, set `size` to sizeof, fill in what
 *   you need: a zero field reads as its default.  A struct from an older header has a smaller size, and what it does not
 *   have reads as default; a struct from a newer header is accepted when all that this library does not know is zero, else
 *   -EINVAL.  A result whose size cannot be is -EINVAL before anything is done. TORPOR_OPTS() does the first steps.
 * - Strings are borrowed for the length of the call; strings handed out belong to the object that they came from and live
 *   as long as it does.
 * - Sizes and offsets are in bytes, times in nanoseconds, unless a name says otherwise.
 *
 * Memory: an operation needs less than 64 MiB + 4 MiB for each thread, whatever the size of the image, plus about 300 bytes for
 * each file in it.
 */
#ifndef TORPOR_H
#define TORPOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An options or result struct, zeroed, with its size set: struct torpor_load_opts o = TORPOR_OPTS(o); */
#define TORPOR_OPTS(var) {.size = sizeof(var)}

/* ---- the context ------------------------------------------------------------------------- */

/*
 * A context runs one operation at a time and keeps its message, warnings and progress.
 * Thread safety: a context may be used by one thread at a time; different contexts are
 * independent.  torpor_cancel() and torpor_progress() are the exceptions: they may be called
 * from any thread while an operation runs, torpor_cancel() also from a signal handler.
 */
struct torpor;

/* "0.1.0".  Since: 0.1 */
const char *torpor_version(void);

/*
 * Makes a context.  The caller owns it and frees it with torpor_free().
 * Errors: -ENOMEM.  Since: 0.1
 */
int torpor_new(struct torpor **ret_ctx);

/* Frees a context.  No operation may be running.  Since: 0.1 */
void torpor_free(struct torpor *ctx);

/*
 * The message of the last operation that failed, without a newline; "" when none did.  Valid until the next operation
 * on this context.  Since: 0.1
 */
const char *torpor_error(const struct torpor *ctx);

/*
 * Warning number `i` of the last operation (an owner that could not be restored, for example); NULL when there are no
 * more.  At most 32 are kept; the last one then says how many followed. Since: 0.1
 */
const char *torpor_warning(const struct torpor *ctx, size_t i);

/*
 * Makes the running operation, or the next one, stop soon with -ECANCELED and leave nothing behind.  Async-signal-safe.
 * The request is consumed by the operation that it ends. Since: 0.1
 */
void torpor_cancel(struct torpor *ctx);

/* How far the running operation is.  Any thread may ask at any time.  Since: 0.1 */
struct torpor_progress {
	size_t size;
	uint64_t done_bytes;  /* of memory: data, zero pages and holes; a rebuild tells of its image, which it reads twice */
	uint64_t total_bytes; /* 0: not known (an image that comes through a pipe) */
};

void torpor_progress(const struct torpor *ctx, struct torpor_progress *ret_progress);

/* ---- save -------------------------------------------------------------------------------- */

enum torpor_flags {
	TORPOR_FORCE = 1 << 0,        /* replace what stands at the target */
	TORPOR_SKIP_SPECIAL = 1 << 1, /* save: pass over sockets, fifos and devices */
	TORPOR_TRUST_PATHS = 1 << 2,  /* load: restore to where it came from, whoever owns the image */
	TORPOR_IMAGE_FD = 1 << 3,     /* the image is the descriptor image_fd, not a path */
};

enum torpor_stop_flags {
	TORPOR_STOP_TREE = 1 << 0,            /* with each process all that descend from it */
	TORPOR_STOP_ALLOW_WRITERS = 1 << 1,   /* save though processes that are not stopped could write; the image tells */
	TORPOR_STOP_SKIP_UNREADABLE = 1 << 2, /* pages that cannot be read become holes, with a warning */
	TORPOR_STOP_BACKGROUND = 1 << 3,      /* once they go on: compress and write at idle CPU and I/O priority */
	TORPOR_STOP_NO_ZERO_CHECK = 1 << 4,   /* copy zero pages too and find them later: the same image */
};

enum torpor_copy {
	TORPOR_COPY_RAM = 0,  /* copy to memory, let them go on, write from the copy; -ENOMEM, before anything is stopped, when it does not fit */
	TORPOR_COPY_NONE = 1, /* they stand still until all is written: needs no memory */
	TORPOR_COPY_AUTO = 2, /* RAM when it fits, else NONE */
	TORPOR_COPY_PROTECT = 3, /* of snapshots alone: write-protect, and copy what is about to change */
};

/*
 * Whose memory is saved, and must stand still for it: processes by their PID, a control group (v2), or both.  Everything is
 * prepared first; then they are stopped, and known to be stopped; their memory is copied; they go on; the copy is written.
 * The time between is the critical section, and is in the report.  They go on whatever happens to this process, kill -9 included:
 * processes are held by ptrace(2), which ends with its tracer, a control group is watched over by a guardian process.
 *
 * A process that was stopped before stays stopped afterwards.  System calls that do not start again by themselves
 * after a stop return EINTR (epoll_wait(2), see signal(7)).
 */
struct torpor_stop {
	size_t size;
	uint32_t flags;      /* enum torpor_stop_flags */
	uint32_t copy;       /* enum torpor_copy */
	const int32_t *pids; /* borrowed for the length of the call */
	size_t n_pids;
	const char *cgroup;  /* path of the group's folder, or its name below the cgroup2 mount; NULL: none */
	/*
	 * 2 and more: copy so many times less one while they run, and in the critical section only what changed since; 0: 1.
	 * Needs a kernel with soft-dirty bits (-EOPNOTSUPP) and everybody stopped who could write.  Not seen is what a process
	 * stores through a mapping that it makes and takes away between two passes, and what hardware stores to pages that were pinned before.
	 */
	uint32_t passes;
};

struct torpor_save_opts {
	size_t size;
	uint32_t flags;       /* TORPOR_FORCE, TORPOR_SKIP_SPECIAL, TORPOR_IMAGE_FD */
	uint32_t threads;     /* 0: as many as CPUs this process may use (affinity and cgroup quota) */
	const char *codec;    /* "none", "lz4", "zstd", "lzo"; NULL: "lz4" */
	int32_t level;        /* lz4: acceleration, zstd: level (may be negative); 0: 1 */
	uint32_t chunk_bytes; /* memory compressed as one: 4096 to 1 MiB, a power of two; 0: 128 KiB, with zstd 512 KiB */
	int32_t image_fd;     /* with TORPOR_IMAGE_FD; written in one pass, never closed */
	const struct torpor_stop *stop; /* processes to be stopped for it; NULL: none */
};

/* What an operation did.  All of it is filled in on success. */
struct torpor_report {
	size_t size;
	uint64_t segments;        /* files, folders and symlinks */
	uint64_t chunks;          /* chunks with data */
	uint64_t memory_bytes;    /* size of all memory: data + zero + hole + unpreserved, in whole pages */
	uint64_t data_bytes;      /* pages with data */
	uint64_t zero_bytes;      /* pages that exist and are zero */
	uint64_t hole_bytes;      /* pages that do not exist */
	uint64_t unpreserved_bytes; /* pages that exist but were not to be carried */
	uint64_t stored_bytes;    /* what data_bytes became, compressed */
	uint64_t image_bytes;     /* the whole image */
	uint64_t wall_ns;         /* from the call to the end, flush included */
	uint64_t cpu_ns;          /* CPU time of the process meanwhile */
	uint32_t threads;         /* workers, the calling thread included */
	int32_t level;            /* save: of the codec */
	char codec[16];           /* that the save was asked for; chunks that do not shrink are stored without one */
	int32_t guard_held;       /* load, verify: 1 when the latency guard was held, else 0 */
	char guard_reason[128];   /* why it was not; "" when it was, and after a save without `stop` */
	/* A save with `stop`, or a snapshot: */
	uint64_t critical_ns;     /* from asking for the stop until all went on again */
	uint64_t stop_ns;         /* of it: until all were known to be stopped */
	uint64_t copy_ns;         /* of it: looking at the memory and copying it */
	uint64_t pause_ns;        /* before that: they stood still between passes, to see what had changed; 0 for up to 2 */
	uint64_t copied_bytes;    /* copied in the critical section; zero pages are not, unless NO_ZERO_CHECK */
	uint64_t looked_bytes;    /* looked at in the critical section */
	uint64_t precopied_bytes; /* copied before, by passes */
	uint64_t unreadable_bytes; /* saved as holes, with SKIP_UNREADABLE */
	uint32_t processes;       /* stopped */
	uint32_t stopped_threads; /* of processes; of a control group its processes are counted */
	uint32_t passes;          /* made, the one in the critical section included */
	uint32_t copy_used;       /* enum torpor_copy: RAM, NONE or PROTECT */
};

/*
 * Saves memory into an image.
 * Each of the `n_sources` sources is a path: a regular file (on tmpfs, DAX or any filesystem) or a folder, which is
 * saved with all that it holds (files, folders, symlinks).  A symlink named as a source is followed; one within a
 * folder is saved as a symlink.  Last parts of the sources' names must differ.  Sockets, fifos and devices are refused
 * with their name unless TORPOR_SKIP_SPECIAL.
 *
 * `image` names a file or a block device.  A file is written without a name, or under a temporary one, beside its
 * target and renamed when it is complete and flushed: at any instant the old image or the new one is there, whole.  An
 * existing file (or the one that a symlink leads to) is replaced, and a block device written, only with TORPOR_FORCE.
 * Nothing else is ever replaced.  An image that is a source is refused; one that lies in a source is not saved, with a
 * warning.  With TORPOR_IMAGE_FD `image` is NULL and the descriptor is written in one pass without a seek, from where
 * it stands.
 *
 * The sources must not be written meanwhile; without `opts->stop` this call stops nobody.  A source that shrinks while
 * it is read, or is another file by then, is -ESTALE; one that was changed as its times tell is a warning.  Nothing is
 * left behind on failure.
 *
 * With `opts->stop` there may be no source: then all shared memory of the stopped processes is saved that
 * torpor_memory_list() lists as carried; what it lists as not carried is a warning.  Every process that could write a
 * source and is not stopped is looked for, and is -EBUSY with its name, before anything is stopped, unless
 * TORPOR_STOP_ALLOW_WRITERS.
 * Errors: see the top; -EEXIST target exists; -ENOTBLK target is neither a file nor a block device; -EISDIR it is a
 * folder, or its path ends with a slash; -EINVAL it is a source; -ENOTSUP a special file; -ENOSPC.  With `opts->stop`
 * also -ESRCH a process has ended; -EPERM a debugger has it, a kernel thread, no permission; -ETIMEDOUT a thread does
 * not stop; -ENOMEM the copy does not fit; -EBUSY a writer, or another copy is being taken in this process; -EIO pages
 * cannot be read; -ENODATA there is no shared memory.
 * `opts` and `ret_report` may be NULL.  Since: 0.1
 */
int torpor_save(struct torpor *ctx, const char *const *sources, size_t n_sources,
		const char *image, const struct torpor_save_opts *opts,
		struct torpor_report *ret_report);

/* ---- load and verify --------------------------------------------------------------------- */

/*
 * The latency guard holds /dev/cpu_dma_latency at 0 while an image is decoded, so that CPUs do
 * not fall into deep idle states between chunks.  It is released on every way out.
 */
enum torpor_guard {
	TORPOR_GUARD_AUTO = 0, /* hold it where that is possible, say in the report when it is not */
	TORPOR_GUARD_ON = 1,   /* an error when it cannot be had */
	TORPOR_GUARD_OFF = 2,
};

struct torpor_load_opts {
	size_t size;
	uint32_t flags;   /* TORPOR_FORCE, TORPOR_TRUST_PATHS, TORPOR_IMAGE_FD */
	uint32_t threads; /* 0: as many as CPUs this process may use */
	const char *to;   /* folder to restore under, which exists; NULL: to where the memory came from */
	uint32_t guard;   /* enum torpor_guard */
	int32_t image_fd; /* with TORPOR_IMAGE_FD; read in one pass, never closed */
};

/*
 * Brings the memory of an image back.
 * Every source of the image is built under a temporary name beside its target and renamed when all of them are
 * complete, so that a failed load leaves nothing half done.  A target that exists (and is more than an empty folder) is
 * an error, or with TORPOR_FORCE is replaced, a folder with all in it (and kept until that moment: on tmpfs both must
 * fit, which is checked first).  A folder that is a mount point stays, and what the image has in it is restored in it,
 * by the same rules.  Mode, owner and modification time are restored; what could not be is a warning.  Without `to` the
 * paths in the image are used, only when the image is a file that belongs to the caller or root and nobody else may
 * write, or with TORPOR_TRUST_PATHS.  Names in an image never lead outside of their target.
 *
 * Zero pages come back as holes, which read as zeros and cost no memory.  Every chunk's hash is checked before the
 * target gets its name.
 * Errors: see the top; -EEXIST a target exists; -EBUSY it holds the image itself, or a mount; -EPERM paths are not
 * trusted; -ENOSPC.
 * `opts` and `ret_report` may be NULL.  Since: 0.1
 */
int torpor_load(struct torpor *ctx, const char *image, const struct torpor_load_opts *opts,
		struct torpor_report *ret_report);

/*
 * Checks every byte of an image as torpor_load() would, and more (padding, order, totals), and writes nothing.
 * `opts->to`, FORCE and TRUST_PATHS are not looked at.  Errors: see the top.
 * `opts` and `ret_report` may be NULL.  Since: 0.1
 */
int torpor_verify(struct torpor *ctx, const char *image, const struct torpor_load_opts *opts,
		  struct torpor_report *ret_report);

/*
 * Writes a whole image to `target` from one whose index or end is lost (a disk that filled up, a copy that was cut
 * off): its records are found by scanning, those that are sound are copied, and the index is made anew.  Pages that no
 * record covers are kept as holes and counted in *ret_lost_bytes, which may be NULL.  `flags`: TORPOR_FORCE.  `target`
 * is written as by torpor_save(); -EINVAL when it is `image` itself.
 * Needs 72 to 144 bytes of memory for each chunk, and up to 216 for a moment.  Errors: see the top.  Since: 0.1
 */
int torpor_rebuild(struct torpor *ctx, const char *image, const char *target, uint32_t flags,
		   uint64_t *ret_lost_bytes);

/* ---- inspect ----------------------------------------------------------------------------- */

/*
 * An image that is open for reading: its index is read on demand.
 * Thread safety: as its context, which must outlive it.
 */
struct torpor_image;

enum torpor_kind {
	TORPOR_KIND_FILE = 1,
	TORPOR_KIND_DIRECTORY = 2,
	TORPOR_KIND_SYMLINK = 3,
	TORPOR_KIND_SYSV = 4,    /* reserved */
	TORPOR_KIND_DEN = 5,     /* reserved */
	TORPOR_KIND_MACHINE = 6, /* reserved */
};

struct torpor_image_info {
	size_t size;
	uint32_t version;       /* of the format */
	uint32_t chunk_bytes;   /* largest chunk */
	uint64_t incompatible;  /* feature bits */
	uint64_t compatible;
	uint64_t id;            /* a random number given by the save */
	int64_t created_ns;     /* since 1970, of the save */
	uint64_t segments;
	uint64_t chunks;        /* chunks with data */
	uint64_t data_bytes, zero_bytes, hole_bytes, unpreserved_bytes; /* in whole pages */
	uint64_t stored_bytes;  /* what data_bytes became */
	uint64_t image_bytes;
	char codec[16];         /* that the save was asked for */
};

struct torpor_segment_info {
	size_t size;
	uint32_t kind;           /* enum torpor_kind */
	uint32_t mode;           /* permission bits */
	uint32_t uid, gid;
	uint64_t bytes;          /* not always whole pages */
	uint32_t page_bytes;
	uint32_t huge_page_bytes; /* that it lay on; 0: none */
	int64_t mtime_ns;        /* since 1970 */
	const char *name;        /* path within the image, "mc/mem" */
	const char *origin;      /* absolute path that a source was saved from; "" for what lies in a folder */
	const char *link;        /* a symlink's text, "" for others */
};

/*
 * Opens an image (a file or a block device) and checks its header, footer, root and segments. The caller owns it and
 * closes it with torpor_image_close().  `flags` must be 0.
 * Errors: see the top; -ESPIPE what is named cannot seek.  Since: 0.1
 */
int torpor_image_open(struct torpor *ctx, const char *image, uint32_t flags,
		      struct torpor_image **ret_image);

/* Since: 0.1 */
void torpor_image_close(struct torpor_image *image);

/* Describes the image.  Errors: -EINVAL.  Since: 0.1 */
int torpor_image_info(struct torpor_image *image, struct torpor_image_info *ret_info);

/* Describes segment number `i`, from 0.  Errors: -ENOENT no such segment.  Since: 0.1 */
int torpor_image_segment(struct torpor_image *image, uint64_t i,
			 struct torpor_segment_info *ret_info);

/* Finds a segment by its name.  Errors: -ENOENT.  Since: 0.1 */
int torpor_image_find(struct torpor_image *image, const char *name, uint64_t *ret_i);

/*
 * Reads `bytes` at `offset` of segment `i` into `buf`; zero pages and holes read as zeros.  Only the index blocks and
 * chunks that it needs are read, and their hashes are checked.
 * Errors: see the top; -ERANGE beyond the segment's end; -ENOENT.  Since: 0.1
 */
int torpor_image_read(struct torpor_image *image, uint64_t i, uint64_t offset, void *buf,
		      size_t bytes);

/* ---- memory of processes ----------------------------------------------------------------- */

enum torpor_memory_kind {
	TORPOR_MEMORY_FILE = 1,    /* a file on tmpfs with a path; POSIX shared memory is one */
	TORPOR_MEMORY_MEMFD = 2,   /* memfd_create(2), and shared anonymous memory */
	TORPOR_MEMORY_DELETED = 3, /* a file on tmpfs whose name is gone, or not seen from here */
	TORPOR_MEMORY_SYSV = 4,    /* a System V segment; not carried yet */
	TORPOR_MEMORY_HUGETLB = 5, /* on hugetlbfs; not carried yet */
};

/*
 * The shared memory of processes, as it was when the list was made.
 * Thread safety: it does not change; any thread may read it.  It may outlive its context.
 */
struct torpor_memory;

struct torpor_memory_info {
	size_t size;
	uint32_t kind;       /* enum torpor_memory_kind */
	int32_t pid;         /* the first of the processes that maps it */
	uint32_t carried;    /* 1: a save of these processes carries it, else 0 */
	uint64_t bytes;      /* its size */
	uint64_t data_bytes; /* of it allocated, or swapped out; 0 also where that is not told */
	const char *name;    /* that it gets in an image: no two in a list are the same */
	const char *origin;  /* absolute path; "" where it has none */
	const char *reason;  /* why it is not carried; "" when it is */
};

/*
 * Lists the shared memory of processes: what their shared mappings show of files on tmpfs, ramfs and hugetlbfs, each
 * once, however many of the processes map it.  Private memory and files on disk are not listed.  The processes are not
 * stopped, nor changed in any way.  `flags` must be 0. The caller owns the list and frees it with torpor_memory_free().
 * Errors: see the top; -ESRCH a process has ended; -EACCES, -EPERM it may not be looked at, or it has memory without a
 * path, which only CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE can open; -EAGAIN it maps and unmaps faster than that can be
 * read.  Since: 0.1
 */
int torpor_memory_list(struct torpor *ctx, const int32_t *pids, size_t n_pids, uint32_t flags,
		       struct torpor_memory **ret_memory);

/*
 * The memory that the last torpor_save() found of the processes that it stopped, also what it did not carry.  Can be had once; the caller
 * owns it.  Errors, without a message: -ENOENT it found none, since it had sources; -ENOMEM.  Since: 0.1
 */
int torpor_memory_saved(struct torpor *ctx, struct torpor_memory **ret_memory);

/*
 * Describes number `i`, from 0.  Errors, without a message: -ENOENT there are no more; -EINVAL the
 * struct has no size.  Since: 0.1
 */
int torpor_memory_get(const struct torpor_memory *memory, size_t i,
		      struct torpor_memory_info *ret_info);

/* Since: 0.1 */
void torpor_memory_free(struct torpor_memory *memory);

/* ---- live processes ---------------------------------------------------------------------- */

/*
 * Thaws a control group (version 2) by hand.  torpor never leaves a group frozen that it froze, not even when it is
 * killed, since a second process watches over it; this is for the case that both were killed, or that something else
 * froze the group.
 *
 * `cgroup` is the path of the group's folder, or its name below the mount ("system.slice/mc.service"). It writes 0 to
 * the group's own cgroup.freeze; groups above and below are not touched.  A group that was not frozen is a warning and
 * no failure.
 * Errors: see the top; -ENOENT no such group; -EINVAL, -ENOTDIR it is no group, or the root group, which has no
 * freezer; -ENODEV no control groups of version 2 are mounted; -EACCES; -EBUSY it is thawed itself, but a group above,
 * which the message names, is frozen and keeps it so.  Since: 0.1
 */
int torpor_thaw(struct torpor *ctx, const char *cgroup);

/* ---- snapshots of this process's own memory ---------------------------------------------- */

/* Memory of the program: any of its mappings, or a part of one. */
struct torpor_region {
	const char *name; /* of its segment in the image: one component of a path */
	void *at;         /* a multiple of 4096 */
	uint64_t bytes;   /* likewise, not 0 */
};

struct torpor_snapshot_opts {
	size_t size;
	uint32_t copy;       /* TORPOR_COPY_RAM (0) or TORPOR_COPY_PROTECT */
	uint32_t stop_flags; /* TORPOR_STOP_BACKGROUND, TORPOR_STOP_NO_ZERO_CHECK */
	const struct torpor_save_opts *save; /* codec, level, chunk size, threads, flags; NULL: defaults.  Borrowed for the call */
};

/*
 * A snapshot of regions, into an image: prepared by torpor_snapshot_new(), taken by torpor_snapshot_take(), which is
 * the critical section, and saved by a thread of the library while the program goes on.
 *
 * The image has a file of each region's name; torpor_image_read() reads them back, torpor_load() makes files of them.
 *
 * TORPOR_COPY_RAM: the caller keeps its writers quiet for the length of torpor_snapshot_take(), which copies the
 * memory.  Needs as much memory as the regions have, populated beforehand; of sparse regions the pieces of 2 MiB
 * that have a page.  Pages that do not exist are holes in the image, and are not made by saving them; of
 * shared memory that takes CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN, without which it is read whole.
 * From torpor_snapshot_new() until torpor_snapshot_take() has returned regions must stay mapped as they are.
 *
 * TORPOR_COPY_PROTECT: the caller keeps its writers quiet only as long as its own notion of a moment needs it:
 * torpor_snapshot_take() write-protects the regions by userfaultfd(2) and returns.  A handler thread copies memory the moment before
 * it first changes; the store waits for that.  The image is the state at the call, whoever writes when, the kernel on behalf of the program (read(2)) included.  Where
 * that is not possible (not permitted, a kernel or a mapping that cannot do it, memory that another process could
 * write), torpor_snapshot_new() falls back to TORPOR_COPY_RAM with a warning that says why, and the report tells which it was.
 * From new to the end regions must stay mapped and must not be discarded; shared memory is stored to through the regions
 * only, and not by children; direct I/O into them must not be under way at the call.
 *
 * A region must not hold the stack or the heap that the library's own threads use: name mappings of your own, not memory
 * of malloc(3).
 *
 * The program may fork at any time.  A child has no part in the snapshot: for it take and wait are -EINVAL, and
 * torpor_snapshot_free() does nothing.
 *
 * Thread safety: as its context, which belongs to the snapshot from torpor_snapshot_new() until torpor_snapshot_free().
 * torpor_cancel() ends the saving.
 */
struct torpor_snapshot;

/*
 * Prepares a snapshot.  The caller owns it and frees it with torpor_snapshot_free().  `image` as for torpor_save().
 * Errors: as torpor_save() without `stop`; -EINVAL a region is not whole pages, its name no name or there twice, or two
 * overlap; -EFAULT part of one is not mapped, or may not be read; -ENOMEM the copy does not fit.  Since: 0.1
 */
int torpor_snapshot_new(struct torpor *ctx, const struct torpor_region *regions, size_t n_regions,
			const char *image, const struct torpor_snapshot_opts *opts,
			struct torpor_snapshot **ret_snapshot);

/*
 * Takes it, once, and starts saving.  After a failure there is only torpor_snapshot_free() to do, and
 * torpor_snapshot_fd() tells no end.  Errors: see the top; -EINVAL it was taken before, which does it no harm.  Since: 0.1
 */
int torpor_snapshot_take(struct torpor_snapshot *snapshot);

/* An eventfd(2) that becomes readable when saving has ended.  It is the snapshot's.  Since: 0.1 */
int torpor_snapshot_fd(const struct torpor_snapshot *snapshot);

/*
 * Waits for the end and returns how the saving went.  May be called again.  `ret_report` may be NULL; its wall_ns
 * and cpu_ns count from torpor_snapshot_take() on.
 * Errors: as torpor_save(); -EINVAL it was not taken.  Since: 0.1
 */
int torpor_snapshot_wait(struct torpor_snapshot *snapshot, struct torpor_report *ret_report);

/* Cancels what is still being saved, waits for its end, and frees.  Since: 0.1 */
void torpor_snapshot_free(struct torpor_snapshot *snapshot);

#ifdef __cplusplus
}
#endif

#endif
