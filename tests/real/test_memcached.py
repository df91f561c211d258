# SPDX-License-Identifier: LGPL-2.1-or-later
"""A real memcached's memory is carried: every item is a hit afterwards, with its value.

TORPOR names the program.  Debian package: memcached.
"""
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../scripts"))
from realprog import memcached  # noqa: E402

MIB = 1 << 20
VALUES_BYTES = 64 * MIB
CACHE_MEGABYTES = 128


def torpor(*arguments):
    subprocess.run([os.environ["TORPOR"], *arguments, "--quiet"], check=True, timeout=60)


@pytest.fixture
def shm():
    with tempfile.TemporaryDirectory(prefix="torpor-test-", dir="/dev/shm") as folder:
        yield folder


@pytest.fixture
def stopped(shm):
    """A filled memcached that has been stopped, and how many items it holds."""
    if not memcached.find():
        pytest.skip("memcached is not installed")
    os.mkdir(f"{shm}/cache")
    server = memcached.Memcached(f"{shm}/cache/mem", f"{shm}/socket", CACHE_MEGABYTES)
    try:
        server.start()
        items, _ = server.fill(VALUES_BYTES)
        server.stop()
        yield server, items
    finally:
        server.kill()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_every_item_comes_back_to_the_old_place(shm, stopped, codec):
    server, items = stopped
    torpor("save", f"{shm}/cache", "-o", f"{shm}/image", "--codec", codec)
    shutil.rmtree(f"{shm}/cache")
    torpor("load", f"{shm}/image")
    server.start()
    assert server.compare(items) == (items, items)


def test_one_image_serves_twice_and_anywhere(shm, stopped):
    server, items = stopped
    # Memory and .meta as two sources of one image.
    torpor("save", server.memory, server.meta, "-o", f"{shm}/image")
    shutil.rmtree(f"{shm}/cache")
    for place in ("one", "two"):
        os.mkdir(f"{shm}/{place}")
        torpor("load", f"{shm}/image", "--to", f"{shm}/{place}")
        again = memcached.Memcached(f"{shm}/{place}/mem", f"{shm}/{place}/socket", CACHE_MEGABYTES)
        again.stopped_at = server.stopped_at
        try:
            again.start()
            assert again.compare(items) == (items, items)
        finally:
            again.kill()


def test_without_the_memory_there_are_no_hits(shm, stopped):
    """What the others show is torpor's doing: the items are nowhere else."""
    server, items = stopped
    shutil.rmtree(f"{shm}/cache")
    os.mkdir(f"{shm}/cache")
    server.start()
    assert server.compare(min(items, 1000)) == (0, 0)
