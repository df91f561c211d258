# SPDX-License-Identifier: LGPL-2.1-or-later
"""A real memcached whose memory is a file: start, fill, stop so that it can come back, question.

Three traps of memcached's restartable mode are handled here.  Only SIGUSR1 makes it write its
`.meta` file; it gives an empty cache when it comes back within the second in which it went; and
it deletes the `.meta` file once that is read.
"""
import concurrent.futures
import os
import shutil
import signal
import socket
import subprocess
import time

from . import values

_BATCH = 200  # items in one write or multiget: well under memcached's limits, few round trips


class Failure(Exception):
    """memcached did not do what it should; the message is for the user."""


def find():
    """The path of memcached, or None.  Debian keeps it on everybody's path."""
    return shutil.which("memcached", path=os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin")


class Memcached:
    """One memcached with its memory in `memory` (and `memory`.meta), listening on a socket file."""

    def __init__(self, memory, sock, megabytes, program=None):
        self.memory = memory
        self.meta = memory + ".meta"
        self.sock = sock
        self.megabytes = megabytes
        self.program = program or find()
        self.process = None
        self.stopped_at = 0

    def start(self):
        """Starts it and waits until it answers."""
        _leave_second(self.stopped_at)
        command = [self.program, "-m", str(self.megabytes), "-e", self.memory, "-s", self.sock, "-t", "2"]
        if os.getuid() == 0:
            command += ["-u", "root"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Failure("memcached ended: " + self.process.stderr.read().decode().strip())
            try:
                self.stats()
                return
            except OSError:
                time.sleep(0.02)
        raise Failure("memcached did not answer within a minute")

    def stop(self):
        """Stops it in the way that lets its memory be used again."""
        self.process.send_signal(signal.SIGUSR1)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            raise Failure("memcached did not stop within a minute") from None
        self.process = None
        self.stopped_at = time.time()
        if not os.path.exists(self.meta):
            raise Failure(f"memcached left no {self.meta}")

    def kill(self):
        """Ends it in any state; for cleaning up."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process = None

    def stats(self):
        """Its counters, as a dictionary."""
        with _connect(self.sock) as conn:
            conn.sendall(b"stats\r\n")
            text = b""
            while not text.endswith(b"END\r\n"):
                more = conn.recv(65536)
                if not more:
                    raise Failure("memcached closed the connection")
                text += more
        return dict(line.split(" ", 2)[1:] for line in text.decode().split("\r\n") if line.startswith("STAT"))

    def fill(self, want_bytes, jobs=None, first=0):
        """Stores items until their values hold `want_bytes`; returns how many items there are.

        Item numbers run from `first`; they are dealt to `jobs` processes in blocks, so that which items
        there are does not depend on who was fast.
        """
        jobs = jobs or os.cpu_count()
        count = _items_for(want_bytes, first)
        total = 0
        for stored in _deal(_store, self.sock, first, count, jobs):
            total += stored
        stats = self.stats()
        if int(stats["curr_items"]) < count or int(stats["evictions"]):
            raise Failure(f"memcached kept {stats['curr_items']} of {count} items: give it more memory")
        return count, total

    def compare(self, count, jobs=None, first=0):
        """Asks for all items; returns (hits, items whose value is as it was)."""
        hits = same = 0
        for h, s in _deal(_fetch, self.sock, first, count, jobs or os.cpu_count()):
            hits += h
            same += s
        return hits, same


def _leave_second(moment):
    while int(time.time()) <= int(moment):
        time.sleep(0.05)


def _connect(path):
    conn = socket.socket(socket.AF_UNIX)
    conn.connect(path)
    return conn


def _items_for(want_bytes, first):
    # A sample gives the mean; two percent more makes up for its error.
    sample = sum(len(values.value(first + i)) for i in range(2000))
    return int(want_bytes * 1.02 / (sample / 2000)) + 1


def _deal(work, sock, first, count, jobs):
    size = 20 * _BATCH
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        blocks = [(first + at, min(size, count - at)) for at in range(0, count, size)]
        yield from pool.map(work, [sock] * len(blocks), *zip(*blocks))


def _store(sock, first, count):
    total = 0
    with _connect(sock) as conn:
        for at in range(first, first + count, _BATCH):
            lines = []
            for i in range(at, min(at + _BATCH, first + count)):
                value = values.value(i)
                total += len(value)
                lines.append(b"set %s 0 0 %d noreply\r\n%s\r\n" % (values.key(i), len(value), value))
            conn.sendall(b"".join(lines))
        # An answer shows that all before it was taken in.
        conn.sendall(b"version\r\n")
        answer = conn.recv(4096)
        if not answer.startswith(b"VERSION"):
            raise Failure(f"memcached refused an item: {answer.decode(errors='replace').strip()}")
    return total


def _fetch(sock, first, count):
    hits = same = 0
    with _connect(sock) as conn, conn.makefile("rb", buffering=1 << 20) as stream:
        for at in range(first, first + count, _BATCH):
            numbers = range(at, min(at + _BATCH, first + count))
            wanted = {values.key(i): i for i in numbers}
            conn.sendall(b"get " + b" ".join(wanted) + b"\r\n")
            for line in iter(stream.readline, b"END\r\n"):
                if not line.startswith(b"VALUE "):
                    raise Failure(f"memcached answered {line.decode(errors='replace').strip() or 'nothing'}")
                _, name, _, length = line.split()
                value = stream.read(int(length) + 2)[:-2]
                hits += 1
                same += value == values.value(wanted.pop(name))
    return hits, same
