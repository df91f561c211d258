/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The four cleanup attributes of the project: free, close, unmap, unlock.  There are no
 * others on purpose; where the order of unwinding matters, a function has one `goto out`.
 */
#ifndef TORPOR_BASE_CLEANUP_H
#define TORPOR_BASE_CLEANUP_H

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A mapping that unmaps itself; {NULL, 0} is the empty one. */
struct base_map {
	void *addr;
	size_t bytes;
};

static inline void cleanup_free_fn(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close_fn(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_unmap_fn(struct base_map *map)
{
	if (map->addr)
		munmap(map->addr, map->bytes);
}

static inline void cleanup_unlock_fn(pthread_mutex_t **lock)
{
	if (*lock)
		pthread_mutex_unlock(*lock);
}

#define CLEANUP_FREE __attribute__((cleanup(cleanup_free_fn)))
#define CLEANUP_CLOSE __attribute__((cleanup(cleanup_close_fn)))
#define CLEANUP_UNMAP __attribute__((cleanup(cleanup_unmap_fn)))
#define CLEANUP_UNLOCK __attribute__((cleanup(cleanup_unlock_fn)))

/* Gives up ownership of a CLEANUP_CLOSE descriptor to the caller. */
static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

#endif
