# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every system call of a save, a load and a rebuild fails once, and is once the last one before kill -9."""
import os
import shutil
import signal
import subprocess

import pytest

import rig
from injecting import EIO, EMFILE, ENOSPC
from rig import PAGE

# What some file systems lack: O_TMPFILE; what NFS and 9p lack; and links besides.
LACKING = ["", "tmpfile", "tmpfile,rename-flags", "tmpfile,rename-flags,links"]

CALLS = [
    ("write", ENOSPC),
    ("truncate", ENOSPC),
    ("open", EMFILE),
    ("read", EIO),
    ("sync", EIO),
    ("mkdir,symlink", ENOSPC),
    ("rename,link", EIO),
    ("lock", EIO),
    ("unlink", EIO),
]
KILLS = "write,truncate,open,sync,mkdir,symlink,rename,link,lock,unlink,metadata"


def make_tree(top, seed):
    """A folder with a bit of everything; different for each seed."""
    os.makedirs(os.path.join(top, "deep", "er"))
    rig.write_file(os.path.join(top, "mem"), rig.mixed_bytes(150 * PAGE, seed), 0o640)
    rig.write_file(os.path.join(top, "deep", "er", f"only{seed}"), b"%d" % seed)
    os.symlink(f"mem{seed}", os.path.join(top, "link"))
    os.chmod(os.path.join(top, "deep"), 0o555)
    return top


@pytest.fixture
def two(shm):
    """Two folders of one name, and an image of each."""
    made = []
    for seed in (1, 2):
        folder = os.path.join(shm, f"s{seed}")
        os.mkdir(folder)
        top = make_tree(os.path.join(folder, "mc"), seed)
        image = os.path.join(folder, "mc.torpor")
        rig.run("save", top, "-o", image, "--chunk-size", "16K")
        made.append((top, image, rig.tree(top)))
    return made


def restore(target, two, code=rig.DONE):
    rig.run("load", two[0][1], "--to", os.path.dirname(target), "--force", code=code)


# ---- save ----


def save_args(two, image):
    return ["save", two[1][0], "-o", image, "--force", "--threads", "1", "--chunk-size", "16K"]


@pytest.mark.parametrize("without", LACKING[:3])
@pytest.mark.parametrize("calls,error", CALLS)
def test_any_call_of_a_save_may_fail(inject, two, image, there, calls, error, without):
    """The old image stays, or the new one has come; nothing else is left."""
    shutil.copyfile(two[0][1], image)
    for result in inject.each(calls, error, save_args(two, image), without):
        assert os.listdir(os.path.dirname(image)) == ["x.torpor"] or calls == "unlink", str(result)
        rig.run("load", image, "--to", there, "--force")
        now = rig.tree(os.path.join(there, "mc"))
        if result.code == rig.DONE:
            assert now == two[1][2], str(result)
        elif calls == "sync" and "folder" in result.err:
            assert now in (two[0][2], two[1][2]), str(result)
        else:
            assert now == two[0][2], str(result)
        shutil.copyfile(two[0][1], image)


@pytest.mark.parametrize("without", LACKING[:3])
def test_any_call_of_a_save_without_an_old_image_may_fail(inject, two, image, without):
    args = [a for a in save_args(two, image) if a != "--force"]
    for result in inject.each("write,open,sync,rename,link,lock", EIO, args, without):
        left = os.listdir(os.path.dirname(image))
        if left:
            assert left == ["x.torpor"], str(result)
            assert result.code == rig.DONE or "folder" in result.err, str(result)
            rig.run("verify", image)
            os.unlink(image)


@pytest.mark.parametrize("without", LACKING)
def test_a_save_may_be_killed_at_any_call(inject, two, image, there, without):
    """Old or new, whole; and the next save removes what was left."""
    shutil.copyfile(two[0][1], image)
    left = 0
    for result in inject.each(KILLS, "kill", save_args(two, image), without):
        left += len(os.listdir(os.path.dirname(image))) - 1
        rig.run("load", image, "--to", there, "--force")
        assert rig.tree(os.path.join(there, "mc")) in (two[0][2], two[1][2]), str(result)
        rig.run("save", two[0][0], "-o", image, "--force")
        assert os.listdir(os.path.dirname(image)) == ["x.torpor"], str(result)
    assert left > 0  # between link and rename, at least


def test_any_write_of_a_save_to_a_stream_may_fail(inject, two, shm):
    out = os.path.join(shm, "out")
    args = ["save", two[0][0], "-o", "-", "--threads", "1", "--chunk-size", "16K"]
    failed = 0
    for result in inject.each("write", ENOSPC, args, stdout=out):
        assert result.code == rig.FAILED, str(result)
        rig.run("verify", out, code=rig.DAMAGED)
        failed += 1
    assert failed >= 3
    rig.run("verify", out)


def test_any_write_of_a_save_to_a_device_may_fail(inject, two, loop_device):
    """Half an image is not taken for a whole one; only the last flush comes after the header."""
    codes = []
    for result in inject.each("write,sync", EIO, save_args(two, loop_device)):
        assert result.code == rig.FAILED, str(result)
        codes.append(rig.run("verify", loop_device, code=None).code)
    assert len(codes) >= 6
    assert set(codes[:-1]) == {rig.DAMAGED}
    rig.run("verify", loop_device)


# ---- load ----


def load_args(two, there, *more):
    return ["load", two[1][1], "--to", there, "--threads", "1", *more]


@pytest.mark.parametrize("without", ["", "tmpfile,rename-flags,links"])
@pytest.mark.parametrize("calls,error", CALLS)
def test_any_call_of_a_load_may_fail(inject, two, there, calls, error, without):
    """The old folder stays, or the new one has come."""
    target = os.path.join(there, "mc")
    restore(target, two)
    for result in inject.each(calls, error, load_args(two, there, "--force"), without):
        want = two[result.code == rig.DONE][2]
        assert rig.tree(target) == want, str(result)
        # What cannot be removed is named, and removed by the next load.
        assert os.listdir(there) == ["mc"] or "could not be removed" in result.err, str(result)
        restore(target, two)
        assert os.listdir(there) == ["mc"], str(result)


@pytest.mark.parametrize("calls,error", CALLS[:8])
def test_any_call_of_a_load_to_an_empty_folder_may_fail(inject, two, there, calls, error):
    for result in inject.each(calls, error, load_args(two, there)):
        assert bool(os.listdir(there)) == (result.code == rig.DONE), str(result)
        subprocess.run(["rm", "-rf", os.path.join(there, "mc")], check=True)


@pytest.mark.parametrize("without", ["", "tmpfile,rename-flags"])
def test_any_call_of_a_load_of_several_files_may_fail(inject, shm, there, without):
    """All are replaced, or none."""
    old, new = os.path.join(shm, "old"), os.path.join(shm, "new")
    for folder in (old, new):
        os.mkdir(folder)
        sources = [rig.write_file(os.path.join(folder, n), rig.random_bytes(3 * PAGE, folder)) for n in "abc"]
        rig.run("save", *sources, "-o", folder + ".torpor")
    rig.run("load", old + ".torpor", "--to", there)
    args = ["load", new + ".torpor", "--to", there, "--force", "--threads", "1"]
    for calls, error in [("write,truncate,open", ENOSPC), ("rename,link,lock", EIO)]:
        rig.run("load", old + ".torpor", "--to", there, "--force")
        for result in inject.each(calls, error, args, without):
            assert rig.contents(there) == rig.contents(new if result.code == rig.DONE else old), str(result)
            rig.run("load", old + ".torpor", "--to", there, "--force")


@pytest.mark.parametrize("without", ["", "tmpfile", "tmpfile,rename-flags"])
def test_a_load_may_be_killed_at_any_call(inject, two, there, without):
    """Old or new, whole, and the next load removes what was left.  Without RENAME_EXCHANGE a folder is missing for a
    moment: then the next load gives the old one its name back."""
    target = os.path.join(there, "mc")
    restore(target, two)
    missed = left = 0
    for result in inject.each(KILLS, "kill", load_args(two, there, "--force"), without):
        left += len(os.listdir(there)) > 1
        if not os.path.exists(target):
            missed += 1
            restore_unasked = rig.run("load", two[1][1], "--to", there, code=rig.FAILED)
            assert "--force" in restore_unasked.err
        assert rig.tree(target) in (two[0][2], two[1][2]), str(result)
        restore(target, two)
        assert os.listdir(there) == ["mc"], str(result)
    assert left > 10
    assert missed <= (1 if "rename-flags" in without else 0)


@pytest.mark.parametrize("without", ["tmpfile,rename-flags", "tmpfile,rename-flags,links"])
def test_a_load_of_a_file_may_be_killed_at_any_call(inject, shm, there, without):
    """Where there are links a file is never missing."""
    contents = [rig.random_bytes(20 * PAGE, seed) for seed in (1, 2)]
    images = []
    for seed, content in enumerate(contents):
        os.mkdir(os.path.join(shm, f"f{seed}"))
        source = rig.write_file(os.path.join(shm, f"f{seed}", "mem"), content)
        images.append(source + ".torpor")
        rig.run("save", source, "-o", images[-1])
    target = os.path.join(there, "mem")
    rig.run("load", images[0], "--to", there)
    args = ["load", images[1], "--to", there, "--force", "--threads", "1"]
    for result in inject.each(KILLS, "kill", args, without):
        if "links" in without and not os.path.exists(target):
            rig.run("load", images[1], "--to", there, code=rig.FAILED)
        assert rig.read_file(target) in contents, str(result)
        rig.run("load", images[0], "--to", there, "--force")
        assert os.listdir(there) == ["mem"], str(result)


def test_a_load_into_a_mount_may_fail_or_be_killed_at_any_call(inject, two, small_tmpfs):
    """What lies in it gets its names one after the other, and all of it or none when something fails."""
    there = small_tmpfs(64 << 20)
    target = os.path.join(there, "mc")
    os.mkdir(target)
    subprocess.run(["mount", "-t", "tmpfs", "torpor-test", target], check=True)
    try:
        rig.write_file(os.path.join(target, "other"), b"precious")
        restore(target, two)
        before = rig.contents(target)
        for calls, error in CALLS[:8]:
            restore(target, two)
            for result in inject.each(calls, error, load_args(two, there, "--force")):
                now = rig.contents(target)
                if result.code != rig.DONE:
                    assert now == before, str(result)
                assert now.pop(b"other") and b"mem" in now, str(result)
                restore(target, two)
        restore(target, two)
        for result in inject.each(KILLS, "kill", load_args(two, there, "--force")):
            assert os.path.exists(os.path.join(target, "other"))
            restore(target, two)
            assert rig.contents(target) == before, str(result)
    finally:
        subprocess.run(["umount", "-l", target], check=True)


# ---- rebuild ----


@pytest.fixture
def cut(two):
    """The beginning of an image: a sound one can be made of it."""
    whole = rig.read_file(two[1][1])
    return rig.write_file(two[1][1] + ".cut", whole[:-100])


@pytest.mark.parametrize("without", LACKING[:3])
@pytest.mark.parametrize("calls,error", [c for c in CALLS if c[0] not in ("truncate", "mkdir,symlink")])
def test_any_call_of_a_rebuild_may_fail(inject, two, cut, image, calls, error, without):
    old = rig.read_file(two[0][1])
    before = rig.read_file(cut)
    rig.write_file(image, old)
    for result in inject.each(calls, error, ["rebuild", cut, "-o", image, "--force"], without):
        assert rig.read_file(cut) == before
        assert os.listdir(os.path.dirname(image)) == ["x.torpor"] or calls == "unlink", str(result)
        if result.code == rig.DONE or "folder" in result.err:
            rig.run("verify", image)
        else:
            assert rig.read_file(image) == old, str(result)
        rig.write_file(image, old)


@pytest.mark.parametrize("without", LACKING[:3])
def test_a_rebuild_may_be_killed_at_any_call(inject, two, cut, image, without):
    shutil.copyfile(two[0][1], image)
    for result in inject.each(KILLS, "kill", ["rebuild", cut, "-o", image, "--force"], without):
        rig.run("verify", image)
    rig.run("rebuild", cut, "-o", image, "--force")
    assert os.listdir(os.path.dirname(image)) == ["x.torpor"], str(result)


# ---- what file systems lack ----


@pytest.mark.parametrize("without", LACKING[1:] + ["rename-flags", "locks", "tmpfile,rename-flags,links,locks"])
def test_file_systems_that_can_less_are_enough(inject, two, image, there, without):
    """Saves and loads, new ones and in the place of old ones, of folders and of files."""
    target = os.path.join(there, "mc")
    file = os.path.join(two[0][0], "mem")
    inject.run("save", two[0][0], "-o", image, without=without)
    failed = inject.run("save", two[0][0], "-o", image, code=rig.FAILED, without=without)
    assert "File exists" in failed.err and "--force" in failed.err
    inject.run("load", image, "--to", there, without=without)
    assert rig.tree(target) == two[0][2]
    failed = inject.run("load", image, "--to", there, code=rig.FAILED, without=without)
    assert "File exists" in failed.err and "--force" in failed.err
    inject.run("save", two[1][0], "-o", image, "--force", without=without)
    inject.run("load", image, "--to", there, "--force", without=without)
    assert rig.tree(target) == two[1][2]
    inject.run("save", file, "-o", image, "--force", without=without)
    for _ in range(2):
        inject.run("load", image, "--to", there, "--force", without=without)
        assert rig.describe(os.path.join(there, "mem")) == rig.describe(file)
    # A file where a folder was.
    subprocess.run(["rm", "-r", target], check=True)
    rig.write_file(target, b"old")
    inject.run("load", two[0][1], "--to", there, "--force", without=without)
    assert rig.tree(target) == two[0][2]
    assert sorted(os.listdir(there)) == ["mc", "mem"]
    assert os.listdir(os.path.dirname(image)) == ["x.torpor"]


def test_a_name_that_comes_up_meanwhile_is_not_replaced(inject, two, image, there):
    """The save stops before its last call, in which the image gets its name."""
    args = ["save", two[0][0], "-o", image, "--threads", "1"]
    for without in LACKING[:3]:
        last = sum(1 for _ in count_calls(inject, "rename,link", args, without, image))
        save = rig.start(*args, env=inject.env("rename,link", last, "stop", without))
        os.waitid(os.P_PID, save.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        rig.write_file(image, b"somebody else's")
        save.send_signal(signal.SIGCONT)
        _, err = save.communicate(timeout=rig.DEADLINE_S)
        assert save.returncode == rig.FAILED and b"File exists" in err, err
        assert rig.read_file(image) == b"somebody else's"
        assert os.listdir(os.path.dirname(image)) == ["x.torpor"]
        os.unlink(image)


def count_calls(inject, calls, args, without, image):
    for result in inject.each(calls, EIO, args, without):
        if os.path.exists(image):
            os.unlink(image)
        yield result
    os.unlink(image)


def test_an_invalid_argument_to_the_system_is_not_the_users(inject, two, image):
    """Exit code 2 says that the command line was wrong."""
    failed = rig.run("save", two[0][0], "-o", image, code=rig.FAILED, env=inject.env("sync", 1, 22))
    assert "Invalid argument" in failed.err
    told = rig.run("save", two[0][0], "-o", image, "--json", code=None, env=inject.env("write", 1, 22))
    assert told.code == rig.FAILED and told.json["error_code"] == "EIO"
