// SPDX-License-Identifier: LGPL-2.1-or-later
/* Structs that begin with their own size, so that they can grow; see torpor.h. */
#include "api/context.h"
#include "base/num.h"
#include "image/record.h"
#include "os/cpus.h"
#include "pipe/pipe.h"

int options_take(void *dst, size_t bytes, const void *src, struct err *e)
{
	size_t size;

	if (!src)
		return 0;
	memcpy(&size, src, sizeof(size));
	if (size < sizeof(size) || size > KIB(64))
		return err_set(e, -EINVAL, "options have an impossible size of %zu bytes", size);
	if (size > bytes && !image_all_zero((const char *)src + bytes, size - bytes))
		return err_set(e, -EINVAL, "an option is set that this version of libtorpor does not know");
	memcpy(dst, src, num_min(size, bytes));
	return 0;
}

int options_check_result(const void *dst, struct err *e)
{
	size_t size;

	if (!dst)
		return 0;
	memcpy(&size, dst, sizeof(size));
	return size < sizeof(size) || size > KIB(64)
		       ? err_set(e, -EINVAL, "a result has an impossible size of %zu bytes", size)
		       : 0;
}

int options_give(void *dst, const void *src, size_t bytes, struct err *e)
{
	size_t size;
	int rc = options_check_result(dst, e);

	if (rc < 0 || !dst)
		return rc;
	memcpy(&size, dst, sizeof(size));
	memcpy((char *)dst + sizeof(size), (const char *)src + sizeof(size),
	       num_min(size, bytes) - sizeof(size));
	return 0;
}

int options_threads(uint32_t asked, unsigned int *ret, struct err *e)
{
	if (asked > PIPE_WORKERS_MAX)
		return err_set(e, -EINVAL, "at most %u threads", PIPE_WORKERS_MAX);
	*ret = asked ? asked : (unsigned int)num_min(os_cpus_allowed(), PIPE_WORKERS_MAX);
	return 0;
}
