// SPDX-License-Identifier: LGPL-2.1-or-later
/* Opening below a folder; see beneath.h. */
#include "os/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Why there is no folder of this name: O_DIRECTORY says ENOTDIR of a symlink. */
static int no_folder(int dir, const char *name, int rc)
{
	struct stat st;

	return rc == -ENOTDIR && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode) ? -ELOOP : rc;
}

int os_walk_beneath(int dir, const char *path, int flags)
{
	CLEANUP_CLOSE int at = -1;
	char name[NAME_MAX + 1];
	int fd;

	for (;;) {
		const char *slash = strchrnul(path, '/');
		size_t bytes = (size_t)(slash - path);
		int from = at >= 0 ? at : dir;

		if (bytes > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, path, bytes);
		name[bytes] = '\0';
		if (!bytes)
			return -ENOENT;
		if (!strcmp(name, ".."))
			return -EXDEV;
		fd = openat(from, name, *slash ? O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC : flags | O_NOFOLLOW);
		if (fd < 0)
			return *slash ? no_folder(from, name, -errno) : -errno;
		if (!*slash)
			return fd;
		if (at >= 0)
			close(at);
		at = fd;
		path = slash + 1;
	}
}

int os_open_beneath(int dir, const char *path, int flags)
{
	struct open_how how = {
		.flags = (unsigned int)flags,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	long fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));

	if (fd >= 0)
		return (int)fd;
	/* Filters of system calls that they do not know give EPERM, too; then walking tells whether it was meant. */
	return errno == ENOSYS || errno == EPERM || errno == EAGAIN ? os_walk_beneath(dir, path, flags) : -errno;
}
