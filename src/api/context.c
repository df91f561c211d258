// SPDX-License-Identifier: LGPL-2.1-or-later
/* The context; see torpor.h. */
#include "api/context.h"

#include <stdlib.h>

#ifndef TORPOR_VERSION
#error "the build defines TORPOR_VERSION"
#endif

API const char *torpor_version(void)
{
	return TORPOR_VERSION;
}

API int torpor_new(struct torpor **ret_ctx)
{
	struct torpor *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return -ENOMEM;
	ctx->warnings = memory_warnings_new();
	if (!ctx->warnings) {
		free(ctx);
		return -ENOMEM;
	}
	*ret_ctx = ctx;
	return 0;
}

API void torpor_free(struct torpor *ctx)
{
	if (!ctx)
		return;
	live_memories_free(&ctx->found);
	memory_warnings_free(ctx->warnings);
	free(ctx);
}

API const char *torpor_error(const struct torpor *ctx)
{
	return ctx->e.text;
}

API const char *torpor_warning(const struct torpor *ctx, size_t i)
{
	return memory_warnings_get(ctx->warnings, i);
}

API void torpor_cancel(struct torpor *ctx)
{
	atomic_store(&ctx->cancel, true);
}

API void torpor_progress(const struct torpor *ctx, struct torpor_progress *ret_progress)
{
	struct torpor_progress p = {
		.done_bytes = atomic_load_explicit(&ctx->done_bytes, memory_order_relaxed),
		.total_bytes = atomic_load_explicit(&ctx->total_bytes, memory_order_relaxed),
	};

	options_give(ret_progress, &p, sizeof(p), NULL);
}

void context_begin(struct torpor *ctx)
{
	ctx->e.text[0] = '\0';
	ctx->e.system = 0;
	memory_warnings_clear(ctx->warnings);
	live_memories_free(&ctx->found);
	atomic_store(&ctx->done_bytes, 0);
	atomic_store(&ctx->total_bytes, 0);
}

int context_end(struct torpor *ctx, int rc)
{
	/* A call that did not wait any longer since a signal came, as one on a network file system. */
	if (rc == -EINTR && context_cancelled(ctx) < 0)
		rc = -ECANCELED;
	if (rc == -ECANCELED)
		atomic_store(&ctx->cancel, false);
	/* -EINVAL says that the caller did something wrong, which the system cannot know. */
	if (rc == -EINVAL && ctx->e.system == -EINVAL)
		return -EIO;
	return rc;
}

int context_cancelled(struct torpor *ctx)
{
	return atomic_load(&ctx->cancel) ? err_set(&ctx->e, -ECANCELED, "cancelled") : 0;
}

void report_totals(struct torpor_report *report, const struct image_totals *totals)
{
	report->segments = totals->segments;
	report->chunks = totals->chunks;
	report->data_bytes = totals->data_bytes;
	report->zero_bytes = totals->zero_bytes;
	report->hole_bytes = totals->hole_bytes;
	report->unpreserved_bytes = totals->unpreserved_bytes;
	report->memory_bytes = totals->data_bytes + totals->zero_bytes + totals->hole_bytes +
			       totals->unpreserved_bytes;
	report->stored_bytes = totals->stored_bytes;
	report->image_bytes = totals->image_bytes;
}
