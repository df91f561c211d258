/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a fuzz target offers, to libFuzzer and to the replay program alike. */
#ifndef TORPOR_FUZZ_FUZZ_H
#define TORPOR_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Takes any bytes and returns 0; ends the process when something does not hold. */
__attribute__((visibility("default"))) int LLVMFuzzerTestOneInput(const uint8_t *data,
								  size_t bytes);

#endif
