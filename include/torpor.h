/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libtorpor: carry big memory across a restart.
 *
 * This is the only installed header, and it is the contract.  Conventions, for every function
 * here unless its comment says otherwise:
 *
 * - Functions return 0 or a negative errno.  The context then holds one message, whole and
 *   readable, from the outermost layer to the innermost: "cannot load x.torpor: chunk at offset
 *   4096 (segment "mem", pages 0-31): hash differs".  The library never prints.
 * - Codes with a meaning of their own: -EBADMSG, the image is damaged, and the message says
 *   where; -EOPNOTSUPP, the image is sound but needs something that this library does not know
 *   (a newer version, a codec that was not built in); -ECANCELED, torpor_cancel() was called;
 *   -EINVAL, wrong use of the interface.  Other codes are the system's.
 * - Outputs are named ret_*, and are untouched on failure.  Free functions accept NULL.
 * - Options and results are structs that begin with their own size.  Zero all of it, set `size`
 *   to sizeof, fill in what you need: a zero field reads as its default.  A struct from an older
 *   header has a smaller size, and what it does not have reads as default; a struct from a newer
 *   header is accepted when all that this library does not know is zero, else -EINVAL.
 *   TORPOR_OPTS() does the first steps.
 * - Strings are borrowed for the length of the call; strings handed out belong to the object that
 *   they came from and live as long as it does.
 * - Sizes and offsets are in bytes, times in nanoseconds, unless a name says otherwise.
 *
 * Memory: an operation needs less than 64 MiB + 4 MiB for each thread, whatever the size of the
 * image, plus about 300 bytes for each file in it.
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
 *
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
 * The message of the last operation that failed, without a newline; "" when none did.  Valid
 * until the next operation on this context.  Since: 0.1
 */
const char *torpor_error(const struct torpor *ctx);

/*
 * Warning number `i` of the last operation (an owner that could not be restored, for example);
 * NULL when there are no more.  At most 32 are kept; the last one then says how many followed.
 * Since: 0.1
 */
const char *torpor_warning(const struct torpor *ctx, size_t i);

/*
 * Makes the running operation, or the next one, stop soon with -ECANCELED and leave nothing
 * behind.  Async-signal-safe.  The request is consumed by the operation that it ends.
 * Since: 0.1
 */
void torpor_cancel(struct torpor *ctx);

/* How far the running operation is.  Any thread may ask at any time.  Since: 0.1 */
struct torpor_progress {
	size_t size;
	uint64_t done_bytes;  /* of memory: data, zero pages and holes */
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

struct torpor_save_opts {
	size_t size;
	uint32_t flags;       /* TORPOR_FORCE, TORPOR_SKIP_SPECIAL, TORPOR_IMAGE_FD */
	uint32_t threads;     /* 0: as many as CPUs this process may use (affinity and cgroup quota) */
	const char *codec;    /* "none", "lz4", "zstd", "lzo"; NULL: "lz4" */
	int32_t level;        /* lz4: acceleration, zstd: level (may be negative); 0: 1 */
	uint32_t chunk_bytes; /* memory compressed as one: 4096 to 1 MiB, a power of two; 0: 128 KiB, with zstd 512 KiB */
	int32_t image_fd;     /* with TORPOR_IMAGE_FD; written in one pass, never closed */
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
	char codec[16];           /* save: the codec; load, verify: of the last chunk, "none" without one */
	int32_t guard_held;       /* load, verify: 1 when the latency guard was held, else 0 */
	char guard_reason[128];   /* why it was not; "" when it was, and after a save */
};

/*
 * Saves memory into an image.
 *
 * Each of the `n_sources` sources is a path: a regular file (on tmpfs, DAX or any filesystem) or a
 * folder, which is saved with all that it holds (files, folders, symlinks).  A symlink named as a
 * source is followed; one within a folder is saved as a symlink.  Last parts of the sources' names must
 * differ.  Sockets, fifos and devices are refused with their name unless TORPOR_SKIP_SPECIAL.
 *
 * `image` names a file or a block device.  A file is written without a name, or under a
 * temporary one, beside its target and renamed when it is complete and flushed: at any instant
 * the old image or the new one is there, whole.  An existing file is replaced, and a block
 * device written, only with TORPOR_FORCE.  With TORPOR_IMAGE_FD `image` is NULL and the
 * descriptor is written in one pass without a seek, from where it stands.
 *
 * The sources must not be written meanwhile; this call does not stop their writers.  A source
 * that shrinks while it is read is -ESTALE.  Nothing is left behind on failure.
 *
 * Errors: see the top; -EEXIST target exists; -ENOTSUP a special file; -ENOSPC.
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
 *
 * Every source of the image is built under a temporary name beside its target and renamed when
 * all of them are complete, so that a failed load leaves nothing half done.  A target that
 * exists is an error, or with TORPOR_FORCE is replaced (and kept until that moment: on tmpfs both
 * must fit, which is checked first).  Mode, owner and modification time are restored; what could not be
 * is a warning.  Without `to` the paths in the image are used, only when the image is a
 * file that belongs to the caller or root and nobody else may write, or with
 * TORPOR_TRUST_PATHS.  Names in an image never lead outside of their target.
 *
 * Zero pages come back as holes, which read as zeros and cost no memory.  Every chunk's hash is
 * checked before the target gets its name.
 *
 * Errors: see the top; -EEXIST a target exists; -EPERM paths are not trusted; -ENOSPC.
 * `opts` and `ret_report` may be NULL.  Since: 0.1
 */
int torpor_load(struct torpor *ctx, const char *image, const struct torpor_load_opts *opts,
		struct torpor_report *ret_report);

/*
 * Checks every byte of an image as torpor_load() would, and more (padding, order, totals), and
 * writes nothing.  `opts->to`, FORCE and TRUST_PATHS are not looked at.  Errors: see the top.
 * `opts` and `ret_report` may be NULL.  Since: 0.1
 */
int torpor_verify(struct torpor *ctx, const char *image, const struct torpor_load_opts *opts,
		  struct torpor_report *ret_report);

/*
 * Writes a whole image to `target` from one whose index or end is lost (a disk that filled up, a
 * copy that was cut off): its records are found by scanning, those that are sound are copied, and
 * the index is made anew.  Pages that no record covers are kept as holes and counted in
 * *ret_lost_bytes, which may be NULL.  `flags`: TORPOR_FORCE.  `target` is written as by torpor_save().
 * Needs about 100 bytes of memory for each chunk.  Errors: see the top.  Since: 0.1
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
 * Opens an image (a file or a block device) and checks its header, footer, root and segments.
 * The caller owns it and closes it with torpor_image_close().  `flags` must be 0.
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
 * Reads `bytes` at `offset` of segment `i` into `buf`; zero pages and holes read as zeros.  Only
 * the index blocks and chunks that it needs are read, and their hashes are checked.
 * Errors: see the top; -ERANGE beyond the segment's end; -ENOENT.  Since: 0.1
 */
int torpor_image_read(struct torpor_image *image, uint64_t i, uint64_t offset, void *buf,
		      size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
