# SPDX-License-Identifier: LGPL-2.1-or-later
"""Sources that change while they are saved: an error that names them, a warning, or no matter; never an image of what was not meant."""
import os
import signal

import pytest

import rig
from rig import MIB, PAGE


def stopped_save(inject, at, image, *sources, without="", **kwargs):
    """A save that stands still before its read number `at`."""
    env = inject.env("read", at, "stop", without)
    save = rig.start("save", *sources, "-o", image, "--threads", "1", env=env, **kwargs)
    os.waitid(os.P_PID, save.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return save


def go_on(save):
    save.send_signal(signal.SIGCONT)
    _, err = save.communicate(timeout=rig.DEADLINE_S)
    return rig.Result(["save"], save.returncode, b"", err)


def test_a_source_that_grows_is_saved_as_long_as_it_was(inject, shm, image, there):
    content = rig.random_bytes(700 * PAGE + 5)
    source = rig.write_file(os.path.join(shm, "mem"), content)
    save = stopped_save(inject, 1, image, source)
    with open(source, "ab") as f:
        f.write(b"more" * 100000)
    done = go_on(save)
    assert done.code == rig.DONE, str(done)
    rig.run("verify", image)
    rig.run("load", image, "--to", there)
    assert rig.read_file(os.path.join(there, "mem")) == content


@pytest.mark.parametrize("what", ["unlinked", "replaced by a folder", "replaced by a fifo", "locked away"])
def test_a_source_that_changes_before_it_is_opened_is_named(inject, nobody, shm, image, what):
    """The first file is being read, the second one was seen and is not open yet."""
    top = os.path.join(shm, "mc")
    mine = os.path.join(shm, "mine")
    for folder in (top, mine):
        os.mkdir(folder)
        os.chmod(folder, 0o777)
    rig.write_file(os.path.join(top, "a"), rig.random_bytes(2000 * PAGE), 0o644)
    second = rig.write_file(os.path.join(top, "second"), rig.random_bytes(PAGE), 0o644)
    save = stopped_save(inject, 1, os.path.join(mine, "i"), top, **nobody)
    if what == "locked away":
        os.chmod(second, 0)
    else:
        os.unlink(second)
    if "folder" in what:
        os.mkdir(second)
    if "fifo" in what:
        os.mkfifo(second)
    failed = go_on(save)
    assert failed.code == rig.FAILED and "second" in failed.err, str(failed)
    assert os.listdir(mine) == []


# ---- it becomes shorter ----


@pytest.mark.parametrize("where", ["data", "hole"])
def test_what_was_cut_off_is_not_a_hole(inject, shm, image, where):
    """The cut comes before the save has looked at the end of the file."""
    source = os.path.join(shm, "mem")
    pieces = [(0, rig.random_bytes(600 * PAGE))]
    if where == "data":
        pieces.append((8 * MIB, rig.random_bytes(PAGE)))
    rig.write_pieces(source, 9 * MIB, pieces)
    save = stopped_save(inject, 1, image, source)
    os.truncate(source, 4 * MIB)
    failed = go_on(save)
    assert failed.code == rig.FAILED, str(failed)
    assert "mem shrank" in failed.err and str(4 * MIB) in failed.err and str(9 * MIB) in failed.err
    assert os.listdir(os.path.dirname(image)) == []


def test_a_cut_at_the_last_moment_is_seen(inject, shm, image):
    """Everything was found, and what is cut off is a hole."""
    source = rig.write_pieces(os.path.join(shm, "mem"), 9 * MIB, [(0, rig.random_bytes(8 * PAGE))])
    save = stopped_save(inject, 1, image, source)
    os.truncate(source, 8 * MIB)
    failed = go_on(save)
    assert failed.code == rig.FAILED and "mem shrank" in failed.err, str(failed)
    assert os.listdir(os.path.dirname(image)) == []


# ---- it is written ----


def written_through(path):
    with open(path, "r+b") as f:
        f.write(b"x")


def written_and_time_set_back(path):
    st = os.stat(path)
    written_through(path)
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


@pytest.mark.parametrize("change", [written_through, written_and_time_set_back])
def test_a_source_that_is_written_is_a_warning(inject, shm, image, change):
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    for name in ("a", "b"):
        rig.write_file(os.path.join(top, name), rig.random_bytes(8 * PAGE))
    save = stopped_save(inject, 1, image, top)
    change(os.path.join(top, "a"))
    done = go_on(save)
    assert done.code == rig.DONE, str(done)
    assert "mc/a was changed while it was being saved" in done.err and "mc/b" not in done.err
    rig.run("verify", image)


# ---- it becomes another one ----


@pytest.fixture
def secret(shm):
    """A folder of somebody else, and a source with one that looks like it: (source, inner folder, secret folder)."""
    source, theirs = os.path.join(shm, "mc"), os.path.join(shm, "theirs")
    inner = os.path.join(source, "z")
    for folder in (source, inner, theirs):
        os.mkdir(folder)
    rig.write_file(os.path.join(source, "a"), rig.random_bytes(2000 * PAGE))
    for folder, content in ((inner, b"mine"), (theirs, b"key!")):
        rig.write_file(os.path.join(folder, "file"), content * 2000)
    return source, inner, theirs


def refused(save, image):
    failed = go_on(save)
    assert failed.code == rig.FAILED and "exchanged" in failed.err and "mc" in failed.err, str(failed)
    assert os.listdir(os.path.dirname(image)) == []


@pytest.mark.parametrize("without", ["", "openat2"])
@pytest.mark.parametrize("to", ["theirs", "z.old"])
def test_a_symlink_on_the_way_leads_nowhere(inject, secret, image, without, to):
    """Not even to where the folder is now."""
    source, inner, theirs = secret
    save = stopped_save(inject, 1, image, source, without=without)
    os.rename(inner, inner + ".old")
    os.symlink(theirs if to == "theirs" else inner + ".old", inner)
    refused(save, image)


@pytest.mark.parametrize("without", ["", "openat2"])
def test_another_file_of_the_same_name_is_not_taken_for_it(inject, secret, image, without):
    source, inner, theirs = secret
    save = stopped_save(inject, 1, image, source, without=without)
    os.rename(os.path.join(theirs, "file"), os.path.join(inner, "file"))
    refused(save, image)


def test_another_source_of_the_same_name_is_not_taken_for_it(inject, secret, shm, image):
    """A second source, a folder and a file, which is opened when the first one was read."""
    source, _, theirs = secret
    for name in ("sub", "mem"):
        second = os.path.join(shm, name)
        if name == "sub":
            os.mkdir(second)
            rig.write_file(os.path.join(second, "file"), b"mine")
        else:
            rig.write_file(second, b"mine")
        save = stopped_save(inject, 1, image, source, second)
        os.rename(second, second + ".old")
        os.symlink(theirs if name == "sub" else os.path.join(theirs, "file"), second)
        failed = go_on(save)
        assert failed.code == rig.FAILED and name in failed.err, str(failed)
        assert os.listdir(os.path.dirname(image)) == []


def test_a_kernel_without_openat2_is_enough(inject, secret, image, there):
    source, _, _ = secret
    inject.run("save", source, "-o", image, without="openat2")
    rig.run("load", image, "--to", there)
    assert rig.tree(os.path.join(there, "mc")) == rig.tree(source)
