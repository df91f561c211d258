# SPDX-License-Identifier: LGPL-2.1-or-later
"""One virtual machine for all tests, and the writers in it."""
import os
import re
import tempfile

import pytest

import machine

MIB = 1 << 20
MEGABYTES = 1280


def programs():
    """What runs in the guest: torpor, and the writer of the same build."""
    torpor = os.environ.get("TORPOR", "")
    if not os.access(torpor, os.X_OK):
        pytest.exit("set TORPOR to the program to test", returncode=2)
    build = os.path.join(os.path.dirname(os.path.abspath(torpor)), "..", "..")
    writer = os.environ.get("TORPOR_WRITER") or os.path.join(build, "tests", "live", "writer")
    if not os.access(writer, os.X_OK):
        pytest.skip(f"no writer: {writer}")
    return [torpor, writer]


@pytest.fixture(scope="session")
def booted():
    kernel = machine.needed()
    with tempfile.TemporaryDirectory(prefix="torpor-test-", dir="/dev/shm") as folder:
        vm = machine.Machine(folder, kernel, MEGABYTES, programs())
        try:
            vm.boot()
            yield vm
        finally:
            vm.close()


@pytest.fixture
def vm(booted):
    """The machine; whatever a test has left in it is gone after it."""
    booted.ask("mkdir /data/images /data/there")
    yield booted
    booted.ask("for p in $(jobs -p); do kill -9 $p; done; wait", code=None)
    booted.ask("rm -rf /data/*")


class Writer:
    """A process that changes its memory all the time, in a way that tells torn copies (tests/live/layout.h)."""

    def __init__(self, vm, kind, mib, *options, folder="/data", before=""):
        self.vm = vm
        path = f"{folder}/memory" if kind == "file" else ""
        words = " ".join(["writer", *options, kind, str(mib * MIB), path])
        # The shell is its parent: it ends with it.
        vm.ask(f"rm -f /tmp/ready; ({before}exec {words}) >/tmp/ready & true")
        vm.wait_until("grep -q ready /tmp/ready", "the writer has filled its memory")
        self.pid = int(vm.ask("cat /tmp/ready").out.split()[1])

    def states(self):
        """Of all its threads and those of its children."""
        pids = f"{self.pid} $(cat /proc/{self.pid}/task/*/children)"
        stats = self.vm.ask(f"for p in {pids}; do cat /proc/$p/task/*/stat; done", code=None).out
        return set(re.findall(r"\(writer\) (\S)", stats))

    def snapshot(self, *options, stop=None):
        """Saves, loads the image into another folder, and checks that it is the memory of one instant; the report."""
        words = stop or f"--stop {self.pid}"
        told = self.vm.ask(f"torpor save {words} {' '.join(options)} -o /data/images/x --force --json").json
        self.vm.ask("rm -f /data/there/*; torpor load /data/images/x --to /data/there --quiet")
        self.vm.ask("writer check /data/there/*")
        assert not self.states() & {"T", "t"}, "it stands still"
        return told


@pytest.fixture
def start(vm):
    return lambda *args, **kwargs: Writer(vm, *args, **kwargs)
