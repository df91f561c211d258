// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor thaw: let a frozen control group go on. */
#include "op.h"

static const struct opt options[] = {
	{OPT_HELP, "print this help"},
	{OPT_END, NULL},
};

static int run(const struct cmd *cmd, const struct args *args)
{
	struct op op;
	int ret = op_begin(&op, cmd, args);

	if (ret)
		return ret;
	op_done(&op, torpor_thaw(op.ctx, args->operands[0]));
	return op_end(&op);
}

const struct cmd cmd_thaw = {
	.name = "thaw",
	.summary = "let a frozen control group go on",
	.operands = "CGROUP",
	.about =
		"Thaws a control group (version 2) that stands still. torpor never leaves one\n"
		"frozen that it froze itself; this is for what was frozen by something else, "
		"or\n"
		"when torpor and its guardian were killed together. CGROUP is the group's\n"
		"folder, or its name below the mount, as system.slice/mc.service. A group "
		"that\n"
		"is not frozen is no error.\n",
	.options = options,
	.operands_min = 1,
	.operands_max = 1,
	.run = run,
};
