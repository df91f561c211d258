# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a killed save or load left behind is tidied up by the next one, at once; what is in use is not."""
import fcntl
import os
import resource
import signal

import pytest

import rig

LEFT, HELD = "0123456789ab", "ba9876543210"


def hold(path):
    lock = os.open(path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def test_the_next_load_removes_what_a_killed_one_left(shm, image, there):
    tree = os.path.join(shm, "tree")
    os.mkdir(tree)
    rig.write_file(os.path.join(tree, "mem"), b"x" * 10000)
    rig.run("save", tree, "-o", image)
    left = os.path.join(there, f".tree.torpor-{LEFT}")
    held = os.path.join(there, f".tree.torpor-{HELD}")
    others = [f".other.torpor-{LEFT}", ".tree.torpor-new-01234567", ".tree.torpor-0123456789aX", ".tree.torpor-"]
    for name in (left, held, *others):
        os.mkdir(os.path.join(there, name))
    rig.write_file(os.path.join(left, "mem"), b"half")
    lock = hold(held)
    rig.run("load", image, "--to", there)
    assert sorted(os.listdir(there)) == sorted(["tree", os.path.basename(held), *others])
    os.close(lock)
    rig.run("load", image, "--to", there, "--force")
    assert sorted(os.listdir(there)) == sorted(["tree", *others])


@pytest.mark.parametrize("force", [False, True])
def test_the_next_save_removes_what_a_killed_one_left(shm, image, force):
    source = rig.write_file(os.path.join(shm, "mem"), b"x" * 10000)
    folder = os.path.dirname(image)
    left = os.path.join(folder, f".x.torpor.torpor-{LEFT}")
    held = os.path.join(folder, f".x.torpor.torpor-{HELD}")
    other = os.path.join(folder, f".y.torpor.torpor-{LEFT}")
    for path in (left, held, other):
        rig.write_file(path, b"half")
    lock = hold(held)
    if force:
        rig.write_file(image, b"old")
    rig.run("save", source, "-o", image, *(["--force"] if force else []))
    assert sorted(os.listdir(folder)) == sorted(map(os.path.basename, (image, held, other)))
    os.close(lock)
    rig.run("rebuild", image, "-o", image + "2")
    rig.run("save", source, "-o", image, "--force")
    assert not os.path.exists(held) and os.path.exists(other)


def test_a_folder_that_was_set_aside_gets_its_name_back(shm, image, there):
    """What a load killed between two renames leaves, where folders cannot be exchanged at once."""
    tree = os.path.join(shm, "tree")
    os.mkdir(tree)
    rig.write_file(os.path.join(tree, "mem"), b"new")
    rig.run("save", tree, "-o", image)
    aside = os.path.join(there, ".tree.torpor-old-01234567")
    os.mkdir(aside)
    rig.write_file(os.path.join(aside, "mem"), b"old")
    rig.run("load", image, "--to", there, code=rig.FAILED)
    assert os.listdir(there) == ["tree"]
    assert rig.read_file(os.path.join(there, "tree", "mem")) == b"old"
    # With a successor it is only in the way.
    os.mkdir(aside)
    rig.run("load", image, "--to", there, "--force")
    assert os.listdir(there) == ["tree"]
    assert rig.read_file(os.path.join(there, "tree", "mem")) == b"new"


@pytest.mark.parametrize("without", ["", "tmpfile"])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_two_loads_of_one_target_leave_each_other_alone(inject, shm, there, kind, without):
    """One stands still at each of its calls, while another one to the same place comes and goes."""
    source = os.path.join(shm, "mc")
    if kind == "folder":
        os.mkdir(source)
        rig.write_file(os.path.join(source, "mem"), rig.random_bytes(10000))
    else:
        rig.write_file(source, rig.random_bytes(10000))
    image = os.path.join(shm, "x.torpor")
    rig.run("save", source, "-o", image)
    target = os.path.join(there, "mc")
    args = ["load", image, "--to", there, "--force", "--threads", "1"]
    calls = "open,write,truncate,mkdir,rename,link,lock,unlink,metadata"
    rig.run(*args)
    for at in range(1, 1000):
        first = rig.start(*args, env=inject.env(calls, at, "stop", without))
        _, status = os.waitpid(first.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            first.returncode = os.waitstatus_to_exitcode(status)
            first.communicate()
            break
        rig.run(*args)
        first.send_signal(signal.SIGCONT)
        _, err = first.communicate(timeout=rig.DEADLINE_S)
        assert first.returncode == rig.DONE, (at, err)
        assert os.listdir(there) == ["mc"], at
        assert rig.describe(target) == rig.describe(source), at
    assert first.returncode == 0 and at > 10


def test_what_a_load_may_still_take_back_is_left_alone(inject, shm, there):
    """It has replaced the first file and stands still; another one looks for what was left behind; then it fails."""
    images = []
    for turn in range(2):
        folder = os.path.join(shm, f"s{turn}")
        os.mkdir(folder)
        sources = [rig.write_file(os.path.join(folder, n), rig.random_bytes(10000, turn)) for n in "ab"]
        images.append(folder + ".torpor")
        rig.run("save", *sources, "-o", images[-1])
    rig.run("load", images[0], "--to", there)
    before = rig.contents(there)
    args = ["load", images[1], "--to", there, "--force", "--threads", "1"]
    hidden = 0
    for at in range(1, 100):
        first = rig.start(*args, env=inject.env("rename", at, "stop,5"))
        _, status = os.waitpid(first.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            first.returncode = os.waitstatus_to_exitcode(status)
            first.communicate()
            break
        hidden += len(os.listdir(there)) > 2
        rig.run("load", images[0], "--to", there, code=rig.FAILED)
        first.send_signal(signal.SIGCONT)
        _, err = first.communicate(timeout=rig.DEADLINE_S)
        assert first.returncode == rig.FAILED, (at, err)
        assert rig.contents(there) == before, at
    assert first.returncode == 0 and hidden > 1


def test_a_load_of_very_many_sources_has_descriptors_enough(shm, image, there):
    """Each would need one for its lock."""
    sources = [rig.write_file(os.path.join(shm, f"mem{i}"), b"%d" % i) for i in range(300)]

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))

    rig.run("save", *sources, "-o", image, preexec_fn=few)
    for force in ([], ["--force"]):
        rig.run("load", image, "--to", there, *force, preexec_fn=few)
        assert len(os.listdir(there)) == 300
    assert rig.read_file(os.path.join(there, "mem299")) == b"299"
