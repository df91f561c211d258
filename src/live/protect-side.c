// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Side memory: where blocks are copied to before they change.  Address space for all of them,
 * pages only for those that are in use.  Slots that were read are used again, the last one
 * first; what becomes unused goes back to the kernel in huge pages, but for a few, which spare
 * the handler page faults.
 */
#include "base/num.h"
#include "live/protect-priv.h"
#include "os/memory.h"

#define GROUP_SLOTS ((uint32_t)1 << (GROUP_SHIFT - BLOCK_SHIFT))

/* Groups that keep their pages. */
#define KEEP 8

static uint32_t group_count(uint32_t slots)
{
	return (uint32_t)num_pages(slots, GROUP_SLOTS);
}

size_t side_state_bytes(uint32_t slots)
{
	return slots * sizeof(uint32_t) +
	       group_count(slots) * (sizeof(uint16_t) + sizeof(uint8_t));
}

int side_init(struct side *s, uint32_t slots, void *state)
{
	uint32_t groups = group_count(slots), i;

	s->slots = slots;
	s->bytes = (size_t)slots << BLOCK_SHIFT;
	s->free = state;
	s->used = (uint16_t *)(s->free + slots);
	s->resident = (uint8_t *)(s->used + groups);
	s->at = os_memory_reserve(s->bytes);
	if (!s->at)
		return -ENOMEM;
	for (i = 0; i < groups && i < KEEP; i++) {
		/* Only the last one is less than a whole group, and all of its pages are
		 * reserved. */
		if (os_memory_populate(s->at + i * GROUP_BYTES, GROUP_BYTES) < 0)
			break;
		s->resident[i] = 1;
		s->n_resident++;
	}
	return 0;
}

void side_end(struct side *s)
{
	os_memory_unreserve(s->at, s->bytes);
	s->at = NULL;
}

uint32_t side_take(struct side *s)
{
	uint32_t slot, group;

	wait_lock_acquire(&s->lock);
	/* There are as many slots as blocks, so there is one left. */
	slot = s->n_free ? s->free[--s->n_free] : s->fresh++;
	group = slot / GROUP_SLOTS;
	s->used[group]++;
	if (!s->resident[group]) {
		s->resident[group] = 1;
		s->n_resident++;
	}
	wait_lock_release(&s->lock);
	return slot;
}

void side_put(struct side *s, uint32_t slot)
{
	uint32_t group = slot / GROUP_SLOTS;

	wait_lock_acquire(&s->lock);
	s->free[s->n_free++] = slot;
	if (--s->used[group] == 0 && s->n_resident > KEEP) {
		os_memory_discard(s->at + group * GROUP_BYTES, GROUP_BYTES);
		s->resident[group] = 0;
		s->n_resident--;
	}
	wait_lock_release(&s->lock);
}
