/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A writer of one JSON value to a stream: it keeps commas and escapes, its user the nesting.
 *
 * JSON text is UTF-8, names of files are bytes.  A byte that is no UTF-8 is written as U+FFFD,
 * and json_name() then adds the whole name in hexadecimal digits under KEY_hex, so that nothing
 * is lost and every parser accepts the text.
 */
#ifndef TORPOR_TOOL_JSON_H
#define TORPOR_TOOL_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
	FILE *f;
	bool comma; /* a value stands before, on this level */
};

/* `key` is NULL within an array and for the outermost value. */
void json_open(struct json *j, const char *key, char bracket); /* '{' or '[' */
void json_close(struct json *j, char bracket);                 /* '}' or ']' */
void json_string(struct json *j, const char *key, const char *value);
void json_name(struct json *j, const char *key, const char *value);
bool json_is_text(const char *value); /* json_string() would lose nothing of it */
void json_hex(struct json *j, const char *key, const char *value);
void json_u64(struct json *j, const char *key, uint64_t value);
void json_i64(struct json *j, const char *key, int64_t value);
void json_real(struct json *j, const char *key, double value);
void json_bool(struct json *j, const char *key, bool value);

#endif
