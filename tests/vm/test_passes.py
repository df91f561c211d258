# SPDX-License-Identifier: LGPL-2.1-or-later
"""`torpor save --stop --passes N`: what was copied while processes run, and changed since, is copied again.

In a virtual machine with Debian's kernel, since not every kernel keeps soft-dirty bits.  The writer of tests/live
shows whether an image is the memory of one instant: each page that was wrongly believed to be unchanged is an error there.
TORPOR names the program.  Debian packages: qemu-system-x86, busybox-static, cpio.
"""
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cli"))
import live  # noqa: E402
import rig  # noqa: E402

MIB = 1 << 20


def worked(told, passes=2, most=0.25):
    """Passes saved copying: most of the memory was copied before the stop, and little of it in it."""
    assert (told["passes"], told["warnings"]) == (passes, []), told
    assert told["precopied_bytes"] >= (1 - most) * told["data_bytes"], told
    assert told["looked_bytes"] < most * told["data_bytes"], told


def test_what_changed_is_copied_again(start):
    writer = start("file", 256, "--rate", "1000")
    for _ in range(2):
        told = writer.snapshot("/data/memory", "--passes", "2")
        worked(told)
        # It does write, and that was noticed.
        assert told["looked_bytes"] > 0


def test_three_passes(start):
    writer = start("file", 64, "--rate", "1000")
    told = writer.snapshot("/data/memory", "--passes", "3")
    worked(told, passes=3)
    assert 0 < told["pause_ns"]


def test_memory_that_is_found(start):
    worked(start("memfd", 32, "--rate", "500").snapshot("--passes", "2"), most=0.5)


def test_no_zero_check(start):
    worked(start("memfd", 32, "--rate", "500").snapshot("--passes", "2", "--zero-check=off"), most=0.5)


@pytest.mark.parametrize("kind", ["file", "memfd"])
def test_write_goes_past_mappings(start, kind):
    writer = start(kind, 16, "--rate", "500", "--by-write")
    for _ in range(3):
        told = writer.snapshot("--passes", "2")
        assert told["looked_bytes"] > 0.9 * told["data_bytes"], "the whole file is copied anew"


def test_file_is_cut_and_grows(start):
    writer = start("file", 16, "--rate", "50", "--cuts")
    for n in range(3):
        writer.snapshot("/data/memory", "--passes", str(2 + n % 2))


def test_pages_that_are_not_mapped_for_long(start):
    writer = start("file", 16, "--rate", "500", "--windows")
    for _ in range(3):
        writer.snapshot("/data/memory", "--passes", "2")


def test_several_processes(start):
    writer = start("file", 32, "--rate", "300", "--fork", "2")
    for n in range(2):
        told = writer.snapshot("/data/memory", "--tree", "--passes", str(2 + n % 2))
        worked(told, passes=2 + n % 2, most=0.5)
        assert told["processes"] == 3


def test_processes_that_come_and_go(start):
    writer = start("file", 16, "--rate", "500", "--forking")
    for _ in range(3):
        told = writer.snapshot("/data/memory", "--tree", "--passes", "2")
        assert told["warnings"][0].startswith("what passes copied has to be copied again: ")


def test_process_without_its_first_thread(start):
    writer = start("file", 32, "--rate", "500", "--leader-exits")
    worked(writer.snapshot("/data/memory", "--passes", "2"), most=0.5)


def test_control_group(vm, start):
    vm.ask("mkdir -p /sys/fs/cgroup/writers")
    writer = start("file", 32, "--rate", "500", before="echo 0 >/sys/fs/cgroup/writers/cgroup.procs; ")
    told = writer.snapshot("/data/memory", "--passes", "2", stop="--freeze writers")
    worked(told, most=0.5)


def test_huge_pages(vm, start):
    vm.ask("mkdir -p /data/huge && mount -t tmpfs -o huge=always,size=90% huge /data/huge")
    try:
        writer = start("file", 32, "--rate", "100", folder="/data/huge")
        assert int(vm.ask("grep nr_shmem_hugepages /proc/vmstat").out.split()[1]) > 0
        for n in range(3):
            writer.snapshot("/data/huge/memory", "--passes", str(2 + n % 2))
        vm.ask(f"kill -9 {writer.pid}; wait", code=None)
    finally:
        vm.ask("umount -l /data/huge")


def test_memory_is_swapped_out_meanwhile(vm, start):
    vm.ask("mkswap /dev/nvme0n1 && swapon /dev/nvme0n1")
    vm.ask("echo +memory >/sys/fs/cgroup/cgroup.subtree_control; mkdir -p /sys/fs/cgroup/swapped")
    try:
        writer = start("file", 8, "--rate", "500", before="echo 0 >/sys/fs/cgroup/swapped/cgroup.procs; ")
        vm.ask("while usleep 5000; do echo 2M >/sys/fs/cgroup/swapped/memory.reclaim; done 2>/dev/null & true")
        warnings = [writer.snapshot("/data/memory", "--passes", "3")["warnings"] for _ in range(3)]
        assert "what passes copied has to be copied again: the kernel reclaims memory" in str(warnings)
    finally:
        vm.ask("for p in $(jobs -p); do kill -9 $p; done; wait", code=None)
        vm.ask("rm -f /data/memory /data/images/* /data/there/*; swapoff /dev/nvme0n1")


def test_somebody_else_could_write(vm, start):
    writer = start("file", 16, "--rate", "100")
    vm.ask("sh -c 'exec 4<>/data/memory; echo >/tmp/open; exec sleep 1000' & true")
    vm.wait_until("test -e /tmp/open", "the file is open")
    answer = vm.ask(f"torpor save --stop {writer.pid} --passes 2 /data/memory -o /data/images/x", code=1)
    assert "(sleep) holds it open for writing" in answer.err
    assert vm.ask("ls /data/images").out == ""
    answer = vm.ask(f"torpor save --stop {writer.pid} --passes 2 --allow-writers /data/memory -o /data/images/x", code=1)
    assert "passes need everybody stopped" in answer.err
    assert not writer.states() & {"T", "t"}


@pytest.fixture
def writer_here():
    with live.Writer("memfd", 8) as writer:
        yield writer


def test_refused_without_soft_dirty_bits(writer_here, tmp_path):
    """On this machine, whatever it is: where its kernel keeps none, nobody is stopped for an image that cannot be."""
    image = tmp_path / "x"
    command = ["save", "--stop", str(writer_here.pid), "--passes", "2", "-o", image]
    done = rig.run(*command, code=None, **live.no_ptrace())
    if done.code < 0:
        pytest.skip("this machine's kernel keeps soft-dirty bits")
    assert done.code == rig.FAILED, str(done)
    assert "passes need soft-dirty bits, which this kernel does not keep (CONFIG_MEM_SOFT_DIRTY)" in done.err
    assert not image.exists()
    writer_here.expect_running()
