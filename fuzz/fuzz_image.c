// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Fuzz target for all that reads an image: by the index, in one pass, page by page, and
 * rebuilding. An input is an image.  When its first byte is not the magic's, it is made so and
 * all hashes are made right first: else nothing would ever get behind them.
 *
 * What holds for any input: no reader ends the process; when the strict reader, the one of
 * streams, finds nothing wrong, the other one does not either and reads the same; what was
 * rebuilt is sound.
 */
#include <stdio.h>

#include "../tests/memory_image.h"
#include "../tests/reseal.h"
#include "fuzz.h"
#include "image/rebuild.h"

#define IMAGE_MAX_BYTES KIB(256)

static void require(bool holds, const char *what, const struct err *e)
{
	if (holds)
		return;
	fprintf(stderr, "fuzz_image: %s: %s\n", what, e->text);
	abort();
}

static void require_code(int rc, const struct err *e)
{
	require(rc == 0 || rc == -EBADMSG || rc == -EOPNOTSUPP, "unexpected code", e);
	require(rc == 0 || e->text[0], "no message", e);
}

/* Some page of each segment, by the index alone. */
static void find_pages(struct memory_image *m)
{
	struct image_input input = memory_image_input(m);
	const struct image_segments *segs;
	struct image_reader *r;
	struct image_entry entry;
	struct err e = {.text = ""};
	uint64_t i, pages;

	if (image_reader_open(&input, &r, &e))
		return;
	segs = image_reader_segments(r);
	for (i = 0; i < segs->count && i < 64; i++) {
		uint64_t found;

		require(image_segments_find(segs, segs->items[i].name,
					    strlen(segs->items[i].name), &found) == 0 &&
				found == i,
			"a segment is not found by its name", &e);
		require(image_name_valid(segs->items[i].name), "a name that is not allowed",
			&e);
		pages = image_segment_pages(&segs->items[i]);
		if (pages) {
			require_code(image_reader_find(r, (uint32_t)i, 0, &entry, &e), &e);
			require_code(image_reader_find(r, (uint32_t)i, pages / 2, &entry, &e),
				     &e);
			require_code(image_reader_find(r, (uint32_t)i, pages - 1, &entry, &e),
				     &e);
		}
	}
	image_reader_free(r);
}

static void rebuild(struct memory_image *m)
{
	struct memory_image fresh = MEMORY_IMAGE_NEW;
	struct image_input input = memory_image_input(m);
	struct image_sink sink = memory_image_sink(&fresh);
	struct image_rebuild rebuilt = {.cancel = NULL};
	struct err e = {.text = ""};
	uint64_t by_index = 0, by_stream = 1;
	int rc = image_rebuild(&input, &sink, &rebuilt, &e);

	require_code(rc, &e);
	if (!rc) {
		require(content_indexed(&fresh, &by_index, &e) == 0, "rebuilt, by the index",
			&e);
		require(content_streamed(&fresh, &by_stream, &e) == 0, "rebuilt, in one pass",
			&e);
		require(by_index == by_stream, "rebuilt, readers differ", &e);
	}
	free(fresh.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct memory_image m = MEMORY_IMAGE_NEW;
	struct err e = {.text = ""};
	uint64_t by_index = 0, by_stream = 0;
	int strict, indexed;

	if (!bytes || bytes > IMAGE_MAX_BYTES)
		return 0;
	m.data = malloc(bytes);
	memcpy(m.data, data, bytes);
	m.used = m.room = bytes;
	if (m.data[0] != (uint8_t)IMAGE_MAGIC[0]) {
		m.data[0] = (uint8_t)IMAGE_MAGIC[0];
		reseal_image(m.data, m.used);
	}
	strict = content_streamed(&m, &by_stream, &e);
	require_code(strict, &e);
	e.text[0] = '\0';
	indexed = content_indexed(&m, &by_index, &e);
	require_code(indexed, &e);
	if (!strict && m.fed == m.used) {
		require(!indexed, "sound in one pass, not by the index", &e);
		require(by_index == by_stream, "readers differ", &e);
	}
	find_pages(&m);
	rebuild(&m);
	free(m.data);
	return 0;
}
