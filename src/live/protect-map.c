// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The mappings that regions consist of: which can be protected, whether somebody could write
 * past the protection, and how their pages are read.  Changes nothing.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/num.h"
#include "live/protect-priv.h"
#include "os/memory.h"
#include "os/proc.h"
#include "os/vmcopy.h"

/* 2 GiB in huge pages take 0.13 ms in one call and twice that in calls of 16 MiB. */
#define CHUNK_BYTES MIB(256)

static int refuse(struct err *e, int code, size_t region, const struct os_proc_map *m,
		  const char *why)
{
	return err_set(e, code, "region %zu: the mapping at 0x%llx (%s) %s", region,
		       (unsigned long long)m->start, *m->name ? m->name : "anonymous memory",
		       why);
}

static int check_kind(const struct live_protect *p, size_t region, const struct os_proc_map *m,
		      struct err *e)
{
	if (!m->shared && m->ino)
		return refuse(e, -EOPNOTSUPP, region, m,
			      "is a private one of a file, which cannot be protected");
	if (m->shared && !p->can.shmem)
		return refuse(e, -EOPNOTSUPP, region, m,
			      "is shared, which this kernel cannot protect");
	if (!m->read)
		return refuse(e, -EOPNOTSUPP, region, m, "cannot be read");
	return 0;
}

/* Its own description, and what stat(2) says of it; without the capability the maps have to do.
 */
static void open_shared(struct piece *piece, const struct piece *before,
			const struct os_proc_map *m)
{
	char link[OS_PROC_PATH_BYTES];
	struct stat st;

	piece->id = (struct live_file_id){.dev = m->dev, .ino = m->ino};
	if (before && before->shared && before->fd >= 0 && fstat(before->fd, &st) == 0 &&
	    st.st_ino == m->ino && st.st_dev == m->dev) {
		piece->fd = before->fd;
		return;
	}
	os_proc_map_link(gettid(), m->start, m->end, link);
	piece->fd = open(link, O_RDONLY | O_CLOEXEC);
	piece->owns_fd = piece->fd >= 0;
	if (piece->fd >= 0 && fstat(piece->fd, &st) == 0)
		piece->id = (struct live_file_id){.dev = st.st_dev, .ino = st.st_ino};
}

static int add_piece(struct live_protect *p, size_t region, const struct os_proc_map *m,
		     struct err *e)
{
	struct piece *list, *piece;
	uint64_t start = num_max((uintptr_t)p->regions[region].at, m->start);
	uint64_t end =
		num_min((uintptr_t)p->regions[region].at + p->regions[region].bytes, m->end);
	int rc = check_kind(p, region, m, e);

	if (rc < 0)
		return rc;
	list = realloc(p->pieces, (p->n_pieces + 1) * sizeof(*list));
	if (!list)
		return err_set(e, -ENOMEM, "out of memory");
	p->pieces = list;
	piece = &list[p->n_pieces];
	*piece = (struct piece){
		.at = (uint8_t *)(uintptr_t)start,
		.bytes = end - start,
		.region = region,
		.shared = m->shared,
		.fd = -1,
		.offset = m->offset + (start - m->start),
	};
	if (m->shared)
		open_shared(piece, p->n_pieces ? piece - 1 : NULL, m);
	p->n_pieces++;
	return 0;
}

/* All maps once, beside the regions in ascending order. */
static int find_pieces(struct live_protect *p, struct os_proc_maps *maps, struct err *e)
{
	struct os_proc_map m;
	size_t k = 0;
	uint64_t need = (uintptr_t)p->regions[p->by_address[0]].at, end;
	int rc;

	while (k < p->n_regions && (rc = os_proc_maps_next(maps, &m)) != 0) {
		if (rc < 0)
			return err_sys(e, rc, "cannot read /proc/self/maps");
		while (k < p->n_regions && need < m.end) {
			const struct region *r = &p->regions[p->by_address[k]];

			if (need < m.start)
				break;
			rc = add_piece(p, p->by_address[k], &m, e);
			if (rc < 0)
				return rc;
			end = (uintptr_t)r->at + r->bytes;
			need = m.end;
			if (end > m.end)
				break;
			if (++k < p->n_regions)
				need = (uintptr_t)p->regions[p->by_address[k]].at;
		}
		if (k < p->n_regions && need < m.start)
			break;
	}
	if (k < p->n_regions)
		return err_set(e, -EFAULT, "region %zu: nothing is mapped at 0x%llx",
			       p->by_address[k], (unsigned long long)need);
	return 0;
}

/* A writable mapping of the same part of the file at another address. */
static bool is_alias(const struct piece *piece, const struct os_proc_map *m)
{
	uint64_t start = num_max(piece->offset, m->offset);
	uint64_t end = num_min(piece->offset + piece->bytes, m->offset + (m->end - m->start));

	if (!m->shared || !m->write || m->ino != piece->id.ino || start >= end)
		return false;
	return m->start + (start - m->offset) != (uintptr_t)piece->at + (start - piece->offset);
}

static int check_aliases(const struct live_protect *p, struct os_proc_maps *maps, struct err *e)
{
	struct os_proc_map m;
	size_t i;
	int rc;

	while ((rc = os_proc_maps_next(maps, &m)) > 0) {
		for (i = 0; m.shared && i < p->n_pieces; i++) {
			if (p->pieces[i].shared && is_alias(&p->pieces[i], &m))
				return refuse(
					e, -EBUSY, p->pieces[i].region, &m,
					"is a second one of the same memory, and can write it");
		}
	}
	return rc < 0 ? err_sys(e, rc, "cannot read /proc/self/maps") : 0;
}

/* Processes that may not be looked at cannot be known to write; most are somebody else's, and
 * have no part in this. */
static int check_writers(const struct live_protect *p, struct err *e)
{
	CLEANUP_FREE struct live_file_id *files = calloc(p->n_pieces, sizeof(*files));
	CLEANUP_FREE size_t *regions = calloc(p->n_pieces, sizeof(*regions));
	struct live_writers found = {0};
	size_t n = 0, hidden, i;
	int rc = 0;

	if (!files || !regions)
		return err_set(e, -ENOMEM, "out of memory");
	for (i = 0; i < p->n_pieces; i++) {
		const struct piece *piece = &p->pieces[i];

		if (!piece->shared ||
		    (n && !memcmp(&files[n - 1], &piece->id, sizeof(piece->id))))
			continue;
		regions[n] = piece->region;
		files[n++] = piece->id;
	}
	if (!n)
		return 0;
	rc = live_find_writers(files, n, NULL, 0, &found, &hidden, e);
	if (rc == 0 && found.count) {
		const struct live_writer *w = &found.list[0];

		rc = err_set(e, -EBUSY,
			     "region %zu: its memory could be written by process %d (%s)",
			     regions[w->file], w->pid, w->comm);
	}
	live_writers_free(&found);
	return rc;
}

int protect_map_find(struct live_protect *p, struct err *e)
{
	struct os_proc_maps *maps;
	int rc, pass;

	for (pass = 0; pass < 2; pass++) {
		rc = os_proc_maps_open(gettid(), &maps);
		if (rc < 0)
			return err_sys(e, rc, "cannot read /proc/self/maps");
		rc = pass == 0 ? find_pieces(p, maps, e) : check_aliases(p, maps, e);
		os_proc_maps_close(maps);
		if (rc < 0)
			return rc;
	}
	return check_writers(p, e);
}

int protect_map_split(struct live_protect *p)
{
	uint64_t n = 0, at;
	size_t i;

	for (i = 0; i < p->n_pieces; i++)
		n += num_pages(p->pieces[i].bytes, CHUNK_BYTES);
	p->chunks = calloc(n, sizeof(*p->chunks));
	if (!p->chunks)
		return -ENOMEM;
	for (i = 0; i < p->n_pieces; i++) {
		const struct piece *piece = &p->pieces[i];

		for (at = 0; at < piece->bytes; at += CHUNK_BYTES)
			p->chunks[p->n_chunks++] = (struct chunk){
				.at = piece->at + at,
				.bytes = num_min(CHUNK_BYTES, piece->bytes - at),
				.region = piece->region,
			};
	}
	return 0;
}

void protect_map_free(struct live_protect *p)
{
	size_t i;

	for (i = 0; i < p->n_pieces; i++) {
		if (p->pieces[i].owns_fd)
			close(p->pieces[i].fd);
	}
	free(p->pieces);
	free(p->chunks);
}

/* The last piece that begins at or before the address; all of a region is in pieces. */
static const struct piece *piece_of(const struct live_protect *p, const uint8_t *at)
{
	size_t low = 0, high = p->n_pieces;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (p->pieces[middle].at <= at)
			low = middle;
		else
			high = middle;
	}
	return &p->pieces[low];
}

int protect_map_read(const struct live_protect *p, const uint8_t *at, size_t bytes, void *dst)
{
	const struct piece *piece = piece_of(p, at);
	uint8_t *to = dst;
	int rc = 0;

	for (; bytes && rc == 0; piece++) {
		uint64_t skip = (uint64_t)(at - piece->at);
		size_t n = num_min(bytes, piece->bytes - skip), got = n;

		if (piece->fd >= 0)
			rc = io_pread(piece->fd, to, n, piece->offset + skip, &got);
		else
			rc = os_vm_copy(to, at, n);
		if (rc == 0 && got < n)
			rc = -EFAULT;
		at += n;
		to += n;
		bytes -= n;
	}
	return rc;
}
