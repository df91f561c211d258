/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The error story: a function returns 0 or a negative errno, and the `struct err` that it was
 * handed holds one message to which every layer on the way out prepends its sentence, as in
 * "cannot load x.torpor: chunk 17: hash differs".  Nothing in the library prints.
 *
 * Codes with a meaning of their own here:
 *   -EBADMSG     the image is damaged (the message says where)
 *   -EOPNOTSUPP  the image is sound but needs something this build does not know or have
 *   -ECANCELED   the operation was cancelled by its caller
 */
#ifndef TORPOR_BASE_ERR_H
#define TORPOR_BASE_ERR_H

#include <errno.h>

#define ERR_TEXT_BYTES 1024

/* One message; owned by whoever runs the operation, used by one thread at a time. */
struct err {
	char text[ERR_TEXT_BYTES];
	int system; /* the code, when the message is the system's (err_sys()); else 0 */
};

/* Sets the message; returns `code` (a negative errno).  `e` may be NULL. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As err_set(), and adds ": " and the system's text for the code. */
int err_sys(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Prepends "fmt: " to the message; returns `code`. */
int err_wrap(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
