// SPDX-License-Identifier: LGPL-2.1-or-later
/* That an image never takes the place of what it is made from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/context.h"
#include "base/cleanup.h"
#include "base/tmpname.h"

/* What an image that is to be written has in common with what lies around it. */
struct place {
	bool exists; /* the image's old file, or the descriptor's */
	struct stat st;
	bool in_folder; /* where hidden names for the new one may be */
	struct stat folder;
	char name[TMPNAME_BYTES];
};

static void look(const char *image, uint32_t flags, int fd, struct place *ret)
{
	CLEANUP_FREE char *real = image ? realpath(image, NULL) : NULL, *folder = NULL;
	const char *slash;

	memset(ret, 0, sizeof(*ret));
	if (flags & TORPOR_IMAGE_FD) {
		ret->exists = fstat(fd, &ret->st) == 0 && S_ISREG(ret->st.st_mode);
		return;
	}
	ret->exists = stat(image, &ret->st) == 0 && S_ISREG(ret->st.st_mode);
	image = real ? real : image;
	slash = strrchr(image, '/');
	snprintf(ret->name, sizeof(ret->name), "%s", slash ? slash + 1 : image);
	folder = slash ? strndup(image, (size_t)(slash + 1 - image)) : strdup(".");
	ret->in_folder = folder && stat(folder, &ret->folder) == 0;
}

static bool same(const struct memory_item *item, const struct stat *st)
{
	return item->dev == st->st_dev && item->ino == st->st_ino;
}

/* An item's folder stands somewhere before it. */
static bool lies_in(const struct memory_items *items, uint64_t i, const struct stat *folder)
{
	const char *name = items->list[i].name;
	size_t bytes = (size_t)(strrchr(name, '/') - name);

	while (i-- > 0) {
		const struct memory_item *item = &items->list[i];

		if (item->kind == MEMORY_DIRECTORY && !strncmp(item->name, name, bytes) &&
		    !item->name[bytes])
			return same(item, folder);
	}
	return false;
}

static bool unfinished(const struct place *place, const struct memory_items *items, uint64_t i)
{
	const char *slash = strrchr(items->list[i].name, '/');

	return place->in_folder && slash && tmpname_is(slash + 1, place->name, TMPNAME_NEW) &&
	       lies_in(items, i, &place->folder);
}

int glue_spare_sources(const char *image, uint32_t flags, int fd, struct memory_items *items,
		       struct memory_warnings *warnings, struct err *e)
{
	struct place place;
	uint64_t i;

	look(image, flags, fd, &place);
	for (i = items->count; i-- > 0;) {
		const struct memory_item *item = &items->list[i];
		bool is_image =
			item->kind == MEMORY_FILE && place.exists && same(item, &place.st);

		if (is_image && !strchr(item->name, '/'))
			return err_set(e, -EINVAL, "%s is a source itself and would be lost",
				       *item->origin ? item->origin : item->name);
		if (!is_image && (item->kind != MEMORY_FILE || !unfinished(&place, items, i)))
			continue;
		memory_warn(warnings, "%s is %s and was skipped", item->name,
			    is_image ? "the image" : "an unfinished image");
		memory_items_remove(items, i);
	}
	return 0;
}

int glue_check_other(const struct store_input *in, const char *target, struct err *e)
{
	struct stat a, b;

	if (stat(target, &b) < 0 || fstat(in->fd, &a) < 0)
		return 0;
	if (S_ISBLK(a.st_mode) && S_ISBLK(b.st_mode)
		    ? a.st_rdev == b.st_rdev
		    : a.st_dev == b.st_dev && a.st_ino == b.st_ino)
		return err_set(e, -EINVAL, "%s is the image itself and would be lost", target);
	return 0;
}
