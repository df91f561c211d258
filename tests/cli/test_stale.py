# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a killed load left behind is tidied up by the next one."""
import fcntl
import os
import time

import rig


def test_the_next_load_removes_what_a_killed_one_left(shm, image, there):
    tree = os.path.join(shm, "tree")
    os.mkdir(tree)
    rig.write_file(os.path.join(tree, "mem"), b"x" * 10000)
    rig.run("save", tree, "-o", image)
    left = os.path.join(there, ".tree.torpor-0123456789ab")
    held = os.path.join(there, ".tree.torpor-ba9876543210")
    other = os.path.join(there, ".other.torpor-0123456789ab")
    for name in (left, held, other):
        os.mkdir(name)
    rig.write_file(os.path.join(left, "mem"), b"half")
    lock = os.open(held, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # It is left alone while it is young, since its maker may be about to lock it.
    rig.run("load", image, "--to", there)
    assert os.path.exists(left)
    deadline = time.monotonic() + 60
    while os.path.exists(left) and time.monotonic() < deadline:
        rig.run("load", image, "--to", there, "--force")
    assert sorted(os.listdir(there)) == sorted(["tree", os.path.basename(held), os.path.basename(other)])
    os.close(lock)
