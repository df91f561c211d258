/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* torpor save --list: the shared memory of processes, as a table or as JSON. */
#ifndef TORPOR_TOOL_LIST_H
#define TORPOR_TOOL_LIST_H

#include "cmd.h"

#include <torpor.h>

#include "json.h"

/* The list as a table, and as the key "memory" of an object. */
void list_put(FILE *f, const struct torpor_memory *memory);
void list_put_json(struct json *j, const struct torpor_memory *memory);

/* Lists and does no more.  Returns an exit code. */
int list_memory(const struct cmd *cmd, const struct args *args);

#endif
