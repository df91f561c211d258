/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The numbers of docs/format.md, and the structs that its records become in memory.  What is
 * on disk is encoded field by field with base/num.h; no struct here has the layout of a record.
 */
#ifndef TORPOR_IMAGE_FORMAT_H
#define TORPOR_IMAGE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/num.h"

#define IMAGE_VERSION 1
#define IMAGE_MAGIC "\x89TORPOR\n"
#define IMAGE_END_MAGIC "TORPOREN"
#define IMAGE_MAGIC_BYTES 8
#define IMAGE_HEADER_BYTES 4096
#define IMAGE_FOOTER_BYTES 64
#define IMAGE_RECORD_MAGIC 0x43455254u /* "TREC" */

/* Compatible features: what a reader need not understand. */
#define IMAGE_COMPATIBLE_WRITERS ((uint64_t)1 << 0) /* processes that could write were not stopped */
#define IMAGE_COMPATIBLE_KNOWN IMAGE_COMPATIBLE_WRITERS

#define IMAGE_CHUNK_MIN_BYTES 4096u
#define IMAGE_CHUNK_MAX_BYTES (1u << 20)
#define IMAGE_CHUNK_DEFAULT_BYTES (128u << 10)
/* zstd finds matches over a longer distance: at 128 KiB its images were 14 % larger. */
#define IMAGE_CHUNK_ZSTD_BYTES (512u << 10)
#define IMAGE_PAGE_MIN_BYTES 4096u
#define IMAGE_PAGE_MAX_BYTES (64u << 10)

#define IMAGE_RECORD_HEAD_BYTES 32u
#define IMAGE_CHUNK_HEAD_BYTES 80u
#define IMAGE_MAP_MAX_BYTES 65535u
#define IMAGE_BLOCK_MAX_BYTES (1u << 20) /* SEGMENTS, INDEX, PAD */
#define IMAGE_SEGMENT_HEAD_BYTES 64u
#define IMAGE_INDEX_HEAD_BYTES 40u
#define IMAGE_ENTRY_BYTES 64u
#define IMAGE_INDEX_ENTRIES 1023u /* of a written INDEX record: just under 64 KiB */
#define IMAGE_ROOT_HEAD_BYTES 128u
#define IMAGE_ROOT_BLOCK_BYTES 40u

#define IMAGE_NAME_MAX_BYTES 4095u
#define IMAGE_COMPONENT_MAX_BYTES 255u

/* Most pages of one segment: beyond it byte offsets would not fit 63 bits. */
#define IMAGE_SEGMENT_MAX_BYTES ((uint64_t)1 << 62)

enum image_record_type {
	IMAGE_SEGMENTS = 1,
	IMAGE_CHUNK = 2,
	IMAGE_INDEX = 3,
	IMAGE_ROOT = 4,
	IMAGE_PAD = 5,
};

enum image_kind {
	IMAGE_KIND_FILE = 1,
	IMAGE_KIND_DIRECTORY = 2,
	IMAGE_KIND_SYMLINK = 3,
};

enum image_run_kind {
	IMAGE_RUN_DATA = 0,
	IMAGE_RUN_ZERO = 1,
	IMAGE_RUN_HOLE = 2,
	IMAGE_RUN_UNPRESERVED = 3,
	IMAGE_RUN_KINDS = 4,
};

struct image_header {
	uint32_t version;
	uint64_t incompatible, compatible;
	uint64_t id;
	int64_t created_ns;
	uint32_t chunk_bytes;
	int32_t level;
	uint64_t image_bytes; /* block devices; else 0 */
	char codec[17];
	uint64_t hash; /* taken with image_bytes as 0 */
};

/* Strings are owned by whoever owns the segment. */
struct image_segment {
	enum image_kind kind;
	uint64_t bytes;
	uint32_t page_bytes;
	uint32_t huge_page_bytes;
	uint32_t mode, uid, gid;
	int64_t mtime_ns;
	char *name, *origin, *link; /* origin and link: "" for none */
};

/* What INDEX says of one CHUNK. */
struct image_entry {
	uint64_t first_page, pages;
	uint64_t zero_pages, unpreserved_pages;
	uint64_t offset; /* of the record in the image */
	uint64_t hash;   /* the record's hash field */
	uint32_t record_bytes;
	uint32_t segment;
	uint32_t data_pages;
	uint32_t stored_bytes;
};

struct image_totals {
	uint64_t segments;
	uint64_t chunks;  /* with data */
	uint64_t records; /* of type CHUNK */
	uint64_t data_bytes, zero_bytes, hole_bytes, unpreserved_bytes;
	uint64_t stored_bytes;
	uint64_t digest; /* sum of the hash fields of all CHUNK records */
	uint64_t image_bytes;
};

struct image_footer {
	uint64_t root_offset, root_bytes, image_bytes, id;
	uint64_t root_hash_low, root_hash_high;
};

/* The first 32 bytes of a record. */
struct image_record {
	enum image_record_type type;
	uint64_t bytes;
	uint64_t id;
	uint64_t hash;
};

/* Most bytes of a CHUNK record in an image of this chunk size. */
static inline size_t image_chunk_record_max(uint32_t chunk_bytes)
{
	return num_round_up(IMAGE_CHUNK_HEAD_BYTES + IMAGE_MAP_MAX_BYTES + (size_t)chunk_bytes, 8);
}

static inline uint64_t image_segment_pages(const struct image_segment *segment)
{
	return num_pages(segment->bytes, segment->page_bytes);
}

#endif
