// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Fuzz target for preservation tables from anywhere.  An input is a byte of flags, then records
 * of ten bytes:
 *
 *   byte 0     0 to 7: an operation; else a word of the area is overwritten
 *   bytes 1-9  operation: start (3 bytes, little-endian), pages (2), order, flags
 *              word: its page in the area, its place in it (2 bytes), bits to flip (4 bytes
 * low, then 2 bytes high)
 *
 * They are applied to a fresh table.  Flag 1 closes it first (populations are written); flag 2
 * makes the header's checksum right again; flag 4 runs the words before the operations are
 * over. What holds for any input: nothing touches memory outside the area; a table that the
 * validator lets pass works as a sound one does, and stays sound.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/num.h"
#include "fuzz.h"
#include "keep/table.h"

#define PAGES 100000
#define AREA_BYTES (UINT64_C(24) * 4096)
#define RECORD_BYTES 10
#define RECORDS_MAX 400

enum { CLOSE = 1, RESEAL = 2, MIX = 4 };

static char *area_addr;

static void require(bool holds)
{
	if (!holds)
		abort();
}

/* Memory that cannot be touched on both sides. */
static struct keep_area area_new(void)
{
	if (!area_addr) {
		area_addr = mmap(NULL, AREA_BYTES + 2 * 4096, PROT_NONE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		require(area_addr != MAP_FAILED);
		area_addr += 4096;
		require(!mprotect(area_addr, AREA_BYTES, PROT_READ | PROT_WRITE));
	}
	memset(area_addr, 0, AREA_BYTES);
	return (struct keep_area){.addr = area_addr, .bytes = AREA_BYTES};
}

static void operate(struct keep_hand *hand, const uint8_t *record)
{
	uint64_t start = record[1] | (uint64_t)record[2] << 8 | (uint64_t)record[3] << 16;
	uint64_t pages = num_get16(record + 4) * (record[0] & 4 ? 5u : 1u);
	unsigned int order = record[6], flags = record[7] & (KEEP_LARGEST | KEEP_SPLIT);
	struct keep_run run;

	switch (record[0] & 7) {
	case 0:
	case 1:
		keep_preserve(hand, start, order);
		break;
	case 2:
		keep_unpreserve(hand, start, order, flags);
		break;
	case 3:
	case 4:
		keep_preserve_range(hand, start, pages, flags);
		break;
	case 5:
		keep_unpreserve_range(hand, start, pages, flags);
		break;
	case 6:
		keep_next_run(hand, start, &run);
		keep_find(hand, start);
		break;
	default:
		keep_hand_rest(hand);
	}
}

static void overwrite(const uint8_t *record)
{
	uint64_t at = record[1] % 24u * UINT64_C(512) + num_get16(record + 2) % 512u;

	((uint64_t *)area_addr)[at] ^= num_get32(record + 4) | (uint64_t)num_get16(record + 8)
								       << 32;
}

static void apply(struct keep_hand *hand, const uint8_t *data, size_t bytes, bool words,
		  bool ops)
{
	for (int i = 0; bytes >= RECORD_BYTES && i < RECORDS_MAX; i++) {
		if (data[0] < 8 && ops && hand)
			operate(hand, data);
		else if (data[0] >= 8 && words)
			overwrite(data);
		data += RECORD_BYTES;
		bytes -= RECORD_BYTES;
	}
}

static void reseal(void)
{
	struct keep_header *h = (struct keep_header *)area_addr;
	uint64_t sum = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < offsetof(struct keep_header, sum); i++)
		sum = (sum ^ (uint8_t)area_addr[i]) * UINT64_C(0x100000001b3);
	h->sum = sum;
}

static int add(void *ctx, uint64_t start, uint64_t pages)
{
	uint64_t *sum = ctx;

	sum[0] += pages;
	/* In order, apart, and no more of them than one wants to see. */
	require(start >= sum[1] && pages);
	sum[1] = start + pages + 1;
	return ++sum[2] > 1000000;
}

/* Nothing is wrong with this table, so it works, and nothing will be. */
static void use_sound(struct keep *k, const uint8_t *data, size_t bytes, bool strict)
{
	struct keep_geometry g = keep_geometry(k);
	uint64_t sum[3] = {0}, count;
	struct keep_report report;
	struct keep_hand *hand;
	struct keep_run run;

	require(keep_hand_new(k, &hand) == 0);
	if (g.pages <= 10 * PAGES) {
		require(keep_walk(hand, 0, g.pages, add, sum) == 0);
		require(keep_count(hand, 0, g.pages, &count) == 0 && count == sum[0]);
		require(keep_next_run(hand, 0, &run) == (count ? 0 : -ENOENT));
		require(!count || keep_find(hand, run.start) >= 0);
		apply(hand, data, bytes, false, true);
	}
	keep_hand_free(hand);
	require(keep_validate(k, strict ? 0 : KEEP_CRASHED, &report, NULL) == 0);
}

/* The whole way of the next owner: look, then own. */
static void meet(const struct keep_area *area, const uint8_t *data, size_t bytes)
{
	struct keep_report report;
	struct keep_found found;
	struct keep_hand *hand;
	struct keep *k;
	bool sound;

	if (keep_attach(area, KEEP_READ_ONLY, &k, NULL, NULL))
		return;
	sound = !keep_validate(k, 0, &report, NULL);
	keep_close(k);
	if (keep_attach(area, 0, &k, &found, NULL))
		return;
	if (sound || found.crashed)
		use_sound(k, data, bytes, sound);
	else if (keep_geometry(k).pages <= 10 * PAGES && !keep_hand_new(k, &hand))
		apply(hand, data, bytes, false, true);
	keep_close(k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct keep_geometry g = {.pages = PAGES, .page_bytes = 4096, .order_max = 18};
	struct keep_area area = area_new();
	struct keep_hand *hand;
	struct keep *k;
	uint8_t flags;

	if (!bytes)
		return 0;
	flags = *data++;
	bytes--;
	require(keep_create(&area, &g, &k, NULL) == 0);
	require(keep_hand_new(k, &hand) == 0);
	apply(hand, data, bytes, flags & MIX, true);
	if (flags & CLOSE)
		keep_close(k);
	else
		keep_abandon(k);
	apply(NULL, data, bytes, !(flags & MIX), false);
	if (flags & RESEAL)
		reseal();
	meet(&area, data, bytes);
	return 0;
}
