// SPDX-License-Identifier: LGPL-2.1-or-later
/* What makes an index right; see tile.h and docs/format.md, section 6. */
#include "image/tile.h"

#include <inttypes.h>

/* Passes over segments that are complete, those without pages among them. */
static void skip_complete(struct image_tile *tile)
{
	while (tile->segment < tile->frame->n_segments &&
	       tile->next_page == image_segment_pages(&tile->frame->segments[tile->segment])) {
		tile->segment++;
		tile->next_page = 0;
	}
}

int image_tile_add(struct image_tile *tile, const struct image_entry *entry, struct err *e)
{
	const struct image_segment *seg;
	struct image_totals *t = &tile->totals;
	uint64_t left;

	skip_complete(tile);
	if (entry->segment != tile->segment || tile->segment >= tile->frame->n_segments ||
	    entry->first_page != tile->next_page)
		return err_set(e, -EBADMSG,
			       "index: segment %" PRIu64 " page %" PRIu64
			       " is told of twice, never, or out of order",
			       tile->segment, tile->next_page);
	seg = &tile->frame->segments[tile->segment];
	left = image_segment_pages(seg) - tile->next_page;
	if (!entry->pages || entry->pages > left || entry->data_pages > entry->pages ||
	    entry->data_pages > tile->frame->header->chunk_bytes / seg->page_bytes ||
	    entry->zero_pages > entry->pages - entry->data_pages ||
	    entry->unpreserved_pages > entry->pages - entry->data_pages - entry->zero_pages)
		return err_set(e, -EBADMSG,
			       "index: the numbers of segment \"%s\" page %" PRIu64 " are impossible",
			       seg->name, entry->first_page);
	tile->next_page += entry->pages;
	t->records++;
	t->chunks += entry->data_pages > 0;
	t->data_bytes += entry->data_pages * (uint64_t)seg->page_bytes;
	t->zero_bytes += entry->zero_pages * seg->page_bytes;
	t->unpreserved_bytes += entry->unpreserved_pages * seg->page_bytes;
	t->hole_bytes += (entry->pages - entry->data_pages - entry->zero_pages -
			  entry->unpreserved_pages) * seg->page_bytes;
	t->stored_bytes += entry->stored_bytes;
	t->digest += entry->hash;
	return 0;
}

int image_tile_end(struct image_tile *tile, struct err *e)
{
	skip_complete(tile);
	if (tile->segment != tile->frame->n_segments)
		return err_set(e, -EBADMSG,
			       "index: segment \"%s\" is not told of from page %" PRIu64 " on",
			       tile->frame->segments[tile->segment].name, tile->next_page);
	tile->totals.segments = tile->frame->n_segments;
	return 0;
}

void image_totals_encode(void *root, const struct image_totals *totals)
{
	uint8_t *at = root;

	num_put64(at + 32, totals->segments);
	num_put64(at + 40, totals->chunks);
	num_put64(at + 48, totals->records);
	num_put64(at + 56, totals->data_bytes);
	num_put64(at + 64, totals->zero_bytes);
	num_put64(at + 72, totals->hole_bytes);
	num_put64(at + 80, totals->unpreserved_bytes);
	num_put64(at + 88, totals->stored_bytes);
	num_put64(at + 96, totals->digest);
}

void image_totals_decode(const void *root, struct image_totals *ret)
{
	const uint8_t *at = root;

	*ret = (struct image_totals){
		.segments = num_get64(at + 32),
		.chunks = num_get64(at + 40),
		.records = num_get64(at + 48),
		.data_bytes = num_get64(at + 56),
		.zero_bytes = num_get64(at + 64),
		.hole_bytes = num_get64(at + 72),
		.unpreserved_bytes = num_get64(at + 80),
		.stored_bytes = num_get64(at + 88),
		.digest = num_get64(at + 96),
	};
}

int image_totals_compare(const struct image_totals *counted, const struct image_totals *said,
			 struct err *e)
{
	if (counted->segments != said->segments || counted->chunks != said->chunks ||
	    counted->records != said->records || counted->data_bytes != said->data_bytes ||
	    counted->zero_bytes != said->zero_bytes || counted->hole_bytes != said->hole_bytes ||
	    counted->unpreserved_bytes != said->unpreserved_bytes ||
	    counted->stored_bytes != said->stored_bytes || counted->digest != said->digest)
		return err_set(e, -EBADMSG, "root: its totals are not those of the index");
	return 0;
}
