// SPDX-License-Identifier: LGPL-2.1-or-later
/* The shared memory of processes, for whoever wants to look first: torpor_memory_*(). */
#include <inttypes.h>
#include <stdlib.h>

#include "api/context.h"
#include "live/find.h"

_Static_assert((int)TORPOR_MEMORY_FILE == LIVE_MEMORY_FILE &&
		       (int)TORPOR_MEMORY_MEMFD == LIVE_MEMORY_MEMFD &&
		       (int)TORPOR_MEMORY_DELETED == LIVE_MEMORY_DELETED &&
		       (int)TORPOR_MEMORY_SYSV == LIVE_MEMORY_SYSV &&
		       (int)TORPOR_MEMORY_HUGETLB == LIVE_MEMORY_HUGETLB,
	       "the kinds are told as they are");

struct torpor_memory {
	struct live_memories found;
};

static int check_pids(const int32_t *pids, size_t n_pids, struct err *e)
{
	size_t i;

	if (!n_pids)
		return err_set(e, -EINVAL, "no process is named");
	for (i = 0; i < n_pids; i++) {
		if (pids[i] <= 0)
			return err_set(e, -EINVAL, "%" PRId32 " is not a process", pids[i]);
	}
	return 0;
}

API int torpor_memory_list(struct torpor *ctx, const int32_t *pids, size_t n_pids,
			   uint32_t flags, struct torpor_memory **ret_memory)
{
	struct torpor_memory *m;
	int rc;

	context_begin(ctx);
	if (flags)
		return err_set(&ctx->e, -EINVAL, "no flags are known");
	rc = check_pids(pids, n_pids, &ctx->e);
	if (rc < 0)
		return rc;
	m = calloc(1, sizeof(*m));
	rc = m ? live_find(pids, n_pids, &m->found, &ctx->e)
	       : err_sys(&ctx->e, -ENOMEM, "out of memory");
	if (rc < 0) {
		free(m);
		err_wrap(&ctx->e, rc, "cannot list the memory of processes");
		return context_end(ctx, rc);
	}
	*ret_memory = m;
	return 0;
}

API int torpor_memory_saved(struct torpor *ctx, struct torpor_memory **ret_memory)
{
	struct torpor_memory *m;

	if (!ctx->found.count)
		return -ENOENT;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->found = ctx->found;
	ctx->found = (struct live_memories){.count = 0};
	*ret_memory = m;
	return 0;
}

API int torpor_memory_get(const struct torpor_memory *memory, size_t i,
			  struct torpor_memory_info *ret_info)
{
	const struct live_memory *m;
	struct torpor_memory_info info;

	if (i >= memory->found.count)
		return -ENOENT;
	m = &memory->found.list[i];
	info = (struct torpor_memory_info){
		.kind = m->kind,
		.pid = m->pid,
		.carried = m->carried,
		.bytes = m->bytes,
		.data_bytes = m->data_bytes,
		.name = m->name,
		.origin = m->origin,
		.reason = live_memory_reason(m->kind),
	};
	return options_give(ret_info, &info, sizeof(info), NULL);
}

API void torpor_memory_free(struct torpor_memory *memory)
{
	if (!memory)
		return;
	live_memories_free(&memory->found);
	free(memory);
}
