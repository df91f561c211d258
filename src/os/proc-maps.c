// SPDX-License-Identifier: LGPL-2.1-or-later
/* Mappings of a process, and the mounts that it sees; see proc.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "os/proc.h"

/*
 * The kernel hands out a page of lines at a time, and a line is rarely longer than 300 bytes.
 */
#define MAPS_ROOM KIB(8)

struct os_proc_maps {
	int fd;
	char *buf;
	size_t room;
	size_t at, end; /* what was read and not yet handed out */
	bool ended;
};

int os_proc_maps_open(pid_t pid, struct os_proc_maps **ret)
{
	struct os_proc_maps *m = calloc(1, sizeof(*m));
	char path[64];
	int rc;

	if (!m)
		return -ENOMEM;
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	m->room = MAPS_ROOM;
	m->buf = malloc(m->room);
	m->fd = m->buf ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (m->fd < 0) {
		rc = !m->buf ? -ENOMEM : errno == ENOENT ? -ESRCH : -errno;
		os_proc_maps_close(m);
		return rc;
	}
	*ret = m;
	return 0;
}

void os_proc_maps_close(struct os_proc_maps *m)
{
	if (!m)
		return;
	if (m->fd >= 0)
		close(m->fd);
	free(m->buf);
	free(m);
}

/* Reads on; what is left over moves to the front, and the buffer grows when that fills it. */
static int maps_fill(struct os_proc_maps *m)
{
	ssize_t n;

	memmove(m->buf, m->buf + m->at, m->end - m->at);
	m->end -= m->at;
	m->at = 0;
	if (m->end == m->room) {
		char *more = realloc(m->buf, 2 * m->room);

		if (!more)
			return -ENOMEM;
		m->buf = more;
		m->room *= 2;
	}
	do {
		n = read(m->fd, m->buf + m->end, m->room - m->end);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	m->end += (size_t)n;
	m->ended = !n;
	return 0;
}

/* A number and the character behind it. */
static bool take_number(char **at, unsigned int base, char then, uint64_t *ret)
{
	const char *start = *at;
	uint64_t n = 0;

	for (;; (*at)++) {
		unsigned int digit = (unsigned char)**at;

		if (digit >= '0' && digit <= '9')
			digit -= '0';
		else if (digit >= 'a' && digit <= 'f')
			digit -= 'a' - 10;
		else
			break;
		if (digit >= base || num_mul_overflows(n, base, &n) ||
		    num_add_overflows(n, digit, &n))
			return false;
	}
	if (*at == start || **at != then)
		return false;
	(*at)++;
	*ret = n;
	return true;
}

static void undo_newlines(char *name)
{
	char *to = strstr(name, "\\012"), *from = to;

	if (!to)
		return;
	while (*from) {
		if (!strncmp(from, "\\012", 4)) {
			*to++ = '\n';
			from += 4;
		} else {
			*to++ = *from++;
		}
	}
	*to = '\0';
}

/* "START-END rwxs OFFSET MAJOR:MINOR INODE      NAME" */
static bool parse_line(char *at, struct os_proc_map *ret)
{
	uint64_t major_no, minor_no, ino;

	if (!take_number(&at, 16, '-', &ret->start) || !take_number(&at, 16, ' ', &ret->end) ||
	    strnlen(at, 5) < 5 || at[4] != ' ')
		return false;
	ret->read = at[0] == 'r';
	ret->write = at[1] == 'w';
	ret->exec = at[2] == 'x';
	ret->shared = at[3] == 's';
	at += 5;
	if (!take_number(&at, 16, ' ', &ret->offset) || !take_number(&at, 16, ':', &major_no) ||
	    !take_number(&at, 16, ' ', &minor_no))
		return false;
	/* A space follows the inode also where there is no name. */
	if (!take_number(&at, 10, ' ', &ino))
		return false;
	ret->dev = makedev((unsigned int)major_no, (unsigned int)minor_no);
	ret->ino = ino;
	ret->name = at + strspn(at, " ");
	undo_newlines(ret->name);
	return true;
}

int os_proc_maps_next(struct os_proc_maps *m, struct os_proc_map *ret)
{
	char *newline;
	int rc;

	while (!(newline = memchr(m->buf + m->at, '\n', m->end - m->at))) {
		if (m->ended)
			return m->at == m->end ? 0 : -EIO;
		rc = maps_fill(m);
		if (rc < 0)
			return rc;
	}
	*newline = '\0';
	if (!parse_line(m->buf + m->at, ret))
		return -EIO;
	m->at = (size_t)(newline + 1 - m->buf);
	return 1;
}

void os_proc_map_link(pid_t pid, uint64_t start, uint64_t end, char ret[OS_PROC_PATH_BYTES])
{
	snprintf(ret, OS_PROC_PATH_BYTES, "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid, start,
		 end);
}

int os_proc_map_path(pid_t pid, uint64_t start, uint64_t end, char **ret)
{
	char link[OS_PROC_PATH_BYTES], path[PATH_MAX];
	ssize_t n;

	os_proc_map_link(pid, start, end, link);
	n = readlink(link, path, sizeof(path));
	if (n < 0)
		return -errno;
	if (n == (ssize_t)sizeof(path))
		return -ENAMETOOLONG;
	path[n] = '\0';
	*ret = strdup(path);
	return *ret ? 0 : -ENOMEM;
}

int os_proc_mount_type(pid_t pid, dev_t dev, char *ret, size_t bytes)
{
	CLEANUP_FREE char *line = NULL;
	char path[64], type[64];
	size_t room = 0;
	int rc = -ENOENT;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
	f = fopen(path, "re");
	if (!f)
		return errno == ENOENT ? -ESRCH : -errno;
	/*
	 * "ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS", spaces
	 * escaped
	 */
	while (rc && getline(&line, &room, f) > 0) {
		unsigned int major_no, minor_no;
		const char *rest = strstr(line, " - ");

		if (!rest || sscanf(line, "%*u %*u %u:%u", &major_no, &minor_no) != 2 ||
		    makedev(major_no, minor_no) != dev || sscanf(rest, " - %63s", type) != 1)
			continue;
		snprintf(ret, bytes, "%s", type);
		rc = 0;
	}
	fclose(f);
	return rc;
}
