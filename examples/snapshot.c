// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A program that saves its own memory while it goes on working: a table of keys and counts, in
 * which a thread moves counts from one key to another all the time.  Whatever moves, the sum of
 * all counts stays the same, and so it must be in the image: that shows the state at one
 * moment, and not a mixture of several.
 *
 *     cc snapshot.c $(pkg-config --cflags --libs torpor) -pthread && ./a.out table.torpor
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <torpor.h>

#define ENTRIES 1000000u
#define START_COUNT 100u

struct entry {
	char key[24];
	uint64_t count;
};

/*
 * What is to be saved lies in a mapping of its own: a region is whole pages, and must not be
 * memory of malloc(3), which the library's own threads use.
 */
static struct entry *table;
static size_t table_bytes;

/* Held for one change, and for the moment of a snapshot. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool stop;
static atomic_ulong changes;

static void make_table(void)
{
	size_t i;

	table_bytes = (ENTRIES * sizeof(*table) + 4095) / 4096 * 4096;
	table = mmap(NULL, table_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	if (table == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	/* Not needed, but write-protecting huge pages takes the shortest time. */
	madvise(table, table_bytes, MADV_HUGEPAGE);
	for (i = 0; i < ENTRIES; i++) {
		snprintf(table[i].key, sizeof(table[i].key), "key-%zu", i);
		table[i].count = START_COUNT;
	}
}

static uint64_t sum_of(const struct entry *entries)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < ENTRIES; i++)
		sum += entries[i].count;
	return sum;
}

/* The program's work. */
static void *work(void *arg)
{
	unsigned int seed = 1;

	(void)arg;
	while (!atomic_load(&stop)) {
		struct entry *from = &table[(unsigned int)rand_r(&seed) % ENTRIES];
		struct entry *to = &table[(unsigned int)rand_r(&seed) % ENTRIES];

		pthread_mutex_lock(&lock);
		if (from->count) {
			from->count--;
			to->count++;
		}
		pthread_mutex_unlock(&lock);
		atomic_fetch_add(&changes, 1);
	}
	return NULL;
}

/* Functions return 0 or a negative errno; the context then has the story. */
static void check(struct torpor *ctx, int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "%s\n", torpor_error(ctx));
	exit(1);
}

static void save(struct torpor *ctx, const char *image)
{
	struct torpor_region region = {.name = "table", .at = table, .bytes = table_bytes};
	struct torpor_save_opts save_opts = TORPOR_OPTS(save_opts);
	struct torpor_snapshot_opts opts = TORPOR_OPTS(opts);
	struct torpor_report report = TORPOR_OPTS(report);
	struct torpor_snapshot *snapshot;
	unsigned long before;

	save_opts.flags = TORPOR_FORCE; /* replace the image of the last time */
	opts.save = &save_opts;
	opts.copy = TORPOR_COPY_PROTECT;

	/* Takes time (memory, threads), but stops nobody. */
	check(ctx, torpor_snapshot_new(ctx, &region, 1, image, &opts, &snapshot));
	/* Protection may not be possible here: then the memory is copied, and this says why. */
	if (torpor_warning(ctx, 0))
		printf("note: %s\n", torpor_warning(ctx, 0));

	/* The critical section.  The lock makes it a moment at which no change is half done. */
	pthread_mutex_lock(&lock);
	before = atomic_load(&changes);
	check(ctx, torpor_snapshot_take(snapshot));
	pthread_mutex_unlock(&lock);

	/*
	 * A thread of the library saves, while ours goes on.  A program with an event loop adds
	 * torpor_snapshot_fd() to it and goes on as well: it becomes readable at the end.
	 */
	check(ctx, torpor_snapshot_wait(snapshot, &report));
	printf("saved %llu MiB as %llu MiB, paused for %.3f ms by %s, %lu changes meanwhile\n",
	       (unsigned long long)report.memory_bytes >> 20,
	       (unsigned long long)report.image_bytes >> 20, (double)report.critical_ns / 1e6,
	       report.copy_used == TORPOR_COPY_PROTECT ? "protecting" : "copying",
	       atomic_load(&changes) - before);
	torpor_snapshot_free(snapshot);
}

static struct entry *read_back(struct torpor *ctx, const char *image)
{
	struct entry *entries = malloc(table_bytes);
	struct torpor_image *opened;
	uint64_t segment;

	if (!entries)
		exit(1);
	check(ctx, torpor_image_open(ctx, image, 0, &opened));
	check(ctx, torpor_image_find(opened, "table", &segment));
	check(ctx, torpor_image_read(opened, segment, 0, entries, table_bytes));
	torpor_image_close(opened);
	return entries;
}

int main(int argc, char **argv)
{
	const char *image = argc > 1 ? argv[1] : "table.torpor";
	const uint64_t expected = (uint64_t)ENTRIES * START_COUNT;
	struct entry *saved;
	struct torpor *ctx;
	pthread_t thread;
	uint64_t sum;
	size_t i;

	make_table();
	if (torpor_new(&ctx) < 0 || pthread_create(&thread, NULL, work, NULL) != 0)
		return 1;
	save(ctx, image);
	atomic_store(&stop, true);
	pthread_join(thread, NULL);

	saved = read_back(ctx, image);
	sum = sum_of(saved);
	for (i = 0; i < ENTRIES - 1 && saved[i].count == table[i].count; i++)
		;
	printf("%s was %llu then and is %llu now; the sum of all was %llu\n", saved[i].key,
	       (unsigned long long)saved[i].count, (unsigned long long)table[i].count,
	       (unsigned long long)sum);
	free(saved);
	torpor_free(ctx);
	munmap(table, table_bytes);
	return sum == expected ? 0 : 1;
}
