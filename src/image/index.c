// SPDX-License-Identifier: LGPL-2.1-or-later
/* INDEX records; see docs/format.md, section 6. */
#include <inttypes.h>

#include "image/record.h"
#include "image/tile.h"

void image_entry_encode(void *buf, const struct image_entry *entry)
{
	uint8_t *at = buf;

	num_put64(at, entry->first_page);
	num_put64(at + 8, entry->pages);
	num_put64(at + 16, entry->zero_pages);
	num_put64(at + 24, entry->unpreserved_pages);
	num_put64(at + 32, entry->offset);
	num_put64(at + 40, entry->hash);
	num_put32(at + 48, entry->record_bytes);
	num_put32(at + 52, entry->segment);
	num_put32(at + 56, entry->data_pages);
	num_put32(at + 60, entry->stored_bytes);
}

void image_entry_decode(const void *buf, struct image_entry *ret)
{
	const uint8_t *at = buf;

	*ret = (struct image_entry){
		.first_page = num_get64(at),
		.pages = num_get64(at + 8),
		.zero_pages = num_get64(at + 16),
		.unpreserved_pages = num_get64(at + 24),
		.offset = num_get64(at + 32),
		.hash = num_get64(at + 40),
		.record_bytes = num_get32(at + 48),
		.segment = num_get32(at + 52),
		.data_pages = num_get32(at + 56),
		.stored_bytes = num_get32(at + 60),
	};
}

bool image_entry_same(const struct image_entry *told, const struct image_entry *seen)
{
	uint8_t a[IMAGE_ENTRY_BYTES], b[IMAGE_ENTRY_BYTES];

	image_entry_encode(a, told);
	image_entry_encode(b, seen);
	return !memcmp(a, b, sizeof(a));
}

int image_index_check(void *record, const struct image_record *head, uint64_t offset,
		      uint32_t *ret_count, struct err *e)
{
	const uint8_t *at = record;
	uint64_t count;

	if (head->type != IMAGE_INDEX || !image_record_sound(record, head->bytes, head->hash))
		return err_set(e, -EBADMSG, "index block at offset %" PRIu64 ": hash differs", offset);
	count = head->bytes < IMAGE_INDEX_HEAD_BYTES ? 0 : num_get32(at + 32);
	if (!count || num_get32(at + 36) ||
	    head->bytes != IMAGE_INDEX_HEAD_BYTES + count * IMAGE_ENTRY_BYTES)
		return err_set(e, -EBADMSG, "index block at offset %" PRIu64 ": impossible length", offset);
	*ret_count = (uint32_t)count;
	return 0;
}
