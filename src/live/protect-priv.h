/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The parts of write protection.
 *
 * Memory is cut into blocks at multiples of their size, so that one lies in one huge page; the
 * first and the last of a region may be smaller.  A block is copied and unprotected as one.
 *
 *   UNTOUCHED --fault--> SAVED --read--> DONE      the copy in the side memory is what it was
 *       |  `----fault, page gone--> LOST           nothing to read any more
 *       `----------------read----------> DONE      it was taken from the memory itself
 *
 * All under the block's lock; who holds it stores to nothing that may be protected.  A block
 * that was read in part stays as it is until the rest was read.  One that is DONE by reading
 * alone is still protected, until all of its group (2 MiB) is DONE: then they are unprotected
 * as one, so that the reader does not split huge pages that nobody stored to.
 *
 * The handler must not store to protected memory, which malloc's may be: whatever it changes
 * lies in mappings of our own.
 */
#ifndef TORPOR_LIVE_PROTECT_PRIV_H
#define TORPOR_LIVE_PROTECT_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/wait.h"
#include "live/find.h"
#include "live/protect.h"
#include "os/uffd.h"

#define PAGE_BYTES ((size_t)4096)
/* Measured from 4 KiB to 2 MiB (docs/design/live.md); another one can be tried by -D. */
#ifndef BLOCK_SHIFT
#define BLOCK_SHIFT 16
#endif
#define BLOCK_BYTES ((size_t)1 << BLOCK_SHIFT)
#define GROUP_SHIFT 21
#define GROUP_BYTES ((size_t)1 << GROUP_SHIFT)

/* ---- side memory: where blocks are copied to (protect-side.c) ---- */

struct side {
	uint8_t *at;
	size_t bytes;
	uint32_t slots;
	struct wait_lock lock; /* for all below */
	uint32_t fresh;        /* slots that were never used begin here */
	uint32_t n_free;
	uint32_t *free;    /* a stack */
	uint16_t *used;    /* slots in use of each GROUP_BYTES */
	uint8_t *resident; /* whether these have pages */
	uint32_t n_resident;
};

/* Bytes of bookkeeping for so many slots; zeroed, the caller's. */
size_t side_state_bytes(uint32_t slots);
int side_init(struct side *s, uint32_t slots, void *state);
void side_end(struct side *s);

/* A slot for a block, and back. */
uint32_t side_take(struct side *s);
void side_put(struct side *s, uint32_t slot);

static inline uint8_t *side_slot(const struct side *s, uint32_t slot)
{
	return s->at + ((size_t)slot << BLOCK_SHIFT);
}

/* ---- what is protected (protect-map.c); nothing of it changes after live_protect_new() ----
 */

/* A mapping, or what of it lies in a region. */
struct piece {
	uint8_t *at;
	uint64_t bytes;
	size_t region;
	bool shared;
	bool owns_fd;
	int fd; /* shared memory is read through its file, since reading holes there does not
		   allocate them; -1: it could not be opened */
	uint64_t offset; /* in the file */
	struct live_file_id id;
};

struct region {
	uint8_t *at;
	uint64_t bytes;
	uint64_t first_block; /* in the arrays of all */
	uint64_t first_group;
};

/* One write-protect call: small enough to spread over threads, large enough that flushing TLBs
 * does not count. */
struct chunk {
	uint8_t *at;
	uint64_t bytes;
	size_t region;
};

struct live_protect;

/* Fills in the pieces, ascending; refuses what cannot be protected. */
int protect_map_find(struct live_protect *p, struct err *e);
void protect_map_free(struct live_protect *p);
int protect_map_split(struct live_protect *p);

/* The pages at `at`, from wherever they can be read without allocating or a signal.  -EFAULT
 * not there. */
int protect_map_read(const struct live_protect *p, const uint8_t *at, size_t bytes, void *dst);

/* ---- the state ---- */

enum block_state { UNTOUCHED, SAVED, LOST, DONE };

struct block {
	uint32_t slot;  /* while SAVED */
	uint16_t taken; /* pages that were read */
	uint8_t state;
};

enum phase { PREPARED, PROTECTED, FAILED };

/* What helpers wait for. */
enum go { WAIT, GO, NEVER };

#define PROTECT_LOCKS 256
#define PROTECT_HELPERS 7

/* In a mapping of its own, with all arrays that it points to but pieces and chunks. */
struct live_protect {
	size_t state_bytes;
	size_t page_bytes; /* of the system */
	pid_t pid;
	int uffd;
	int wake_fd; /* tells the handler to look at `stop` */
	struct os_uffd_can can;

	struct region *regions; /* as they were given */
	size_t *by_address;     /* indexes of regions, ascending */
	size_t n_regions;
	size_t n_registered; /* of these, in the order given */
	struct piece *pieces;
	size_t n_pieces;
	struct chunk *chunks;
	size_t n_chunks;

	struct block *blocks;
	_Atomic uint32_t *groups; /* blocks of each that are DONE */
	struct wait_lock locks[PROTECT_LOCKS];
	struct side side;
	void *side_state;

	_Atomic uint32_t phase;
	atomic_int failed; /* why the handler gave up, a negative errno */
	_Atomic uint64_t saved_pages;

	pthread_t handler;
	bool has_handler;
	atomic_bool stop;

	/* live_protect_now() and its helpers */
	pthread_t helpers[PROTECT_HELPERS];
	size_t n_helpers;
	_Atomic uint32_t go; /* enum go */
	_Atomic uint32_t next_chunk;
	_Atomic uint32_t chunks_done;
	atomic_int now_code;
	_Atomic uint32_t bad_chunk;
};

/* ---- blocks and the handler (protect-handler.c) ---- */

/* Where a block or a group of a region lies: its bytes, from *ret_at on. */
size_t protect_block_at(const struct region *r, uint64_t index, uint8_t **ret_at);
size_t protect_group_at(const struct region *r, uint64_t index, uint8_t **ret_at);

/* The lock of a block: neighbours have different ones. */
static inline struct wait_lock *protect_lock(struct live_protect *p, uint64_t block)
{
	return &p->locks[block % PROTECT_LOCKS];
}

/* Units of 2^shift bytes that a region has a part in. */
uint64_t protect_count(const struct region *r, unsigned int shift);

/*
 * Protects or unprotects a range that the kernel may take in parts only.  Protecting stops at
 * the first page that cannot be; unprotecting goes on, and wakes who waits.
 */
int protect_range(struct live_protect *p, uint8_t *at, uint64_t bytes, bool on);
void protect_undo(struct live_protect *p);

/* Starts a thread that takes no signals: a handler of the program's would store to protected
 * memory. */
int protect_start(pthread_t *ret, void *(*run)(void *), struct live_protect *p);
void *protect_handler(void *p);

/* Waits for live_protect_now(), and protects part of it (protect.c). */
void *protect_helper(void *p);

#endif
