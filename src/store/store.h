/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where image bytes lie: a file, a block device, a pipe.  This room moves bytes and commits
 * them; it does not know what they mean, but for one thing: the first `head_bytes` of a block
 * device are written last.
 *
 * Writing: store_append() is called by many threads at once; everything else by one.
 */
#ifndef TORPOR_STORE_STORE_H
#define TORPOR_STORE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct store;

struct store_ops {
	/* As store_append().  May block. */
	int (*append)(struct store *s, const void *data, size_t bytes, uint64_t *ret_offset, struct err *e);
	/* As store_reserve().  NULL: there is nothing to reserve. */
	int (*reserve)(struct store *s, uint64_t bytes, struct err *e);
	/* All that was appended is durable, where that means something. */
	int (*flush)(struct store *s, struct err *e);
	/* Gives it its name.  NULL: there is nothing to do. */
	int (*commit)(struct store *s, const void *head, struct err *e);
	/* Gives up what was not committed, and frees. */
	void (*free)(struct store *s);
};

/* The common part; each kind's own struct begins with it. */
struct store {
	const struct store_ops *ops;
	const atomic_bool *cancel; /* looked at while waiting; may be NULL */
	bool needs_head;           /* commit wants the first bytes again, with the length in them */
};

/*
 * A file beside `path` that gets this name at commit.  `replace`: a regular file that stands
 * there, or that a symlink there leads to, is replaced at that moment; otherwise it is -EEXIST,
 * now or then.  -ENOTBLK for everything else that can be written but not replaced (fifos,
 * devices), -EISDIR for folders and for a path that ends with a slash.  Until commit the file
 * has no name, or a hidden one where the file system cannot do without; what killed processes
 * left under such names is removed.
 */
int store_create_file(const char *path, bool replace, struct store **ret, struct err *e);

/* A block device; `head_bytes` are withheld until commit.  Its old beginning is wiped at once. */
int store_create_device(const char *path, size_t head_bytes, struct store **ret, struct err *e);

/* A descriptor, written in one pass from where it stands; not closed. */
int store_create_stream(int fd, const atomic_bool *cancel, struct store **ret, struct err *e);

/* Gives `bytes` bytes the next place and writes them there. */
static inline int store_append(struct store *s, const void *data, size_t bytes, uint64_t *ret_offset,
			       struct err *e)
{
	return s->ops->append(s, data, bytes, ret_offset, e);
}

/*
 * Room for the first `bytes` is taken now, so that writing them finds it; what is not used is given back at commit.  -ENOSPC
 * there is not so much; nothing is then reserved.
 */
static inline int store_reserve(struct store *s, uint64_t bytes, struct err *e)
{
	return s->ops->reserve ? s->ops->reserve(s, bytes, e) : 0;
}

static inline int store_flush(struct store *s, struct err *e)
{
	return s->ops->flush(s, e);
}

/* `head` is only looked at when needs_head. */
static inline int store_commit(struct store *s, const void *head, struct err *e)
{
	return s->ops->commit ? s->ops->commit(s, head, e) : 0;
}

static inline void store_free(struct store *s)
{
	if (s)
		s->ops->free(s);
}

/* ---- reading ---- */

/* A file or block device that can be read at random. */
struct store_input {
	int fd;
	uint64_t bytes;
	bool on_disk; /* reading ahead pays */
};

/* -ESPIPE for what cannot be read at random, or a negative errno; with a message. */
int store_input_open(const char *path, struct store_input *ret, struct err *e);

/*
 * As that, or 1: it can only be read in one pass, by store_stream_read() from ret->fd.  Never waits: a fifo's writer may
 * come later.
 */
int store_input_open_any(const char *path, struct store_input *ret, struct err *e);
void store_input_close(struct store_input *in);

/* Reads exactly `bytes`; -EBADMSG when the file ends before.  Any thread. */
int store_input_read(const struct store_input *in, void *buf, size_t bytes, uint64_t offset,
		     struct err *e);

/* Has a range read ahead, as a hint.  Any thread. */
void store_input_prefetch(const struct store_input *in, uint64_t offset, uint64_t bytes);

/*
 * Reads exactly `bytes` from a descriptor in one pass; -EBADMSG when it ends before.  Looks at
 * `cancel`, which may be NULL, while it waits: -ECANCELED.
 */
int store_stream_read(int fd, void *buf, size_t bytes, const atomic_bool *cancel, struct err *e);

/* Has a pipe hold more, so that both sides move more at once.  Best effort; nothing for what is no pipe. */
void store_stream_widen(int fd);

#endif
