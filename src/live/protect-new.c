// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Preparing a snapshot by write protection: the state, the registration, the threads.  Protects
 * nothing.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "live/protect-priv.h"
#include "os/cpus.h"
#include "os/memory.h"
#include "os/vmcopy.h"

static int compare_regions(const void *a, const void *b, void *list)
{
	const struct live_region *regions = list;
	uintptr_t x = (uintptr_t)regions[*(const size_t *)a].at;
	uintptr_t y = (uintptr_t)regions[*(const size_t *)b].at;

	return x < y ? -1 : x > y;
}

/* Fills in `order`, and counts blocks and groups. */
static int check_regions(const struct live_region *regions, size_t n, size_t *order,
			 uint64_t *ret_blocks, uint64_t *ret_groups, struct err *e)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end = 0, blocks = 0, groups = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		const struct live_region *given = &regions[i];
		struct region r = {.at = given->at, .bytes = given->bytes};

		if (!r.bytes || (uintptr_t)r.at % page || r.bytes % page ||
		    num_add_overflows((uintptr_t)r.at, r.bytes, &end))
			return err_set(e, -EINVAL, "region %zu does not consist of whole pages",
				       i);
		blocks += protect_count(&r, BLOCK_SHIFT);
		groups += protect_count(&r, GROUP_SHIFT);
		order[i] = i;
	}
	qsort_r(order, n, sizeof(*order), compare_regions, (void *)(uintptr_t)regions);
	for (i = 1; i < n; i++) {
		const struct live_region *before = &regions[order[i - 1]];

		if (before->at + before->bytes > regions[order[i]].at)
			return err_set(e, -EINVAL, "region %zu and region %zu overlap",
				       order[i - 1], order[i]);
	}
	if (blocks >= UINT32_MAX)
		return err_set(e, -EOPNOTSUPP, "the regions are too large");
	*ret_blocks = blocks;
	*ret_groups = groups;
	return 0;
}

#define ROUND(bytes) num_round_up(bytes, 64)

/* The state in one mapping of its own; what it points to follows it. */
static struct live_protect *new_state(size_t n, uint64_t blocks, uint64_t groups)
{
	const size_t head = ROUND(sizeof(struct live_protect)),
		     regions = ROUND(n * sizeof(struct region)),
		     order = ROUND(n * sizeof(size_t)),
		     group = ROUND(groups * sizeof(uint32_t)),
		     block = ROUND(blocks * sizeof(struct block)),
		     busy = head + regions + order + group + block,
		     bytes = busy + side_state_bytes((uint32_t)blocks),
		     page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *at =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct live_protect *p = (struct live_protect *)(void *)at;

	if (at == MAP_FAILED)
		return NULL;
	/* The side memory's part is used only as far as there are faults. */
	os_memory_populate(at, num_round_up(busy, page));
	p->state_bytes = bytes;
	p->page_bytes = page;
	p->pid = getpid();
	p->uffd = -1;
	p->wake_fd = -1;
	p->n_regions = n;
	p->regions = (struct region *)(void *)(at += head);
	p->by_address = (size_t *)(void *)(at += regions);
	p->groups = (_Atomic uint32_t *)(void *)(at += order);
	p->blocks = (struct block *)(void *)(at += group);
	p->side_state = at + block;
	return p;
}

static int set_regions(struct live_protect *p, const struct live_region *regions,
		       const size_t *order, struct err *e)
{
	uint64_t blocks = 0, groups = 0;
	size_t i;

	for (i = 0; i < p->n_regions; i++) {
		struct region *r = &p->regions[i];

		*r = (struct region){.at = regions[i].at,
				     .bytes = regions[i].bytes,
				     .first_block = blocks,
				     .first_group = groups};
		blocks += protect_count(r, BLOCK_SHIFT);
		groups += protect_count(r, GROUP_SHIFT);
		/* The state was put where nothing was: into a gap of the region, then. */
		if (r->at < (uint8_t *)p + p->state_bytes && (uint8_t *)p < r->at + r->bytes)
			return err_set(e, -EFAULT, "region %zu: part of it is not mapped", i);
	}
	memcpy(p->by_address, order, p->n_regions * sizeof(*order));
	return 0;
}

static int open_uffd(struct live_protect *p, struct err *e)
{
	int fd = os_uffd_open_protect(&p->can);

	if (fd == -EPERM || fd == -EACCES)
		return err_set(e, -EPERM,
			       "userfaultfd is not permitted (CAP_SYS_PTRACE, "
			       "vm.unprivileged_userfaultfd, "
			       "/dev/userfaultfd)");
	if (fd == -ENOSYS || fd == -EOPNOTSUPP)
		return err_set(e, -EOPNOTSUPP,
			       "this kernel cannot write-protect by userfaultfd");
	if (fd < 0)
		return err_sys(e, fd, "cannot open a userfaultfd");
	p->uffd = fd;
	return 0;
}

/* Where the kernel cannot protect pages that are not there, they must be there: zero pages,
 * which take no memory. */
static void fill_holes(struct live_protect *p)
{
	size_t i;

	for (i = 0; i < p->n_pieces && !p->can.missing; i++) {
		if (!p->pieces[i].shared)
			os_memory_map_pages(p->pieces[i].at, p->pieces[i].bytes);
	}
}

static int register_all(struct live_protect *p, struct err *e)
{
	for (; p->n_registered < p->n_regions; p->n_registered++) {
		const struct region *r = &p->regions[p->n_registered];
		int rc = os_uffd_register_protect(p->uffd, r->at, r->bytes);

		if (rc == -EOPNOTSUPP)
			return err_set(
				e, rc,
				"region %zu: huge pages of hugetlbfs cannot be protected",
				p->n_registered);
		if (rc == -EBUSY)
			return err_set(e, -EOPNOTSUPP,
				       "region %zu: the program has a userfaultfd for it",
				       p->n_registered);
		if (rc == -EINVAL || rc == -EPERM)
			return err_set(e, -EOPNOTSUPP,
				       "region %zu: a mapping in it cannot be write-protected",
				       p->n_registered);
		if (rc < 0)
			return err_sys(e, rc, "region %zu: cannot register it with userfaultfd",
				       p->n_registered);
	}
	fill_holes(p);
	return 0;
}

static int start_threads(struct live_protect *p, struct err *e)
{
	size_t want = num_min(num_min(os_cpus_allowed(), p->n_chunks) - 1, PROTECT_HELPERS);
	int rc;

	p->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (p->wake_fd < 0)
		return err_sys(e, -errno, "cannot make an eventfd");
	rc = protect_start(&p->handler, protect_handler, p);
	if (rc < 0)
		return err_sys(e, rc, "cannot start a thread");
	p->has_handler = true;
	/* Fewer helpers than wanted take longer, and that is all. */
	while (p->n_helpers < want &&
	       protect_start(&p->helpers[p->n_helpers], protect_helper, p) == 0)
		p->n_helpers++;
	return 0;
}

/* Whether blocks can be read at all: the program may have a filter for system calls. */
static int try_read(const struct live_protect *p, struct err *e)
{
	uint8_t byte = 1, copy = 0;
	int rc = os_vm_copy(&copy, &byte, 1);

	if (rc == 0)
		return 0;
	return err_sys(e, rc == -ENOSYS ? -EOPNOTSUPP : rc, "process_vm_writev");
}

static int prepare(struct live_protect *p, struct err *e)
{
	uint64_t blocks = p->regions[p->n_regions - 1].first_block +
			  protect_count(&p->regions[p->n_regions - 1], BLOCK_SHIFT);
	int rc = open_uffd(p, e);

	if (rc == 0)
		rc = try_read(p, e);
	if (rc == 0)
		rc = protect_map_find(p, e);
	if (rc == 0 && (protect_map_split(p) < 0 ||
			side_init(&p->side, (uint32_t)blocks, p->side_state) < 0))
		rc = err_set(e, -ENOMEM, "out of memory");
	if (rc == 0)
		rc = register_all(p, e);
	return rc == 0 ? start_threads(p, e) : rc;
}

int live_protect_new(const struct live_region *regions, size_t n, struct live_protect **ret,
		     struct err *e)
{
	CLEANUP_FREE size_t *order = calloc(n ? n : 1, sizeof(*order));
	struct live_protect *p;
	uint64_t blocks = 0, groups = 0;
	int rc;

	if (!n)
		return err_set(e, -EINVAL, "no regions");
	if (!order)
		return err_set(e, -ENOMEM, "out of memory");
	rc = check_regions(regions, n, order, &blocks, &groups, e);
	if (rc < 0)
		return rc;
	p = new_state(n, blocks, groups);
	if (!p)
		return err_set(e, -ENOMEM, "out of memory");
	rc = set_regions(p, regions, order, e);
	if (rc == 0)
		rc = prepare(p, e);
	if (rc < 0) {
		live_protect_free(p);
		return rc;
	}
	*ret = p;
	return 0;
}
