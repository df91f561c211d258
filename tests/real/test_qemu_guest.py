# SPDX-License-Identifier: LGPL-2.1-or-later
"""A virtual machine's memory is carried: the guest goes on where it stood, its memory unharmed.

TORPOR names the program.  Debian packages: qemu-system-x86, busybox-static, cpio; the guest's
kernel is fetched by scripts/guest-kernel with apt-get download and is not installed.
"""
import os
import re
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../scripts"))
from realprog import guest  # noqa: E402

MEGABYTES = 192

# Something that no other boot has, something that compresses, something already compressed.
WORK = """
dd if=/dev/urandom of=random bs=64k count=128 2>/dev/null
seq 400000 > numbers
gzip -1 -c numbers > numbers.gz
"""


def torpor(*arguments):
    subprocess.run([os.environ["TORPOR"], *arguments, "--quiet"], check=True, timeout=60)


def counts(lines):
    """The numbers of the guest's lines; each line must say that its memory is intact."""
    found = [re.fullmatch(r"COUNT (\d+) intact", line) for line in lines]
    assert all(found), lines
    return [int(match[1]) for match in found]


@pytest.fixture(scope="module")
def boot_files():
    lacks = guest.missing()
    if lacks:
        pytest.skip(f"not installed: {' '.join(lacks)}")
    kernel = guest.kernel()
    if not kernel:
        pytest.skip("no kernel for the guest: scripts/guest-kernel could not fetch one")
    with tempfile.TemporaryDirectory(prefix="torpor-test-") as folder:
        guest.make_initramfs(f"{folder}/initramfs", work=WORK)
        yield kernel, f"{folder}/initramfs"


@pytest.fixture
def machine(boot_files):
    """A guest that has counted to three, with its RAM in a file on tmpfs."""
    with tempfile.TemporaryDirectory(prefix="torpor-test-", dir="/dev/shm") as folder:
        os.mkdir(f"{folder}/vm")
        vm = guest.Guest(f"{folder}/vm/ram", folder, MEGABYTES, *boot_files)
        try:
            vm.start()
            vm.wait_for("COUNT 3", 60)
            yield vm
        finally:
            vm.kill()


def test_the_guest_goes_on_where_it_stood(machine):
    folder = machine.folder
    state = f"{folder}/vm/state"
    machine.put_away(state)
    last = counts(machine.lines("COUNT"))[-1]

    torpor("save", f"{folder}/vm", "-o", f"{folder}/image")
    os.unlink(state)
    os.unlink(machine.memory)
    os.rmdir(f"{folder}/vm")
    torpor("load", f"{folder}/image")

    machine.start(incoming=True)
    machine.resume(state)
    machine.wait_for(f"COUNT {last + 3} ", 30)
    after = counts(machine.lines("COUNT"))
    # A line that was being printed at the stop may be cut: it ends on the new console.
    assert after[0] in (last + 1, last + 2)
    assert after == list(range(after[0], after[0] + len(after)))
    assert not machine.lines("READY"), "the guest booted anew"
