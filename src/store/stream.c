// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * An image in one pass over a descriptor: a pipe, a socket, a file that somebody else opened.
 * Waiting is done in poll(2) with a limit, so that a cancelled operation ends although the other side is
 * asleep; nothing else blocks.  The descriptor's flags are not ours to change, as whoever else has it would see that: a pipe is
 * opened once more, for a description of our own, and a socket is asked for each call.  Of what can be neither, so
 * much is written at once as a successful poll has room for.
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/num.h"
#include "base/wait.h"
#include "store/store.h"

#define POLL_MS 50
#define PIPE_BYTES MIB(1) /* what anybody may ask for, unless the system's limits are changed */

struct stream_store {
	struct store base;
	struct wait_lock lock;
	uint64_t end; /* under lock */
	int rc;       /* under lock: a stream that failed once has lost its place */
	int fd;
	int own;      /* the same pipe, of which nothing blocks; or -1 */
	mode_t type;
};

static bool is_cancelled(const atomic_bool *cancel)
{
	return cancel && atomic_load_explicit(cancel, memory_order_relaxed);
}

/* 0 when the descriptor is ready, -ECANCELED. */
static int wait_ready(int fd, short events, const atomic_bool *cancel)
{
	struct pollfd p = {.fd = fd, .events = events};
	int n;

	for (;;) {
		if (is_cancelled(cancel))
			return -ECANCELED;
		n = poll(&p, 1, POLL_MS);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

/* As much as goes without waiting: -EAGAIN. */
static ssize_t write_some(const struct stream_store *s, const char *at, size_t bytes)
{
	ssize_t n;
	int rc;

	if (s->own >= 0) {
		n = write(s->own, at, bytes);
	} else if (s->type == S_IFSOCK) {
		n = send(s->fd, at, bytes, MSG_DONTWAIT);
	} else if (s->type == S_IFREG) {
		n = write(s->fd, at, num_min(bytes, MIB(1)));
	} else {
		rc = wait_ready(s->fd, POLLOUT, s->base.cancel);
		if (rc < 0)
			return rc;
		n = write(s->fd, at, num_min(bytes, PIPE_BUF));
	}
	return n < 0 ? -errno : n;
}

static int write_all(const struct stream_store *s, const char *at, size_t bytes)
{
	while (bytes) {
		ssize_t n = write_some(s, at, bytes);
		int rc = 0;

		if (n >= 0) {
			at += n;
			bytes -= (size_t)n;
		} else if (n != -EAGAIN && n != -EINTR) {
			return (int)n;
		}
		if (n == -EAGAIN)
			rc = wait_ready(s->fd, POLLOUT, s->base.cancel);
		else if (is_cancelled(s->base.cancel))
			rc = -ECANCELED;
		if (rc < 0)
			return rc;
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

	if (s->type == S_IFREG && fdatasync(s->fd) < 0)
		return err_sys(e, -errno, "cannot flush the image");
	return 0;
}

static void stream_free(struct store *base)
{
	struct stream_store *s = (struct stream_store *)base;

	if (s->own >= 0)
		close(s->own);
	free(s);
}

static const struct store_ops stream_ops = {
	.append = stream_append,
	.flush = stream_flush,
	.free = stream_free,
};

/* -1 where that is not to be had, as without /proc, or for a pipe of another user's. */
static int open_again(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
}

int store_create_stream(int fd, const atomic_bool *cancel, struct store **ret, struct err *e)
{
	struct stream_store *s;
	struct stat st;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fstat(fd, &st) < 0)
		return err_sys(e, -errno, "cannot write to descriptor %d", fd);
	if ((flags & O_ACCMODE) == O_RDONLY)
		return err_sys(e, -EBADF, "descriptor %d is not open for writing", fd);
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_sys(e, -ENOMEM, "cannot write a stream");
	s->base = (struct store){.ops = &stream_ops, .cancel = cancel};
	s->fd = fd;
	s->type = st.st_mode & S_IFMT;
	s->own = S_ISFIFO(st.st_mode) ? open_again(fd) : -1;
	store_stream_widen(fd);
	*ret = &s->base;
	return 0;
}

void store_stream_widen(int fd)
{
	int bytes = fcntl(fd, F_GETPIPE_SZ);

	if (bytes > 0 && (size_t)bytes < PIPE_BYTES)
		fcntl(fd, F_SETPIPE_SZ, (int)PIPE_BYTES);
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
