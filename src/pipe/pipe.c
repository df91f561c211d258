// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The pipeline; see pipe.h.
 *
 * Job number n lives in slot n % slots.  A slot goes FREE -> TAKEN -> WORKED -> FREE.  Take runs
 * under take_lock; it needs the slot FREE, which says that job n - slots is done, and that is the
 * back-pressure.  Its holder is the only one who ever waits for a slot: it reads `turns`, looks at the slot and at
 * `failed`, and sleeps while `turns` is what it read; whoever frees a slot or fails changes `turns` afterwards.
 *
 * Done runs under done_lock, which is only
 * ever tried: a worker stores WORKED first and tries then, and the holder looks at the oldest
 * slot again after it let go, so a WORKED slot is never left behind (the store of WORKED and the
 * failed try, and the release and the second look, are sequentially consistent: one of the two sees the other).
 *
 * Lock order: none is taken under another.
 */
#include "pipe/pipe.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/thread.h"
#include "base/wait.h"

enum slot_state { FREE, TAKEN, WORKED };

struct slot {
	_Alignas(64) _Atomic uint32_t state;
};

struct pipe {
	const struct pipe_plan *plan;
	struct slot *slots;
	unsigned char *jobs;

	struct wait_lock take_lock;
	uint64_t taken; /* under take_lock */
	bool end;       /* under take_lock */

	atomic_bool done_lock;
	_Atomic uint64_t finished; /* written under done_lock */

	_Atomic uint32_t turns; /* changes with every freed slot and with failure */
	atomic_bool waiting;    /* the holder of take_lock sleeps, or is about to */

	atomic_bool failed;
	struct wait_lock error_lock;
	int rc;        /* under error_lock */
	struct err *e; /* under error_lock */
};

struct thread {
	struct pipe *pipe;
	void *worker;
	unsigned int index;
	pthread_t id;
};

static void *job_at(const struct pipe *p, uint64_t n)
{
	return p->jobs + n % p->plan->slots * p->plan->job_bytes;
}

/* Without `done` nothing waits for its turn: a worker keeps its job in a place of its own. */
static bool ordered(const struct pipe *p)
{
	return p->plan->ops->done != NULL;
}

static void *job_of(const struct pipe *p, uint64_t n, unsigned int index)
{
	return ordered(p) ? job_at(p, n) : p->jobs + index * p->plan->job_bytes;
}

static struct slot *slot_at(const struct pipe *p, uint64_t n)
{
	return &p->slots[n % p->plan->slots];
}

static void slot_set(struct slot *slot, enum slot_state state)
{
	atomic_store(&slot->state, state);
}

static void turn(struct pipe *p)
{
	atomic_fetch_add(&p->turns, 1);
	if (atomic_load(&p->waiting))
		wait_wake(&p->turns);
}

/* The first error wins; whoever waits is woken to see that there is one. */
static void fail(struct pipe *p, int rc, const struct err *e)
{
	wait_lock_acquire(&p->error_lock);
	if (!p->rc) {
		p->rc = rc;
		if (p->e)
			*p->e = *e;
	}
	atomic_store(&p->failed, true);
	wait_lock_release(&p->error_lock);
	turn(p);
}

static bool cancelled(const struct pipe *p)
{
	return p->plan->cancel && atomic_load_explicit(p->plan->cancel, memory_order_relaxed);
}

/* Waits until job n may be taken.  False: something failed meanwhile. */
static bool wait_for_slot(struct pipe *p, uint64_t n)
{
	struct slot *slot = slot_at(p, n);

	while (atomic_load(&slot->state) != FREE && !atomic_load(&p->failed)) {
		uint32_t seen = atomic_load(&p->turns);

		atomic_store(&p->waiting, true);
		if (atomic_load(&slot->state) != FREE && !atomic_load(&p->failed))
			wait_while(&p->turns, seen);
		atomic_store(&p->waiting, false);
	}
	return !atomic_load(&p->failed);
}

/* Sleeps until something was done or failed since `turns` was read. */
static void wait_for_turn(struct pipe *p, uint32_t seen)
{
	atomic_store(&p->waiting, true);
	if (!atomic_load(&p->failed))
		wait_while(&p->turns, seen);
	atomic_store(&p->waiting, false);
}

/* Files that jobs under way have open will be closed. */
static int take_next(struct pipe *p, void *worker, void *job, struct err *e)
{
	for (;;) {
		uint32_t seen = atomic_load(&p->turns);
		bool alone = !ordered(p) || atomic_load(&p->finished) == p->taken;
		int rc;

		if (cancelled(p))
			return err_set(e, -ECANCELED, "cancelled");
		rc = p->plan->ops->take(p->plan->ctx, worker, job, e);
		if ((rc != -EMFILE && rc != -ENFILE) || alone)
			return rc;
		wait_for_turn(p, seen);
		if (atomic_load(&p->failed))
			return 0;
	}
}

/* 1: job *ret_n was taken; 0: no more, or something failed. */
static int take(struct pipe *p, void *worker, unsigned int index, uint64_t *ret_n)
{
	struct err e = {.text = ""};
	int rc = 0;

	wait_lock_acquire(&p->take_lock);
	if (!p->end && (ordered(p) ? wait_for_slot(p, p->taken) : !atomic_load(&p->failed))) {
		rc = take_next(p, worker, job_of(p, p->taken, index), &e);
		if (rc > 0) {
			if (ordered(p))
				slot_set(slot_at(p, p->taken), TAKEN);
			*ret_n = p->taken++;
		} else {
			p->end = true;
		}
	}
	wait_lock_release(&p->take_lock);
	if (rc < 0)
		fail(p, rc, &e);
	return rc > 0;
}

static bool oldest_is_worked(const struct pipe *p)
{
	return atomic_load(&slot_at(p, atomic_load(&p->finished))->state) == WORKED;
}

/* Finishes jobs in order for as long as the oldest is ready and nobody else does it. */
static void finish_in_order(struct pipe *p)
{
	struct err e = {.text = ""};

	while (!atomic_load(&p->failed) && oldest_is_worked(p)) {
		int rc = 0;

		if (atomic_exchange(&p->done_lock, true))
			return; /* the holder will look again */
		while (!rc && !atomic_load(&p->failed) && oldest_is_worked(p)) {
			uint64_t n = atomic_load(&p->finished);

			if (p->plan->ops->done)
				rc = p->plan->ops->done(p->plan->ctx, job_at(p, n), &e);
			atomic_store(&p->finished, n + 1);
			slot_set(slot_at(p, n), FREE);
			turn(p);
		}
		/* Before the lock goes: nobody may finish a younger job after this one failed. */
		if (rc < 0)
			fail(p, rc, &e);
		atomic_store(&p->done_lock, false);
	}
}

static void run_worker(struct pipe *p, void *worker, unsigned int index)
{
	struct err e = {.text = ""};
	uint64_t n;
	int rc;

	while (take(p, worker, index, &n)) {
		void *job = job_of(p, n, index);

		rc = p->plan->ops->work(p->plan->ctx, worker, job, &e);
		if (ordered(p))
			slot_set(slot_at(p, n), WORKED);
		else if (rc < 0 && p->plan->ops->drop)
			p->plan->ops->drop(p->plan->ctx, job);
		if (rc < 0) {
			fail(p, rc, &e);
			return;
		}
		if (ordered(p))
			finish_in_order(p);
	}
}

static void *thread_main(void *arg)
{
	struct thread *t = arg;

	run_worker(t->pipe, t->worker, t->index);
	return NULL;
}

/* All workers have stopped: what is left in the slots is dropped. */
static void drop_rest(struct pipe *p)
{
	uint64_t n;

	for (n = p->finished; ordered(p) && n < p->taken && p->plan->ops->drop; n++)
		p->plan->ops->drop(p->plan->ctx, job_at(p, n));
}

int pipe_run(const struct pipe_plan *plan, unsigned int *ret_workers, struct err *e)
{
	struct pipe p = {.plan = plan, .e = e};
	struct thread *threads = calloc(plan->n_workers, sizeof(*threads));
	unsigned int i, started = 1;

	p.slots = aligned_alloc(64, plan->slots * sizeof(*p.slots));
	p.jobs = calloc(plan->slots, plan->job_bytes);
	if (!threads || !p.slots || !p.jobs) {
		p.rc = err_sys(e, -ENOMEM, "cannot make a pipeline of %u slots", plan->slots);
		goto out;
	}
	for (i = 0; i < plan->slots; i++)
		atomic_init(&p.slots[i].state, FREE);
	while (started < plan->n_workers) {
		threads[started] = (struct thread){.pipe = &p, .worker = plan->workers[started], .index = started};
		if (thread_start(&threads[started].id, thread_main, &threads[started]) < 0)
			break;
		started++;
	}
	run_worker(&p, plan->workers[0], 0);
	for (i = 1; i < started; i++)
		pthread_join(threads[i].id, NULL);
	drop_rest(&p);
	if (ret_workers)
		*ret_workers = started;
out:
	free(p.jobs);
	free(p.slots);
	free(threads);
	return p.rc;
}
