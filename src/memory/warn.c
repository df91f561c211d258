// SPDX-License-Identifier: LGPL-2.1-or-later
/* Warnings that an operation collects; see item.h. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "memory/item.h"

#define KEPT 32
#define TEXT_BYTES 512

struct memory_warnings {
	pthread_mutex_t lock;
	size_t count; /* all, those not kept too */
	char text[KEPT][TEXT_BYTES];
};

struct memory_warnings *memory_warnings_new(void)
{
	struct memory_warnings *w = calloc(1, sizeof(*w));

	if (w)
		pthread_mutex_init(&w->lock, NULL);
	return w;
}

void memory_warnings_free(struct memory_warnings *w)
{
	if (w)
		pthread_mutex_destroy(&w->lock);
	free(w);
}

void memory_warnings_clear(struct memory_warnings *w)
{
	w->count = 0;
}

const char *memory_warnings_get(struct memory_warnings *w, size_t i)
{
	if (i >= w->count || i >= KEPT)
		return NULL;
	if (i == KEPT - 1 && w->count > KEPT)
		snprintf(w->text[i], TEXT_BYTES, "and %zu more warnings", w->count - KEPT + 1);
	return w->text[i];
}

void memory_warn(struct memory_warnings *w, const char *fmt, ...)
{
	CLEANUP_UNLOCK pthread_mutex_t *lock = w ? &w->lock : NULL;
	va_list ap;

	if (!w)
		return;
	pthread_mutex_lock(lock);
	if (w->count < KEPT) {
		va_start(ap, fmt);
		vsnprintf(w->text[w->count], TEXT_BYTES, fmt, ap);
		va_end(ap);
	}
	w->count++;
}
