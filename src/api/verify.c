// SPDX-License-Identifier: LGPL-2.1-or-later
/* torpor_verify(): reads an image in one pass, which sees every byte of it, and decodes all of it. */
#include <inttypes.h>
#include <sys/stat.h>

#include "api/load.h"
#include "base/clock.h"

/* Nothing may follow the footer of a file; a block device is as long as it is. */
static int check_end(const struct load *l)
{
	struct stat st;

	if (l->in.fd < 0 || fstat(l->in.fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    l->in.bytes == l->totals.image_bytes)
		return 0;
	return err_set(&l->ctx->e, -EBADMSG, "%" PRIu64 " bytes follow the image's end at offset %" PRIu64,
		       l->in.bytes - l->totals.image_bytes, l->totals.image_bytes);
}

API int torpor_verify(struct torpor *ctx, const char *image, const struct torpor_load_opts *opts,
		      struct torpor_report *ret_report)
{
	struct load l = {.ctx = ctx, .report = {.size = sizeof(l.report)}};
	uint64_t wall = clock_mono_ns(), cpu = clock_cpu_ns();
	int rc;

	context_begin(ctx);
	rc = load_open(&l, image, opts, ret_report, true);
	if (!rc)
		rc = load_run(&l);
	if (!rc)
		rc = check_end(&l);
	if (rc < 0)
		err_wrap(&ctx->e, rc, "cannot verify %s", image ? image : "the image");
	return load_close(&l, rc, wall, cpu, ret_report);
}
