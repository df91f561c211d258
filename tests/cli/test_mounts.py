# SPDX-License-Identifier: LGPL-2.1-or-later
"""Targets that are mount points: they cannot be replaced, so what lies in them is."""
import os
import subprocess

import pytest

import rig
from rig import MIB, PAGE


@pytest.fixture
def source(shm):
    """A folder with a file, saved by most tests here."""
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    rig.write_file(os.path.join(top, "mem"), rig.mixed_bytes(20 * PAGE), 0o640)
    return top


@pytest.fixture
def cache(small_tmpfs):
    """A mounted tmpfs with a bit in it, to be saved and to be mounted anew."""
    top = small_tmpfs(4 * MIB)
    rig.write_file(os.path.join(top, "mem"), rig.mixed_bytes(MIB))
    os.mkdir(os.path.join(top, "sub"))
    rig.write_file(os.path.join(top, "sub", "file"), b"file", 0o600)
    os.symlink("mem", os.path.join(top, "link"))
    os.chmod(os.path.join(top, "sub"), 0o500)
    os.chmod(top, 0o1770)
    os.chown(top, 12, 34)
    os.utime(top, ns=(0, 1234567890123456789))
    return top


def remount(top):
    subprocess.run(["umount", top], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "torpor-test", top], check=True)


def test_memory_of_a_mount_point_comes_back_into_it(image, cache):
    rig.run("save", cache, "-o", image)
    before = rig.tree(cache)
    remount(cache)
    rig.run("load", image)
    assert os.path.ismount(cache)
    assert rig.tree(cache) == before
    failed = rig.run("load", image, code=rig.FAILED)
    assert "File exists" in failed.err and "--force" in failed.err
    assert rig.tree(cache) == before
    rig.run("load", image, "--force")
    assert os.path.ismount(cache)
    assert rig.tree(cache) == before


def test_what_else_lies_in_a_mount_point_stays(image, cache):
    rig.run("save", cache, "-o", image)
    before = rig.contents(cache)
    remount(cache)
    os.mkdir(os.path.join(cache, "other"))
    rig.write_file(os.path.join(cache, "other", "file"), b"precious")
    rig.run("load", image)
    assert rig.read_file(os.path.join(cache, "other", "file")) == b"precious"
    subprocess.run(["rm", "-r", os.path.join(cache, "other")], check=True)
    assert rig.contents(cache) == before
    # What has a name that the image has is replaced as a whole.
    rig.write_file(os.path.join(cache, "sub", "more"), b"more")
    rig.write_file(os.path.join(cache, "more"), b"more")
    os.unlink(os.path.join(cache, "mem"))
    os.mkdir(os.path.join(cache, "mem"))
    rig.run("load", image, "--force")
    os.unlink(os.path.join(cache, "more"))
    assert rig.contents(cache) == before


def test_the_room_of_a_mount_point_is_its_own(image, cache):
    """Not that of the folder it lies in."""
    rig.run("save", cache, "-o", image)
    subprocess.run(["umount", cache], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "torpor-test", cache], check=True)
    failed = rig.run("load", image, code=rig.FAILED)
    assert "not enough room" in failed.err
    assert os.listdir(cache) == []


def test_a_user_loads_into_a_mount_point(nobody, small_tmpfs, image):
    """Folders that may not be written change their parent here, which needs the permission to write them."""
    top = small_tmpfs(4 * MIB)
    os.mkdir(os.path.join(top, "sub"))
    rig.write_file(os.path.join(top, "sub", "file"), b"file")
    subprocess.run(["chown", "-R", f"{rig.NOBODY}:{rig.NOBODY}", top], check=True)
    os.chmod(os.path.join(top, "sub"), 0o500)
    rig.run("save", top, "-o", image)
    os.chmod(image, 0o644)
    before = rig.tree(top)
    for _ in range(2):
        rig.run("load", image, "--to", os.path.dirname(top), "--force", **nobody)
        assert rig.tree(top) == before


def test_a_folder_below_which_something_is_mounted_is_not_replaced(shm, small_tmpfs, image, source, there):
    rig.run("save", source, "-o", image)
    mount = os.path.join(there, "mc", "m m")
    os.makedirs(mount)
    subprocess.run(["mount", "-t", "tmpfs", "torpor-test", mount], check=True)
    try:
        rig.write_file(os.path.join(mount, "file"), b"precious")
        failed = rig.run("load", image, "--to", there, "--force", code=rig.FAILED)
        assert "mounted below" in failed.err
        assert rig.read_file(os.path.join(mount, "file")) == b"precious"
        assert os.listdir(there) == ["mc"]
    finally:
        subprocess.run(["umount", mount], check=True)
    rig.run("load", image, "--to", there, "--force")


def test_an_image_in_a_mount_point_is_not_replaced(cache):
    image = os.path.join(cache, "sub", "x.torpor")
    rig.run("save", cache, "-o", image)
    failed = rig.run("load", image, "--force", code=rig.FAILED)
    assert "the image lies" in failed.err
    rig.run("verify", image)
    # Beside what is replaced it may lie.
    beside = os.path.join(cache, "x.torpor")
    os.rename(image, beside)
    rig.run("load", beside, "--force")
    rig.run("verify", beside)
