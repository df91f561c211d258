// SPDX-License-Identifier: LGPL-2.1-or-later
/* The store's bytes as the image room sees them. */
#include <sys/stat.h>

#include "api/context.h"
#include "image/record.h"

static int sink_append(void *ctx, const void *data, size_t bytes, uint64_t *ret_offset, struct err *e)
{
	return store_append(ctx, data, bytes, ret_offset, e);
}

static int sink_flush(void *ctx, struct err *e)
{
	return store_flush(ctx, e);
}

struct image_sink glue_sink(struct store *store)
{
	return (struct image_sink){.ctx = store, .append = sink_append, .flush = sink_flush};
}

static int input_read_at(void *ctx, void *buf, size_t bytes, uint64_t offset, struct err *e)
{
	return store_input_read(ctx, buf, bytes, offset, e);
}

struct image_input glue_input(struct store_input *in)
{
	return (struct image_input){.ctx = in, .bytes = in->bytes, .read_at = input_read_at};
}

static int feed_read(void *ctx, void *buf, size_t bytes, struct err *e)
{
	struct glue_feed *feed = ctx;
	int rc;

	if (feed->fd >= 0)
		return store_stream_read(feed->fd, buf, bytes, feed->cancel, e);
	rc = store_input_read(feed->in, buf, bytes, feed->at, e);
	if (!rc)
		feed->at += bytes;
	return rc;
}

struct image_feed glue_feed(struct glue_feed *feed)
{
	return (struct image_feed){.ctx = feed, .read = feed_read};
}

int glue_create(struct torpor *ctx, const char *image, uint32_t flags, int fd, struct store **ret)
{
	struct stat st;

	if (flags & TORPOR_IMAGE_FD)
		return store_create_stream(fd, &ctx->cancel, ret, &ctx->e);
	if (stat(image, &st) < 0 || !S_ISBLK(st.st_mode))
		return store_create_file(image, flags & TORPOR_FORCE, ret, &ctx->e);
	if (!(flags & TORPOR_FORCE))
		return err_set(&ctx->e, -EEXIST, "%s is a block device, and what is on it would be lost", image);
	return store_create_device(image, IMAGE_HEADER_BYTES, ret, &ctx->e);
}

int glue_commit(struct store *store, const struct image_header *header, uint64_t image_bytes, struct err *e)
{
	struct image_header last = *header;
	uint8_t head[IMAGE_HEADER_BYTES];

	last.image_bytes = store->needs_head ? image_bytes : 0;
	image_header_encode(head, &last);
	return store_commit(store, head, e);
}
