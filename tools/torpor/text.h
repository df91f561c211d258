/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Text for people: messages on standard error, and names and numbers in a form that is safe and
 * easy to read.  A name in an image may hold any byte; nothing that a terminal would obey is
 * ever printed.
 */
#ifndef TORPOR_TOOL_TEXT_H
#define TORPOR_TOOL_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Bytes of the UTF-8 character at `s`, which ends with a NUL; 0 when there is no valid one. */
size_t utf8_bytes(const char *s);

/*
 * Prints a name so that it stands on one line and can be told from every other name: control
 * characters, marks that turn the direction of text, backslashes and bytes that are no UTF-8
 * become \n, \t, \\ or \xHH.
 */
void text_put_name(FILE *f, const char *name);

/* As text_put_name(), for whole sentences: a backslash stays as it is. */
void text_put_sentence(FILE *f, const char *sentence);

#define TEXT_NUMBER_BYTES 32

/* "1.58 GiB", "4.0 KiB", "1 byte".  Returns `buf`, which holds TEXT_NUMBER_BYTES. */
const char *text_size(uint64_t bytes, char *buf);

/* "torpor: MESSAGE" on standard error. */
void say_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* "torpor: warning: MESSAGE" on standard error. */
void say_warning(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
