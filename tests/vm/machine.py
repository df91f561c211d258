# SPDX-License-Identifier: LGPL-2.1-or-later
"""A virtual machine with Debian's kernel in which tests run commands, for what the machine at hand cannot do.

It has torpor, the writer of tests/live and a busybox.  Commands go to a shell in it over a serial line of their own, one
at a time; what they print comes back.  The kernel's messages and what went wrong stand on the console.
"""
import json
import os
import re
import socket
import subprocess
import sys
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../scripts"))
from realprog import guest  # noqa: E402

DEADLINE_S = 60
DISK_BYTES = 256 << 20

# The shell is not the init itself: a writer whose parent is process 1 believes that it has lost its own.
INIT = r"""#!/bin/busybox sh
export PATH=/bin LD_LIBRARY_PATH=/lib
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
exec </dev/ttyS0 >/dev/ttyS0 2>&1
mkdir -p /sys /dev/shm /tmp
mount -t sysfs sys /sys
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t tmpfs -o size=90% data /data
mount -t tmpfs -o size=90% shm /dev/shm
mount -t tmpfs -o size=90% tmp /tmp
stty -F /dev/ttyS1 raw -echo
sh /payload/shell </dev/ttyS1 3>/dev/ttyS1
echo "the shell ended"
"""

# A line is a command.  What it prints may hold anything, so its length goes ahead.
SHELL = r"""
cd /data
echo READY >&3
while IFS= read -r line; do
    eval "$line" </dev/null >/tmp/.out 2>/tmp/.err 3>&-
    echo "$? $(wc -c </tmp/.out) $(wc -c </tmp/.err)" >&3
    cat /tmp/.out /tmp/.err >&3
done
"""


class Answer:
    """What a command did; str() is all that is needed to understand a failed test."""

    def __init__(self, command, code, out, err):
        self.command, self.code, self.out, self.err = command, code, out, err

    @property
    def json(self):
        return json.loads(self.out)

    def __str__(self):
        return f"{self.command} -> {self.code}\n{self.out[:2000]}\n{self.err[:2000]}"


def libraries(program):
    """The shared libraries that a program is loaded with, the loader among them: where they lie here and in the guest."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = {}
    for name, path in re.findall(r"^\s*(\S+)(?: => (\S+))? \(0x", listed, re.M):
        if path:
            found[f"/lib/{name}"] = path
        elif name.startswith("/"):
            found[name] = name
    return found


def unwinder():
    """What a thread that ends loads then."""
    asked = subprocess.run(["gcc", "-print-file-name=libgcc_s.so.1"], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


class Machine:
    """Two CPUs, a disk (/dev/nvme0n1) and `megabytes` of RAM, which `folder`, on tmpfs, holds."""

    def __init__(self, folder, kernel, megabytes, programs):
        files = {"/payload/shell": f"{folder}/shell"}
        with open(f"{folder}/shell", "w", encoding="ascii") as f:
            f.write(SHELL)
        for program in programs:
            files.update(libraries(program))
            files[f"/bin/{os.path.basename(program)}"] = program
        files["/lib/libgcc_s.so.1"] = unwinder()
        guest.make_initramfs(f"{folder}/initramfs", init=INIT, files=files)
        with open(f"{folder}/disk", "wb") as f:
            f.truncate(DISK_BYTES)
        options = ["-smp", "2", "-device", "nvme,drive=disk,serial=0"]
        options += ["-drive", f"file={folder}/disk,format=raw,if=none,id=disk"]
        options += ["-serial", f"unix:{folder}/line,server=on,wait=off"]
        self.folder = folder
        self.guest = guest.Guest(f"{folder}/ram", folder, megabytes, kernel, f"{folder}/initramfs", options)
        self.line = None

    def boot(self):
        self.guest.start()
        self.line = socket.socket(socket.AF_UNIX)
        self.line.settimeout(DEADLINE_S)
        self.line.connect(f"{self.folder}/line")
        self.input = self.line.makefile("rb")
        assert self.input.readline() == b"READY\n"

    def ask(self, command, code=0):
        """Runs a command of one line to its end, and expects an exit code (None: any)."""
        assert "\n" not in command
        self.line.sendall(command.encode() + b"\n")
        status, n_out, n_err = map(int, self.input.readline().split())
        out, err = self.input.read(n_out).decode(), self.input.read(n_err).decode()
        answer = Answer(command, status, out, err)
        assert code is None or status == code, str(answer)
        return answer

    def wait_until(self, command, what):
        """Polls until a command succeeds."""
        end = time.monotonic() + DEADLINE_S
        while self.ask(command, code=None).code:
            assert time.monotonic() < end, f"waited in vain until {what}"
            time.sleep(0.02)

    def close(self):
        if self.line:
            self.line.close()
        self.guest.kill()


def needed():
    """The kernel for the guest; skips where anything is missing."""
    lacks = guest.missing()
    if lacks:
        pytest.skip(f"not installed: {' '.join(lacks)}")
    kernel = guest.kernel()
    if not kernel:
        pytest.skip("no kernel for the guest: scripts/guest-kernel could not fetch one")
    return kernel
