// SPDX-License-Identifier: LGPL-2.1-or-later
/* The shared memory of processes; see list.h. */
#include "list.h"

#include "op.h"
#include "text.h"

static const char *const kinds[] = {
	[TORPOR_MEMORY_FILE] = "file",
	[TORPOR_MEMORY_MEMFD] = "memfd",
	[TORPOR_MEMORY_DELETED] = "deleted",
	[TORPOR_MEMORY_SYSV] = "sysv",
	[TORPOR_MEMORY_HUGETLB] = "hugetlb",
};

static const char *kind_name(uint32_t kind)
{
	return kind < sizeof(kinds) / sizeof(kinds[0]) && kinds[kind] ? kinds[kind] : "?";
}

void list_put_json(struct json *j, const struct torpor_memory *memory)
{
	struct torpor_memory_info info = TORPOR_OPTS(info);

	json_open(j, "memory", '[');
	for (size_t i = 0; torpor_memory_get(memory, i, &info) == 0; i++) {
		json_open(j, NULL, '{');
		json_name(j, "name", info.name);
		json_name(j, "origin", info.origin);
		json_string(j, "kind", kind_name(info.kind));
		json_i64(j, "pid", info.pid);
		json_u64(j, "memory_bytes", info.bytes);
		json_u64(j, "data_bytes", info.data_bytes);
		json_bool(j, "carried", info.carried != 0);
		json_string(j, "reason", info.reason);
		json_close(j, '}');
	}
	json_close(j, ']');
}

void list_put(FILE *f, const struct torpor_memory *memory)
{
	struct torpor_memory_info info = TORPOR_OPTS(info);

	fprintf(f, "%8s  %-7s  %10s  %10s  %s\n", "PID", "KIND", "SIZE", "DATA", "NAME");
	for (size_t i = 0; torpor_memory_get(memory, i, &info) == 0; i++) {
		char size[TEXT_NUMBER_BYTES], data[TEXT_NUMBER_BYTES];

		fprintf(f, "%8d  %-7s  %10s  %10s  ", info.pid, kind_name(info.kind), text_size(info.bytes, size),
		       text_size(info.data_bytes, data));
		text_put_name(f, *info.origin ? info.origin : info.name);
		if (!info.carried) {
			fputs("  (not carried: ", f);
			text_put_sentence(f, info.reason);
			fputc(')', f);
		}
		fputc('\n', f);
	}
}

int list_memory(const struct cmd *cmd, const struct args *args)
{
	struct torpor_memory *memory = NULL;
	struct op op;
	int ret = op_begin(&op, cmd, args);

	if (ret)
		return ret;
	op_done(&op, torpor_memory_list(op.ctx, args->stop_pids, args->n_stop_pids, 0, &memory));
	if (args->json) {
		op_json_begin(&op, "");
		if (op.json.f && memory)
			list_put_json(&op.json, memory);
		op_json_end(&op);
	} else if (memory) {
		list_put(stdout, memory);
	}
	torpor_memory_free(memory);
	return op_end(&op);
}
