// SPDX-License-Identifier: LGPL-2.1-or-later
/* Images that are read at random; see store.h. */
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "os/filesystem.h"
#include "store/store.h"

static int measure(struct store_input *in)
{
	struct os_filesystem fs;
	struct stat st;

	if (fstat(in->fd, &st) < 0)
		return -errno;
	if (S_ISBLK(st.st_mode)) {
		in->on_disk = true;
		return ioctl(in->fd, BLKGETSIZE64, &in->bytes) < 0 ? -errno : 0;
	}
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!S_ISREG(st.st_mode))
		return -ESPIPE;
	in->bytes = (uint64_t)st.st_size;
	in->on_disk = os_filesystem_of(in->fd, &fs) == 0 && !fs.memory;
	return 0;
}

int store_input_open_any(const char *path, struct store_input *ret, struct err *e)
{
	/* O_NONBLOCK: neither opening a fifo nor reading from it waits for a writer; poll(2) does. */
	struct store_input in = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
	int rc;

	if (in.fd < 0)
		return err_sys(e, -errno, "cannot open %s", path);
	rc = measure(&in);
	if (rc < 0 && rc != -ESPIPE) {
		close(in.fd);
		return err_sys(e, rc, "cannot read %s", path);
	}
	*ret = in;
	return rc ? 1 : 0;
}

void store_input_close(struct store_input *in)
{
	if (in->fd >= 0)
		close(in->fd);
	in->fd = -1;
}

/* A fifo is not opened in vain: its writer would go on, and find nobody to read. */
int store_input_open(const char *path, struct store_input *ret, struct err *e)
{
	struct store_input in = {.fd = -1};
	struct stat st;
	int rc = stat(path, &st) == 0 && S_ISFIFO(st.st_mode) ? 1 : store_input_open_any(path, &in, e);

	if (rc > 0) {
		store_input_close(&in);
		return err_set(e, -ESPIPE,
			       "%s is a pipe or a device without a size; only a file or a block device can be read at random",
			       path);
	}
	if (!rc)
		*ret = in;
	return rc;
}

int store_input_read(const struct store_input *in, void *buf, size_t bytes, uint64_t offset,
		     struct err *e)
{
	size_t got;
	int rc = io_pread(in->fd, buf, bytes, offset, &got);

	if (rc < 0)
		return err_sys(e, rc, "cannot read at offset %llu", (unsigned long long)offset);
	if (got < bytes)
		return err_set(e, -EBADMSG, "it ends at offset %llu", (unsigned long long)(offset + got));
	return 0;
}

void store_input_prefetch(const struct store_input *in, uint64_t offset, uint64_t bytes)
{
	if (in->on_disk)
		posix_fadvise(in->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
}
