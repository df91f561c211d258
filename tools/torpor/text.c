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

/* The code point of a character that utf8_bytes() has found to be one. */
static uint32_t code_point(const char *s, size_t bytes)
{
	uint32_t point = (unsigned char)s[0];

	if (bytes == 1)
		return point;
	point &= 0x7fu >> bytes;
	for (size_t i = 1; i < bytes; i++)
		point = point << 6 | ((unsigned char)s[i] & 0x3f);
	return point;
}

/*
 * What moves a terminal's cursor, turns the direction of text, or is not seen at all, so that two names
 * look the same: control characters, line and paragraph separators, and Unicode's format characters.
 */
static bool is_hidden(const char *s, size_t bytes)
{
	static const struct {
		uint32_t first, last;
	} hidden[] = {
		{0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},       {0x600, 0x605},
		{0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x180e, 0x180e},
		{0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},   {0xfeff, 0xfeff},
		{0xfff9, 0xfffb},   {0xe0000, 0xe007f},
	};
	uint32_t point = code_point(s, bytes);

	for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
		if (point >= hidden[i].first && point <= hidden[i].last)
			return true;
	}
	return false;
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
