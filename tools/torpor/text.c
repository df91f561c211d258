// SPDX-License-Identifier: LGPL-2.1-or-later
/* Text for people; see text.h.  Nothing here decides what is said. */
#include "text.h"

#include <stdarg.h>
#include <stdbool.h>

#include "base/num.h"

static bool is_tail(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/*
 * The second byte is where over-long forms, surrogates and values above U+10FFFF show: after
 * E0, ED, F0 and F4 only a part of the usual 80..BF is a character.
 */
static bool is_second(unsigned char first, unsigned char second)
{
	unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
	unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;

	return second >= low && second <= high;
}

size_t utf8_bytes(const char *s)
{
	unsigned char first = (unsigned char)s[0];
	size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;

	if (bytes == 1)
		return 1;
	if (first < 0xc2 || first > 0xf4 || !is_second(first, (unsigned char)s[1]))
		return 0;
	/* The NUL at the end is no tail, so this never reads beyond it. */
	for (size_t i = 2; i < bytes; i++) {
		if (!is_tail(s[i]))
			return 0;
	}
	return bytes;
}

/* C0, DEL, C1, line and paragraph separators, and the marks that turn the direction of text. */
static bool is_hidden(const char *s, size_t bytes)
{
	unsigned char a = (unsigned char)s[0], c;

	if (bytes == 1)
		return a < 0x20 || a == 0x7f;
	if (bytes == 2)
		return a == 0xc2 && (unsigned char)s[1] < 0xa0;
	if (bytes != 3 || a != 0xe2)
		return false;
	c = (unsigned char)s[2];
	if ((unsigned char)s[1] == 0x80)
		return c == 0x8e || c == 0x8f || (c >= 0xa8 && c <= 0xae);
	return (unsigned char)s[1] == 0x81 && c >= 0xa6 && c <= 0xa9;
}

static void put_escaped(FILE *f, const char *s, size_t bytes)
{
	if (s[0] == '\n') {
		fputs("\\n", f);
	} else if (s[0] == '\t') {
		fputs("\\t", f);
	} else if (s[0] == '\\') {
		fputs("\\\\", f);
	} else {
		for (size_t i = 0; i < bytes; i++)
			fprintf(f, "\\x%02x", (unsigned char)s[i]);
	}
}

static void put_safe(FILE *f, const char *s, bool escape_backslash)
{
	while (*s) {
		size_t bytes = utf8_bytes(s);

		if (!bytes)
			put_escaped(f, s, 1);
		else if (is_hidden(s, bytes) || (*s == '\\' && escape_backslash))
			put_escaped(f, s, bytes);
		else
			fwrite(s, 1, bytes, f);
		s += bytes ? bytes : 1;
	}
}

void text_put_name(FILE *f, const char *name)
{
	put_safe(f, name, true);
}

void text_put_sentence(FILE *f, const char *sentence)
{
	put_safe(f, sentence, false);
}

const char *text_size(uint64_t bytes, char *buf)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double n = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(buf, TEXT_NUMBER_BYTES, "%u byte%s", (unsigned int)bytes,
			 bytes == 1 ? "" : "s");
		return buf;
	}
	for (; n >= 1024 && unit + 1 < ARRAY_LEN(units); unit++)
		n /= 1024;
	snprintf(buf, TEXT_NUMBER_BYTES, n < 10 ? "%.2f %s" : "%.1f %s", n, units[unit]);
	return buf;
}

static void say(const char *prefix, const char *fmt, va_list ap)
{
	char text[4096];

	vsnprintf(text, sizeof(text), fmt, ap);
	fputs(prefix, stderr);
	text_put_sentence(stderr, text);
	fputc('\n', stderr);
}

void say_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("torpor: ", fmt, ap);
	va_end(ap);
}

void say_warning(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("torpor: warning: ", fmt, ap);
	va_end(ap);
}
