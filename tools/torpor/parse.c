// SPDX-License-Identifier: LGPL-2.1-or-later
/* Words that a user typed, to values; see parse.h.  Nothing here prints. */
#include "parse.h"

#include <string.h>

#include "base/num.h"

/* The digits at the start of `word`; *ret_rest is what follows them.  False: none, or too many.
 */
static bool leading_digits(const char *word, uint64_t *ret, const char **ret_rest)
{
	uint64_t n = 0;
	const char *p;

	for (p = word; *p >= '0' && *p <= '9'; p++) {
		if (num_mul_overflows(n, 10, &n) ||
		    num_add_overflows(n, (uint64_t)(*p - '0'), &n))
			return false;
	}
	*ret = n;
	*ret_rest = p;
	return p != word;
}

bool parse_u64(const char *word, uint64_t min, uint64_t max, uint64_t *ret)
{
	const char *rest;
	uint64_t n;

	if (!leading_digits(word, &n, &rest) || *rest || n < min || n > max)
		return false;
	*ret = n;
	return true;
}

bool parse_i32(const char *word, int32_t *ret)
{
	bool minus = *word == '-';
	uint64_t n;

	if (!parse_u64(word + (minus || *word == '+'), 0, (uint64_t)INT32_MAX, &n))
		return false;
	*ret = minus ? -(int32_t)n : (int32_t)n;
	return true;
}

bool parse_size(const char *word, uint64_t *ret)
{
	static const char letters[] = "KMGTP";
	const char *rest, *letter;
	uint64_t n;

	if (!leading_digits(word, &n, &rest))
		return false;
	if (*rest) {
		letter = strchr(letters, *rest == 'k' ? 'K' : *rest);
		if (!letter)
			return false;
		if (num_mul_overflows(n, UINT64_C(1) << (10 * (letter - letters + 1)), &n))
			return false;
		rest++;
		if (*rest && strcmp(rest, "i") != 0 && strcmp(rest, "iB") != 0)
			return false;
	}
	*ret = n;
	return true;
}

bool parse_choice(const char *word, const char *const *choices, uint32_t *ret)
{
	for (uint32_t i = 0; choices[i]; i++) {
		if (strcmp(word, choices[i]) == 0) {
			*ret = i;
			return true;
		}
	}
	return false;
}
