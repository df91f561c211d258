/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reading a mapping of a file that somebody may truncate, or whose pages cannot be had: instead
 * of SIGBUS there are zero pages, and a list of where.  A handler maps anonymous memory over
 * what faulted and the load is done again.
 *
 * What a signal does is a property of the process, so one guard can be held at a time; a fault
 * elsewhere goes to the handler that was there before.
 */
#ifndef TORPOR_OS_BUSGUARD_H
#define TORPOR_OS_BUSGUARD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Ranges that are kept at most: neighbouring pages of one mapping each. */
#define OS_BUSGUARD_RANGES 1024u

/* A mapping to be guarded.  Borrowed for as long as the guard is held. */
struct os_guarded {
	uint8_t *at;
	size_t bytes; /* whole pages */
	int fd;       /* the file: what lies behind its end faults as one; -1: unknown */
};

struct os_bad_range {
	uint8_t *at;
	size_t bytes;
};

/* -EBUSY another guard is held in this process. */
int os_busguard_hold(const struct os_guarded *list, size_t n, struct err *e);

/*
 * Lets go.  Copies up to `room` ranges that were replaced by zero pages, in the order of
 * addresses, into `ret`; returns how many there are: more than OS_BUSGUARD_RANGES means that
 * some were not kept.
 */
size_t os_busguard_release(struct os_bad_range *ret, size_t room);

#endif
