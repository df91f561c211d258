// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The guardian; see guardian.h.  Why no instant is left at which the end of torpor leaves a
 * group frozen:
 *
 *     torpor                          guardian
 *     ARM  ------------------------>  armed
 *          <------------------------  0
 *     cgroup.freeze = 1
 *        ...                          waits for the end of torpor
 *     cgroup.freeze = 0
 *     DISARM ---------------------->  not armed
 *
 * The end is the socket's (the kernel closes it only when a write to cgroup.freeze that was
 * under way has returned), or the process's by a pidfd: a child that the program forked may
 * hold a copy of the socket for long.  What was sent before the end is read first.  Up to ARM's
 * answer nothing is frozen; after DISARM nothing is either. Between the two writing "0" is
 * right, or at worst needless.
 *
 * What would end the guardian together with torpor is kept away: it has its own session (a
 * terminal's signals), blocks all signals, is the last to be killed when memory runs out, and
 * moves to the root group, where neither cgroup.kill nor a service manager finds it.  The last
 * two need privilege, and are done as far as it goes.
 */
#include "live/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

/* An answer takes microseconds; without one the guardian was stopped or killed. */
#define ANSWER_TIMEOUT_MS 10000

/* A write that fails for a reason that may pass is tried again for a minute. */
#define THAW_TRIES 600
#define THAW_PAUSE_NS 100000000

enum { ARM = 'a', DISARM = 'd' };

/* What the guardian keeps open. */
struct watch {
	int fd;     /* its end of the socket */
	int life;   /* a pidfd of torpor */
	int freeze; /* cgroup.freeze */
};

/* ---- the guardian's side: only async-signal-safe calls, since other threads were not forked
 * ---- */

static void answer(const struct watch *w, int code)
{
	unsigned char byte = (unsigned char)code;

	send(w->fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int close_others(const struct watch *w)
{
	unsigned int kept[] = {(unsigned int)w->fd, (unsigned int)w->life,
			       (unsigned int)w->freeze},
		     next = 0;
	size_t i, j;

	for (i = 0; i < 3; i++) {
		for (j = i + 1; j < 3; j++) {
			if (kept[j] < kept[i]) {
				unsigned int swap = kept[i];

				kept[i] = kept[j];
				kept[j] = swap;
			}
		}
		if (kept[i] > next && close_range(next, kept[i] - 1, 0) < 0)
			return errno;
		next = kept[i] + 1;
	}
	return close_range(next, ~0u, 0) < 0 ? errno : 0;
}

static void write_there(int fd, const char *text)
{
	/* Best effort: what is refused here is done without. */
	if (fd >= 0 && write(fd, text, strlen(text)) < 0)
		return;
}

static void settle(int root_procs)
{
	int oom = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	setsid();
	prctl(PR_SET_NAME, "torpor-guardian");
	write_there(oom, "-1000");
	write_there(root_procs, "0");
	/* So as to keep no mount busy. */
	if (chdir("/") < 0)
		return;
}

static void thaw(int freeze_fd)
{
	const struct timespec pause = {.tv_nsec = THAW_PAUSE_NS};
	int i, rc;

	for (i = 0; i < THAW_TRIES; i++) {
		rc = os_cgroup_set_freeze(freeze_fd, false);
		if (!rc || rc == -ENODEV)
			break;
		nanosleep(&pause, NULL);
	}
}

/* Takes what torpor has sent.  False: its end of the socket is closed, and all was read. */
static bool listen_to(const struct watch *w, bool *armed)
{
	char order;
	ssize_t n;

	while ((n = recv(w->fd, &order, 1, MSG_DONTWAIT)) == 1) {
		*armed = order == ARM;
		if (*armed)
			answer(w, 0);
	}
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static _Noreturn void guard(const struct watch *w, int root_procs)
{
	struct pollfd ends[] = {{.fd = w->fd, .events = POLLIN},
				{.fd = w->life, .events = POLLIN}};
	bool armed = false, over = false;
	int rc;

	settle(root_procs);
	rc = close_others(w);
	answer(w, rc);
	if (rc)
		_exit(1);
	while (!over) {
		if (poll(ends, 2, -1) < 0) {
			over = errno != EINTR;
			continue;
		}
		/* Asked in this order: when it has ended, no more orders come. */
		over = !listen_to(w, &armed) || ends[1].revents;
	}
	if (armed)
		thaw(w->freeze);
	_exit(0);
}

/* ---- torpor's side ---- */

/* 0, or a positive errno that the guardian has sent, or a negative one. */
static int await_answer(const struct live_guardian *g)
{
	const uint64_t end_ns = clock_mono_ns() + ANSWER_TIMEOUT_MS * 1000000ull;
	struct pollfd in = {.fd = g->fd, .events = POLLIN};
	unsigned char code;
	ssize_t n;

	for (;;) {
		n = recv(g->fd, &code, 1, MSG_DONTWAIT);
		if (n == 1)
			return code;
		if (!n || (errno != EAGAIN && errno != EINTR))
			return -EPIPE;
		if (clock_mono_ns() >= end_ns)
			return -ETIMEDOUT;
		poll(&in, 1, ANSWER_TIMEOUT_MS);
	}
}

/*
 * A child without a signal at its end: a program that waits for any of its children does not
 * meet one that it knows nothing of.  No handler of fork(3) runs either.  All signals are
 * blocked meanwhile, so that no handler of the program's runs in the child.
 */
static pid_t fork_quietly(const struct watch *w, int root_procs)
{
	sigset_t all, before;
	long pid;
	int saved;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = syscall(SYS_clone, 0, 0, 0, 0, 0);
	if (pid == 0)
		guard(w, root_procs);
	saved = errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = saved;
	return (pid_t)pid;
}

int live_guardian_start(const struct os_cgroup *group, struct live_guardian *ret, struct err *e)
{
	CLEANUP_CLOSE int life = (int)syscall(SYS_pidfd_open, getpid(), 0);
	CLEANUP_CLOSE int theirs = -1;
	CLEANUP_CLOSE int root_procs = -1;
	struct live_guardian g = {.fd = -1};
	struct watch w;
	int ends[2], rc;

	if (life < 0)
		return err_sys(e, -errno,
			       "cannot start the guardian of a frozen group: pidfd_open");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return err_sys(e, -errno,
			       "cannot start the guardian of a frozen group: socketpair");
	g.fd = ends[0];
	theirs = ends[1];
	root_procs = os_cgroup_open_root();
	w = (struct watch){theirs, life, group->freeze_fd};
	g.pid = fork_quietly(&w, root_procs);
	if (g.pid < 0) {
		rc = -errno;
		close(g.fd);
		return err_sys(e, rc, "cannot start the guardian of a frozen group: fork");
	}
	/* Else its end would still be open here when it has died. */
	close(take_fd(&theirs));
	rc = await_answer(&g);
	if (rc) {
		live_guardian_end(&g);
		return err_sys(e, rc > 0 ? -rc : rc,
			       "cannot start the guardian of a frozen group");
	}
	*ret = g;
	return 0;
}

int live_guardian_arm(struct live_guardian *g, struct err *e)
{
	const char order = ARM;
	int rc = 0;

	/* Also when no answer comes: it may have heard. */
	g->armed = true;
	if (send(g->fd, &order, 1, MSG_NOSIGNAL) != 1)
		rc = -errno;
	if (!rc)
		rc = await_answer(g);
	if (rc < 0)
		return err_set(e, rc,
			       "the guardian (process %d), which would thaw the group if this "
			       "process died, %s",
			       g->pid, rc == -ETIMEDOUT ? "does not answer" : "has ended");
	return 0;
}

void live_guardian_disarm(struct live_guardian *g)
{
	const char order = DISARM;

	if (g->armed)
		send(g->fd, &order, 1, MSG_NOSIGNAL);
	g->armed = false;
}

void live_guardian_end(struct live_guardian *g)
{
	if (g->fd >= 0)
		close(g->fd);
	g->fd = -1;
	while (g->pid > 0 && waitpid(g->pid, NULL, __WALL) < 0 && errno == EINTR)
		continue;
	g->pid = 0;
}
