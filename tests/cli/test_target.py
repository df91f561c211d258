# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where images and memory go: nothing is overwritten unasked, nothing half done is left, and an
image is not believed when it says where its memory belongs, unless there is reason to."""
import os
import signal
import socket
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


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "link to a device", "link to a fifo"])
def test_what_is_no_file_is_never_replaced(root, shm, source, kind, force):
    """And --force, which would not help, is not proposed."""
    folder = os.path.join(shm, "d")
    os.mkdir(folder)
    real = os.path.join(folder, "real") if "link" in kind else os.path.join(folder, "t")
    if "fifo" in kind:
        os.mkfifo(real)
    elif "device" in kind:
        os.mknod(real, 0o020666, os.makedev(1, 3))
    else:
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(real)
    if "link" in kind:
        os.symlink("real", os.path.join(folder, "t"))
    before = {name: os.lstat(os.path.join(folder, name)) for name in os.listdir(folder)}
    failed = rig.run("save", source, "-o", os.path.join(folder, "t"), *force, code=rig.FAILED)
    assert "-o -" in failed.err and "--force" not in failed.err
    after = {name: os.lstat(os.path.join(folder, name)) for name in os.listdir(folder)}
    assert {k: (v.st_ino, v.st_mode) for k, v in after.items()} == {
        k: (v.st_ino, v.st_mode) for k, v in before.items()
    }


def test_a_symlink_to_an_image_stays_and_leads_to_the_new_one(shm, image, source, there):
    link = os.path.join(shm, "link")
    os.symlink("images/x.torpor", link)
    failed = rig.run("save", source, "-o", link, code=rig.FAILED)
    assert "symlink" in failed.err and not os.path.exists(image)  # it leads nowhere
    rig.write_file(image, b"old")
    assert "--force" in rig.run("save", source, "-o", link, code=rig.FAILED).err
    assert rig.read_file(image) == b"old"
    rig.run("save", source, "-o", link, "--force")
    assert os.readlink(link) == "images/x.torpor"
    assert os.listdir(os.path.dirname(image)) == ["x.torpor"]
    rig.run("load", image, "--to", there)
    assert rig.tree(os.path.join(there, "mc")) == rig.tree(source)


@pytest.mark.parametrize("command", ["save", "rebuild"])
def test_a_path_that_ends_with_a_slash_names_no_image(shm, image, source, command):
    rig.run("save", source, "-o", image)
    what = source if command == "save" else image
    os.mkdir(os.path.join(shm, "old"))
    for name in ("new/", "new//", "old/", "old/new/"):
        failed = rig.run(command, what, "-o", os.path.join(shm, name), "--force", code=rig.FAILED)
        assert "Is a directory" in failed.err
    assert sorted(os.listdir(shm)) == ["images", "mc", "old"]
    assert os.listdir(os.path.join(shm, "old")) == []


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_source_is_not_replaced_by_its_image(shm, force):
    """By whatever name it is called."""
    source = rig.write_file(os.path.join(shm, "mem"), rig.random_bytes(MIB))
    os.symlink("mem", os.path.join(shm, "symlink"))
    os.link(source, os.path.join(shm, "link"))
    before = rig.tree(shm)
    for args in [(source, source), (source, "symlink"), ("symlink", source), (source, "link"), ("./mem", "mem")]:
        failed = rig.run("save", args[0], "-o", args[1], *force, code=rig.USAGE, cwd=shm)
        assert "source" in failed.err and "--force" not in failed.err
        assert rig.tree(shm) == before
    with open(source, "r+b") as out:
        rig.run("save", source, "-o", "-", stdout=out, code=rig.USAGE)
    assert rig.tree(shm) == before


def test_an_image_in_its_source_is_not_saved_into_the_next_one(shm, source, there):
    image = os.path.join(source, "x.torpor")
    unfinished = os.path.join(source, ".x.torpor.torpor-0123456789ab")
    before = rig.contents(source)
    rig.run("save", source, "-o", image)
    for _ in range(2):
        rig.write_file(unfinished, b"what a killed save left")
        again = rig.run("save", source, "-o", image, "--force")
        assert "mc/x.torpor" in again.err and "skipped" in again.err
        assert not os.path.exists(unfinished)
        rig.run("load", image, "--to", there, "--force")
        assert rig.contents(os.path.join(there, "mc")) == before
    # A shell has made the file before torpor looks.
    os.unlink(image)
    with open(image, "wb") as out:
        rig.run("save", source, "-o", "-", stdout=out)
    rig.run("load", image, "--to", there, "--force")
    assert rig.contents(os.path.join(there, "mc")) == before


@pytest.mark.parametrize("name", ["x.torpor", "symlink", "link", "./x.torpor"])
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_an_image_is_not_replaced_by_what_is_rebuilt_from_it(image, source, name, force):
    rig.run("save", source, "-o", image)
    folder = os.path.dirname(image)
    os.symlink("x.torpor", os.path.join(folder, "symlink"))
    os.link(image, os.path.join(folder, "link"))
    rig.write_file(image, rig.read_file(image)[:-10])
    before = rig.read_file(image)
    failed = rig.run("rebuild", image, "-o", name, *force, code=rig.USAGE, cwd=folder)
    assert "itself" in failed.err and "--force" not in failed.err
    assert rig.read_file(image) == before
    assert sorted(os.listdir(folder)) == ["link", "symlink", "x.torpor"]


def test_a_device_is_not_replaced_by_what_is_rebuilt_from_it(loop_device, source, tmp_path):
    rig.run("save", source, "-o", loop_device, "--force")
    other = str(tmp_path / "other-node")
    os.mknod(other, 0o060600, os.stat(loop_device).st_rdev)
    for target in (loop_device, other):
        rig.run("rebuild", loop_device, "-o", target, "--force", code=rig.USAGE)
    rig.run("verify", loop_device)


@pytest.mark.parametrize("what", ["fifo", "/dev/null", "/dev/zero"])
@pytest.mark.parametrize("command", ["info", "cat", "rebuild"])
def test_what_cannot_be_read_at_random_is_said_so(shm, what, command):
    if what == "fifo":
        what = os.path.join(shm, "fifo")
        os.mkfifo(what)
    more = {"info": [], "cat": ["mem"], "rebuild": ["-o", os.path.join(shm, "new")]}[command]
    failed = rig.run(command, what, *more, code=rig.FAILED)
    assert what in failed.err and "pipe or a device" in failed.err and "Illegal seek" not in failed.err


def test_a_fifo_is_loaded_in_one_pass(shm, image, source, there):
    rig.run("save", source, "-o", image)
    fifo = os.path.join(shm, "fifo")
    os.mkfifo(fifo)
    load = rig.start("load", fifo, "--to", there)
    with open(fifo, "wb") as f:
        f.write(rig.read_file(image))
    _, err = load.communicate(timeout=rig.DEADLINE_S)
    assert load.returncode == 0, err
    assert rig.tree(os.path.join(there, "mc")) == rig.tree(source)


def test_a_load_that_waits_for_a_fifo_s_writer_can_be_stopped(shm, there):
    fifo = os.path.join(shm, "fifo")
    os.mkfifo(fifo)
    load = rig.start("load", fifo, "--to", there)

    def waits():
        fds = f"/proc/{load.pid}/fd"
        return any(os.path.realpath(os.path.join(fds, fd)) == fifo for fd in os.listdir(fds))

    rig.wait_until(waits, "the fifo is open")
    load.send_signal(signal.SIGINT)
    _, err = load.communicate(timeout=rig.DEADLINE_S)
    assert load.returncode == -signal.SIGINT and b"stopped by SIGINT" in err, err
    assert os.listdir(there) == []


def test_a_fifo_s_writer_that_goes_too_early_is_seen(shm, image, source, there):
    rig.run("save", source, "-o", image)
    fifo = os.path.join(shm, "fifo")
    os.mkfifo(fifo)
    content = rig.read_file(image)
    for whole in [True] * 5 + [False]:
        load = rig.start("load", fifo, "--to", there, "--force")
        with open(fifo, "wb") as f:
            f.write(content if whole else content[: len(content) // 2])
        _, err = load.communicate(timeout=rig.DEADLINE_S)
        assert load.returncode == (rig.DONE if whole else rig.DAMAGED), err


def test_looking_at_a_fifo_lets_no_writer_through(shm):
    fifo = os.path.join(shm, "fifo")
    os.mkfifo(fifo)
    writer = subprocess.Popen(["sh", "-c", 'echo > "$0"', fifo])
    for command in (["info", fifo], ["cat", fifo, "mem"]):
        rig.run(*command, code=rig.FAILED)
    with open(fifo, "rb") as f:
        assert f.read() == b"\n"
    assert writer.wait(timeout=rig.DEADLINE_S) == 0


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


def test_an_empty_folder_is_not_in_the_way_of_a_folder(shm, image, source, there):
    rig.run("save", source, "-o", image)
    target = os.path.join(there, "mc")
    os.mkdir(target, 0o700)
    rig.run("load", image, "--to", there)
    assert rig.tree(target) == rig.tree(source)
    assert os.listdir(there) == ["mc"]
    # It is in the way of a file.
    rig.run("save", os.path.join(source, "mem"), "-o", image, "--force")
    os.mkdir(os.path.join(there, "mem"))
    rig.run("load", image, "--to", there, code=rig.FAILED)
    assert os.listdir(os.path.join(there, "mem")) == []


def test_an_empty_folder_of_ones_own_in_a_folder_of_others_is_filled(root, nobody, shm, image, source, there):
    rig.run("save", source, "-o", image)
    os.chmod(image, 0o644)
    target = os.path.join(there, "mc")
    os.mkdir(target)
    os.chown(target, rig.NOBODY, rig.NOBODY)
    inode = os.stat(target).st_ino
    os.chmod(os.path.join(source, "mem"), 0o644)
    rig.run("load", image, "--to", there, **nobody)
    assert os.stat(target).st_ino == inode and os.listdir(target) == ["mem"]
    assert rig.read_file(os.path.join(target, "mem")) == rig.read_file(os.path.join(source, "mem"))


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("where", ["mc/x.torpor", "mc/deep/er/x.torpor", "mc"])
@pytest.mark.parametrize("how", ["path", "stdin", "symlink", "hard link"])
def test_the_image_itself_is_not_replaced(shm, source, there, force, where, how):
    """The only copy of the memory would be lost."""
    image = os.path.join(there, where)
    named = image
    os.makedirs(os.path.dirname(image), exist_ok=True)
    rig.run("save", source, "-o", image)
    if how in ("symlink", "hard link"):
        named = os.path.join(shm, "other-name")
        (os.symlink if how == "symlink" else os.link)(image, named)
    args = ["load", "-" if how == "stdin" else named, "--to", there, *force]
    with open(image, "rb") as f:
        content = f.read()
        f.seek(0)
        if how == "hard link" and where != "mc":
            # It is not the only one then.
            rig.run(*args, code=rig.DONE if force else rig.FAILED)
            assert rig.read_file(named) == content
            return
        failed = rig.run(*args, code=rig.FAILED, stdin=f)
    assert "the image lies" in failed.err and "hint" not in failed.err
    assert rig.read_file(image) == content
    rig.run("verify", image)


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
