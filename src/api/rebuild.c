// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor_rebuild(): a whole image from one that lost its end. */
#include "image/rebuild.h"

#include "api/context.h"

API int torpor_rebuild(struct torpor *ctx, const char *image, const char *target, uint32_t flags,
		       uint64_t *ret_lost_bytes)
{
	struct image_rebuild rebuild = {.cancel = &ctx->cancel, .done_bytes = &ctx->done_bytes};
	struct store_input in = {.fd = -1};
	struct store *store = NULL;
	struct image_input input;
	struct image_sink sink;
	int rc = 0;

	context_begin(ctx);
	if (flags & ~(uint32_t)TORPOR_FORCE)
		rc = err_set(&ctx->e, -EINVAL, "no flags but TORPOR_FORCE are known");
	if (!rc)
		rc = store_input_open(image, &in, &ctx->e);
	if (!rc)
		rc = glue_check_other(&in, target, &ctx->e);
	if (!rc)
		rc = glue_create(ctx, target, flags, -1, &store);
	if (!rc) {
		input = glue_input(&in);
		sink = glue_sink(store);
		atomic_store(&ctx->total_bytes, 2 * in.bytes);
		rc = image_rebuild(&input, &sink, &rebuild, &ctx->e);
	}
	if (!rc)
		rc = glue_commit(store, &rebuild.header, rebuild.totals.image_bytes, &ctx->e);
	store_free(store);
	store_input_close(&in);
	if (rc < 0)
		return context_end(ctx, err_wrap(&ctx->e, rc, "cannot rebuild %s", image));
	if (ret_lost_bytes)
		*ret_lost_bytes = rebuild.lost_bytes;
	return 0;
}
