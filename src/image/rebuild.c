// SPDX-License-Identifier: LGPL-2.1-or-later
/* Rebuilding an image by scanning for its records; see rebuild.h. */
#include "image/rebuild.h"

#include <inttypes.h>
#include <stdlib.h>

#include "image/record.h"
#include "image/segment.h"
#include "image/writer.h"

#define WINDOW_BYTES MIB(1)

struct found {
	struct image_entry entry; /* offset: in the old image */
	uint64_t number;
};

struct scan {
	const struct image_input *input;
	struct image_rebuild *rebuild;
	struct image_segments segments;
	struct image_frame frame;
	struct image_decoders decoders;
	struct found *found;
	uint64_t n_found, room;
	uint8_t *record; /* the largest there is */
	uint8_t *raw;
	uint8_t *window;
	uint64_t copied; /* bytes of records */
};

static void progress(const struct scan *s, uint64_t bytes)
{
	if (s->rebuild->done_bytes)
		atomic_store_explicit(s->rebuild->done_bytes, bytes, memory_order_relaxed);
}

static int cancelled(const struct scan *s, struct err *e)
{
	if (s->rebuild->cancel && atomic_load(s->rebuild->cancel))
		return err_set(e, -ECANCELED, "cancelled");
	return 0;
}

static int keep(struct scan *s, const struct image_chunk *chunk, struct err *e)
{
	if (s->n_found == s->room) {
		uint64_t room = s->room ? 2 * s->room : 1024;
		struct found *more = reallocarray(s->found, room, sizeof(*more));

		if (!more)
			return err_sys(e, -ENOMEM, "cannot hold %" PRIu64 " chunks", room);
		s->found = more;
		s->room = room;
	}
	s->found[s->n_found++] = (struct found){chunk->entry, chunk->number};
	return 0;
}

/* A sound record at `offset`: 1, and it is taken up.  0: there is none. */
static int take_record(struct scan *s, const struct image_record *head, uint64_t offset, struct err *e)
{
	struct image_chunk chunk;
	int rc;

	if (head->type != IMAGE_CHUNK && head->bytes > IMAGE_BLOCK_MAX_BYTES)
		return 0;
	rc = s->input->read_at(s->input->ctx, s->record, head->bytes, offset, e);
	if (rc < 0)
		return rc;
	if (head->type == IMAGE_CHUNK) {
		s->frame = (struct image_frame){&s->rebuild->header, s->segments.items, s->segments.count};
		rc = image_chunk_parse(s->record, head->bytes, offset, &s->frame, &chunk, e);
		if (!rc)
			rc = image_chunk_decode(&chunk, &s->decoders, s->raw, e);
		if (rc == -EBADMSG)
			return 0;
		rc = rc < 0 ? rc : keep(s, &chunk, e);
		return rc < 0 ? rc : 1;
	}
	if (!image_record_sound(s->record, head->bytes, head->hash))
		return 0;
	if (head->type == IMAGE_SEGMENTS) {
		rc = image_segments_add(&s->segments, s->record, head->bytes, s->rebuild->header.chunk_bytes, e);
		return rc < 0 ? rc : 1;
	}
	return 1;
}

/* The next offset, from `offset` on, at which a record's magic stands; or the end. */
static int find_magic(struct scan *s, uint64_t *offset, struct err *e)
{
	uint64_t end = s->input->bytes & ~(uint64_t)7, i, n;
	int rc;

	while (*offset < end) {
		n = num_min(WINDOW_BYTES, end - *offset);
		rc = s->input->read_at(s->input->ctx, s->window, n, *offset, e);
		if (!rc)
			rc = cancelled(s, e);
		if (rc < 0)
			return rc;
		for (i = 0; i < n; i += 8) {
			if (num_get32(s->window + i) == IMAGE_RECORD_MAGIC) {
				*offset += i;
				return 0;
			}
		}
		*offset += n;
		progress(s, *offset);
	}
	return 0;
}

static int scan_records(struct scan *s, struct err *e)
{
	uint64_t offset = IMAGE_HEADER_BYTES, bytes = s->input->bytes;
	uint8_t buf[IMAGE_RECORD_HEAD_BYTES];
	struct image_record head;
	int rc;

	while (bytes - offset >= sizeof(buf)) {
		rc = s->input->read_at(s->input->ctx, buf, sizeof(buf), offset, e);
		if (!rc)
			rc = cancelled(s, e);
		if (rc < 0)
			return rc;
		rc = image_record_head(buf, s->rebuild->header.id, s->rebuild->header.chunk_bytes,
				       bytes - offset, &head, NULL);
		rc = rc < 0 ? 0 : take_record(s, &head, offset, e);
		if (rc < 0)
			return rc;
		offset += rc > 0 ? head.bytes : 8;
		progress(s, offset);
		if (!rc)
			rc = find_magic(s, &offset, e);
		if (rc < 0)
			return rc;
		if (offset > bytes)
			break;
	}
	if (!s->segments.count)
		return err_set(e, -EBADMSG, "no segments were found; nothing can be rebuilt");
	return image_segments_seal(&s->segments, e);
}

static int by_place(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->entry.segment != y->entry.segment)
		return x->entry.segment < y->entry.segment ? -1 : 1;
	if (x->entry.first_page != y->entry.first_page)
		return x->entry.first_page < y->entry.first_page ? -1 : 1;
	return x->number > y->number ? -1 : x->number < y->number;
}

/* Of chunks that overlap, the one with the higher number stays. */
static void drop_overlaps(struct scan *s)
{
	uint64_t i, kept = 0;

	if (s->n_found)
		qsort(s->found, s->n_found, sizeof(*s->found), by_place);
	for (i = 0; i < s->n_found; i++) {
		const struct found *f = &s->found[i];
		const struct found *last = kept ? &s->found[kept - 1] : NULL;

		if (!last || last->entry.segment != f->entry.segment ||
		    last->entry.first_page + last->entry.pages <= f->entry.first_page)
			s->found[kept++] = *f;
		else if (f->number > last->number)
			s->found[kept - 1] = *f;
	}
	s->n_found = kept;
}

static int put_lost(struct scan *s, struct image_writer *w, uint32_t segment, uint64_t from, uint64_t to,
		    struct err *e)
{
	if (from == to)
		return 0;
	s->rebuild->lost_bytes += (to - from) * s->segments.items[segment].page_bytes;
	return image_writer_run(w, segment, from, to - from, IMAGE_RUN_HOLE, e);
}

static int put_segment(struct scan *s, struct image_writer *w, const struct image_sink *sink,
		       uint32_t segment, uint64_t *i, struct err *e)
{
	uint64_t page = 0;
	int rc = 0;

	for (; *i < s->n_found && s->found[*i].entry.segment == segment && !rc; ++*i) {
		struct image_entry entry = s->found[*i].entry;

		rc = put_lost(s, w, segment, page, entry.first_page, e);
		if (!rc)
			rc = cancelled(s, e);
		if (!rc)
			rc = s->input->read_at(s->input->ctx, s->record, entry.record_bytes, entry.offset, e);
		if (!rc)
			rc = sink->append(sink->ctx, s->record, entry.record_bytes, &entry.offset, e);
		if (!rc)
			rc = image_writer_chunk(w, &entry, e);
		page = entry.first_page + entry.pages;
		s->copied += entry.record_bytes;
		progress(s, s->input->bytes + s->copied);
	}
	return rc < 0 ? rc : put_lost(s, w, segment, page, image_segment_pages(&s->segments.items[segment]), e);
}

static int put_image(struct scan *s, const struct image_sink *sink, struct err *e)
{
	struct image_writer *w;
	uint64_t next = 0, number = 0, j;
	uint32_t i;
	int rc;

	rc = image_writer_new(sink, &s->rebuild->header, s->segments.items, s->segments.count, &w, e);
	if (rc < 0)
		return rc;
	for (j = 0; j < s->n_found; j++)
		number = num_max(number, s->found[j].number);
	image_writer_number_from(w, number);
	for (i = 0; i < s->segments.count && !rc; i++)
		rc = put_segment(s, w, sink, i, &next, e);
	if (!rc)
		rc = image_writer_finish(w, &s->rebuild->totals, e);
	image_writer_free(w);
	return rc;
}

int image_rebuild(const struct image_input *input, const struct image_sink *sink,
		  struct image_rebuild *rebuild, struct err *e)
{
	struct scan s = {.input = input, .rebuild = rebuild};
	uint8_t header[IMAGE_HEADER_BYTES];
	int rc;

	if (input->bytes < sizeof(header))
		return err_set(e, -EBADMSG, "not a torpor image (only %" PRIu64 " bytes)", input->bytes);
	rc = input->read_at(input->ctx, header, sizeof(header), 0, e);
	if (!rc)
		rc = image_header_decode(header, &rebuild->header, e);
	if (rc < 0)
		return rc;
	rebuild->header.image_bytes = 0;
	rebuild->lost_bytes = 0;
	s.record = malloc(num_max(image_chunk_record_max(IMAGE_CHUNK_MAX_BYTES), IMAGE_BLOCK_MAX_BYTES));
	s.raw = malloc(IMAGE_CHUNK_MAX_BYTES);
	s.window = malloc(WINDOW_BYTES);
	rc = s.record && s.raw && s.window ? scan_records(&s, e) : err_sys(e, -ENOMEM, "cannot rebuild");
	if (!rc) {
		drop_overlaps(&s);
		rc = put_image(&s, sink, e);
	}
	if (!rc)
		progress(&s, 2 * input->bytes);
	image_segments_free(&s.segments);
	image_decoders_free(&s.decoders);
	free(s.found);
	free(s.record);
	free(s.raw);
	free(s.window);
	return rc;
}
