// SPDX-License-Identifier: LGPL-2.1-or-later
/* The error story's three verbs; see err.h. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return code;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	e->system = 0;
	return code;
}

int err_sys(struct err *e, int code, const char *fmt, ...)
{
	char reason[128];
	size_t used;
	va_list ap;

	if (!e)
		return code;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	e->system = code;
	used = strlen(e->text);
	snprintf(e->text + used, sizeof(e->text) - used, ": %s",
		 strerror_r(-code, reason, sizeof(reason)));
	return code;
}

int err_wrap(struct err *e, int code, const char *fmt, ...)
{
	char inner[ERR_TEXT_BYTES];
	size_t used;
	va_list ap;

	if (!e)
		return code;
	memcpy(inner, e->text, sizeof(inner));
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	used = strlen(e->text);
	snprintf(e->text + used, sizeof(e->text) - used, ": %s", inner);
	return code;
}
