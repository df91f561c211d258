# SPDX-License-Identifier: LGPL-2.1-or-later
"""torpor thaw lets a frozen control group go on, and says what it could not do."""
import os
import select
import subprocess

import pytest

import rig
from live import freezer  # noqa: F401 (fixture)


@pytest.fixture
def frozen(freezer):
    """A frozen group with a process in it, and whether that runs."""

    class Frozen:
        group = freezer
        name = os.path.basename(freezer.path)

        @staticmethod
        def runs():
            """It answers; one that stands still does not."""
            process.stdin.write(b"x\n")
            process.stdin.flush()
            answered, _, _ = select.select([process.stdout], [], [], rig.DEADLINE_S)
            return bool(answered) and process.stdout.readline() == b"x\n"

    with subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=freezer.enter
    ) as process:
        assert Frozen.runs()
        freezer.write("cgroup.freeze", 1)
        rig.wait_until(freezer.frozen, "the group is frozen")
        yield Frozen
        # A group that is still frozen would keep it.
        freezer.write("cgroup.freeze", 0)
        process.kill()


@pytest.mark.parametrize("spelling", ["path", "name", "slash", "trailing"])
def test_a_frozen_group_goes_on(frozen, spelling):
    path = frozen.group.path
    word = {"path": path, "name": frozen.name, "slash": "/" + frozen.name, "trailing": path + "/"}[spelling]
    done = rig.run("thaw", word)
    assert (done.raw, done.raw_err) == (b"", b"")
    assert frozen.group.read("cgroup.freeze") == "0\n"
    assert frozen.runs()


def test_a_group_that_is_not_frozen_is_a_warning(freezer):
    done = rig.run("thaw", freezer.path)
    assert done.raw == b""
    assert done.err == f"torpor: warning: control group {freezer.path} was not frozen\n"


def test_a_group_above_that_is_frozen_is_named(frozen):
    below = os.path.join(frozen.group.path, "below")
    os.mkdir(below)
    try:
        done = rig.run("thaw", below, code=rig.FAILED)
        assert done.err == f"torpor: control group {below} stays frozen by the group above: {frozen.group.path}\n"
        # What it was asked for is all that it does.
        assert frozen.group.read("cgroup.freeze") == "1\n"
    finally:
        os.rmdir(below)


def test_a_group_below_that_was_frozen_by_itself_stays_so(frozen):
    below = os.path.join(frozen.group.path, "below")
    os.mkdir(below)
    try:
        with open(os.path.join(below, "cgroup.freeze"), "w", encoding="ascii") as f:
            f.write("1")
        rig.run("thaw", frozen.name)
        assert frozen.runs()
        with open(os.path.join(below, "cgroup.freeze"), encoding="ascii") as f:
            assert f.read() == "1\n"
    finally:
        os.rmdir(below)


def test_what_is_no_group_is_refused(freezer, shm):
    root = os.path.dirname(freezer.path)
    cases = [
        (shm, rig.USAGE, "no folder of a cgroup2"),
        (root, rig.USAGE, "root"),
        ("", rig.USAGE, "empty"),
        (freezer.path + "-not", rig.FAILED, "there is no control group"),
        ("torpor-no-such-group", rig.FAILED, "there is no control group torpor-no-such-group"),
        (freezer.file("cgroup.procs"), rig.FAILED, "Not a directory"),
    ]
    for word, code, said in cases:
        done = rig.run("thaw", word, code=code)
        assert said in done.err and done.err.count("\n") == 1, str(done)


def test_a_group_of_somebody_else_is_refused(frozen, nobody):
    done = rig.run("thaw", frozen.group.path, code=rig.FAILED, **nobody)
    assert "Permission denied" in done.err
    assert frozen.group.frozen()


def test_one_group_is_named():
    for words in ([], ["a", "b"]):
        done = rig.run("thaw", *words, code=rig.USAGE)
        assert "torpor thaw --help" in done.err
