// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * An image on a block device.  The beginning is wiped and flushed before anything else and
 * written last of all, so that a half-written image is not taken for one.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/io.h"
#include "base/num.h"
#include "store/store.h"

struct device_store {
	struct store base;
	_Atomic uint64_t end;
	uint64_t bytes;
	size_t head_bytes;
	int fd;
};

static struct device_store *device_of(struct store *s)
{
	return (struct device_store *)s;
}

static int device_append(struct store *s, const void *data, size_t bytes, uint64_t *ret_offset,
			 struct err *e)
{
	struct device_store *d = device_of(s);
	uint64_t offset = atomic_fetch_add(&d->end, bytes);
	size_t withheld = offset < d->head_bytes ? num_min(bytes, d->head_bytes - offset) : 0;
	int rc = offset + bytes > d->bytes ? -ENOSPC : 0;

	if (!rc)
		rc = io_pwrite(d->fd, (const char *)data + withheld, bytes - withheld, offset + withheld);
	if (rc < 0)
		return err_sys(e, rc, "cannot write the image at offset %llu", (unsigned long long)offset);
	*ret_offset = offset;
	return 0;
}

static int device_flush(struct store *s, struct err *e)
{
	if (fsync(device_of(s)->fd) < 0)
		return err_sys(e, -errno, "cannot flush the image");
	return 0;
}

static int device_commit(struct store *s, const void *head, struct err *e)
{
	struct device_store *d = device_of(s);
	int rc = io_pwrite(d->fd, head, d->head_bytes, 0);

	if (rc < 0)
		return err_sys(e, rc, "cannot write the image's header");
	return device_flush(s, e);
}

static void device_free(struct store *s)
{
	close(device_of(s)->fd);
	free(s);
}

static const struct store_ops device_ops = {
	.append = device_append,
	.flush = device_flush,
	.commit = device_commit,
	.free = device_free,
};

static int wipe_head(struct device_store *d)
{
	void *zeros = calloc(1, d->head_bytes);
	int rc = zeros ? io_pwrite(d->fd, zeros, d->head_bytes, 0) : -ENOMEM;

	free(zeros);
	if (!rc && fsync(d->fd) < 0)
		rc = -errno;
	return rc;
}

int store_create_device(const char *path, size_t head_bytes, struct store **ret, struct err *e)
{
	struct device_store *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return err_sys(e, -ENOMEM, "cannot write to %s", path);
	d->base = (struct store){.ops = &device_ops, .needs_head = true};
	d->head_bytes = head_bytes;
	/* O_EXCL: not while it is mounted or otherwise in use. */
	d->fd = open(path, O_RDWR | O_EXCL | O_CLOEXEC);
	rc = d->fd < 0 || ioctl(d->fd, BLKGETSIZE64, &d->bytes) < 0 ? -errno : 0;
	if (!rc)
		rc = d->bytes < head_bytes ? -ENOSPC : wipe_head(d);
	if (rc < 0) {
		if (d->fd >= 0)
			close(d->fd);
		free(d);
		return err_sys(e, rc, "cannot write to %s", path);
	}
	*ret = &d->base;
	return 0;
}
