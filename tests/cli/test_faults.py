# SPDX-License-Identifier: LGPL-2.1-or-later
"""What goes wrong around torpor: disks fill up, sources change, signals come, power goes."""
import os
import random
import resource
import signal
import subprocess
import time

import pytest

import rig
from rig import MIB, PAGE


@pytest.fixture
def big(shm):
    """Noise that a slow codec chews on for seconds."""
    return rig.write_file(os.path.join(shm, "big"), rig.random_bytes(96 * MIB))


SLOW = ["--codec", "zstd", "--level", "12", "--threads", "1"]


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_a_save_and_leaves_nothing(shm, image, big, sig):
    before = rig.names(shm)
    save = rig.start("save", big, "-o", image, *SLOW)
    rig.wait_until_busy(save)
    save.send_signal(sig)
    begin = time.monotonic()
    out, err = save.communicate(timeout=rig.DEADLINE_S)
    assert time.monotonic() - begin < 5
    # By the signal itself: only so a shell script around it stops too.
    assert save.returncode == -sig, err
    assert out == b"" and b"stopped by SIG" in err
    assert rig.names(shm) == before


def test_a_signal_leaves_the_old_image_whole(image, big, there, shm):
    small = rig.write_file(os.path.join(shm, "mem"), b"old")
    rig.run("save", small, "-o", image)
    before = rig.read_file(image)
    save = rig.start("save", big, "-o", image, "--force", *SLOW)
    rig.wait_until_busy(save)
    save.send_signal(signal.SIGINT)
    save.communicate(timeout=rig.DEADLINE_S)
    assert save.returncode == -signal.SIGINT
    assert rig.read_file(image) == before
    assert os.listdir(os.path.dirname(image)) == ["x.torpor"]


def test_a_signal_as_json(image, big):
    save = rig.start("save", big, "-o", image, "--json", *SLOW)
    rig.wait_until_busy(save)
    save.send_signal(signal.SIGTERM)
    out, _ = save.communicate(timeout=rig.DEADLINE_S)
    told = rig.Result([], 0, out, b"").json
    assert told["exit"] == 128 + signal.SIGTERM and told["error_code"] == "ECANCELED"


def test_a_signal_stops_a_load_and_leaves_what_was_there(image, big, there):
    """The target exists and is to be replaced: it stands until the new one is complete."""
    rig.run("save", big, "-o", image, "--codec", "none")
    rig.write_file(os.path.join(there, "big"), b"precious")
    before = rig.contents(there)
    stopped = 0
    for moved in (MIB, 4 * MIB, 16 * MIB):
        load = rig.start("load", image, "--to", there, "--force", "--threads", "1")
        rig.wait_until_busy(load, moved)
        load.send_signal(signal.SIGINT)
        load.communicate(timeout=rig.DEADLINE_S)
        if load.returncode == 0:  # it was faster than the signal
            rig.write_file(os.path.join(there, "big"), b"precious")
            os.utime(os.path.join(there, "big"), ns=(0, before[b"big"]["mtime_ns"]))
            continue
        stopped += 1
        assert load.returncode == -signal.SIGINT
        assert rig.names(there) == [[b"big"]]
        assert rig.read_file(os.path.join(there, "big")) == b"precious"
    assert stopped > 0


def test_an_ignored_signal_stays_ignored(image, big):
    """As under nohup: the terminal goes away, the save goes on."""
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    save = rig.start("save", big, "-o", image, "--codec", "none", preexec_fn=ignore)
    rig.wait_until_busy(save)
    save.send_signal(signal.SIGHUP)
    _, err = save.communicate(timeout=rig.DEADLINE_S)
    assert save.returncode == 0, err
    rig.run("verify", image)


def killed_at_random(moments, args_of):
    """Starts and kills; the moments are spread over the time that a whole run takes."""
    begin = time.monotonic()
    args = args_of()
    rig.run(*args)
    whole = time.monotonic() - begin
    rng = random.Random(7)
    for i in range(moments):
        args = args_of()
        proc = rig.start(*args)
        try:
            proc.wait(timeout=whole * (i + rng.random()) / moments)
        except subprocess.TimeoutExpired:
            proc.kill()
        proc.communicate()
        yield proc.returncode


def test_kill_at_any_moment_leaves_the_old_image_or_the_new_one(shm, image, there):
    """Whole, and with a content that was saved into it."""
    folders = [os.path.join(shm, f"s{i}") for i in range(2)]
    contents = [rig.mixed_bytes(24 * MIB, seed) for seed in (1, 2)]
    for folder, content in zip(folders, contents):
        os.mkdir(folder)
        rig.write_file(os.path.join(folder, "mem"), content)
    turn = iter(range(10**6))
    killed = 0
    for code in killed_at_random(
        16, lambda: ["save", os.path.join(folders[next(turn) % 2], "mem"), "-o", image, "--force"]
    ):
        killed += code == -signal.SIGKILL
        rig.run("load", image, "--to", there, "--force", "--quiet")
        assert rig.read_file(os.path.join(there, "mem")) in contents
    assert killed >= 4
    # And what a killed save may have left is in nobody's way, and gone.
    rig.run("save", os.path.join(folders[0], "mem"), "-o", image, "--force")
    assert os.listdir(os.path.dirname(image)) == ["x.torpor"]
    rig.run("load", image, "--to", there, "--force")
    assert rig.read_file(os.path.join(there, "mem")) == contents[0]


def test_kill_at_any_moment_of_a_load_leaves_the_old_target_or_the_new_one(shm, there):
    """Each load brings the one of two images that is not there; they have nothing in common but the name."""
    images, trees = [], []
    for turn in range(2):
        top = os.path.join(shm, f"s{turn}", "mc")
        os.makedirs(top)
        for i in range(6):
            rig.write_file(os.path.join(top, f"mem{turn}{i}"), rig.mixed_bytes(8 * MIB, 6 * turn + i))
        images.append(os.path.join(shm, f"x{turn}.torpor"))
        rig.run("save", top, "-o", images[-1])
        trees.append(rig.tree(top))
    target = os.path.join(there, "mc")
    stands, killed = 0, 0
    rig.run("load", images[0], "--to", there)
    rig.run("load", images[1], "--to", there, "--force")
    for code in killed_at_random(
        16, lambda: ["load", images[rig.tree(target) == trees[0]], "--to", there, "--force"]
    ):
        before, stands = stands, trees.index(rig.tree(target))
        killed += code == -signal.SIGKILL
        assert code != rig.DONE or stands != before
    assert killed >= 4
    # What they left does not last.
    rig.run("load", images[0], "--to", there, "--force")
    assert rig.tree(target) == trees[0] and os.listdir(there) == ["mc"]


def test_a_load_after_a_killed_one_has_the_room_that_was_left(small_tmpfs, shm, image):
    """At once: what was left is removed before the room is looked at."""
    disk = small_tmpfs(24 * MIB)
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    for i in range(4):
        rig.write_file(os.path.join(top, f"mem{i}"), rig.random_bytes(4 * MIB, i))
    rig.run("save", top, "-o", image, "--codec", "none")
    left = 0
    # Killed too early it has left little, too late it was done: until it was in the middle twice.
    for attempt in range(40):
        if left == 2:
            break
        moved = (8 + 8 * (attempt % 3)) * MIB
        load = rig.start("load", image, "--to", disk, "--threads", "1")
        rig.wait_until_busy(load, moved)
        load.kill()
        load.communicate()
        used = os.statvfs(disk)
        if not os.path.exists(os.path.join(disk, "mc")):  # it was not faster
            left += (used.f_blocks - used.f_bfree) * used.f_frsize > 8 * MIB
            rig.run("load", image, "--to", disk)
        assert os.listdir(disk) == ["mc"]
        subprocess.run(["rm", "-r", os.path.join(disk, "mc")], check=True)
    assert left > 0


def fill(folder, leave_bytes):
    """Takes all but so many bytes of a small filesystem."""
    path = os.path.join(folder, "filler")
    free = os.statvfs(folder)
    with open(path, "wb") as f:
        rest = free.f_bavail * free.f_frsize - leave_bytes
        f.write(bytes(max(0, rest)))
    return path


@pytest.mark.parametrize("threads", [1, 2])
def test_disk_full_at_any_page_of_a_save_leaves_the_old_image(small_tmpfs, shm, threads):
    """The room grows page by page: the save fails at every write it makes, until it fits."""
    disk = small_tmpfs(MIB)
    image = os.path.join(disk, "x.torpor")
    first = rig.write_file(os.path.join(shm, "first"), b"first")
    rig.run("save", first, "-o", image)
    old = rig.read_file(image)
    source = rig.write_file(os.path.join(shm, "mem"), rig.random_bytes(24 * PAGE))
    options = ["--force", "--chunk-size", "16K", "--threads", str(threads)]
    failed = 0
    for pages in range(0, 64):
        filler = fill(disk, pages * PAGE)
        done = rig.run("save", source, "-o", image, *options, code=None)
        os.unlink(filler)
        assert sorted(os.listdir(disk)) == ["x.torpor"], pages
        if done.code == 0:
            break
        failed += 1
        assert done.code == rig.FAILED and "No space left" in done.err, str(done)
        assert "x.torpor" in done.err
        assert rig.read_file(image) == old
    else:
        pytest.fail("the save never fits")
    assert failed >= 24
    rig.run("verify", image)


def test_disk_full_without_an_old_image_leaves_nothing(small_tmpfs, shm):
    disk = small_tmpfs(4 * MIB)
    source = rig.write_file(os.path.join(shm, "mem"), rig.random_bytes(8 * MIB))
    done = rig.run("save", source, "-o", os.path.join(disk, "x.torpor"), code=rig.FAILED)
    assert "No space left" in done.err
    assert os.listdir(disk) == []


def test_a_load_into_a_full_tmpfs_says_so_and_leaves_nothing(small_tmpfs, shm, image):
    disk = small_tmpfs(4 * MIB)
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    for i in range(4):
        rig.write_file(os.path.join(top, f"mem{i}"), rig.random_bytes(2 * MIB, i))
    rig.run("save", top, "-o", image)
    done = rig.run("load", image, "--to", disk, code=rig.FAILED)
    assert "No space left" in done.err or "not enough" in done.err.lower(), done.err
    assert os.listdir(disk) == []
    # Through a pipe nothing is known in advance: the write itself must fail cleanly.
    done = rig.run("load", "-", "--to", disk, input=rig.read_file(image), code=rig.FAILED)
    assert "No space left" in done.err or "not enough" in done.err.lower(), done.err
    assert os.listdir(disk) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_a_full_tmpfs_at_any_page_of_a_load_leaves_the_old_target(small_tmpfs, shm, image, threads):
    """Through a pipe no room is looked for: the load fails at every page it writes, until it fits."""
    disk = small_tmpfs(MIB)
    target = os.path.join(disk, "mc")
    top = os.path.join(shm, "mc")
    for folder in (target, top):
        os.mkdir(folder)
    rig.write_file(os.path.join(target, "mem"), b"old")
    for i in range(3):
        rig.write_file(os.path.join(top, f"mem{i}"), rig.random_bytes(8 * PAGE, i))
    rig.run("save", top, "-o", image, "--chunk-size", "4K")
    before = rig.contents(disk)
    failed = 0
    for pages in range(0, 64):
        filler = fill(disk, pages * PAGE)
        with open(image, "rb") as f:
            done = rig.run(
                "load", "-", "--to", disk, "--force", "--threads", str(threads), stdin=f, code=None
            )
        os.unlink(filler)
        if done.code == 0:
            break
        failed += 1
        assert done.code == rig.FAILED and "No space left" in done.err, str(done)
        assert rig.contents(disk) == before
    else:
        pytest.fail("the load never fits")
    assert failed >= 24
    assert rig.tree(target) == rig.tree(top)


def test_old_and_new_must_both_fit_on_tmpfs(small_tmpfs, shm, image):
    """Said clearly and before anything is touched; the old one stays."""
    disk = small_tmpfs(6 * MIB)
    source = rig.write_file(os.path.join(shm, "mem"), rig.random_bytes(4 * MIB))
    rig.run("save", source, "-o", image)
    rig.run("load", image, "--to", disk)
    before = rig.contents(disk)
    done = rig.run("load", image, "--to", disk, "--force", code=rig.FAILED)
    assert "mem" in done.err or disk in done.err
    assert rig.contents(disk) == before


def test_what_fits_only_thanks_to_its_holes_is_loaded(small_tmpfs, shm, image):
    """Room is needed for data, not for holes and zero pages."""
    disk = small_tmpfs(2 * MIB)
    source = rig.write_pieces(
        os.path.join(shm, "mem"), 64 * MIB, [(0, rig.random_bytes(MIB)), (8 * MIB, bytes(4 * MIB))]
    )
    rig.run("save", source, "-o", image)
    rig.run("load", image, "--to", disk)
    assert rig.content_hash(os.path.join(disk, "mem")) == rig.content_hash(source)


@pytest.mark.parametrize("size", [0, PAGE + 1, 8 * MIB])
def test_a_source_that_shrinks_while_it_is_read_is_an_error(shm, size):
    """The save waits for its reader in the middle of the file, which then becomes shorter."""
    source = rig.write_file(os.path.join(shm, "mem"), rig.random_bytes(MIB) * 160)
    save = rig.start("save", source, "-o", "-", "--codec", "none")
    assert len(save.stdout.read(2 * MIB)) == 2 * MIB
    os.truncate(source, size)
    _, err = save.communicate(timeout=rig.DEADLINE_S)
    assert save.returncode == rig.FAILED, err
    assert b"mem" in err and b"torpor: " in err


def test_a_source_that_shrinks_leaves_no_image(shm, image, big):
    save = rig.start("save", big, "-o", image, *SLOW)
    rig.wait_until_busy(save)
    os.truncate(big, 90 * MIB)
    _, err = save.communicate(timeout=rig.DEADLINE_S)
    assert save.returncode == rig.FAILED, err
    assert b"big" in err
    assert os.listdir(os.path.dirname(image)) == []


def test_a_source_that_may_not_be_read_is_named(nobody, shm):
    mine = os.path.join(shm, "mine")
    os.mkdir(mine)
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    rig.write_file(os.path.join(top, "readable"), b"r")
    rig.write_file(os.path.join(top, "secret"), b"s", 0o000)
    if os.getuid() == 0:
        os.chown(mine, rig.NOBODY, rig.NOBODY)
    failed = rig.run("save", top, "-o", os.path.join(mine, "i"), code=rig.FAILED, **nobody)
    assert "secret" in failed.err and "Permission denied" in failed.err
    assert os.listdir(mine) == []


def test_a_folder_that_may_not_be_written_is_named(nobody, shm, image):
    closed = os.path.join(shm, "closed")
    source = rig.write_file(os.path.join(shm, "mem"), b"x")
    rig.run("save", source, "-o", image)
    os.chmod(image, 0o644)
    os.mkdir(closed, 0o555)
    for args in (["save", source, "-o", os.path.join(closed, "i")], ["load", image, "--to", closed]):
        failed = rig.run(*args, code=rig.FAILED, **nobody)
        assert "closed" in failed.err and "Permission denied" in failed.err
    assert os.listdir(closed) == []


def test_an_image_that_may_not_be_read_is_named(nobody, shm, image, there):
    source = rig.write_file(os.path.join(shm, "mem"), b"x")
    rig.run("save", source, "-o", image)
    os.chmod(image, 0o000)
    for args in (["load", image, "--to", there], ["info", image], ["verify", image]):
        failed = rig.run(*args, code=rig.FAILED, **nobody)
        assert "x.torpor" in failed.err and "Permission denied" in failed.err


def test_few_descriptors_are_enough(shm, image, there):
    """A folder of many files, with fewer descriptors than files."""
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    for i in range(200):
        rig.write_file(os.path.join(top, f"f{i}"), b"%d" % i)

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    rig.run("save", top, "-o", image, preexec_fn=few)
    rig.run("load", image, "--to", there, preexec_fn=few)
    assert rig.tree(os.path.join(there, "mc")) == rig.tree(top)


def test_a_limit_on_file_size_is_an_error_and_no_death(shm, image):
    """SIGXFSZ would kill a program that does not look."""
    source = rig.write_file(os.path.join(shm, "mem"), rig.random_bytes(8 * MIB))

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))

    failed = rig.run("save", source, "-o", image, code=rig.FAILED, preexec_fn=limit)
    assert "File too large" in failed.err
    assert os.listdir(os.path.dirname(image)) == []


# ---- descriptors ----


def with_descriptors(n):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))


@pytest.fixture
def many_files(shm):
    """Each is large enough to be a job, and small enough for hundreds to be open at once."""
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    for i in range(400):
        rig.write_file(os.path.join(top, f"{i:03}"), rig.random_bytes(PAGE, i) * 5)
    return top


def test_more_threads_and_files_than_descriptors(many_files, image, there):
    """No more of them are open than may be; the others wait."""
    few = {"preexec_fn": with_descriptors(40)}
    for _ in range(5):
        rig.run("save", many_files, "-o", image, "--force", "--threads", "64", "--chunk-size", "4K", **few)
        rig.run("load", image, "--to", there, "--force", "--threads", "64", **few)
        assert rig.tree(os.path.join(there, "mc")) == rig.tree(many_files)


def test_descriptors_that_are_not_to_be_had_are_an_error(many_files, image, there):
    rig.run("save", many_files, "-o", image)
    failed = 0
    for n in range(3, 16):
        few = {"preexec_fn": with_descriptors(n), "code": None}
        saved = rig.run("save", many_files, "-o", image + "2", "--force", "--threads", "4", **few)
        loaded = rig.run("load", image, "--to", there, "--force", "--threads", "4", **few)
        for result in saved, loaded:
            if result.code:
                failed += 1
                assert result.code in (rig.FAILED, 127), str(result)
                assert "Too many open files" in result.err or result.code == 127, str(result)
    assert failed >= 2
