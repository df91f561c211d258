# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the command-line tests share: running torpor, making memory, and comparing it.

Nothing here knows the image's format: these tests see what a user sees.
"""
import errno
import functools
import hashlib
import json
import os
import random
import signal
import stat
import subprocess
import time

PAGE = 4096
MIB = 1 << 20
GIB = 1 << 30
NOBODY = 65534
DEADLINE_S = 60

# Which exit code says what; the names stand in torpor(1).
DONE, FAILED, USAGE, DAMAGED = 0, 1, 2, 3


def torpor_path():
    return os.path.abspath(os.environ["TORPOR"])


class Result:
    """An ended run; str(result) is all that is needed to understand a failed test."""

    def __init__(self, args, code, out, err):
        self.args, self.code, self.raw, self.raw_err = args, code, out or b"", err or b""

    @property
    def out(self):
        return self.raw.decode("utf-8", "replace")

    @property
    def err(self):
        return self.raw_err.decode("utf-8", "replace")

    @property
    def json(self):
        return json.loads(self.raw)

    def __str__(self):
        return f"{self.args} -> {self.code}\n{self.out[:2000]}\n{self.err[:2000]}"


def as_nobody():
    """Arguments for subprocess that take root away; none when there is none to take away."""
    if os.getuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def run(*args, code=DONE, **kwargs):
    """Runs torpor to its end and expects an exit code (None: any)."""
    kwargs.setdefault("stdin", None if "input" in kwargs else subprocess.DEVNULL)
    if kwargs["stdin"] is None:
        del kwargs["stdin"]
    kwargs.setdefault("stdout", subprocess.PIPE)
    kwargs.setdefault("stderr", subprocess.PIPE)
    kwargs.setdefault("timeout", DEADLINE_S)
    done = subprocess.run([torpor_path(), *map(os.fspath, args)], **kwargs)
    result = Result(args, done.returncode, done.stdout, done.stderr)
    # Not a crash, whatever the test is about.
    assert result.code >= 0 or -result.code in (signal.SIGINT, signal.SIGTERM), str(result)
    if code is not None:
        assert result.code == code, str(result)
    return result


def start(*args, **kwargs):
    """Starts torpor; standard error is a pipe, the rest is the caller's."""
    kwargs.setdefault("stdin", subprocess.DEVNULL)
    kwargs.setdefault("stdout", subprocess.PIPE)
    kwargs.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([torpor_path(), *map(os.fspath, args)], **kwargs)


def wait_until(condition, what):
    """Polls, since what is awaited happens in another process; a deadline ends it."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.002)


def wait_until_busy(proc, moved=8 * MIB):
    """Until torpor has read and written so many bytes, or has ended."""

    def busy():
        if proc.poll() is not None:
            return True
        try:
            with open(f"/proc/{proc.pid}/io", encoding="ascii") as f:
                io = dict(line.split(": ") for line in f)
        except OSError:
            return proc.poll() is not None
        return int(io["rchar"]) + int(io["wchar"]) >= moved

    wait_until(busy, f"{moved} bytes have moved")


def random_bytes(n, seed=1):
    return random.Random(seed).randbytes(n)


def mixed_bytes(n, seed=1):
    """Memory as it is found: text that packs, noise that does not, pages of zeros."""
    rng = random.Random(seed)
    text = b" ".join(b"key:%d value:%d" % (i, i * i) for i in range(400))
    out = bytearray()
    while len(out) < n:
        kind = rng.randrange(4)
        if kind == 0:
            out += rng.randbytes(PAGE * rng.randrange(1, 9))
        elif kind == 1:
            out += bytes(PAGE * rng.randrange(1, 9))
        else:
            at = rng.randrange(1000)
            out += (text[at:] * 8)[: PAGE * rng.randrange(1, 9)]
    return bytes(out[:n])


def write_file(path, data, mode=0o644):
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, mode)
    return path


def write_pieces(path, size, pieces):
    """A sparse file: `pieces` are (offset, bytes), all else is a hole."""
    with open(path, "wb") as f:
        f.truncate(size)
        for offset, data in pieces:
            os.pwrite(f.fileno(), data, offset)
    return path


def read_file(path):
    with open(path, "rb") as f:
        return f.read()


def extents(path):
    """Where the filesystem says that there is data: [(begin, end), ...]"""
    found = []
    with open(path, "rb") as f:
        at, size = 0, os.fstat(f.fileno()).st_size
        while at < size:
            try:
                begin = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError as e:
                if e.errno != errno.ENXIO:
                    raise
                break
            at = os.lseek(f.fileno(), begin, os.SEEK_HOLE)
            found.append((begin, at))
    return found


def nonzero_extents(data):
    """Where `data` has pages that are not zero, as extents() would say it."""
    found = []
    for begin in range(0, len(data), PAGE):
        page = data[begin : begin + PAGE]
        if not page.strip(b"\0"):
            continue
        if found and found[-1][1] == begin:
            found[-1] = (found[-1][0], begin + len(page))
        else:
            found.append((begin, begin + len(page)))
    return found


def content_hash(path):
    """Of all bytes of a file; holes are not read, so that a huge sparse file takes no time."""
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        for begin, end in extents(path):
            for at in range(begin, end, MIB):
                piece = os.pread(f.fileno(), min(MIB, end - at), at)
                # Zero pages may have become holes: position and bytes of the others count.
                for i in range(0, len(piece), PAGE):
                    page = piece[i : i + PAGE]
                    if page.strip(b"\0"):
                        digest.update(b"%d:" % (at + i) + page)
    return digest.hexdigest()


def describe(path, owners=True):
    """One entry of a tree with all that must survive."""
    st = os.lstat(path)
    entry = {"mode": stat.filemode(st.st_mode), "mtime_ns": st.st_mtime_ns}
    if owners:
        entry["owner"] = (st.st_uid, st.st_gid)
    if stat.S_ISLNK(st.st_mode):
        entry["link"] = os.readlink(path)
    elif stat.S_ISREG(st.st_mode):
        entry["size"] = st.st_size
        entry["content"] = content_hash(path)
    return entry


def tree(top, owners=True):
    """Everything under and including `top`, by its name in bytes."""
    top = os.fsencode(top)
    found = {b".": describe(top, owners)}
    for folder, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, top)] = describe(path, owners)
    return found


def contents(top):
    """As tree(), without the folder itself: what came and went in it has changed its time."""
    return {name: entry for name, entry in tree(top).items() if name != b"."}


def names(*folders):
    """All names under some folders: equal before and after means that nothing was left."""
    return [sorted(tree_names(f)) for f in folders]


def tree_names(top):
    top = os.fsencode(top)
    for folder, dirs, files in os.walk(top):
        for name in dirs + files:
            yield os.path.relpath(os.path.join(folder, name), top)


@functools.cache
def is_sanitized():
    """Sanitizers need memory and time of their own; a few limits are not theirs."""
    listed = subprocess.run(["ldd", torpor_path()], capture_output=True, check=False).stdout
    # clang links them into the program.
    inside = read_file(torpor_path())
    return any(f"lib{name}san".encode() in listed or f"__{name}san_init".encode() in inside for name in ("a", "t", "ub"))


def flip(image, at, bits=0xFF):
    """`image` with one byte changed."""
    return image[:at] + bytes([image[at] ^ bits]) + image[at + 1 :]


def sample(n, most):
    """All of range(n), or about `most` of it spread evenly, both ends included."""
    if n <= most:
        return list(range(n))
    step = n / most
    return sorted({int(i * step) for i in range(most)} | set(range(64)) | set(range(n - 64, n)))
