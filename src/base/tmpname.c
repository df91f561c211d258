// SPDX-License-Identifier: LGPL-2.1-or-later
/* Hidden names; see tmpname.h. */
#include "base/tmpname.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"

/* A name has 255 bytes at most; the dot, ".torpor-" and 12 more are added to what is kept. */
_Static_assert(TMPNAME_KEPT_BYTES + 1 + 8 + 12 < TMPNAME_BYTES, "hidden names fit");

static const struct {
	const char *tag;
	unsigned int digits;
} kinds[] = {
	[TMPNAME_NEW] = {"", 12},
	[TMPNAME_OLD] = {"old-", 8},
	[TMPNAME_LOOSE] = {"new-", 8},
};

void tmpname_make(const char *name, enum tmpname_kind kind, char ret[TMPNAME_BYTES])
{
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
		random = clock_mono_ns();
	random &= ((uint64_t)1 << 4 * kinds[kind].digits) - 1;
	snprintf(ret, TMPNAME_BYTES, ".%.*s.torpor-%s%0*llx", TMPNAME_KEPT_BYTES, name,
		 kinds[kind].tag, (int)kinds[kind].digits, (unsigned long long)random);
}

bool tmpname_is(const char *entry, const char *name, enum tmpname_kind kind)
{
	char prefix[TMPNAME_BYTES];
	int n = snprintf(prefix, sizeof(prefix), ".%.*s.torpor-%s", TMPNAME_KEPT_BYTES, name,
			 kinds[kind].tag);

	return !strncmp(entry, prefix, (size_t)n) &&
	       strspn(entry + n, "0123456789abcdef") == kinds[kind].digits &&
	       strlen(entry) == (size_t)n + kinds[kind].digits;
}
