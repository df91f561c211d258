# SPDX-License-Identifier: LGPL-2.1-or-later
"""Live processes: tests/live/writer, what state they are in, and control groups for them."""
import ctypes
import errno
import os
import select
import shutil
import signal
import struct
import subprocess
import tempfile

import pytest

import rig
from rig import MIB, PAGE

PAIRS = 8


def writer_path():
    """Where the build puts it, unless the environment names it."""
    build = os.path.join(os.path.dirname(rig.torpor_path()), "..", "..")
    path = os.environ.get("TORPOR_WRITER") or os.path.join(build, "tests", "live", "writer")
    if not os.access(path, os.X_OK):
        pytest.skip(f"no writer: {path}")
    return os.path.abspath(path)


def first_line(proc):
    ready, _, _ = select.select([proc.stdout], [], [], rig.DEADLINE_S)
    assert ready, "the process says nothing"
    line = proc.stdout.readline().decode()
    assert line.startswith("ready "), (line, proc.poll())
    return line.split()


def threads(pid):
    """[(tid, state)] of a process, [] when it has ended."""
    found = []
    try:
        tids = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return found
    for tid in tids:
        try:
            with open(f"/proc/{pid}/task/{tid}/stat", encoding="utf-8", errors="replace") as f:
                found.append((int(tid), f.read().rpartition(")")[2].split()[0]))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def states(pid):
    return {state for _, state in threads(pid)}


def children(pid):
    found = []
    for tid, _ in threads(pid):
        try:
            with open(f"/proc/{pid}/task/{tid}/children", encoding="ascii") as f:
                found += [int(child) for child in f.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


class Writer:
    """A process that writes its memory all the time, in a way that tells torn copies (tests/live/layout.h)."""

    def __init__(self, kind="memfd", mib=8, *options, folder="/dev/shm", **kwargs):
        self.path = None
        if kind in ("file", "deleted"):
            self.path = os.path.join(tempfile.mkdtemp(prefix="torpor-live-", dir=folder), "mem")
            if "user" in kwargs:
                os.chown(os.path.dirname(self.path), kwargs["user"], kwargs["group"])
        words = [writer_path(), *options, kind, str(int(mib * MIB))] + ([self.path] if self.path else [])
        self.proc = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **kwargs)
        try:
            self.pid, self.address, self.slots = map(int, first_line(self.proc)[1:])
        except BaseException:
            self.pid = self.proc.pid
            self.close()
            raise

    def memory(self, offset, n):
        """Bytes of it as they are now, whoever of its threads still lives."""
        for tid, state in threads(self.pid):
            if state in "ZX":
                continue
            with open(f"/proc/{self.pid}/task/{tid}/mem", "rb", 0) as f:
                return os.pread(f.fileno(), n, self.address + offset)
        raise AssertionError("the writer has ended")

    def steps(self):
        """How many steps each slot began."""
        pages = [self.memory((1 + s) * PAGE, 8 * PAIRS) for s in range(self.slots)]
        return [sum(struct.unpack(f"{PAIRS}Q", page)) for page in pages]

    def family(self):
        """Its process and those that it made."""
        return [self.pid] + children(self.pid)

    def stopped(self):
        """A thread of it stands still."""
        return any(states(pid) & set("Tt") for pid in self.family())

    def expect_running(self):
        """All threads of all its processes run, and all go on with their counters."""
        rig.wait_until(lambda: not self.stopped(), "nothing stands still")
        before = self.steps()
        rig.wait_until(lambda: all(a > b for a, b in zip(self.steps(), before)), "every writer goes on")

    def close(self):
        for pid in self.family() if self.proc.poll() is None else []:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.proc.wait()
        self.proc.stdout.close()
        if self.path:
            shutil.rmtree(os.path.dirname(self.path))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def check_memory(path):
    """The file is the memory of one instant; returns the number of steps in it."""
    done = subprocess.run([writer_path(), "check", path], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return int(done.stdout)


def load(image, there):
    """Loads an image of one file; where the file is."""
    for name in os.listdir(there):
        os.unlink(os.path.join(there, name))
    if isinstance(image, bytes):
        rig.run("load", "-", "--to", there, "--quiet", input=image)
    else:
        rig.run("load", image, "--to", there, "--quiet")
    names = os.listdir(there)
    assert len(names) == 1, names
    return os.path.join(there, names[0])


def load_and_check(image, there):
    return check_memory(load(image, there))


# ---- proving that nothing was stopped ----

# BPF: load the system call's number; jump over the next one unless it is ptrace; kill; allow.
PTRACE_NUMBER = {"x86_64": 101, "aarch64": 117}
SECCOMP_MODE_FILTER, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 2, 22, 38
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000


def no_ptrace():
    """Arguments for rig.run(): a process that calls ptrace(2) dies of SIGSYS, so one that does not stopped nobody."""
    number = PTRACE_NUMBER.get(os.uname().machine)
    # The leak checker of a sanitizer traces, too.
    if number is None or rig.is_sanitized():
        return {}
    code = b"".join(
        struct.pack("HBBI", *word)
        for word in [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, KILL_PROCESS), (0x06, 0, 0, ALLOW)]
    )
    text = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(text)))
    libc = ctypes.CDLL(None, use_errno=True)

    def confine(keep=(text, program)):
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_void_p(ctypes.addressof(keep[1])), 0, 0):
            raise OSError(ctypes.get_errno(), "seccomp")

    return {"preexec_fn": confine}


# ---- control groups ----


def mount_of(kind, controller=None):
    """Where control groups are mounted, None: nowhere."""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        for line in f:
            left, right = line.split(" - ")
            fs, _, options = right.split()[:3]
            if fs == kind and (controller is None or controller in options.split(",")):
                return left.split()[4]
    return None


class Group:
    """A control group for a test; what is left in it is killed at the end."""

    def __init__(self, parent):
        self.path = tempfile.mkdtemp(prefix="torpor-test-", dir=parent)

    def file(self, name):
        return os.path.join(self.path, name)

    def read(self, name):
        with open(self.file(name), encoding="ascii") as f:
            return f.read()

    def write(self, name, text):
        with open(self.file(name), "w", encoding="ascii") as f:
            f.write(str(text))

    def enter(self):
        """For preexec_fn."""
        self.write("cgroup.procs", 0)

    def frozen(self):
        return "frozen 1" in self.read("cgroup.events")

    def close(self):
        def gone():
            for pid in self.read("cgroup.procs").split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            try:
                os.rmdir(self.path)
            except OSError as e:
                assert e.errno == errno.EBUSY
                return False
            return True

        rig.wait_until(gone, "the control group is gone")


def new_group(kind, controller=None, needs=None):
    mount = mount_of(kind, controller)
    if mount is None:
        pytest.skip(f"no {kind} {controller or ''} is mounted")
    try:
        group = Group(mount)
    except OSError as e:
        pytest.skip(f"no control group can be made: {e}")
    if needs and not os.access(group.file(needs), os.W_OK):
        group.close()
        pytest.skip(f"control groups have no {needs} here")
    return group


@pytest.fixture
def freezer():
    """A control group that can be frozen."""
    group = new_group("cgroup2", needs="cgroup.freeze")
    yield group
    if os.path.exists(group.path):
        group.write("cgroup.freeze", 0)
        group.close()


@pytest.fixture
def little_memory():
    """A control group with a limit on memory: set(bytes) returns arguments for rig.run()."""
    version1 = mount_of("cgroup", "memory")
    group = new_group("cgroup", "memory") if version1 else new_group("cgroup2", needs="memory.max")
    limit = "memory.limit_in_bytes" if version1 else "memory.max"

    def confine(limit_bytes):
        group.write(limit, limit_bytes)
        return {"preexec_fn": group.enter}

    yield confine
    group.close()
