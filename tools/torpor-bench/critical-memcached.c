// SPDX-License-Identifier: LGPL-2.1-or-later
/* A real service under load: memcached with its memory in a file, and a client that measures every request. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "critical.h"

#define PORT 21211
#define FOLDER CRITICAL_MEMCACHED
#define VALUE_BYTES 7000u

static unsigned int values; /* that were stored */

static struct {
	pthread_t thread;
	int fd;
	atomic_bool stop;
	_Atomic uint64_t slowest_ns, asked_ns; /* asked: 0 while no request is under way */
} client;

static int connect_to(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static void send_all(int fd, const void *data, size_t bytes)
{
	const char *at = data;

	while (bytes) {
		ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			bench_die("memcached does not listen any more");
		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		}
	}
}

/* Reads until the answer ends with `end`. */
static void receive(int fd, const char *end)
{
	char buf[2 * VALUE_BYTES];
	size_t used = 0, n = strlen(end);

	for (;;) {
		ssize_t got = recv(fd, buf + used, sizeof(buf) - used, 0);

		if (got == 0 || (got < 0 && errno != EINTR))
			bench_die("memcached does not answer any more");
		used += got > 0 ? (size_t)got : 0;
		if (used >= n && !memcmp(buf + used - n, end, n))
			return;
		if (used == sizeof(buf))
			bench_die("memcached answers too much");
	}
}

static void fill(const struct bench_data *data, size_t bytes)
{
	int fd = connect_to();
	size_t at = 0;
	char line[64];

	if (fd < 0)
		bench_die("memcached cannot be asked");
	for (values = 0; (size_t)values * VALUE_BYTES < bytes; values++, at += VALUE_BYTES) {
		if (at + VALUE_BYTES > data->dense_bytes)
			at = 0;
		send_all(fd, line, (size_t)snprintf(line, sizeof(line), "set k%u 0 0 %u noreply\r\n", values, VALUE_BYTES));
		send_all(fd, data->dense + at, VALUE_BYTES);
		send_all(fd, "\r\n", 2);
	}
	send_all(fd, "version\r\n", 9);
	receive(fd, "\r\n");
	close(fd);
}

pid_t critical_memcached_start(const struct bench_data *data, size_t bytes)
{
	char size[32], port[16];
	pid_t pid;
	int fd = -1, tries;

	if (access("/usr/bin/memcached", X_OK) < 0)
		return 0;
	mkdir(FOLDER, 0700);
	snprintf(size, sizeof(size), "%zu", (bytes >> 20) * 5 / 4);
	snprintf(port, sizeof(port), "%d", PORT);
	pid = fork();
	if (pid == 0) {
		int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(nowhere, 1);
		dup2(nowhere, 2);
		execl("/usr/bin/memcached", "memcached", "-u", "root", "-l", "127.0.0.1", "-p", port, "-m", size, "-e",
		      FOLDER "/mem", (char *)NULL);
		_exit(127);
	}
	for (tries = 0; tries < 500 && fd < 0; tries++) {
		usleep(10000);
		fd = connect_to();
	}
	if (pid < 0 || fd < 0)
		bench_die("memcached does not start");
	close(fd);
	fill(data, bytes);
	return pid;
}

void critical_memcached_end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(FOLDER "/mem");
	rmdir(FOLDER);
}

static void note(uint64_t ns)
{
	if (ns > atomic_load(&client.slowest_ns))
		atomic_store(&client.slowest_ns, ns);
}

/* Reads, and a store for every tenth. */
static void *ask(void *arg)
{
	char value[VALUE_BYTES], line[64];
	unsigned int seed = 1, n = 0;

	memset(value, 'v', sizeof(value));
	while (!atomic_load(&client.stop)) {
		unsigned int key = (unsigned int)rand_r(&seed) % values;
		uint64_t start = clock_mono_ns();

		atomic_store(&client.asked_ns, start);
		if (++n % 10 == 0) {
			send_all(client.fd, line, (size_t)snprintf(line, sizeof(line), "set k%u 0 0 %u\r\n", key, VALUE_BYTES));
			send_all(client.fd, value, sizeof(value));
			send_all(client.fd, "\r\n", 2);
			receive(client.fd, "STORED\r\n");
		} else {
			send_all(client.fd, line, (size_t)snprintf(line, sizeof(line), "get k%u\r\n", key));
			receive(client.fd, "END\r\n");
		}
		atomic_store(&client.asked_ns, 0);
		note(clock_mono_ns() - start);
		usleep(200);
	}
	return NULL;
}

void critical_client_start(void)
{
	client.fd = connect_to();
	atomic_store(&client.stop, false);
	if (client.fd < 0 || pthread_create(&client.thread, NULL, ask, NULL) != 0)
		bench_die("memcached cannot be asked");
}

void critical_client_reset(void)
{
	atomic_store(&client.slowest_ns, 0);
}

double critical_client_slowest_ms(void)
{
	uint64_t asked = atomic_load(&client.asked_ns);

	if (asked)
		note(clock_mono_ns() - asked);
	return (double)atomic_load(&client.slowest_ns) / 1e6;
}

void critical_client_end(void)
{
	atomic_store(&client.stop, true);
	pthread_join(client.thread, NULL);
	close(client.fd);
}
