// SPDX-License-Identifier: LGPL-2.1-or-later
/* Hidden names; see tmpname.h. */
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/tmpname.h"

/* 255 bytes less the dot, ".torpor-" and 12 digits. */
#define NAME_KEPT_BYTES 230

void tmpname_make(const char *name, char ret[TMPNAME_BYTES])
{
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
		random = clock_mono_ns();
	snprintf(ret, TMPNAME_BYTES, ".%.*s.torpor-%012llx", NAME_KEPT_BYTES, name,
		 (unsigned long long)(random & 0xffffffffffff));
}
