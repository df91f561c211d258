// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor info: what an image holds, from its index alone. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/num.h"
#include "report.h"
#include "text.h"

#define NS_PER_SECOND 1000000000

static const struct opt options[] = {
	{OPT_JSON, "print one JSON object, to standard output or to\ndescriptor FD"},
	{OPT_HELP, "print this help"},
	{OPT_END, NULL},
};

static const char *kind_word(uint32_t kind)
{
	static const char *const words[] = {
		[TORPOR_KIND_FILE] = "file",    [TORPOR_KIND_DIRECTORY] = "folder",
		[TORPOR_KIND_SYMLINK] = "link", [TORPOR_KIND_SYSV] = "sysv",
		[TORPOR_KIND_DEN] = "den",      [TORPOR_KIND_MACHINE] = "machine",
	};

	return kind < ARRAY_LEN(words) && words[kind] ? words[kind] : "unknown";
}

/* The whole second below a time that may lie before 1970, and the rest in nanoseconds. */
static time_t whole_seconds(int64_t ns, unsigned int *ret_rest)
{
	int64_t s = ns / NS_PER_SECOND, rest = ns % NS_PER_SECOND;

	if (rest < 0) {
		rest += NS_PER_SECOND;
		s--;
	}
	*ret_rest = (unsigned int)rest;
	return (time_t)s;
}

/* Local time to the second, for people. */
static void put_time(int64_t ns)
{
	unsigned int rest;
	time_t s = whole_seconds(ns, &rest);
	char text[64];
	struct tm tm;

	if (!localtime_r(&s, &tm) || !strftime(text, sizeof(text), "%F %T", &tm))
		snprintf(text, sizeof(text), "%" PRId64, ns);
	fputs(text, stdout);
}

/* RFC 3339 in UTC with all digits: a number of nanoseconds is too long for many JSON readers.
 */
static void json_time(struct json *j, const char *key, int64_t ns)
{
	char text[64], whole[96];
	unsigned int rest;
	time_t s = whole_seconds(ns, &rest);
	struct tm tm;

	if (!gmtime_r(&s, &tm) || !strftime(text, sizeof(text), "%FT%T", &tm))
		text[0] = '\0';
	snprintf(whole, sizeof(whole), "%s.%09uZ", text, rest);
	json_string(j, key, whole);
}

static void put_facts(const struct torpor_image_info *info)
{
	char a[TEXT_NUMBER_BYTES], b[TEXT_NUMBER_BYTES], c[TEXT_NUMBER_BYTES];
	uint64_t present = info->data_bytes + info->zero_bytes;

	printf("format     version %u, features %#" PRIx64 " (incompatible), %#" PRIx64
	       " (compatible)\n",
	       info->version, info->incompatible, info->compatible);
	printf("id         %016" PRIx64 "\ncreated    ", info->id);
	put_time(info->created_ns);
	printf("\nmemory     %s data, %s zero, %s hole", text_size(info->data_bytes, a),
	       text_size(info->zero_bytes, b), text_size(info->hole_bytes, c));
	if (info->unpreserved_bytes)
		printf(", %s left out", text_size(info->unpreserved_bytes, a));
	printf("\nstored     %s, codec ", text_size(info->stored_bytes, a));
	text_put_name(stdout, info->codec);
	printf(", %" PRIu64 " chunks of up to %s\n", info->chunks, text_size(info->chunk_bytes, b));
	printf("image      %s, ratio %.2f\n", text_size(info->image_bytes, a),
	       info->image_bytes ? (double)present / (double)info->image_bytes : 0.0);
	printf("segments   %" PRIu64 "\n", info->segments);
}

static void put_segment(uint64_t i, const struct torpor_segment_info *s)
{
	char owner[24], size[TEXT_NUMBER_BYTES];

	snprintf(owner, sizeof(owner), "%u:%u", s->uid, s->gid);
	printf("%6" PRIu64 "  %-7s %04o %-11s %10s  ", i, kind_word(s->kind), s->mode, owner,
	       text_size(s->bytes, size));
	put_time(s->mtime_ns);
	fputs("  ", stdout);
	text_put_name(stdout, s->name);
	if (*s->link) {
		fputs(" -> ", stdout);
		text_put_name(stdout, s->link);
	}
	if (*s->origin) {
		fputs("  (from ", stdout);
		text_put_name(stdout, s->origin);
		fputc(')', stdout);
	}
	if (s->huge_page_bytes)
		printf("  [%s pages]", text_size(s->huge_page_bytes, size));
	putchar('\n');
}

static void json_facts(struct json *j, const struct torpor_image_info *info)
{
	char id[TEXT_NUMBER_BYTES];

	snprintf(id, sizeof(id), "%016" PRIx64, info->id);
	json_u64(j, "version", info->version);
	json_u64(j, "incompatible", info->incompatible);
	json_u64(j, "compatible", info->compatible);
	json_string(j, "id", id);
	json_time(j, "created", info->created_ns);
	json_u64(j, "segments", info->segments);
	json_u64(j, "chunks", info->chunks);
	json_u64(j, "chunk_bytes", info->chunk_bytes);
	json_u64(j, "data_bytes", info->data_bytes);
	json_u64(j, "zero_bytes", info->zero_bytes);
	json_u64(j, "hole_bytes", info->hole_bytes);
	json_u64(j, "unpreserved_bytes", info->unpreserved_bytes);
	json_u64(j, "stored_bytes", info->stored_bytes);
	json_u64(j, "image_bytes", info->image_bytes);
	json_string(j, "codec", info->codec);
}

static void json_segment(struct json *j, uint64_t i, const struct torpor_segment_info *s)
{
	char mode[8];

	snprintf(mode, sizeof(mode), "%04o", s->mode & 07777);
	json_open(j, NULL, '{');
	json_u64(j, "index", i);
	json_string(j, "kind", kind_word(s->kind));
	json_name(j, "name", s->name);
	json_name(j, "origin", s->origin);
	json_name(j, "link", s->link);
	json_string(j, "mode", mode);
	json_u64(j, "uid", s->uid);
	json_u64(j, "gid", s->gid);
	json_u64(j, "bytes", s->bytes);
	json_u64(j, "page_bytes", s->page_bytes);
	json_u64(j, "huge_page_bytes", s->huge_page_bytes);
	json_time(j, "mtime", s->mtime_ns);
	json_close(j, '}');
}

/* Segments are read one by one: an image may hold more of them than fit into memory at ease. */
static int put_segments(struct op *op, struct torpor_image *image, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		struct torpor_segment_info segment = TORPOR_OPTS(segment);
		int ret = torpor_image_segment(image, i, &segment);

		if (ret)
			return ret;
		if (op->args->json)
			json_segment(&op->json, i, &segment);
		else
			put_segment(i, &segment);
	}
	return 0;
}

static int show(struct op *op, struct torpor_image *image)
{
	struct torpor_image_info info = TORPOR_OPTS(info);
	int ret = torpor_image_info(image, &info);

	if (ret)
		return op_done(op, ret);
	if (!op->args->json) {
		put_facts(&info);
		return op_done(op, put_segments(op, image, info.segments));
	}
	op_json_begin(op, op->args->operands[0]);
	if (!op->json.f)
		return op->code;
	json_facts(&op->json, &info);
	json_open(&op->json, "segment_list", '[');
	ret = put_segments(op, image, info.segments);
	json_close(&op->json, ']');
	return ret ? op_done(op, ret) : op->code;
}

static int run(const struct cmd *cmd, const struct args *args)
{
	struct torpor_image *image = NULL;
	struct op op;
	int ret;

	ret = image_must_seek(cmd, args->operands[0]);
	if (!ret)
		ret = op_begin(&op, cmd, args);
	if (ret)
		return ret;
	ret = torpor_image_open(op.ctx, args->operands[0], 0, &image);
	if (!ret)
		show(&op, image);
	else if (op_done(&op, ret) && args->json)
		op_json_begin(&op, args->operands[0]);
	if (args->json)
		op_json_end(&op);
	torpor_image_close(image);
	return op_end(&op);
}

const struct cmd cmd_info = {
	.name = "info",
	.summary = "show what an image holds",
	.operands = "IMAGE [OPTION]...",
	.about =
		"Shows what an image holds: its header, its totals and its segments. Only the\n"
		"index is read; `torpor verify` checks the rest.\n",
	.options = options,
	.operands_min = 1,
	.operands_max = 1,
	.run = run,
};
