// SPDX-License-Identifier: LGPL-2.1-or-later
/* SEGMENTS records; see segment.h and docs/format.md, section 4. */
#include "image/segment.h"

#include <inttypes.h>
#include <stdlib.h>

#include "image/record.h"

#define PROPERTY_HEAD_BYTES 8
#define PROPERTY_REQUIRED 0x8000

size_t image_segment_bytes(const struct image_segment *segment)
{
	return num_round_up(IMAGE_SEGMENT_HEAD_BYTES + strlen(segment->name) +
				    strlen(segment->origin) + strlen(segment->link),
			    8);
}

void image_segment_encode(void *buf, const struct image_segment *segment)
{
	size_t name = strlen(segment->name), origin = strlen(segment->origin);
	size_t link = strlen(segment->link), bytes = image_segment_bytes(segment);
	uint8_t *at = buf;

	memset(at, 0, bytes);
	num_put32(at, (uint32_t)bytes);
	num_put32(at + 4, segment->kind);
	num_put64(at + 8, segment->bytes);
	num_put32(at + 16, segment->page_bytes);
	num_put32(at + 20, segment->huge_page_bytes);
	num_put32(at + 24, segment->mode);
	num_put32(at + 28, segment->uid);
	num_put32(at + 32, segment->gid);
	num_put64(at + 40, (uint64_t)segment->mtime_ns);
	num_put32(at + 48, (uint32_t)name);
	num_put32(at + 52, (uint32_t)origin);
	num_put32(at + 56, (uint32_t)link);
	at += IMAGE_SEGMENT_HEAD_BYTES;
	memcpy(at, segment->name, name);
	memcpy(at + name, segment->origin, origin);
	memcpy(at + name + origin, segment->link, link);
}

static bool component_valid(const char *at, size_t bytes)
{
	if (!bytes || bytes > IMAGE_COMPONENT_MAX_BYTES)
		return false;
	return !(at[0] == '.' && (bytes == 1 || (bytes == 2 && at[1] == '.')));
}

bool image_name_valid(const char *name)
{
	const char *slash;

	if (strlen(name) > IMAGE_NAME_MAX_BYTES)
		return false;
	while ((slash = strchr(name, '/'))) {
		if (!component_valid(name, (size_t)(slash - name)))
			return false;
		name = slash + 1;
	}
	return component_valid(name, strlen(name));
}

static int properties_known(const uint8_t *at, size_t bytes, struct err *e)
{
	while (bytes) {
		size_t need = PROPERTY_HEAD_BYTES;

		if (bytes < need || (need = num_round_up(need + num_get32(at + 4), 8)) > bytes)
			return err_set(e, -EBADMSG, "properties are damaged");
		if (num_get16(at + 2))
			return err_set(e, -EBADMSG, "properties are damaged");
		if (num_get16(at) & PROPERTY_REQUIRED)
			return err_set(e, -EOPNOTSUPP, "property %u is not known to this program",
				       num_get16(at));
		at += need;
		bytes -= need;
	}
	return 0;
}

static int strings_decode(const uint8_t *at, size_t bytes, struct image_segment *ret, struct err *e)
{
	const char *text = (const char *)at + IMAGE_SEGMENT_HEAD_BYTES;
	uint64_t name = num_get32(at + 48), origin = num_get32(at + 52), link = num_get32(at + 56);
	uint64_t properties = num_get32(at + 60);
	uint64_t all = IMAGE_SEGMENT_HEAD_BYTES + name + origin + link + properties;

	if (num_round_up(all, 8) != bytes || origin > IMAGE_NAME_MAX_BYTES ||
	    link > IMAGE_NAME_MAX_BYTES || memchr(text, 0, name + origin + link) ||
	    !image_all_zero(at + all, bytes - all))
		return err_set(e, -EBADMSG, "strings are damaged");
	ret->name = strndup(text, name);
	ret->origin = strndup(text + name, origin);
	ret->link = strndup(text + name + origin, link);
	if (!ret->name || !ret->origin || !ret->link)
		return err_sys(e, -ENOMEM, "cannot hold its strings");
	if (!image_name_valid(ret->name))
		return err_set(e, -EBADMSG, "the name \"%s\" is not allowed", ret->name);
	if ((strchr(ret->name, '/') && origin) || (origin && ret->origin[0] != '/') ||
	    (ret->kind == IMAGE_KIND_SYMLINK) != (link > 0))
		return err_set(e, -EBADMSG, "origin or link text of \"%s\" is damaged", ret->name);
	return properties_known(at + IMAGE_SEGMENT_HEAD_BYTES + name + origin + link, properties, e);
}

static int segment_decode(const uint8_t *at, size_t bytes, uint32_t chunk_bytes,
			  struct image_segment *ret, struct err *e)
{
	uint32_t kind = num_get32(at + 4);

	ret->kind = kind;
	ret->bytes = num_get64(at + 8);
	ret->page_bytes = num_get32(at + 16);
	ret->huge_page_bytes = num_get32(at + 20);
	ret->mode = num_get32(at + 24);
	ret->uid = num_get32(at + 28);
	ret->gid = num_get32(at + 32);
	ret->mtime_ns = (int64_t)num_get64(at + 40);
	if (kind < IMAGE_KIND_FILE || kind > IMAGE_KIND_SYMLINK)
		return err_set(e, -EOPNOTSUPP, "kind %u is not known to this program", kind);
	if (!num_is_pow2(ret->page_bytes) || ret->page_bytes < IMAGE_PAGE_MIN_BYTES ||
	    ret->page_bytes > IMAGE_PAGE_MAX_BYTES || ret->page_bytes > chunk_bytes ||
	    ret->bytes > IMAGE_SEGMENT_MAX_BYTES || (kind != IMAGE_KIND_FILE && ret->bytes) ||
	    (ret->mode & ~07777u) || num_get32(at + 36))
		return err_set(e, -EBADMSG, "a field is damaged");
	return strings_decode(at, bytes, ret, e);
}

static void segment_free(struct image_segment *segment)
{
	free(segment->name);
	free(segment->origin);
	free(segment->link);
}

static int table_grow(struct image_segments *table, struct err *e)
{
	uint64_t room = table->room ? 2 * table->room : 16;
	struct image_segment *items;

	if (table->count < table->room)
		return 0;
	items = reallocarray(table->items, room, sizeof(*items));
	if (!items)
		return err_sys(e, -ENOMEM, "cannot hold %" PRIu64 " segments", room);
	table->items = items;
	table->room = room;
	return 0;
}

int image_segments_add(struct image_segments *table, const void *record, size_t bytes,
		       uint32_t chunk_bytes, struct err *e)
{
	const uint8_t *at = record, *end = at + bytes;
	uint32_t i, count;
	int rc;

	if (bytes < IMAGE_RECORD_HEAD_BYTES + 8 || num_get32(at + 32) != table->count)
		return err_set(e, -EBADMSG, "segments are out of order");
	count = num_get32(at + 36);
	at += IMAGE_RECORD_HEAD_BYTES + 8;
	for (i = 0; i < count; i++) {
		size_t left = (size_t)(end - at);
		uint32_t len = left < IMAGE_SEGMENT_HEAD_BYTES ? 0 : num_get32(at);
		struct image_segment segment = {.bytes = 0};

		if (len < IMAGE_SEGMENT_HEAD_BYTES || len > left || len % 8)
			return err_set(e, -EBADMSG, "segment %" PRIu64 ": length is damaged", table->count);
		rc = table_grow(table, e);
		if (!rc)
			rc = segment_decode(at, len, chunk_bytes, &segment, e);
		if (rc < 0) {
			segment_free(&segment);
			return err_wrap(e, rc, "segment %" PRIu64, table->count);
		}
		table->items[table->count++] = segment;
		at += len;
	}
	return at == end ? 0 : err_set(e, -EBADMSG, "more bytes than segments");
}

static int by_name_order(const void *a, const void *b, void *items)
{
	const struct image_segment *s = items;

	return strcmp(s[*(const uint64_t *)a].name, s[*(const uint64_t *)b].name);
}

int image_segments_find(const struct image_segments *table, const char *name, size_t name_bytes,
			uint64_t *ret)
{
	uint64_t low = 0, high = table->count;

	while (low < high) {
		uint64_t mid = low + (high - low) / 2, i = table->by_name[mid];
		int order = strncmp(table->items[i].name, name, name_bytes);

		if (!order && !table->items[i].name[name_bytes]) {
			*ret = i;
			return 0;
		}
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return -ENOENT;
}

int image_segments_seal(struct image_segments *table, struct err *e)
{
	uint64_t i, parent;

	table->by_name = calloc(table->count + 1, sizeof(*table->by_name));
	if (!table->by_name)
		return err_sys(e, -ENOMEM, "cannot sort %" PRIu64 " segments", table->count);
	for (i = 0; i < table->count; i++)
		table->by_name[i] = i;
	qsort_r(table->by_name, table->count, sizeof(*table->by_name), by_name_order, table->items);
	for (i = 0; i < table->count; i++) {
		const char *name = table->items[i].name, *slash = strrchr(name, '/');

		if (i && !strcmp(table->items[table->by_name[i]].name,
				 table->items[table->by_name[i - 1]].name))
			return err_set(e, -EBADMSG, "two segments are named \"%s\"",
				       table->items[table->by_name[i]].name);
		if (slash && (image_segments_find(table, name, (size_t)(slash - name), &parent) < 0 ||
			      parent >= i || table->items[parent].kind != IMAGE_KIND_DIRECTORY))
			return err_set(e, -EBADMSG, "segment \"%s\" lies in no folder before it", name);
	}
	return 0;
}

void image_segments_free(struct image_segments *table)
{
	uint64_t i;

	for (i = 0; i < table->count; i++)
		segment_free(&table->items[i]);
	free(table->items);
	free(table->by_name);
	memset(table, 0, sizeof(*table));
}
