// SPDX-License-Identifier: LGPL-2.1-or-later
/* A writer of JSON; see json.h.  Errors of the stream stay in the stream, for its closer. */
#include "json.h"

#include <inttypes.h>
#include <string.h>

#include "text.h"

static void put_string(FILE *f, const char *s)
{
	fputc('"', f);
	while (*s) {
		size_t bytes = utf8_bytes(s);
		unsigned char c = (unsigned char)*s;

		if (!bytes)
			fputs("\xef\xbf\xbd", f);
		else if (c == '"' || c == '\\')
			fprintf(f, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			fprintf(f, "\\u%04x", c);
		else
			fwrite(s, 1, bytes, f);
		s += bytes ? bytes : 1;
	}
	fputc('"', f);
}

static void before_value(struct json *j, const char *key)
{
	if (j->comma)
		fputs(", ", j->f);
	j->comma = true;
	if (key) {
		put_string(j->f, key);
		fputs(": ", j->f);
	}
}

void json_open(struct json *j, const char *key, char bracket)
{
	before_value(j, key);
	fputc(bracket, j->f);
	j->comma = false;
}

void json_close(struct json *j, char bracket)
{
	fputc(bracket, j->f);
	j->comma = true;
}

void json_string(struct json *j, const char *key, const char *value)
{
	before_value(j, key);
	put_string(j->f, value);
}

bool json_is_text(const char *value)
{
	size_t bytes;

	for (; *value; value += bytes) {
		bytes = utf8_bytes(value);
		if (!bytes)
			return false;
	}
	return true;
}

void json_hex(struct json *j, const char *key, const char *value)
{
	before_value(j, key);
	fputc('"', j->f);
	for (; *value; value++)
		fprintf(j->f, "%02x", (unsigned char)*value);
	fputc('"', j->f);
}

void json_name(struct json *j, const char *key, const char *value)
{
	char key_hex[64];

	json_string(j, key, value);
	if (json_is_text(value))
		return;
	snprintf(key_hex, sizeof(key_hex), "%s_hex", key);
	json_hex(j, key_hex, value);
}

void json_u64(struct json *j, const char *key, uint64_t value)
{
	before_value(j, key);
	fprintf(j->f, "%" PRIu64, value);
}

void json_i64(struct json *j, const char *key, int64_t value)
{
	before_value(j, key);
	fprintf(j->f, "%" PRId64, value);
}

void json_real(struct json *j, const char *key, double value)
{
	before_value(j, key);
	fprintf(j->f, "%.6f", value);
}

void json_bool(struct json *j, const char *key, bool value)
{
	before_value(j, key);
	fputs(value ? "true" : "false", j->f);
}
