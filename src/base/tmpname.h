/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Hidden names for what becomes something else when it is complete. */
#ifndef TORPOR_BASE_TMPNAME_H
#define TORPOR_BASE_TMPNAME_H

#define TMPNAME_BYTES 256

/* ".NAME.torpor-RANDOM", cut to fit. */
void tmpname_make(const char *name, char ret[TMPNAME_BYTES]);

#endif
