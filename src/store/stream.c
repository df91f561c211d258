// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * An image in one pass over a descriptor: a pipe, a socket, a file that somebody else opened.
 * Waiting is done in poll(2) with a limit, so that a cancelled operation ends although the other side is
 * asleep; what follows a successful poll does not block.
 */
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/num.h"
#include "base/wait.h"
#include "store/store.h"

#define POLL_MS 50

struct stream_store {
	struct store base;
	struct wait_lock lock;
	uint64_t end; /* under lock */
	int rc;       /* under lock: a stream that failed once has lost its place */
	int fd;
	size_t piece_bytes; /* that a write may take without blocking */
	bool regular;
};

/* 0 when the descriptor is ready, -ECANCELED. */
static int wait_ready(int fd, short events, const atomic_bool *cancel)
{
	struct pollfd p = {.fd = fd, .events = events};
	int n;

	for (;;) {
		if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
			return -ECANCELED;
		n = poll(&p, 1, POLL_MS);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

static int write_all(struct stream_store *s, const char *at, size_t bytes)
{
	while (bytes) {
		int rc = wait_ready(s->fd, POLLOUT, s->base.cancel);
		ssize_t n;

		if (rc < 0)
			return rc;
		n = write(s->fd, at, num_min(bytes, s->piece_bytes));
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return -errno;
		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		}
	}
	return 0;
}

static int stream_append(struct store *base, const void *data, size_t bytes, uint64_t *ret_offset,
			 struct err *e)
{
	struct stream_store *s = (struct stream_store *)base;
	uint64_t offset;
	int rc;

	wait_lock_acquire(&s->lock);
	if (!s->rc)
		s->rc = write_all(s, data, bytes);
	offset = s->end;
	s->end += bytes;
	rc = s->rc;
	wait_lock_release(&s->lock);
	if (rc == -ECANCELED)
		return err_set(e, rc, "cancelled");
	if (rc < 0)
		return err_sys(e, rc, "cannot write the image at offset %llu", (unsigned long long)offset);
	*ret_offset = offset;
	return 0;
}

static int stream_flush(struct store *base, struct err *e)
{
	struct stream_store *s = (struct stream_store *)base;

	if (s->regular && fdatasync(s->fd) < 0)
		return err_sys(e, -errno, "cannot flush the image");
	return 0;
}

static void stream_free(struct store *s)
{
	free(s);
}

static const struct store_ops stream_ops = {
	.append = stream_append,
	.flush = stream_flush,
	.free = stream_free,
};

int store_create_stream(int fd, const atomic_bool *cancel, struct store **ret, struct err *e)
{
	struct stream_store *s = calloc(1, sizeof(*s));
	struct stat st;

	if (!s)
		return err_sys(e, -ENOMEM, "cannot write a stream");
	if (fstat(fd, &st) < 0) {
		free(s);
		return err_sys(e, -errno, "cannot write to descriptor %d", fd);
	}
	s->base = (struct store){.ops = &stream_ops, .cancel = cancel};
	s->fd = fd;
	s->regular = S_ISREG(st.st_mode);
	s->piece_bytes = S_ISREG(st.st_mode) ? MIB(1) : PIPE_BUF;
	*ret = &s->base;
	return 0;
}

int store_stream_read(int fd, void *buf, size_t bytes, const atomic_bool *cancel, struct err *e)
{
	char *at = buf;
	ssize_t n;
	int rc;

	while (bytes) {
		rc = wait_ready(fd, POLLIN, cancel);
		if (rc == -ECANCELED)
			return err_set(e, rc, "cancelled");
		n = rc < 0 ? -1 : read(fd, at, bytes);
		if (rc < 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
			return err_sys(e, rc < 0 ? rc : -errno, "cannot read");
		if (n == 0)
			return err_set(e, -EBADMSG, "it ends too early");
		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		}
	}
	return 0;
}
