# SPDX-License-Identifier: LGPL-2.1-or-later
"""Huge pages: those of a tmpfs that has them where they pay, and those of hugetlbfs."""
import contextlib
import os
import re
import subprocess
import sys

import pytest

import rig
from rig import MIB, PAGE

HUGE = 2 * MIB


def used_bytes(path):
    return os.stat(path).st_blocks * 512


def shmem_huge_bytes():
    with open("/proc/meminfo", encoding="ascii") as f:
        for line in f:
            if line.startswith("ShmemHugePages:"):
                return int(line.split()[1]) << 10
    return 0


@pytest.fixture(params=["always", "within_size", "advise"])
def huge_tmpfs(request, small_tmpfs):
    def mount(size_bytes):
        return small_tmpfs(size_bytes, f"huge={request.param}")

    return mount


def load(image, there, streamed):
    if not streamed:
        return rig.run("load", image, "--to", there)
    with open(image, "rb") as f:
        return rig.run("load", "-", "--to", there, stdin=f)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("pages", [1, 32])
def test_holes_stay_holes_where_pages_are_huge(huge_tmpfs, shm, image, streamed, pages):
    """32 pages are a whole chunk.  All huge pages together would need 32 times the room that there is."""
    pieces = [(i * HUGE + 5 * PAGE, rig.random_bytes(pages * PAGE, i)) for i in range(128)]
    source = rig.write_pieces(os.path.join(shm, "mem"), 129 * HUGE, pieces)
    rig.run("save", source, "-o", image)
    there = huge_tmpfs(128 * pages * PAGE + MIB)
    load(image, there, streamed)
    target = os.path.join(there, "mem")
    assert used_bytes(target) == used_bytes(source)
    assert rig.extents(target) == rig.extents(source)
    assert rig.content_hash(target) == rig.content_hash(source)


def test_what_is_mostly_data_gets_huge_pages(huge_tmpfs, shm, image):
    """Of 16 huge pages every fourth is a hole but for some pages.  From a pipe, too, where that is seen only when it is there."""
    full = [i for i in range(16) if i % 4 != 3]
    pieces = [(i * HUGE, rig.random_bytes(HUGE, i)) for i in full]
    pieces += [(i * HUGE, rig.random_bytes(3 * PAGE, i)) for i in range(3, 16, 4)]
    source = rig.write_pieces(os.path.join(shm, "mem"), 16 * HUGE + 100, pieces)
    rig.run("save", source, "-o", image)
    for streamed in (False, True):
        there = huge_tmpfs(64 * MIB)
        before = shmem_huge_bytes()
        load(image, there, streamed)
        target = os.path.join(there, "mem")
        assert rig.content_hash(target) == rig.content_hash(source)
        assert used_bytes(target) == used_bytes(source)
        if not streamed and shmem_huge_bytes() == before:
            pytest.skip("no huge pages are to be had")
        assert shmem_huge_bytes() - before == len(full) * HUGE


def test_room_that_huge_pages_take_is_counted(huge_tmpfs, shm, image):
    """Of each huge page 7 of 8 parts are data; the tmpfs has room for the data alone."""
    pieces = [(i * HUGE, rig.random_bytes(HUGE // 8 * 7, i)) for i in range(16)]
    source = rig.write_pieces(os.path.join(shm, "mem"), 16 * HUGE, pieces)
    rig.run("save", source, "-o", image)
    there = huge_tmpfs(15 * HUGE)
    failed = rig.run("load", image, "--to", there, code=rig.FAILED)
    needed = int(re.search(r"it needs (\d+) bytes", failed.err).group(1))
    assert abs(needed - 16 * HUGE) < PAGE
    assert os.listdir(there) == []


def peak_rss(*args):
    """Of a run, in KiB.  Started by a small process, since what is counted begins with what its parent has."""
    run_and_tell = "import resource as r, subprocess as s, sys; s.run(sys.argv[1:], check=True); print(r.getrusage(r.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", run_and_tell, rig.torpor_path(), *args], check=True, capture_output=True)
    return int(done.stdout)


def test_memory_is_bounded_where_pages_are_huge(huge_tmpfs, shm, image):
    if rig.is_sanitized():
        pytest.skip("sanitizers need memory of their own")
    source = rig.write_file(os.path.join(shm, "mem"), rig.random_bytes(192 * MIB))
    rig.run("save", source, "-o", image, "--codec", "none")
    os.unlink(source)
    there = huge_tmpfs(256 * MIB)
    assert peak_rss("load", image, "--to", there, "--threads", "2", "--quiet") < (64 + 2 * 4) << 10


# ---- hugetlbfs ----


@contextlib.contextmanager
def overcommitted(pages):
    """Huge pages that are had when they are needed; nothing is reserved."""
    path = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages"
    try:
        with open(path, encoding="ascii") as f:
            before = f.read()
        with open(path, "w", encoding="ascii") as f:
            f.write(str(pages))
    except OSError as e:
        pytest.skip(f"no huge pages: {e}")
    yield
    with open(path, "w", encoding="ascii") as f:
        f.write(before)


@pytest.fixture
def hugetlbfs(root, shm):
    path = os.path.join(shm, "huge")
    os.mkdir(path)
    with overcommitted(32):
        made = subprocess.run(
            ["mount", "-t", "hugetlbfs", "-o", "pagesize=2M,mode=755", "torpor-test", path],
            capture_output=True,
            check=False,
        )
        if made.returncode != 0:
            pytest.skip(f"hugetlbfs cannot be mounted: {made.stderr.decode().strip()}")
        yield path
        subprocess.run(["umount", "-l", path], check=True)


def write_mapped(path, size, pieces):
    """hugetlbfs has no write(2)."""
    import mmap

    with open(path, "w+b") as f:
        f.truncate(size)
        with mmap.mmap(f.fileno(), size) as m:
            for at, data in pieces:
                m[at : at + len(data)] = data
    return path


@pytest.mark.parametrize("streamed", [False, True])
def test_a_hugetlbfs_file_comes_back_on_huge_pages(hugetlbfs, image, streamed):
    """With holes: a page of data takes a huge page, and nothing else does."""
    pieces = [(0, rig.mixed_bytes(HUGE)), (3 * HUGE + 7 * PAGE, rig.random_bytes(700 * PAGE)), (9 * HUGE, b"x")]
    source = write_mapped(os.path.join(hugetlbfs, "mem"), 10 * HUGE, pieces)
    before = rig.describe(source)
    rig.run("save", source, "-o", image)
    info = rig.run("info", image, "--json").json
    assert [s["huge_page_bytes"] for s in info["segment_list"]] == [HUGE]
    os.unlink(source)
    there = os.path.join(hugetlbfs, "there")
    os.mkdir(there)
    done = load(image, there, streamed)
    assert done.err == ""
    target = os.path.join(there, "mem")
    assert rig.describe(target) == before
    assert used_bytes(target) == 4 * HUGE


def test_a_hugetlbfs_file_elsewhere_is_a_warning(hugetlbfs, image, shm, there):
    source = write_mapped(os.path.join(hugetlbfs, "mem"), HUGE, [(0, b"x" * PAGE)])
    rig.run("save", source, "-o", image)
    done = rig.run("load", image, "--to", there)
    assert "mem lay on huge pages of 2097152 bytes" in done.err
    assert rig.content_hash(os.path.join(there, "mem")) == rig.content_hash(source)


def test_a_file_that_hugetlbfs_cannot_have_is_named(hugetlbfs, image, shm):
    source = rig.write_file(os.path.join(shm, "mem"), b"x" * 5 * PAGE)
    rig.run("save", source, "-o", image)
    failed = rig.run("load", image, "--to", hugetlbfs, code=rig.FAILED)
    assert "not whole pages of 2097152 bytes" in failed.err
    assert os.listdir(hugetlbfs) == []


def test_huge_pages_run_out(hugetlbfs, image, shm):
    source = rig.write_file(os.path.join(shm, "mem"), rig.random_bytes(40 * HUGE))
    rig.run("save", source, "-o", image)
    failed = rig.run("load", image, "--to", hugetlbfs, code=rig.FAILED)
    assert "huge pages" in failed.err or "not enough room" in failed.err
    assert os.listdir(hugetlbfs) == []


def test_a_tmpfs_with_huge_pages_is_no_hugetlbfs(small_tmpfs, image):
    """Its files have blocks as large."""
    source = rig.write_file(os.path.join(small_tmpfs(32 * MIB, "huge=always"), "mem"), b"x" * PAGE)
    rig.run("save", source, "-o", image)
    assert [s["huge_page_bytes"] for s in rig.run("info", image, "--json").json["segment_list"]] == [0]
