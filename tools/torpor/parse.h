/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Words that a user typed, to values.  All of a word must fit, or the answer is false. */
#ifndef TORPOR_TOOL_PARSE_H
#define TORPOR_TOOL_PARSE_H

#include <stdbool.h>
#include <stdint.h>

/* A decimal number without a sign, `min` to `max`. */
bool parse_u64(const char *word, uint64_t min, uint64_t max, uint64_t *ret);

/* A decimal number, perhaps with a sign. */
bool parse_i32(const char *word, int32_t *ret);

/* A size: a number of bytes, or with K, M or G (also Ki, KiB, ...) 1024 times as much, and so
 * on. */
bool parse_size(const char *word, uint64_t *ret);

/* The place of `word` in `choices`, which ends with NULL. */
bool parse_choice(const char *word, const char *const *choices, uint32_t *ret);

#endif
