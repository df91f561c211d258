// SPDX-License-Identifier: LGPL-2.1-or-later
/* Starting threads; see thread.h. */
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

#include "base/num.h"

int thread_start(pthread_t *ret, void *(*run)(void *), void *arg)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	sigset_t others, before;
	size_t i;
	int rc;

	sigfillset(&others);
	for (i = 0; i < ARRAY_LEN(own); i++)
		sigdelset(&others, own[i]);
	/* A thread begins with its maker's mask. */
	pthread_sigmask(SIG_SETMASK, &others, &before);
	rc = pthread_create(ret, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -rc;
}
