/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The resolver, which picks a path of the page kernels once and keeps it, and the span
 * functions on top of whatever it picked.  The pointer it keeps is the only state in the room
 * that changes; it changes once, to a constant.
 */
#include "page/page.h"

#include "base/num.h"
#include "page/page-path.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_VARIABLE "TORPOR_CPU"

/* Names of every architecture, so that a message can tell "unknown" from "not here". */
static const char *const path_names[] = {"generic", "avx2", "neon"};

static const struct page_ops *const ops_generic[] = {&page_path_generic.ops, NULL};

#ifdef PAGE_PATH_NATIVE
static const struct page_ops *const ops_all[] = {
	&page_path_generic.ops,
	&PAGE_PATH_NATIVE->ops,
	NULL,
};
#endif

static const struct page_path *native_path(void)
{
#ifdef PAGE_PATH_NATIVE
	if (PAGE_PATH_NATIVE->is_supported())
		return PAGE_PATH_NATIVE;
#endif
	return NULL;
}

static _Noreturn void refuse_path(const char *name)
{
	const char *why = "is not a path torpor knows (generic, avx2, neon)";

	for (size_t i = 0; i < ARRAY_LEN(path_names); i++)
		if (strcmp(name, path_names[i]) == 0)
			why = "cannot run on this CPU";
	fprintf(stderr, "torpor: %s: \"%s\" %s\n", PATH_VARIABLE, name, why);
	abort();
}

static const struct page_path *resolve_path(void)
{
	const struct page_path *native = native_path();
	const char *name = secure_getenv(PATH_VARIABLE);

	if (!name || !*name)
		return native ? native : &page_path_generic;
	if (strcmp(name, page_path_generic.ops.name) == 0)
		return &page_path_generic;
	if (native && strcmp(name, native->ops.name) == 0)
		return native;
	refuse_path(name);
}

/*
 * Threads that come first together all resolve, and all to the same; what the pointer leads to
 * is constant.  So no order is needed between its store and its loads.
 */
static const struct page_path *page_path(void)
{
	static const struct page_path *_Atomic resolved;
	const struct page_path *path = atomic_load_explicit(&resolved, memory_order_relaxed);

	if (!path) {
		path = resolve_path();
		atomic_store_explicit(&resolved, path, memory_order_relaxed);
	}
	return path;
}

const struct page_ops *page_ops(void)
{
	return &page_path()->ops;
}

const struct page_ops *const *page_ops_all(void)
{
#ifdef PAGE_PATH_NATIVE
	if (native_path())
		return ops_all;
#endif
	return ops_generic;
}

size_t page_span_find_zero(const void *src, size_t pages, size_t page_bytes, uint64_t *ret_zero)
{
	const struct page_path *path = page_path();
	const unsigned char *from = src, *end = from + pages * page_bytes;
	size_t found = 0;

	for (size_t first = 0; first < pages; first += 64) {
		size_t in_word = num_min(pages - first, 64);
		uint64_t word = 0;

		for (size_t i = 0; i < in_word; i++) {
			const unsigned char *next = from + page_bytes;

			word |= (uint64_t)path->is_zero_in_span(from, page_bytes,
								(size_t)(end - next))
				<< i;
			from = next;
		}
		ret_zero[first / 64] = word;
		found += (size_t)__builtin_popcountll(word);
	}
	return found;
}

size_t page_span_copy_find_zero(void *dst, const void *src, size_t pages, size_t page_bytes,
				uint64_t *ret_zero)
{
	const struct page_path *path = page_path();
	const unsigned char *from = src, *end = from + pages * page_bytes;
	unsigned char *to = dst;
	size_t found = 0;

	for (size_t first = 0; first < pages; first += 64) {
		size_t in_word = num_min(pages - first, 64);
		uint64_t word = 0;

		for (size_t i = 0; i < in_word; i++, to += page_bytes) {
			const unsigned char *next = from + page_bytes;

			word |= (uint64_t)path->copy_unless_zero_in_span(to, from, page_bytes,
									 (size_t)(end - next))
				<< i;
			from = next;
		}
		ret_zero[first / 64] = word;
		found += (size_t)__builtin_popcountll(word);
	}
	path->order_stores();
	return found;
}
