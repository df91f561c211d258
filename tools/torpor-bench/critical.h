/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The critical section's benchmark: a service under load, and the ways to save its memory. */
#ifndef TORPOR_BENCH_CRITICAL_H
#define TORPOR_BENCH_CRITICAL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench.h"

/* What one way gave. */
struct critical_row {
	double save_s, load_s;
	double critical_ms;
	double before_mb, after_mb; /* of the image, before and after compression */
	double slowest_ms;          /* request, from the beginning of the save until a second after its end */
};

/* Where images and restored files go. */
#define CRITICAL_IMAGE "/dev/shm/torpor-bench.image"
#define CRITICAL_BACK "/dev/shm/torpor-bench.back"

#define CRITICAL_LIMIT "(limit)"
#define CRITICAL_MEMCACHED "/dev/shm/torpor-bench.mc"

/* A memcached whose memory is a file on tmpfs, CRITICAL_MEMCACHED/mem, filled with `data`.  Its PID; 0 when memcached is not installed. */
pid_t critical_memcached_start(const struct bench_data *data, size_t bytes);
void critical_memcached_end(pid_t pid);

/* A client that asks it and measures each request, in a thread of its own. */
void critical_client_start(void);
/* Forgets what was measured so far. */
void critical_client_reset(void);
/* The slowest request since, also one that is still waited for. */
double critical_client_slowest_ms(void);
void critical_client_end(void);

/* A program of our own with private memory, saved from inside.  `way`: "copy", "userfaultfd", "fork" or the limit. */
void critical_inside(const struct bench_data *data, size_t bytes, const char *way, struct critical_row *ret);

/* Milliseconds: to copy a file's memory from a populated mapping to populated memory; to protect memory. */
double critical_limit_copy_ms(const char *path, unsigned int threads);
double critical_limit_protect_ms(uint8_t *at, size_t bytes);

/* Seconds to load the image back. */
double critical_load(void);

#endif
