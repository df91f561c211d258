// SPDX-License-Identifier: LGPL-2.1-or-later
/* The list of items; see item.h. */
#include "memory/item.h"

#include <stdlib.h>
#include <string.h>

static void item_free(const struct memory_item *item)
{
	free(item->name);
	free(item->origin);
	free(item->link);
	free(item->path);
}

int memory_items_add(struct memory_items *items, const struct memory_item *item, struct err *e)
{
	uint64_t room = items->room ? 2 * items->room : 16;
	struct memory_item *list = items->list;

	if (items->count == items->room)
		list = reallocarray(items->list, room, sizeof(*list));
	if (!list || !item->name || !item->origin || !item->link) {
		item_free(item);
		return err_sys(e, -ENOMEM, "cannot hold a list of %llu files", (unsigned long long)room);
	}
	if (items->count == items->room)
		items->room = room;
	items->list = list;
	list[items->count++] = *item;
	return 0;
}

void memory_items_remove(struct memory_items *items, uint64_t i)
{
	item_free(&items->list[i]);
	items->count--;
	memmove(&items->list[i], &items->list[i + 1], (items->count - i) * sizeof(*items->list));
}

void memory_items_free(struct memory_items *items)
{
	uint64_t i;

	for (i = 0; i < items->count; i++)
		item_free(&items->list[i]);
	free(items->list);
	memset(items, 0, sizeof(*items));
}
