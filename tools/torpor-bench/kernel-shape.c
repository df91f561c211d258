// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The rival: the shape of the kernel's load_compressed_image() (kernel/power/swap.c), in user space.
 *
 * The main thread works in rounds.  It copies a chunk's compressed pages to the buffer of each
 * decompression thread and wakes that thread; then it waits for each in turn and copies what it
 * decoded page by page to its place; a thread of its own meanwhile adds up a checksum of the whole round,
 * and has to be done before the next round decodes into the same buffers.  Everybody who waits sleeps in a wait queue.
 *
 * Kinder than the kernel: reading costs nothing, since the image is in memory, and the checksum is
 * XXH3 instead of CRC32.
 */
#include <pthread.h>
#include <stdlib.h>
#include <xxhash.h>

#include "bench.h"

#define PAGE_BYTES 4096u

/* A wait queue with one flag, which the other side clears. */
struct signal_flag {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool up;
};

static void flag_init(struct signal_flag *f)
{
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->cond, NULL);
	f->up = false;
}

static void flag_raise(struct signal_flag *f)
{
	pthread_mutex_lock(&f->lock);
	f->up = true;
	pthread_cond_signal(&f->cond);
	pthread_mutex_unlock(&f->lock);
}

static void flag_take(struct signal_flag *f)
{
	pthread_mutex_lock(&f->lock);
	while (!f->up)
		pthread_cond_wait(&f->cond, &f->lock);
	f->up = false;
	pthread_mutex_unlock(&f->lock);
}

struct unit {
	const struct codec *codec;
	struct codec_state *state;
	struct signal_flag ready, stop;
	bool end;
	uint8_t *cmp, *unc;
	size_t cmp_bytes, unc_bytes;
	pthread_t id;
};

struct checker {
	struct unit *units;
	unsigned int n; /* of this round */
	XXH3_state_t *sum;
	struct signal_flag ready, stop;
	bool end;
	pthread_t id;
};

static void *decompress_main(void *arg)
{
	struct unit *u = arg;

	for (;;) {
		flag_take(&u->ready);
		if (u->end)
			return NULL;
		if (u->codec->decompress(u->state, u->unc, u->unc_bytes, u->cmp, u->cmp_bytes) < 0)
			bench_die("%s: a chunk does not come back", u->codec->name);
		flag_raise(&u->stop);
	}
}

static void *check_main(void *arg)
{
	struct checker *k = arg;
	unsigned int i;

	for (;;) {
		flag_take(&k->ready);
		if (k->end)
			return NULL;
		for (i = 0; i < k->n; i++)
			XXH3_64bits_update(k->sum, k->units[i].unc, k->units[i].unc_bytes);
		flag_raise(&k->stop);
	}
}

static void copy_pages(uint8_t *dst, const uint8_t *src, size_t bytes)
{
	size_t at;

	for (at = 0; at < bytes; at += PAGE_BYTES)
		memcpy(dst + at, src + at, num_min(PAGE_BYTES, bytes - at));
}

static void units_start(struct unit *units, unsigned int n, struct checker *k, const struct codec *codec)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		struct unit *u = &units[i];

		*u = (struct unit){.codec = codec, .state = bench_decoder(codec)};
		u->cmp = malloc(codec->bound(BENCH_CHUNK_BYTES));
		u->unc = malloc(BENCH_CHUNK_BYTES);
		flag_init(&u->ready);
		flag_init(&u->stop);
		if (!u->cmp || !u->unc || pthread_create(&u->id, NULL, decompress_main, u) != 0)
			bench_die("cannot start a thread");
	}
	*k = (struct checker){.units = units, .sum = XXH3_createState()};
	XXH3_64bits_reset(k->sum);
	flag_init(&k->ready);
	flag_init(&k->stop);
	if (pthread_create(&k->id, NULL, check_main, k) != 0)
		bench_die("cannot start a thread");
}

static void units_stop(struct unit *units, unsigned int n, struct checker *k)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		units[i].end = true;
		flag_raise(&units[i].ready);
		pthread_join(units[i].id, NULL);
		units[i].codec->state_free(units[i].state);
		free(units[i].cmp);
		free(units[i].unc);
	}
	k->end = true;
	flag_raise(&k->ready);
	pthread_join(k->id, NULL);
	XXH3_freeState(k->sum);
}

/* One round: chunks `first` and following, one for each thread. */
static unsigned int round_run(const struct bench_chunks *c, size_t first, struct unit *units,
			      unsigned int n, struct checker *k, uint8_t *dst, bool check_pending)
{
	unsigned int i, used = (unsigned int)num_min(n, c->n - first);

	if (check_pending)
		flag_take(&k->stop);
	for (i = 0; i < used; i++) {
		const struct bench_chunk *chunk = &c->list[first + i];

		copy_pages(units[i].cmp, chunk->stored, chunk->stored_bytes);
		units[i].cmp_bytes = chunk->stored_bytes;
		units[i].unc_bytes = chunk->raw_bytes;
		flag_raise(&units[i].ready);
	}
	for (i = 0; i < used; i++) {
		flag_take(&units[i].stop);
		copy_pages(dst + c->list[first + i].raw_at, units[i].unc, units[i].unc_bytes);
	}
	k->n = used;
	flag_raise(&k->ready);
	return used;
}

void load_kernel_shape(const struct bench_chunks *c, uint8_t *dst, unsigned int threads)
{
	struct unit units[BENCH_THREADS_MAX];
	struct checker k;
	size_t first = 0;

	units_start(units, threads, &k, c->codec);
	while (first < c->n)
		first += round_run(c, first, units, threads, &k, dst, first > 0);
	flag_take(&k.stop);
	units_stop(units, threads, &k);
}
