# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where images and memory go: nothing is overwritten unasked, nothing half done is left, and an
image is not believed when it says where its memory belongs, unless there is reason to."""
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


def test_an_existing_image_is_not_replaced_unasked(image, source):
    rig.write_file(image, b"precious")
    failed = rig.run("save", source, "-o", image, code=rig.FAILED)
    assert "x.torpor" in failed.err and "--force" in failed.err
    assert rig.read_file(image) == b"precious"
    assert os.listdir(os.path.dirname(image)) == ["x.torpor"]


def test_force_replaces_an_image(image, source, there):
    rig.write_file(image, b"old")
    rig.run("save", source, "-o", image, "--force")
    rig.run("load", image, "--to", there)
    assert os.listdir(os.path.dirname(image)) == ["x.torpor"]
    assert rig.tree(os.path.join(there, "mc")) == rig.tree(source)


def test_an_image_that_is_loaded_while_replaced_stays_whole(image, source, there):
    """An open image is not written over: its reader keeps the old one."""
    rig.run("save", source, "-o", image)
    with open(image, "rb") as f:
        rig.write_file(os.path.join(source, "mem"), rig.mixed_bytes(30 * PAGE, 2))
        rig.run("save", source, "-o", image, "--force")
        rig.run("load", "-", "--to", there, stdin=f)
    assert rig.read_file(os.path.join(there, "mc", "mem")) == rig.mixed_bytes(20 * PAGE)


@pytest.mark.parametrize("target", ["missing/x.torpor", "", "file/x.torpor"])
def test_an_image_that_cannot_be_made_is_named(shm, source, target):
    rig.write_file(os.path.join(shm, "file"), b"")
    path = os.path.join(shm, target)
    failed = rig.run("save", source, "-o", path, "--force", code=rig.FAILED)
    assert os.path.basename(shm) in failed.err
    assert sorted(os.listdir(shm)) == ["file", "mc"]


@pytest.mark.parametrize("kind", ["file", "folder", "link", "dangling link"])
def test_an_existing_target_is_not_replaced_unasked(shm, image, source, there, kind):
    rig.run("save", source, "-o", image)
    occupy(there, kind)
    before = rig.contents(there)
    failed = rig.run("load", image, "--to", there, code=rig.FAILED)
    assert "mc" in failed.err and "--force" in failed.err
    assert rig.contents(there) == before


def occupy(there, kind):
    """Something of `kind` where mc is to be restored; links lead to a folder beside."""
    target = os.path.join(there, "mc")
    if kind == "file":
        rig.write_file(target, b"precious")
    elif kind == "folder":
        os.makedirs(os.path.join(target, "deep", "er"))
        rig.write_file(os.path.join(target, "deep", "er", "file"), b"precious")
        rig.write_file(os.path.join(target, "mem"), b"precious")
    else:
        os.symlink("outside" if kind == "link" else "nowhere", target)
        os.mkdir(os.path.join(there, "outside"))
        rig.write_file(os.path.join(there, "outside", "mem"), b"precious")


@pytest.mark.parametrize("kind", ["file", "folder", "link", "dangling link"])
def test_force_replaces_the_target_and_follows_no_link(shm, image, source, there, kind):
    rig.run("save", source, "-o", image)
    occupy(there, kind)
    rig.run("load", image, "--to", there, "--force")
    assert rig.tree(os.path.join(there, "mc")) == rig.tree(source)
    assert not os.path.islink(os.path.join(there, "mc"))
    if "link" in kind:
        assert rig.read_file(os.path.join(there, "outside", "mem")) == b"precious"
        assert rig.names(os.path.join(there, "outside")) == [[b"mem"]]
        assert not os.path.exists(os.path.join(there, "nowhere"))
    else:
        assert os.listdir(there) == ["mc"]


def test_force_replaces_a_file_by_a_file(shm, image, there):
    source = rig.write_file(os.path.join(shm, "mem"), rig.mixed_bytes(MIB))
    rig.run("save", source, "-o", image)
    rig.write_file(os.path.join(there, "mem"), b"old")
    rig.run("load", image, "--to", there, "--force")
    assert rig.describe(os.path.join(there, "mem")) == rig.describe(source)
    assert os.listdir(there) == ["mem"]


def test_one_existing_target_of_several_stops_the_whole_load(shm, image, there):
    sources = [rig.write_file(os.path.join(shm, n), rig.random_bytes(MIB)) for n in "abc"]
    rig.run("save", *sources, "-o", image)
    rig.write_file(os.path.join(there, "c"), b"precious")
    before = rig.contents(there)
    rig.run("load", image, "--to", there, code=rig.FAILED)
    assert rig.contents(there) == before


def test_a_missing_folder_to_load_into_is_named(shm, image, source):
    rig.run("save", source, "-o", image)
    failed = rig.run("load", image, "--to", os.path.join(shm, "not-there"), code=rig.FAILED)
    assert "not-there" in failed.err


def test_memory_comes_back_to_where_it_was(image, source):
    rig.run("save", source, "-o", image)
    before = rig.tree(source)
    subprocess.run(["rm", "-r", source], check=True)
    rig.run("load", image)
    assert rig.tree(source) == before


def test_sources_of_several_folders_come_back_to_theirs(shm, image):
    sources = []
    for name in "ab":
        os.mkdir(os.path.join(shm, name))
        sources.append(rig.write_file(os.path.join(shm, name, "mem" + name), name.encode()))
    rig.run("save", *sources, "-o", image)
    for path in sources:
        os.unlink(path)
    rig.run("load", image)
    assert [rig.read_file(path) for path in sources] == [b"a", b"b"]


def test_a_relative_source_comes_back_whatever_the_folder_then(shm, image, source):
    rig.run("save", "mc", "-o", image, cwd=shm)
    before = rig.tree(source)
    subprocess.run(["rm", "-r", source], check=True)
    rig.run("load", image, cwd="/")
    assert rig.tree(source) == before


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o660, 0o602])
def test_paths_of_an_image_that_others_may_write_are_not_trusted(image, source, mode):
    rig.run("save", source, "-o", image)
    before = rig.tree(source)
    subprocess.run(["rm", "-r", source], check=True)
    os.chmod(image, mode)
    failed = rig.run("load", image, code=rig.FAILED)
    assert "--trust-paths" in failed.err
    assert not os.path.exists(source)
    rig.run("load", image, "--trust-paths")
    assert rig.tree(source) == before


def test_paths_of_an_image_of_another_user_are_not_trusted(root, image, source):
    rig.run("save", source, "-o", image)
    subprocess.run(["rm", "-r", source], check=True)
    os.chmod(image, 0o644)
    os.chown(image, 1234, 0)
    rig.run("load", image, code=rig.FAILED)
    assert not os.path.exists(source)
    rig.run("load", image, "--trust-paths")
    assert os.path.exists(os.path.join(source, "mem"))


def test_paths_of_an_image_of_root_are_trusted_by_a_user(root, nobody, shm, image):
    mine = os.path.join(shm, "mine")
    os.mkdir(mine)
    os.chown(mine, rig.NOBODY, rig.NOBODY)
    source = rig.write_file(os.path.join(mine, "mem"), b"content")
    rig.run("save", source, "-o", image)
    os.chmod(image, 0o644)
    os.unlink(source)
    rig.run("load", image, **nobody)
    assert rig.read_file(source) == b"content"


def test_an_image_from_a_pipe_needs_a_folder_or_trust(image, source):
    rig.run("save", source, "-o", image)
    before = rig.tree(source)
    subprocess.run(["rm", "-r", source], check=True)
    content = rig.read_file(image)
    rig.run("load", "-", input=content, code=rig.FAILED)
    assert not os.path.exists(source)
    rig.run("load", "-", "--trust-paths", input=content)
    assert rig.tree(source) == before


def test_an_image_is_not_readable_by_others(image, source):
    """It holds what the memory held: its mode must not open what the source's closed."""
    rig.run("save", source, "-o", image, umask=0)
    assert os.stat(image).st_mode & 0o077 == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_a_load_of_a_damaged_image_leaves_what_was_there(shm, image, there, threads):
    """The damage is near the end: almost all was restored when it is found."""
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    for i in range(4):
        rig.write_file(os.path.join(top, f"mem{i}"), rig.random_bytes(2 * MIB, i))
    rig.run("save", top, "-o", image, "--codec", "none")
    content = rig.read_file(image)
    last = rig.read_file(os.path.join(top, "mem3"))[-PAGE:]
    rig.write_file(image, rig.flip(content, content.index(last) + 5))
    rig.run("load", image, "--to", there, "--threads", str(threads), code=rig.DAMAGED)
    assert os.listdir(there) == []
    occupy(there, "folder")
    before = rig.contents(there)
    rig.run("load", image, "--to", there, "--force", "--threads", str(threads), code=rig.DAMAGED)
    assert rig.contents(there) == before


@pytest.fixture
def loop_device(root, shm, tmp_path):
    backing = os.path.join(shm, "disk")
    with open(backing, "wb") as f:
        f.truncate(16 * MIB)
    made = subprocess.run(
        ["losetup", "--show", "-f", backing], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"no loop device: {made.stderr.strip()}")
    device = made.stdout.strip()
    # A node of our own: whoever would replace it instead of writing to it does no harm.
    node = str(tmp_path / "device")
    os.mknod(node, 0o060600, os.stat(device).st_rdev)
    yield node
    subprocess.run(["losetup", "-d", device], check=True)


def test_a_block_device_holds_an_image(loop_device, source, there):
    failed = rig.run("save", source, "-o", loop_device, code=rig.FAILED)
    assert loop_device in failed.err
    rig.run("save", source, "-o", loop_device, "--force")
    rig.run("verify", loop_device)
    assert rig.run("info", loop_device, "--json").json["segments"] == 2
    rig.run("load", loop_device, "--to", there)
    assert rig.tree(os.path.join(there, "mc")) == rig.tree(source)
    assert os.stat(loop_device).st_rdev != 0


def test_a_block_device_that_is_too_small_is_refused_afterwards(loop_device, shm, source):
    """The old image's header must not make the half of a new one look whole."""
    rig.run("save", source, "-o", loop_device, "--force")
    big = rig.write_file(os.path.join(shm, "big"), rig.random_bytes(17 * MIB))
    failed = rig.run("save", big, "-o", loop_device, "--force", code=rig.FAILED)
    assert "space" in failed.err.lower()
    rig.run("verify", loop_device, code=rig.DAMAGED)
