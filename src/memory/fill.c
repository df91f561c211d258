// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Writing pages of a target by the fastest way; see target.h and docs/design/load.md for what was
 * measured.  A way that is refused is given up for the file, and its pages are written with pwrite(2).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/io.h"
#include "base/num.h"
#include "memory/target-priv.h"
#include "os/uffd.h"

#define HUGE_BYTES MIB(2)
#define UNMAP_BYTES MIB(16)

/* Below this a mapping costs more than it saves. */
#define MAP_MIN_BYTES KIB(512)

static size_t mapped_bytes(const struct memory_item *item)
{
	return num_round_up(item->bytes, HUGE_BYTES);
}

/* Maps the file at an address aligned to huge pages. */
static bool map_file(struct memory_target_file *file)
{
	size_t bytes = mapped_bytes(file->item), extra = bytes + HUGE_BYTES;
	unsigned char *addr = mmap(NULL, extra, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned char *at;

	if (addr == MAP_FAILED)
		return false;
	at = (unsigned char *)num_round_up((uintptr_t)addr, HUGE_BYTES);
	if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file->fd, 0) == MAP_FAILED) {
		munmap(addr, extra);
		return false;
	}
	if (at > addr)
		munmap(addr, (size_t)(at - addr));
	if (at + bytes < addr + extra)
		munmap(at + bytes, (size_t)(addr + extra - at - bytes));
	file->map = at;
	file->map_bytes = bytes;
	return true;
}

void fill_start(struct memory_target *t, struct memory_target_file *file)
{
	const struct os_filesystem *fs = &t->roots[t->root_of[file->number]].fs;

	atomic_init(&file->fill, FILL_WRITE);
	file->uffd = t->uffd;
	if (!fs->tmpfs || file->item->bytes < MAP_MIN_BYTES || file->item->bytes > SIZE_MAX / 4 ||
	    (!fs->huge && t->uffd < 0) || !map_file(file))
		return;
	if (fs->huge) {
		madvise(file->map, file->map_bytes, MADV_HUGEPAGE);
		file->populated = calloc(file->map_bytes / HUGE_BYTES / 64 + 1, sizeof(*file->populated));
		if (file->populated)
			atomic_store(&file->fill, FILL_HUGE);
	} else if (os_uffd_register(file->uffd, file->map, file->map_bytes) == 0) {
		atomic_store(&file->fill, FILL_UFFD);
	}
}

void fill_stop(struct memory_target_file *file)
{
	if (file->map)
		munmap(file->map, file->map_bytes);
	free(file->populated);
}

/*
 * Has every huge page of a range there before it is written, so that a full file system is an
 * error from this call and not a signal later.
 */
static bool populate(struct memory_target_file *file, uint64_t offset, uint64_t bytes)
{
	uint64_t last = (offset + bytes - 1) / HUGE_BYTES, i;

	for (i = offset / HUGE_BYTES; i <= last; i++) {
		uint64_t bit = (uint64_t)1 << (i % 64), start = i * HUGE_BYTES;
		uint64_t end = num_round_up(num_min(file->item->bytes, start + HUGE_BYTES),
					    file->item->page_bytes);

		if (atomic_load(&file->populated[i / 64]) & bit)
			continue;
		if (madvise(file->map + start, end - start, MADV_POPULATE_WRITE) < 0)
			return false;
		atomic_fetch_or(&file->populated[i / 64], bit);
	}
	return true;
}

void *memory_target_place(struct memory_target_file *file, uint64_t first_page, uint64_t pages)
{
	uint64_t offset = first_page * file->item->page_bytes;

	if (atomic_load(&file->fill) != FILL_HUGE)
		return NULL;
	if (populate(file, offset, pages * file->item->page_bytes))
		return file->map + offset;
	atomic_store(&file->fill, FILL_WRITE);
	return NULL;
}

/*
 * Filled pages need no page-table entries any more.  Taking them away in steps, by whichever worker has
 * come far enough, spares the last one a long munmap(2); each step interrupts the other CPUs, so
 * it is a large one.  Pages are filled in about their order; what comes late is left to munmap(2).
 */
static void unmap_filled(struct memory_target_file *file, uint64_t offset)
{
	uint64_t from = atomic_load(&file->unmapped);

	if (offset < from + 2 * UNMAP_BYTES ||
	    !atomic_compare_exchange_strong(&file->unmapped, &from, offset - UNMAP_BYTES))
		return;
	madvise(file->map + from, offset - UNMAP_BYTES - from, MADV_DONTNEED);
}

static bool write_uffd(struct memory_target_file *file, uint64_t offset, uint64_t bytes, const void *data)
{
	if (os_uffd_copy(file->uffd, file->map + offset, data, bytes) < 0)
		return false;
	unmap_filled(file, offset);
	return true;
}

int memory_target_write(struct memory_target_file *file, uint64_t first_page, uint64_t pages,
			const void *data, struct err *e)
{
	const struct memory_item *item = file->item;
	uint64_t offset = first_page * item->page_bytes, bytes = pages * item->page_bytes;
	enum fill fill = atomic_load(&file->fill);
	void *place;
	int rc;

	if (fill == FILL_HUGE && (place = memory_target_place(file, first_page, pages))) {
		memcpy(place, data, bytes);
		return 0;
	}
	if (fill == FILL_UFFD) {
		if (write_uffd(file, offset, bytes, data))
			return 0;
		atomic_store(&file->fill, FILL_WRITE);
	}
	rc = io_pwrite(file->fd, data, num_min(bytes, item->bytes - offset), offset);
	if (rc < 0)
		return err_sys(e, rc, "cannot write %s at offset %" PRIu64, item->name, offset);
	return 0;
}
