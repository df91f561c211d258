# SPDX-License-Identifier: LGPL-2.1-or-later
"""Folders: names, modes, owners, times, symlinks; what is no memory is refused by name."""
import os
import socket
import subprocess

import pytest

import rig
from rig import PAGE

STRANGE_NAMES = [
    b"with space", b" ", b"new\nline", b"tab\t", b"not-utf8-\xff\xfe", b"\xc3\x28", b"quote'\"\\",
    b"-o", b"--help", b"*", b"...", b".hidden", b"umlaut-\xc3\xa4", b"n" * 255, b"\x1b[31m",
]


def make_tree(top):
    """A folder with one of everything that is carried."""
    deep = os.path.join(top, "a", "b", "c")
    os.makedirs(deep)
    os.makedirs(os.path.join(top, "empty", "in-empty"))
    rig.write_file(os.path.join(top, "mem"), rig.mixed_bytes(40 * PAGE + 9), 0o600)
    rig.write_file(os.path.join(top, "a", "read-only"), b"r", 0o444)
    rig.write_file(os.path.join(top, "a", "none"), b"n", 0o000)
    rig.write_file(os.path.join(deep, "run"), b"#!", 0o4755)
    rig.write_pieces(os.path.join(deep, "sparse"), 100 * PAGE, [(50 * PAGE, b"middle")])
    rig.write_file(os.path.join(deep, "nothing"), b"")
    os.symlink("mem", os.path.join(top, "to-mem"))
    os.symlink("/nowhere/at all", os.path.join(top, "dangling"))
    os.symlink("../../..", os.path.join(deep, "up"))
    os.symlink("empty", os.path.join(top, "to-folder"))
    os.chmod(os.path.join(top, "empty"), 0o1777)
    os.chmod(os.path.join(top, "a", "b"), 0o2750)
    return top


def set_times(top):
    """Old, odd times for everything; folders last, since what is in them changes theirs."""
    for i, name in enumerate(sorted(rig.tree_names(top), key=lambda n: -n.count(b"/"))):
        path = os.path.join(os.fsencode(top), name)
        os.utime(path, ns=(10**18, 10**18 + i * 1_000_000_007), follow_symlinks=False)
    os.utime(top, ns=(10**18, 1))


def round_trip(top, image, there):
    rig.run("save", top, "-o", image)
    rig.run("verify", image)
    rig.run("load", image, "--to", there)
    return os.path.join(there, os.path.basename(top))


def test_a_folder_comes_back_with_modes_times_and_links(shm, image, there):
    top = make_tree(os.path.join(shm, "mc"))
    set_times(top)
    before = rig.tree(top)
    assert rig.tree(round_trip(top, image, there)) == before
    assert rig.tree(top) == before


def test_owners_come_back(root, shm, image, there):
    top = make_tree(os.path.join(shm, "mc"))
    for i, name in enumerate(rig.tree_names(top)):
        os.lchown(os.path.join(os.fsencode(top), name), 1000 + i, 2000 + i)
    os.chmod(os.path.join(top, "a", "b", "c", "run"), 0o4755)
    os.lchown(top, 77, 78)
    set_times(top)
    assert rig.tree(round_trip(top, image, there)) == rig.tree(top)


def test_any_name_comes_back(shm, image, there):
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    for i, name in enumerate(STRANGE_NAMES):
        rig.write_file(os.path.join(os.fsencode(top), name), b"%d" % i)
        os.mkdir(os.path.join(os.fsencode(top), name[:200] + b".d"))
        os.symlink(name, os.path.join(os.fsencode(top), name[:200] + b".l"))
    set_times(top)
    assert rig.tree(round_trip(top, image, there)) == rig.tree(top)


@pytest.mark.parametrize("name", STRANGE_NAMES[:8], ids=repr)
def test_a_source_of_any_name_comes_back(shm, image, there, name):
    source = rig.write_file(os.path.join(os.fsencode(shm), name), b"content")
    rig.run("save", source, "-o", image)
    rig.run("load", image, "--to", there)
    assert rig.read_file(os.path.join(os.fsencode(there), name)) == b"content"
    assert rig.run("cat", "--", image, name).raw == b"content"


def test_a_deep_folder_comes_back(shm, image, there):
    top = os.path.join(shm, "mc")
    os.makedirs(os.path.join(top, *["d" * 50] * 60))
    rig.write_file(os.path.join(top, *["d" * 50] * 60, "mem"), b"deep")
    assert rig.tree(round_trip(top, image, there)) == rig.tree(top)


def test_many_files_come_back(shm, image, there):
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    for i in range(2000):
        rig.write_file(os.path.join(top, f"f{i}"), b"%d" % i * (i % 50))
    assert rig.tree(round_trip(top, image, there)) == rig.tree(top)


def test_a_source_with_a_slash_at_its_end_is_the_folder(shm, image, there):
    top = make_tree(os.path.join(shm, "mc"))
    rig.run("save", top + "/", "-o", image)
    rig.run("load", image, "--to", there)
    assert os.listdir(there) == ["mc"]


def test_a_symlink_as_a_source_is_followed(shm, image, there):
    rig.write_file(os.path.join(shm, "mem"), b"content")
    link = os.path.join(shm, "link")
    os.symlink("mem", link)
    rig.run("save", link, "-o", image)
    rig.run("load", image, "--to", there)
    (name,) = os.listdir(there)
    assert not os.path.islink(os.path.join(there, name))
    assert rig.read_file(os.path.join(there, name)) == b"content"


def test_the_same_last_name_twice_is_refused(shm, image):
    for folder in ("a", "b"):
        os.mkdir(os.path.join(shm, folder))
        rig.write_file(os.path.join(shm, folder, "mem"), b"x")
    sources = [os.path.join(shm, folder, "mem") for folder in ("a", "b")]
    failed = rig.run("save", *sources, "-o", image, code=rig.USAGE)
    assert "mem" in failed.err
    assert os.listdir(os.path.dirname(image)) == []


def make_special(folder, kind):
    path = os.path.join(folder, f"special-{kind}")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path)
    else:
        try:
            os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("making a device needs root")
    return path


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
@pytest.mark.parametrize("where", ["in a folder", "as a source"])
def test_what_is_no_memory_is_refused_by_name(shm, image, kind, where):
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    special = make_special(top, kind)
    source = top if where == "in a folder" else special
    # A fifo that is opened for reading would wait for ever: the run's deadline sees to that.
    failed = rig.run("save", source, "-o", image, code=rig.FAILED)
    assert f"special-{kind}" in failed.err
    assert os.listdir(os.path.dirname(image)) == []


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_what_is_no_memory_is_passed_over_when_asked(shm, image, there, kind):
    top = make_tree(os.path.join(shm, "mc"))
    special = make_special(top, kind)
    rig.run("save", top, "-o", image, "--skip-special")
    rig.run("load", image, "--to", there)
    loaded = rig.names(os.path.join(there, "mc"))
    os.unlink(special)
    assert loaded == rig.names(top)


def test_a_source_that_is_missing_is_named(shm, image):
    failed = rig.run("save", os.path.join(shm, "not-there"), "-o", image, code=rig.FAILED)
    assert "not-there" in failed.err and "No such file" in failed.err
    assert os.listdir(os.path.dirname(image)) == []


def test_what_could_not_be_restored_without_root_is_a_warning(root, nobody, shm, image):
    """Another's file comes back as the caller's own; the content is whole, the exit code 0."""
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    rig.write_file(os.path.join(top, "mem"), b"content")
    os.chown(os.path.join(top, "mem"), 1234, 1234)
    mine = os.path.join(shm, "mine")
    os.mkdir(mine)
    os.chown(mine, rig.NOBODY, rig.NOBODY)
    rig.run("save", top, "-o", image)
    os.chmod(image, 0o644)
    loaded = rig.run("load", image, "--to", mine, "--quiet", **nobody)
    assert "torpor: warning:" in loaded.err and "mem" in loaded.err and "1234" in loaded.err
    assert rig.read_file(os.path.join(mine, "mc", "mem")) == b"content"
    report = rig.run("load", image, "--to", mine, "--force", "--json", **nobody).json
    assert any("mem" in warning for warning in report["warnings"])


def test_set_user_id_is_not_given_to_the_wrong_owner(root, nobody, shm, image):
    """A set-user-ID file whose owner cannot be restored must not become one of the caller."""
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    rig.write_file(os.path.join(top, "run"), b"#!")
    os.chown(os.path.join(top, "run"), 1234, 1234)
    os.chmod(os.path.join(top, "run"), 0o6755)
    mine = os.path.join(shm, "mine")
    os.mkdir(mine)
    os.chown(mine, rig.NOBODY, rig.NOBODY)
    rig.run("save", top, "-o", image)
    os.chmod(image, 0o644)
    rig.run("load", image, "--to", mine, **nobody)
    assert os.stat(os.path.join(mine, "mc", "run")).st_mode & 0o6000 == 0


def test_a_plain_user_needs_no_root(nobody, image, shm):
    mine = os.path.join(shm, "mine")
    os.mkdir(mine)
    if os.getuid() == 0:
        os.chown(mine, rig.NOBODY, rig.NOBODY)
    content = rig.mixed_bytes(1 << 20)
    source = os.path.join(mine, "mem")
    subprocess.run(["dd", f"of={source}", "status=none"], input=content, check=True, **nobody)
    saved = rig.run("save", source, "-o", os.path.join(mine, "i"), **nobody)
    os.unlink(source)
    loaded = rig.run("load", os.path.join(mine, "i"), **nobody)
    assert rig.read_file(source) == content
    assert "warning" not in saved.err + loaded.err


@pytest.mark.parametrize("seconds, ns, word", [(10413792000, (1 << 63) - 1, "later"), (-10413792000, -(1 << 63), "earlier")])
def test_a_time_that_an_image_cannot_tell_is_the_nearest(shm, image, there, seconds, ns, word):
    """1640 and 2300; some file systems have neither."""
    source = rig.write_file(os.path.join(shm, "mem"), b"x" * rig.PAGE)
    try:
        os.utime(source, (seconds, seconds))
    except OSError:
        pytest.skip("this file system cannot tell it either")
    if os.stat(source).st_mtime != seconds:
        pytest.skip("this file system cannot tell it either")
    saved = rig.run("save", source, "-o", image)
    assert f"mem: its time is {word} than an image can tell" in saved.err and "changed" not in saved.err
    rig.run("load", image, "--to", there)
    assert os.stat(os.path.join(there, "mem")).st_mtime_ns == ns
