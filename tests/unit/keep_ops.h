/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Random operations on the preservation table and its model, for the tests that need many. */
#ifndef TORPOR_TESTS_KEEP_OPS_H
#define TORPOR_TESTS_KEEP_OPS_H

#include "keep_rig.h"

enum op_kind { OP_PRESERVE, OP_UNPRESERVE, OP_PRESERVE_RANGE, OP_UNPRESERVE_RANGE, OP_KINDS };

struct op {
	enum op_kind kind;
	uint64_t start, pages; /* pages: of a range */
	unsigned int order, flags;
};

/* Where things happen: at the ends of tables, and of memory, more often than elsewhere. */
static inline uint64_t op_place(struct keep_rig *r, uint64_t from, uint64_t to)
{
	uint64_t leaf = r->geometry.page_bytes * UINT64_C(8), at;

	at = from + rig_random(r, to - from);
	if (rig_random(r, 3) == 0)
		at = at / leaf * leaf + rig_random(r, 130) - 65;
	else if (rig_random(r, 3) == 0)
		at = to - 1 - rig_random(r, 70);
	return at >= from && at < to ? at : from;
}

/* An operation within pages [from, to), mostly one that can be done. */
static inline struct op op_random(struct keep_rig *r, uint64_t from, uint64_t to)
{
	struct op op = {.kind = (enum op_kind)rig_random(r, OP_KINDS)};
	uint64_t longest;

	op.order =
		(unsigned int)(rig_random(r, 2) ? 0 : rig_random(r, r->geometry.order_max + 1));
	op.start = op_place(r, from, to);
	if (op.kind == OP_PRESERVE || op.kind == OP_UNPRESERVE) {
		if (op.kind == OP_UNPRESERVE && r->owner[op.start] && rig_random(r, 2))
			op.order = r->owner[op.start] - 1u;
		if (rig_random(r, 50))
			op.start &= ~((UINT64_C(1) << op.order) - 1);
		op.flags = op.kind == OP_UNPRESERVE && rig_random(r, 2) ? KEEP_SPLIT : 0;
		if (op.start < from || op.start + (UINT64_C(1) << op.order) > to)
			op.order = 0, op.start = num_max(op.start, from);
		return op;
	}
	longest = to - op.start;
	if (rig_random(r, 4))
		longest = num_min(longest, rig_random(r, 2) ? 200 : 5000);
	op.pages = 1 + rig_random(r, longest);
	if (op.kind == OP_UNPRESERVE_RANGE && rig_random(r, 2)) {
		for (longest = 1; longest < op.pages && r->owner[op.start + longest];)
			longest++;
		op.pages = longest;
	}
	if (rig_random(r, 2))
		op.flags = op.kind == OP_PRESERVE_RANGE ? KEEP_LARGEST : KEEP_SPLIT;
	return op;
}

static inline int op_run(struct keep_hand *hand, const struct op *op)
{
	switch (op->kind) {
	case OP_PRESERVE:
		return keep_preserve(hand, op->start, op->order);
	case OP_UNPRESERVE:
		return keep_unpreserve(hand, op->start, op->order, op->flags);
	case OP_PRESERVE_RANGE:
		return keep_preserve_range(hand, op->start, op->pages, op->flags);
	default:
		return keep_unpreserve_range(hand, op->start, op->pages, op->flags);
	}
}

/* What the model says of it, and does; -EEXIST for a range stands for -EBUSY too. */
static inline int op_model(struct keep_rig *r, const struct op *op)
{
	switch (op->kind) {
	case OP_PRESERVE:
		return model_preserve(r, op->start, op->order);
	case OP_UNPRESERVE:
		return model_unpreserve(r, op->start, op->order, op->flags);
	case OP_PRESERVE_RANGE:
		return model_preserve_range(r, op->start, op->pages, op->flags) ? 0 : -EEXIST;
	default:
		return model_unpreserve_range(r, op->start, op->pages, op->flags);
	}
}

static inline uint64_t op_end(const struct op *op)
{
	return op->start + (op->pages ? op->pages : UINT64_C(1) << op->order);
}

/* Runs it on both, and compares what they say. */
static inline int op_both(struct keep_rig *r, const struct op *op)
{
	bool same_block = op->kind == OP_PRESERVE_RANGE &&
			  model_has_block(r, op->start, op->pages, op->flags);
	int want = op_model(r, op), got = op_run(r->hand, op);

	if (op->kind == OP_PRESERVE_RANGE && want && (got == -EBUSY || same_block))
		want = got == -EBUSY ? got : want;
	if (got != want)
		fail_msg("op %d start %llu pages %llu order %u flags %u: %d, not %d", op->kind,
			 (unsigned long long)op->start, (unsigned long long)op->pages,
			 op->order, op->flags, got, want);
	return got;
}

#endif
