// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Writing pages of a target by the fastest way; see target.h and docs/design/load.md for what was
 * measured.  A way that is refused is given up for the file, and its pages are written with pwrite(2).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/io.h"
#include "base/num.h"
#include "memory/target-priv.h"
#include "os/uffd.h"

#define UNMAP_BYTES MIB(16)

/* Below this a mapping costs more than it saves. */
#define MAP_MIN_BYTES KIB(512)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Maps the file at an address aligned to huge pages. */
static unsigned char *map_file(struct memory_target_file *file, int flags)
{
	size_t huge = file->huge_bytes, bytes = num_round_up(file->item->bytes, huge), extra = bytes + huge;
	unsigned char *addr = mmap(NULL, extra, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned char *at;

	if (addr == MAP_FAILED)
		return NULL;
	at = (unsigned char *)num_round_up((uintptr_t)addr, huge);
	if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | flags, file->fd, 0) == MAP_FAILED) {
		munmap(addr, extra);
		return NULL;
	}
	if (at > addr)
		munmap(addr, (size_t)(at - addr));
	if (at + bytes < addr + extra)
		munmap(at + bytes, (size_t)(addr + extra - at - bytes));
	file->map_bytes = bytes;
	return at;
}

static bool map_small(struct memory_target *t, struct memory_target_file *file)
{
	file->small = map_file(file, 0);
	if (!file->small)
		return false;
	if (t->uffd >= 0 && os_uffd_register(t->uffd, file->small, file->map_bytes) == 0)
		file->uffd = t->uffd;
	return true;
}

static bool map_huge(struct memory_target_file *file, int flags)
{
	file->huge = map_file(file, flags);
	if (file->huge)
		file->populated = calloc(file->map_bytes / file->huge_bytes / 64 + 1, sizeof(*file->populated));
	return file->populated;
}

/*
 * Two mappings: huge pages are had where most of one will be data, so that holes stay holes; elsewhere, and where that is not known
 * beforehand, pages are small.  Not by pwrite(2), which takes huge pages on some of these mounts.
 */
static void start_huge(struct memory_target *t, struct memory_target_file *file)
{
	file->dense = t->dense ? t->dense[file->number] : NULL;
	if (!map_small(t, file))
		return;
	if (t->dense && !file->dense && file->uffd >= 0) {
		atomic_store(&file->fill, FILL_UFFD);
		return;
	}
	madvise(file->small, file->map_bytes, MADV_NOHUGEPAGE);
	if (!map_huge(file, 0)) {
		atomic_store(&file->fill, file->uffd >= 0 ? FILL_UFFD : FILL_WRITE);
		return;
	}
	madvise(file->huge, file->map_bytes, MADV_HUGEPAGE);
	if (!t->dense)
		file->filled = calloc(file->map_bytes / file->huge_bytes, sizeof(*file->filled));
	atomic_store(&file->fill, FILL_HUGE);
}

void fill_start(struct memory_target *t, struct memory_target_file *file)
{
	const struct os_filesystem *fs = &t->roots[t->root_of[file->number]].fs;
	uint64_t bytes = file->item->bytes;

	atomic_init(&file->fill, FILL_WRITE);
	file->uffd = -1;
	file->huge_bytes = fs->huge_page_bytes ? fs->huge_page_bytes : FILL_HUGE_BYTES;
	if (bytes > FILL_MAP_MAX_BYTES || !bytes)
		return;
	if (fs->huge_page_bytes) {
		/* Without a reservation: of a file that is mostly holes it would be far too much. */
		if (map_huge(file, MAP_NORESERVE))
			atomic_store(&file->fill, FILL_HUGETLB);
	} else if (fs->tmpfs && bytes >= MAP_MIN_BYTES && fs->huge) {
		start_huge(t, file);
	} else if (fs->tmpfs && bytes >= MAP_MIN_BYTES && t->uffd >= 0) {
		if (map_small(t, file) && file->uffd >= 0)
			atomic_store(&file->fill, FILL_UFFD);
	}
}

void fill_stop(struct memory_target_file *file)
{
	if (file->small)
		munmap(file->small, file->map_bytes);
	if (file->huge)
		munmap(file->huge, file->map_bytes);
	free(file->populated);
	free(file->filled);
}

/*
 * Filled pages need no page-table entries any more.  Taking them away in steps, by whichever worker has
 * come far enough, spares the last one a long munmap(2); each step interrupts the other CPUs, so
 * it is a large one.  Pages are filled in about their order; what comes late is left to munmap(2).
 */
static void unmap_filled(struct memory_target_file *file, uint64_t offset)
{
	uint64_t from = atomic_load(&file->unmapped), bytes;

	if (offset < from + 2 * UNMAP_BYTES ||
	    !atomic_compare_exchange_strong(&file->unmapped, &from, offset - UNMAP_BYTES))
		return;
	bytes = offset - UNMAP_BYTES - from;
	if (file->small)
		madvise(file->small + from, bytes, MADV_DONTNEED);
	/* Whoever still writes there finds the pages again: they are the file's. */
	if (file->huge && file->fill != FILL_HUGETLB)
		madvise(file->huge + from, bytes, MADV_DONTNEED);
}

static bool populate_one(struct memory_target_file *file, uint64_t number)
{
	uint64_t start = number * file->huge_bytes;
	uint64_t bytes = num_min(file->huge_bytes, num_round_up(file->item->bytes, file->item->page_bytes) - start);

	int rc;

	if (file->fill == FILL_HUGETLB) {
		do
			rc = fallocate(file->fd, 0, (off_t)start, (off_t)file->huge_bytes);
		while (rc < 0 && errno == EINTR);
		return rc == 0;
	}
	return madvise(file->huge + start, bytes, MADV_POPULATE_WRITE) == 0;
}

/*
 * Has every huge page of a range there before it is written, so that a full file system is an
 * error from this call and not a signal later.
 */
static bool populate(struct memory_target_file *file, uint64_t offset, uint64_t bytes)
{
	uint64_t last = (offset + bytes - 1) / file->huge_bytes, i;

	for (i = offset / file->huge_bytes; i <= last; i++) {
		uint64_t bit = (uint64_t)1 << (i % 64);

		if (atomic_load(&file->populated[i / 64]) & bit)
			continue;
		if (!populate_one(file, i))
			return false;
		atomic_fetch_or(&file->populated[i / 64], bit);
	}
	return true;
}

/* All of the range in huge pages that are worth it? */
static bool is_dense(const struct memory_target_file *file, uint64_t offset, uint64_t bytes)
{
	uint64_t last = (offset + bytes - 1) / file->huge_bytes, i;
	bool dense = file->dense;

	for (i = offset / file->huge_bytes; i <= last && dense; i++)
		dense = file->dense[i / 64] >> (i % 64) & 1;
	return dense;
}

void *memory_target_place(struct memory_target_file *file, uint64_t first_page, uint64_t pages)
{
	uint64_t offset = first_page * file->item->page_bytes, bytes = pages * file->item->page_bytes;
	enum fill fill = atomic_load(&file->fill);

	if (fill != FILL_HUGETLB && (fill != FILL_HUGE || !is_dense(file, offset, bytes)))
		return NULL;
	if (!populate(file, offset, bytes)) {
		/* What is written says what is wrong. */
		atomic_store(&file->fill, fill == FILL_HUGE ? FILL_WRITE : fill);
		return NULL;
	}
	unmap_filled(file, offset);
	return file->huge + offset;
}

/* When all of a huge page was filled, small page by small page, it can be one. */
static void collapse_filled(struct memory_target_file *file, uint64_t offset, uint64_t bytes)
{
	uint64_t i = offset / FILL_HUGE_BYTES, pages = bytes / MEMORY_PAGE_BYTES;

	if (!file->filled || atomic_fetch_add(&file->filled[i], (uint16_t)pages) + pages < FILL_HUGE_BYTES / MEMORY_PAGE_BYTES)
		return;
	madvise(file->huge + i * FILL_HUGE_BYTES, FILL_HUGE_BYTES, MADV_COLLAPSE);
}

static bool write_small(struct memory_target_file *file, uint64_t offset, uint64_t bytes, const void *data)
{
	if (file->uffd >= 0) {
		if (os_uffd_copy(file->uffd, file->small + offset, data, bytes) < 0)
			return false;
	} else {
		if (madvise(file->small + offset, bytes, MADV_POPULATE_WRITE) < 0)
			return false;
		memcpy(file->small + offset, data, bytes);
	}
	unmap_filled(file, offset);
	return true;
}

/* Each huge page in its own way. */
static bool write_huge(struct memory_target_file *file, uint64_t offset, uint64_t bytes, const uint8_t *data)
{
	uint64_t n;

	for (; bytes; bytes -= n, offset += n, data += n) {
		n = num_min(bytes, FILL_HUGE_BYTES - offset % FILL_HUGE_BYTES);
		if (is_dense(file, offset, n)) {
			if (!populate(file, offset, n))
				return false;
			memcpy(file->huge + offset, data, n);
			unmap_filled(file, offset);
		} else {
			if (!write_small(file, offset, n, data))
				return false;
			collapse_filled(file, offset, n);
		}
	}
	return true;
}

static int write_hugetlb(struct memory_target_file *file, uint64_t offset, uint64_t bytes, const void *data, struct err *e)
{
	if (!populate(file, offset, bytes))
		return err_sys(e, -errno, "cannot have huge pages for %s at offset %" PRIu64, file->item->name, offset);
	memcpy(file->huge + offset, data, bytes);
	return 0;
}

int memory_target_write(struct memory_target_file *file, uint64_t first_page, uint64_t pages,
			const void *data, struct err *e)
{
	const struct memory_item *item = file->item;
	uint64_t offset = first_page * item->page_bytes, bytes = pages * item->page_bytes;
	enum fill fill = atomic_load(&file->fill);
	int rc;

	if (fill == FILL_HUGETLB)
		return write_hugetlb(file, offset, bytes, data, e);
	if ((fill == FILL_HUGE && write_huge(file, offset, bytes, data)) ||
	    (fill == FILL_UFFD && write_small(file, offset, bytes, data)))
		return 0;
	if (fill != FILL_WRITE)
		atomic_store(&file->fill, FILL_WRITE);
	rc = io_pwrite(file->fd, data, num_min(bytes, item->bytes - offset), offset);
	if (rc < 0)
		return err_sys(e, rc, "cannot write %s at offset %" PRIu64, item->name, offset);
	return 0;
}
