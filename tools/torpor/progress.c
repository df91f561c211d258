// SPDX-License-Identifier: LGPL-2.1-or-later
/* The progress bar; see progress.h. */
#include "progress.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <torpor.h>

#include "base/clock.h"
#include "base/num.h"
#include "text.h"

#define NS_PER_SECOND UINT64_C(1000000000)
#define FIRST_NS NS_PER_SECOND
#define REDRAW_NS (NS_PER_SECOND / 5)
#define LINE_NS NS_PER_SECOND
#define LINE_BYTES 200
#define BAR_CELLS 20

/* "0:07", "1:02:03" */
static void put_time(char *buf, size_t bytes, double seconds)
{
	uint64_t s = seconds < 360000 ? (uint64_t)(seconds + 0.5) : 360000;

	if (s < 3600)
		snprintf(buf, bytes, "%u:%02u", (unsigned int)(s / 60), (unsigned int)(s % 60));
	else
		snprintf(buf, bytes, "%u:%02u:%02u", (unsigned int)(s / 3600),
			 (unsigned int)(s / 60 % 60), (unsigned int)(s % 60));
}

/* Everything but the bar itself, which stands where `line` ends and `tail` begins. */
static void format(const struct progress *p, const struct torpor_progress *now, char *line,
		   char *tail)
{
	double seconds = (double)(clock_mono_ns() - p->start_ns) / 1e9;
	double rate = (double)now->done_bytes / seconds;
	char done[TEXT_NUMBER_BYTES], total[TEXT_NUMBER_BYTES], left[16];

	text_size(now->done_bytes, done);
	if (!now->total_bytes || now->done_bytes > now->total_bytes) {
		snprintf(line, LINE_BYTES, "%s", p->verb);
		snprintf(tail, LINE_BYTES, " %s, %.2f GB/s", done, rate / 1e9);
		return;
	}
	snprintf(line, LINE_BYTES, "%s %3u %%", p->verb,
		 (unsigned int)(100.0 * (double)now->done_bytes / (double)now->total_bytes));
	text_size(now->total_bytes, total);
	snprintf(tail, LINE_BYTES, " %s of %s, %.2f GB/s", done, total, rate / 1e9);
	if (!now->done_bytes)
		return;
	/* All is packed, but the image still goes to the disk: nobody knows how long. */
	if (now->done_bytes == now->total_bytes) {
		strcat(tail, ", finishing");
		return;
	}
	put_time(left, sizeof(left), (double)(now->total_bytes - now->done_bytes) / rate);
	strcat(tail, ", ");
	strcat(tail, left);
	strcat(tail, " left");
}

static size_t terminal_columns(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_col)
		return 80;
	return size.ws_col;
}

static void put_bar(char *line, const struct torpor_progress *now)
{
	size_t full = (size_t)((double)now->done_bytes / (double)now->total_bytes * BAR_CELLS);
	char *at = line + strlen(line);

	*at++ = ' ';
	*at++ = '[';
	for (size_t i = 0; i < BAR_CELLS; i++)
		*at++ = i < full ? '=' : i == full ? '>' : ' ';
	*at++ = ']';
	*at = '\0';
}

/* A process in the background must not write across what stands in the foreground. */
static bool in_background(void)
{
	pid_t foreground = tcgetpgrp(STDERR_FILENO);

	return foreground > 0 && foreground != getpgrp();
}

static void draw(struct progress *p)
{
	struct torpor_progress now = TORPOR_OPTS(now);
	char line[2 * LINE_BYTES], tail[LINE_BYTES];
	size_t columns = terminal_columns();

	torpor_progress(p->ctx, &now);
	format(p, &now, line, tail);
	if (p->lines) {
		fprintf(stderr, "%s%s\n", line, tail);
		return;
	}
	if (in_background())
		return;
	if (now.total_bytes && now.done_bytes <= now.total_bytes &&
	    strlen(line) + BAR_CELLS + 3 + strlen(tail) < columns)
		put_bar(line, &now);
	strcat(line, tail);
	/* One write, so that a line is never seen half drawn; the last column stays free. */
	fprintf(stderr, "\r%.*s\033[K", (int)columns - 1, line);
	fflush(stderr);
	p->drawn = true;
}

/* Waits until `until_ns` or until the operation is over; true when it is. */
static bool wait_until(struct progress *p, uint64_t until_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(until_ns / NS_PER_SECOND),
		.tv_nsec = (long)(until_ns % NS_PER_SECOND),
	};
	bool stop;

	pthread_mutex_lock(&p->lock);
	while (!p->stop && pthread_cond_timedwait(&p->stopped, &p->lock, &until) != ETIMEDOUT)
		;
	stop = p->stop;
	pthread_mutex_unlock(&p->lock);
	return stop;
}

static void *watch(void *arg)
{
	struct progress *p = arg;
	uint64_t next_ns = p->start_ns + FIRST_NS;

	while (!wait_until(p, next_ns)) {
		draw(p);
		next_ns = clock_mono_ns() + (p->lines ? LINE_NS : REDRAW_NS);
	}
	if (p->drawn && !in_background())
		fputs("\r\033[K", stderr);
	return NULL;
}

static bool wanted(enum progress_when when, bool terminal)
{
	const char *term = getenv("TERM");

	if (when != PROGRESS_AUTO)
		return when == PROGRESS_ALWAYS;
	return terminal && term && strcmp(term, "dumb") != 0;
}

void progress_start(struct progress *p, const struct torpor *ctx, const char *verb,
		    enum progress_when when)
{
	bool terminal = isatty(STDERR_FILENO);
	pthread_condattr_t attr;
	sigset_t all, before;

	memset(p, 0, sizeof(*p));
	if (!wanted(when, terminal))
		return;
	p->ctx = ctx;
	p->verb = verb;
	p->lines = !terminal;
	p->start_ns = clock_mono_ns();
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->stopped, &attr);
	pthread_condattr_destroy(&attr);
	/* Signals are for the thread that runs the operation: there they end a blocked read. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	p->running = pthread_create(&p->thread, NULL, watch, p) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void progress_stop(struct progress *p)
{
	if (!p->running)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_signal(&p->stopped);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	p->running = false;
}
