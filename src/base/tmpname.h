/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Hidden names for what becomes something else when it is complete. */
#ifndef TORPOR_BASE_TMPNAME_H
#define TORPOR_BASE_TMPNAME_H

#include <stdbool.h>

#define TMPNAME_BYTES 256

/* Bytes of a name that a hidden one keeps; of longer ones it shows the beginning. */
#define TMPNAME_KEPT_BYTES 230

enum tmpname_kind {
	TMPNAME_NEW, /* ".NAME.torpor-" and 12 hexadecimal digits: not complete, or old and replaced */
	TMPNAME_OLD, /* ".NAME.torpor-old-" and 8: what has NAME, for the moment in which the new one gets it */
	TMPNAME_LOOSE, /* ".NAME.torpor-new-" and 8: as TMPNAME_NEW, of a maker that could not lock it */
};

/* Made from `name` and a random number, cut to fit. */
void tmpname_make(const char *name, enum tmpname_kind kind, char ret[TMPNAME_BYTES]);

/* Is `entry` a hidden name of this kind, made from `name`? */
bool tmpname_is(const char *entry, const char *name, enum tmpname_kind kind);

#endif
