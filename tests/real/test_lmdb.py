# SPDX-License-Identifier: LGPL-2.1-or-later
"""A database that is written all the time is saved by stopping its process for the copy: LMDB on tmpfs.

Every transaction writes the same number under two keys far apart and under a key of its own, so a file that shows a single moment
has all of a transaction or nothing of it.  TORPOR names the program.  Debian package: python3-lmdb.
"""
import os
import signal
import struct
import subprocess
import sys
import tempfile

import pytest

lmdb = pytest.importorskip("lmdb", reason="not installed: python3-lmdb")

WRITER = """
import lmdb, os, struct, sys
# With WRITEMAP stores go through the mapping, without it by write(2): both ways are to be saved.
env = lmdb.open(sys.argv[1], map_size=1 << 30, writemap=sys.argv[2] == "map", sync=False, metasync=False, readahead=False)
n = 0
while True:
    n += 1
    with env.begin(write=True) as txn:
        value = struct.pack("<Q", n)
        txn.put(b"a", value)
        for i in range(20):
            txn.put(struct.pack(">QI", n, i), value * 200)
        if n > 2000:
            for i in range(20):
                txn.delete(struct.pack(">QI", n - 2000, i))
        txn.put(b"z", value)
    if n == 3000:
        print("ready", flush=True)
"""


def torpor(*arguments):
    return subprocess.run([os.environ["TORPOR"], *arguments, "--quiet"], timeout=60, stderr=subprocess.PIPE, check=False)


def state(folder):
    """The number of the last transaction; the database is whole."""
    env = lmdb.open(folder, map_size=1 << 30, readonly=True, lock=False)
    with env.begin() as txn:
        first, last = (struct.unpack("<Q", txn.get(key))[0] for key in (b"a", b"z"))
        assert first == last
        for n in range(last - 1999, last + 1):
            for i in range(20):
                assert txn.get(struct.pack(">QI", n, i)) == struct.pack("<Q", n) * 200, (n, i, last)
        assert txn.get(struct.pack(">QI", last - 2000, 0)) is None
    env.close()
    return last


@pytest.mark.parametrize("stores", ["map", "write"])
def test_a_database_under_load_is_saved_as_it_was_at_one_moment(stores):
    with tempfile.TemporaryDirectory(prefix="torpor-test-", dir="/dev/shm") as folder:
        os.mkdir(f"{folder}/db")
        writer = subprocess.Popen([sys.executable, "-c", WRITER, f"{folder}/db", stores], stdout=subprocess.PIPE)
        try:
            assert writer.stdout.readline() == b"ready\n"
            seen = 0
            for i in range(5):
                how = ["--copy=none"] if i == 4 else []
                done = torpor("save", "--stop", str(writer.pid), f"{folder}/db", "-o", f"{folder}/image", "--force", *how)
                assert done.returncode == 0, done.stderr
                os.mkdir(f"{folder}/back")
                assert torpor("load", f"{folder}/image", "--to", f"{folder}/back").returncode == 0
                number = state(f"{folder}/back/db")
                assert number > seen
                seen = number
                subprocess.run(["rm", "-r", f"{folder}/back"], check=True)
            assert writer.poll() is None
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
