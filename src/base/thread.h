/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads of the library's own. */
#ifndef TORPOR_BASE_THREAD_H
#define TORPOR_BASE_THREAD_H

#include <pthread.h>

/*
 * Starts a thread that takes no signals: they are the program's, whose threads wait for them.  Those that a thread brings upon itself
 * (SIGSEGV, SIGBUS, ...) stay, since blocking them is deadly.  0 or a negative errno.
 */
int thread_start(pthread_t *ret, void *(*run)(void *), void *arg);

#endif
