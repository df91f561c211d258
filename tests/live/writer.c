// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A process for tests that writes its memory all the time, so that every copy of it shows
 * whether it was taken at one instant (layout.h).
 *
 *     writer [OPTION]... KIND BYTES [PATH]   KIND: file, deleted (both need PATH), memfd, anon
 *     writer check FILE                      exit 0: FILE is the memory of one instant
 *     writer trace PID                       a debugger: holds on to PID until it is killed
 *
 * Prints "ready PID ADDRESS SLOTS" when every slot has made a round.  It ends when its parent
 * does.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "layout.h"

/* A test that went wrong leaves nothing behind for longer than this. */
#define LIFE_S 600

/* What a child of --forking does before it ends. */
#define CHILD_STEPS 50

struct options {
	unsigned int threads;   /* a process */
	unsigned int processes; /* beside the first one */
	bool forking;           /* makes children all the time */
	bool leader_exits;
	bool counts_usr1;
	bool cuts;     /* the file is truncated and grows again all the time */
	bool by_write; /* every second page is stamped by write(2) */
	bool windows;  /* only the pages with counters stay mapped */
	unsigned int exit_after_ms;
	unsigned int rate; /* steps a second and thread; 0: as fast as it goes */
};

static struct options opts = {.threads = 2};
static struct layout mem;
static int memory_fd = -1; /* where the mapping is not all that is needed */
static bool memory_is_made;

static void die(const char *what)
{
	fprintf(stderr, "writer: %s: %s\n", what, strerror(errno));
	_exit(2);
}

static void write_page(enum layout_kind kind, uint64_t page, uint64_t number)
{
	uint64_t content[LAYOUT_WORDS];
	unsigned int w;

	for (w = 0; w < LAYOUT_WORDS; w++)
		content[w] = layout_content(kind, page, number, w);
	if (pwrite(memory_fd, content, sizeof(content), (off_t)(page * LAYOUT_PAGE)) !=
	    sizeof(content))
		die("pwrite");
}

/* A page for as long as it is stamped; it is unmapped with the last word. */
static layout_word *map_page(uint64_t page)
{
	void *at;

	if (!opts.windows || !memory_is_made)
		return layout_page(&mem, page);
	at = mmap(NULL, LAYOUT_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd,
		  (off_t)(page * LAYOUT_PAGE));
	if (at == MAP_FAILED)
		die("mmap");
	return at;
}

static void stamp(uint64_t page, uint64_t number)
{
	enum layout_kind kind = layout_kind(page);
	layout_word *at;
	unsigned int w, step = kind == LAYOUT_TOGGLE || number == 1 ? 1 : LAYOUT_WORDS - 1;

	if (kind == LAYOUT_HOLE || (kind == LAYOUT_ZERO && number > 1))
		return;
	if (opts.by_write && page % 2) {
		write_page(kind, page, number);
		return;
	}
	at = map_page(page);
	for (w = 0; w < LAYOUT_WORDS; w += step)
		atomic_store_explicit(&at[w], layout_content(kind, page, number, w),
				      memory_order_release);
	if (at != layout_page(&mem, page))
		munmap((void *)at, LAYOUT_PAGE);
}

static void do_step(uint64_t slot, uint64_t i)
{
	uint64_t m = layout_own(&mem, slot);

	atomic_fetch_add(&layout_head(&mem)->begun, 1);
	atomic_fetch_add(&layout_a(&mem, slot)[i % LAYOUT_PAIRS], 1);
	stamp(layout_own_page(&mem, slot, i % m), i / m + 1);
	atomic_fetch_add(&layout_b(&mem, slot)[i % LAYOUT_PAIRS], 1);
	atomic_fetch_add(layout_done(&mem), 1);
}

/* Where a slot stands that another writer has left. */
static uint64_t steps_of(uint64_t slot)
{
	uint64_t n = 0;
	unsigned int k;

	for (k = 0; k < LAYOUT_PAIRS; k++)
		n += layout_b(&mem, slot)[k];
	return n;
}

/* Sleeps that are too short take longer than they should: with many steps a second it sleeps
 * after some of them. */
static void rest(uint64_t i)
{
	unsigned int burst = opts.rate / 200 + 1;
	struct timespec nap = {.tv_nsec = opts.rate > 1 ? burst * (1000000000L / opts.rate)
							: 999999999};

	if (opts.rate && i % burst == 0)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
}

static void *write_slot(void *arg)
{
	uint64_t slot = (uintptr_t)arg, i;

	for (i = steps_of(slot);; i++) {
		do_step(slot, i);
		rest(i);
	}
	return NULL;
}

/* A tail that is not filled is read: then it has pages, of zeros. */
static void *cut_and_grow(void *arg)
{
	struct layout_head *head = layout_head(&mem);
	layout_word *at = layout_page(&mem, mem.pages);
	off_t bytes = (off_t)(mem.pages * LAYOUT_PAGE);
	uint64_t n, w, sum;

	for (n = 1;; n++) {
		atomic_store(&head->cuts, n);
		if (ftruncate(memory_fd, bytes) < 0 ||
		    ftruncate(memory_fd, bytes + (off_t)LAYOUT_TAIL * LAYOUT_PAGE) < 0)
			die("ftruncate");
		for (w = 0, sum = 0; w < LAYOUT_TAIL * LAYOUT_WORDS; w++) {
			if (n % 2)
				atomic_store_explicit(&at[w], n, memory_order_release);
			else
				sum += at[w];
		}
		if (sum)
			die("what was cut off is there again");
		atomic_store(&head->grown, n);
		rest(n);
	}
	return NULL;
}

/* Children, one after the other, that go on with one slot. */
static void *make_children(void *arg)
{
	uint64_t slot = (uintptr_t)arg, i;

	for (;;) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (i = 0; i < CHILD_STEPS; i++)
				do_step(slot, steps_of(slot));
			_exit(0);
		}
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	return NULL;
}

static void start(void *(*fn)(void *), uint64_t slot)
{
	pthread_t thread;
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	if (pthread_create(&thread, &attr, fn, (void *)(uintptr_t)slot))
		die("pthread_create");
	pthread_attr_destroy(&attr);
}

/* Process number `p`: its threads. */
static void start_threads(unsigned int p)
{
	unsigned int t;

	for (t = 0; t < opts.threads; t++)
		start(write_slot, (uint64_t)p * opts.threads + t);
}

static void start_processes(void)
{
	unsigned int p;

	for (p = 1; p <= opts.processes; p++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		start_threads(p);
		for (;;)
			pause();
	}
}

static int open_memory(const char *kind, const char *path)
{
	int fd = !strcmp(kind, "memfd")
			 ? memfd_create("writer", MFD_CLOEXEC)
			 : open(path ? path : "", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0)
		die(path ? path : kind);
	if (!strcmp(kind, "deleted") && unlink(path) < 0)
		die(path);
	return fd;
}

static void make_memory(const char *kind, uint64_t bytes, const char *path)
{
	bool anon = !strcmp(kind, "anon");
	int fd = anon ? -1 : open_memory(kind, path);
	struct layout_head *head;
	uint64_t s, j;

	if (!anon && ftruncate(fd, (off_t)bytes) < 0)
		die("ftruncate");
	mem.at = mmap(NULL, bytes + (opts.cuts ? LAYOUT_TAIL * LAYOUT_PAGE : 0),
		      PROT_READ | PROT_WRITE, MAP_SHARED | (anon ? MAP_ANONYMOUS : 0), fd, 0);
	if (mem.at == MAP_FAILED)
		die("mmap");
	if (opts.cuts || opts.by_write || opts.windows)
		memory_fd = fd;
	else if (fd >= 0)
		close(fd);
	mem.pages = bytes / LAYOUT_PAGE;
	mem.slots = (uint64_t)opts.threads * (1 + opts.processes) + opts.forking;
	head = layout_head(&mem);
	*head = (struct layout_head){
		.magic = LAYOUT_MAGIC, .pages = mem.pages, .slots = mem.slots};
	/* One round each, so that all is there. */
	for (s = 0; s < mem.slots; s++) {
		for (j = 0; j < layout_own(&mem, s); j++)
			do_step(s, j);
	}
	memory_is_made = true;
	if (opts.windows)
		munmap((void *)layout_page(&mem, 1 + mem.slots),
		       (mem.pages - 2 - 2 * mem.slots) * LAYOUT_PAGE);
}

static void on_usr1(int sig)
{
	/* The last words of the head's page. */
	atomic_fetch_add(&layout_page(&mem, 0)[LAYOUT_WORDS - 1], 1);
}

static void *end_later(void *arg)
{
	struct timespec nap = {opts.exit_after_ms / 1000, opts.exit_after_ms % 1000 * 1000000};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
	_exit(0);
}

_Noreturn static void run(const char *kind, uint64_t bytes, const char *path)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() == 1)
		die("no parent");
	alarm(LIFE_S);
	make_memory(kind, bytes, path);
	if (opts.counts_usr1)
		sigaction(SIGUSR1,
			  &(struct sigaction){.sa_handler = on_usr1, .sa_flags = SA_RESTART},
			  NULL);
	start_processes();
	start_threads(0);
	if (opts.forking)
		start(make_children, mem.slots - 1);
	if (opts.cuts)
		start(cut_and_grow, 0);
	printf("ready %d %" PRIuPTR " %" PRIu64 "\n", getpid(), (uintptr_t)mem.at, mem.slots);
	fflush(stdout);
	if (opts.exit_after_ms)
		start(end_later, 0);
	if (opts.leader_exits)
		pthread_exit(NULL);
	for (;;)
		pause();
}

/* ---- the other modes ---- */

static int check(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct layout l = {.at = NULL};
	uint64_t steps, pages;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		die(path);
	l.at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (l.at == MAP_FAILED)
		die(path);
	l.pages = layout_head(&l)->pages;
	l.slots = layout_head(&l)->slots;
	pages = (uint64_t)st.st_size / LAYOUT_PAGE;
	if (layout_head(&l)->magic != LAYOUT_MAGIC || l.pages > pages ||
	    (l.pages < pages && !layout_head(&l)->cuts) || !l.slots ||
	    l.slots > LAYOUT_SLOTS_MAX || l.pages < 3 * l.slots + 2) {
		fprintf(stderr, "%s: not the memory of a writer\n", path);
		return 1;
	}
	if (!layout_check(&l, &steps) || !layout_check_tail(&l, pages - l.pages))
		return 1;
	printf("%" PRIu64 "\n", steps);
	return 0;
}

_Noreturn static void trace(pid_t pid)
{
	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0)
		die("ptrace");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	printf("ready %d\n", getpid());
	fflush(stdout);
	for (;;)
		pause();
}

static const struct option long_options[] = {
	{"threads", required_argument, NULL, 't'},
	{"fork", required_argument, NULL, 'f'},
	{"forking", no_argument, NULL, 'F'},
	{"leader-exits", no_argument, NULL, 'l'},
	{"exit-after", required_argument, NULL, 'e'},
	{"rate", required_argument, NULL, 'r'},
	{"usr1", no_argument, NULL, 'u'},
	{"cuts", no_argument, NULL, 'c'},
	{"by-write", no_argument, NULL, 'w'},
	{"windows", no_argument, NULL, 'm'},
	{NULL, 0, NULL, 0},
};

static bool take_option(int found)
{
	unsigned int n = optarg ? (unsigned int)strtoul(optarg, NULL, 10) : 0;

	opts.threads = found == 't' ? n : opts.threads;
	opts.processes = found == 'f' ? n : opts.processes;
	opts.exit_after_ms = found == 'e' ? n : opts.exit_after_ms;
	opts.rate = found == 'r' ? n : opts.rate;
	opts.forking |= found == 'F';
	opts.leader_exits |= found == 'l';
	opts.counts_usr1 |= found == 'u';
	opts.cuts |= found == 'c';
	opts.by_write |= found == 'w';
	opts.windows |= found == 'm';
	return found != '?';
}

int main(int argc, char **argv)
{
	uint64_t bytes;
	int found;

	if (argc == 3 && !strcmp(argv[1], "check"))
		return check(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "trace"))
		trace((pid_t)strtol(argv[2], NULL, 10));
	while ((found = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		if (!take_option(found))
			return 2;
	}
	if (argc - optind < 2)
		return 2;
	bytes = strtoull(argv[optind + 1], NULL, 10) / LAYOUT_PAGE * LAYOUT_PAGE;
	if (bytes / LAYOUT_PAGE <
	    2 + 3 * ((uint64_t)opts.threads * (1 + opts.processes) + opts.forking))
		return 2;
	run(argv[optind], bytes, argv[optind + 2]);
}
