# SPDX-License-Identifier: LGPL-2.1-or-later
"""The private memory of ordinary processes: an interpreter's objects, a compiler at work, redis.

Each maker starts a process, lets it fill its memory, and hands it over stopped; dump() copies what
is writable in it, the way /proc/PID/mem shows it.  The processes are the caller's to end.
"""
import os
import signal
import socket
import subprocess
import time

from . import values

_PYTHON = r"""
import random, sys
rng = random.Random(7)
people = []
while len(people) < %(n)d:
    i = len(people)
    people.append({"id": i, "name": "person %%d" %% rng.getrandbits(24), "score": rng.random(),
                   "tags": rng.sample(range(5000), 5), "when": (i, rng.getrandbits(40)), "more": [None] * 6})
index = {p["name"]: p for p in people}
print("ready", flush=True)
sys.stdin.read()
"""

_PERL = r"""
srand(7); my %%h;
for my $i (1 .. %(n)d) { $h{"key:$i"} = [int(rand(1e9)), "value " x (1 + $i %% 7), { n => $i, x => rand() }]; }
$| = 1; print "ready\n"; <STDIN>;
"""


class Failure(Exception):
    """A process did not do what it should."""


def dump(pid, out, limit):
    """Copies writable private memory of `pid` to the file `out`, at most `limit` bytes; returns how many."""
    os.kill(pid, signal.SIGSTOP)
    done = 0
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        lines = maps.read().splitlines()
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        for line in lines:
            span, perms = line.split()[:2]
            if not perms.startswith("rw") or perms[3] != "p":
                continue
            low, high = (int(x, 16) for x in span.split("-"))
            done += _copy(memory, low, high, out, limit - done, pid)
    finally:
        os.close(memory)
    return done


def _copy(memory, low, high, out, limit, pid):
    """Copies the pages of one mapping that exist: 4 KiB of memory never touched are no memory."""
    done = 0
    with open(f"/proc/{pid}/pagemap", "rb") as pagemap:
        pagemap.seek(low // 4096 * 8)
        entries = memoryview(pagemap.read((high - low) // 4096 * 8)).cast("Q")
    at, n = 0, len(entries)
    while at < n and done < limit:
        if not entries[at] >> 63:
            at += 1
            continue
        end = at
        while end < n and end - at < 256 and entries[end] >> 63:
            end += 1
        data = os.pread(memory, min((end - at) * 4096, limit - done), low + at * 4096)
        out.write(data)
        done += len(data)
        at = end
    return done


def _ready(command):
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if process.stdout.readline() != b"ready\n":
        process.kill()
        raise Failure(f"{command[0]} did not fill its memory")
    return process


def python(megabytes):
    """A Python with many small objects."""
    return _ready(["/usr/bin/python3", "-c", _PYTHON % {"n": megabytes * 1250}])


def perl(megabytes):
    """A perl with a large hash."""
    return _ready(["perl", "-e", _PERL % {"n": megabytes * 1700}])


def compiler(megabytes, folder):
    """A C compiler in the middle of a large file, stopped once it uses `megabytes`."""
    source = os.path.join(folder, "large.c")
    with open(source, "w", encoding="ascii") as out:
        for i in range(megabytes * 120):
            out.write(_FUNCTION.replace("@", str(i)))
    # Without -c's assembler: the one process is the compiler proper.
    cc1 = subprocess.run(["gcc", "-print-prog-name=cc1"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    command = [cc1, "-quiet", "-O2", "-g", source, "-o", os.devnull]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    while _resident(process.pid) < megabytes << 20:
        if process.poll() is not None:
            raise Failure("the compiler ended before it used enough memory")
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGSTOP)
    return process


_FUNCTION = """
struct node@ { struct node@ *next; long key; double weight[4]; char name[24]; };
long sum@(const struct node@ *n, long limit)
{
	long total = 0;
	for (; n && limit-- > 0; n = n->next) {
		if (n->name[0] == 'a' + @ % 26)
			total += n->key * @ + (long)(n->weight[1] * n->weight[2]);
		else
			total ^= n->key >> (n->name[3] & 7);
	}
	return total;
}
"""


def _resident(pid):
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * 4096
    except (FileNotFoundError, IndexError):
        return 0


def redis(megabytes, folder):
    """A redis with strings, hashes, lists and sorted sets."""
    sock = os.path.join(folder, "redis.sock")
    command = ["redis-server", "--port", "0", "--unixsocket", sock, "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command + ["--dir", folder], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    conn = socket.socket(socket.AF_UNIX)
    while True:
        try:
            conn.connect(sock)
            break
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failure("redis-server does not answer") from None
            time.sleep(0.02)
    stream = conn.makefile("rb")
    i = 0
    while _resident(process.pid) < megabytes << 20:
        commands = [c for k in range(i, i + 400) for c in _redis_commands(k)]
        conn.sendall(b"".join(_resp(c) for c in commands))
        for _ in commands:
            if stream.readline().startswith(b"-"):
                raise Failure("redis-server refused a command")
        i += 400
    conn.close()
    return process


def _redis_commands(i):
    value = values.value(i)
    yield (b"SET", b"page:%d" % i, value[:1500])
    yield (b"HSET", b"user:%d" % i, b"name", value[40:70], b"visits", b"%d" % (i * 7919 % 100003), b"mail", value[80:110])
    yield (b"ZADD", b"board:%d" % (i % 997), b"%d" % (i * 7919 % 1000003), b"player:%d" % i)
    yield (b"RPUSH", b"queue:%d" % (i % 211), value[-200:])


def _resp(parts):
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)
