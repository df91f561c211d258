// SPDX-License-Identifier: LGPL-2.1-or-later
/* Names of memory that is found; see find-priv.h. */
#include "live/find-priv.h"

#include <errno.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#define DELETED " (deleted)"

/* A name, and the number that the next one who wants it gets. */
struct name_use {
	unsigned int next;
	char name[];
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct name_use *)a)->name, ((const struct name_use *)b)->name);
}

/* 1: it is taken now, 0: it was before, *ret who has it. */
static int take(struct find_names *names, const char *name, struct name_use **ret)
{
	size_t bytes = strlen(name) + 1;
	struct name_use *use = malloc(sizeof(*use) + bytes);
	struct name_use **node;

	if (!use)
		return -ENOMEM;
	use->next = 2;
	memcpy(use->name, name, bytes);
	node = tsearch(use, &names->tree, by_name);
	if (!node || *node != use)
		free(use);
	if (!node)
		return -ENOMEM;
	*ret = *node;
	return *node == use;
}

/* "NAME.N", its front cut between characters of UTF-8 when it would be too long. */
static void number_name(const char *name, unsigned int n, char ret[NAME_MAX + 1])
{
	char suffix[16];
	size_t keep = strlen(name), room;

	room = NAME_MAX - (size_t)snprintf(suffix, sizeof(suffix), ".%u", n);
	if (keep > room) {
		keep = room;
		while (keep > 1 && ((unsigned char)name[keep] & 0xc0) == 0x80)
			keep--;
	}
	snprintf(ret, NAME_MAX + 1, "%.*s%s", (int)keep, name, suffix);
}

int find_name_take(struct find_names *names, const char *wanted, char **ret)
{
	char numbered[NAME_MAX + 1];
	struct name_use *first, *other;
	const char *name = wanted;
	int rc = take(names, wanted, &first);

	while (!rc) {
		number_name(wanted, first->next++, numbered);
		name = numbered;
		rc = take(names, numbered, &other);
	}
	if (rc < 0)
		return rc;
	*ret = strdup(name);
	return *ret ? 0 : -ENOMEM;
}

void find_names_free(struct find_names *names)
{
	tdestroy(names->tree, free);
	names->tree = NULL;
}

bool find_name_cut_deleted(char *path)
{
	size_t n = strlen(path), cut = strlen(DELETED);

	if (n < cut || strcmp(path + n - cut, DELETED))
		return false;
	path[n - cut] = '\0';
	return true;
}

bool find_is_sysv(const struct os_proc_map *map, dev_t kernel_dev)
{
	char type[32];

	/* "/SYSV" and the key */
	if (strncmp(map->name, "/SYSV", 5) || strspn(map->name + 5, "0123456789abcdef") != 8 ||
	    strcmp(map->name + 13, DELETED))
		return false;
	/*
	 * Those on huge pages lie on another mount of the kernel's own: one that nobody sees.
	 */
	return map->dev == kernel_dev ||
	       os_proc_mount_type(getpid(), map->dev, type, sizeof(type)) == -ENOENT;
}

/* What a nameless file's owner called it; NULL when that is not told. */
static const char *chosen_name(const char *path, size_t *ret_bytes)
{
	static const char memfd[] = "/memfd:", shmem[] = "[anon_shmem:";

	*ret_bytes = NAME_MAX;
	if (!strcmp(path, "/dev/zero") || !strcmp(path, "/anon_hugepage"))
		return "anonymous";
	if (!strncmp(path, memfd, sizeof(memfd) - 1))
		return path + sizeof(memfd) - 1;
	/* Shared anonymous memory that was named by prctl(PR_SET_VMA_ANON_NAME). */
	if (!strncmp(path, shmem, sizeof(shmem) - 1)) {
		*ret_bytes = strcspn(path + sizeof(shmem) - 1, "]");
		return path + sizeof(shmem) - 1;
	}
	return NULL;
}

int find_name_wish(const char *path, bool nameless, char **ret)
{
	size_t bytes = NAME_MAX, i;
	const char *text = nameless ? chosen_name(path, &bytes) : NULL;
	char *name;

	if (!text) {
		text = strrchr(path, '/');
		text = text ? text + 1 : path;
	}
	name = strndup(text, bytes);
	if (!name)
		return -ENOMEM;
	for (i = 0; name[i]; i++) {
		if (name[i] == '/')
			name[i] = '_';
	}
	if (!*name || !strcmp(name, ".") || !strcmp(name, "..")) {
		free(name);
		name = strdup("memory");
	}
	*ret = name;
	return name ? 0 : -ENOMEM;
}
