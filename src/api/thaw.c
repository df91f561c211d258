// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor_thaw(): the guardian's work by hand. */
#include "api/context.h"
#include "live/freeze.h"

API int torpor_thaw(struct torpor *ctx, const char *cgroup)
{
	bool was_frozen = false;
	int rc;

	context_begin(ctx);
	rc = live_thaw(cgroup, &was_frozen, &ctx->e);
	if (!rc && !was_frozen)
		memory_warn(ctx->warnings, "control group %s was not frozen", cgroup);
	return context_end(ctx, rc);
}
