# SPDX-License-Identifier: LGPL-2.1-or-later
"""torpor save --stop: what is saved is the memory of one instant, and whoever was stopped goes on, whatever happens."""
import os
import random
import signal
import subprocess
import time

import pytest

import live
import rig
from live import Writer, freezer  # noqa: F401 (a fixture)
from rig import MIB

ZSTD = ["--codec", "zstd", "--level", "9", "--threads", "1"]

REPORT_KEYS = {
    "critical_ns", "stop_ns", "copy_ns", "copied_bytes", "looked_bytes", "precopied_bytes", "unreadable_bytes",
    "processes", "stopped_threads", "passes", "copy", "guard_held", "guard_reason",
}

# ---- snapshots under load ----

# Not all of two CPUs, so that torpor at idle priority, or beside 64 threads, comes to its turn.
CALM = ["--rate", "3000"]

# 200 in all: how it is saved, how often, and by what kind of writer.
SNAPSHOTS = {
    "default": ([], 18, "memfd", []),
    "zero check off": (["--zero-check=off"], 16, "memfd", []),
    "copy none": (["--copy=none"], 16, "memfd", []),
    "copy auto": (["--copy=auto"], 10, "memfd", []),
    "background": (["--background"], 10, "memfd", CALM),
    "1 thread": (["--threads", "1"], 16, "memfd", []),
    "1 thread, zero check off": (["--threads", "1", "--zero-check=off"], 8, "anon", []),
    "4 threads": (["--threads", "4"], 8, "file", []),
    "codec none": (["--codec", "none"], 10, "memfd", []),
    "codec zstd": (["--codec", "zstd"], 10, "file", []),
    "codec lzo": (["--codec", "lzo", "--chunk-size", "4K"], 8, "memfd", []),
    "file on tmpfs": ([], 8, "file", []),
    "file on tmpfs, copy none": (["--copy=none"], 8, "file", []),
    "shared anonymous": ([], 8, "anon", []),
    "deleted file": ([], 8, "deleted", []),
    "deleted file, copy none": (["--copy=none"], 4, "deleted", []),
    "children": (["--tree"], 12, "memfd", ["--fork", "3"]),
    "children, copy none": (["--tree", "--copy=none"], 8, "anon", ["--fork", "3"]),
    "64 threads": ([], 8, "memfd", ["--threads", "64", "--rate", "150"]),
    "first thread has ended": ([], 6, "file", ["--leader-exits"]),
}


def save_stopped(writer, image, *options, **kwargs):
    done = rig.run("save", "--stop", str(writer.pid), "-o", image, "--force", "--json", *options, **kwargs)
    return done.json if done.code == rig.DONE else None


def test_there_are_200_snapshots():
    """With those of a control group, below."""
    assert sum(n for _, n, _, _ in SNAPSHOTS.values()) + 8 >= 200


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_snapshots_are_of_one_instant(image, there, name):
    options, rounds, kind, how = SNAPSHOTS[name]
    steps = 0
    with Writer(kind, 8, *how) as writer:
        for _ in range(rounds):
            report = save_stopped(writer, image, *options)
            saved = live.load_and_check(image, there)
            # It went on in between, and goes on now.
            assert saved > steps
            steps = saved
            assert report["processes"] == len(writer.family())
            assert report["copy"] == ("none" if "--copy=none" in options else "ram")
        writer.expect_running()
        if "--threads" in how:
            assert report["stopped_threads"] >= 65


def test_snapshots_of_a_control_group(image, there, freezer):
    """All processes in it and below; torpor is outside."""
    with Writer("memfd", 8, "--fork", "3", *CALM, preexec_fn=freezer.enter) as writer:
        for options in [[], ["--copy=none"], ["--zero-check=off"], ["--background"]] * 2:
            done = rig.run("save", "--freeze", freezer.path, "-o", image, "--force", "--json", *options)
            assert done.json["processes"] == 4
            live.load_and_check(image, there)
            assert not freezer.frozen()
        writer.expect_running()


def test_a_source_that_is_named_is_what_is_saved(shm, image, there):
    """Memory and files beside it, by their own names."""
    other = rig.write_file(os.path.join(shm, "other"), rig.mixed_bytes(3 * MIB + 5))
    with Writer("file", 8) as writer:
        rig.run("save", writer.path, other, "--stop", str(writer.pid), "-o", image)
        writer.expect_running()
    rig.run("load", image, "--to", there)
    assert sorted(os.listdir(there)) == ["mem", "other"]
    live.check_memory(os.path.join(there, "mem"))
    assert rig.read_file(os.path.join(there, "other")) == rig.read_file(other)


def test_an_image_through_a_pipe(there):
    with Writer("memfd", 8, *CALM) as writer:
        for options in ([], ["--copy=none"], ["--background"]):
            saved = rig.run("save", "--stop", str(writer.pid), "-o", "-", *options)
            live.load_and_check(saved.raw, there)
        writer.expect_running()


def test_zero_check_on_and_off_give_the_same_image(image, there):
    """Also: who was stopped by somebody else stays stopped."""
    told = []
    with Writer("file", 8) as writer:
        os.kill(writer.pid, signal.SIGSTOP)
        rig.wait_until(lambda: live.states(writer.pid) == {"T"}, "it is stopped")
        want = rig.read_file(writer.path)
        for options in (["--zero-check=on"], ["--zero-check=off"], ["--copy=none"], None):
            if options is None:
                rig.run("save", writer.path, "-o", image, "--force", "--threads", "1")
            else:
                save_stopped(writer, image, "--threads", "1", *options)
                rig.wait_until(lambda: live.states(writer.pid) == {"T"}, "it is stopped as before")
            assert rig.read_file(live.load(image, there)) == want
            info = rig.run("info", image, "--json").json
            keys = ("data_bytes", "zero_bytes", "hole_bytes", "stored_bytes", "chunks", "image_bytes")
            told.append({key: info[key] for key in keys})
        assert told[0]["zero_bytes"] > MIB // 2 and told[0]["hole_bytes"] > MIB // 2
        assert told.count(told[0]) == 4, told
        assert rig.read_file(writer.path) == want
        os.kill(writer.pid, signal.SIGCONT)
        writer.expect_running()


# ---- whatever happens to torpor ----


class Killer:
    """Starts torpor again and again and kills it, at moments spread over the time that it takes, sooner or later in each."""

    def __init__(self, args, moments, seed):
        self.args, self.moments, self.i = args, moments, 0
        self.rng = random.Random(seed)
        self.killed = 0
        begin = time.monotonic()
        rig.run(*args)
        self.whole = time.monotonic() - begin

    def kill_one(self, look=lambda: None):
        """Nothing may hold its standard error open: a guardian outlives it by a moment.  Returns what look() saw before."""
        seen, begin = None, time.monotonic()
        torpor = rig.start(*self.args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            torpor.wait(timeout=self.whole * (self.i + self.rng.random()) / self.moments)
            # The first time is not always the shortest.
            self.whole = min(self.whole, time.monotonic() - begin)
        except subprocess.TimeoutExpired:
            seen = look()
            torpor.kill()
            torpor.wait()
        self.i += 1
        self.killed += torpor.returncode == -signal.SIGKILL
        return seen


KILLS = {
    "default": ([], 20),
    "background": (["--background"], 8),
    "copy none": (["--copy=none"], 10),
    "copy none, slow": (["--copy=none", *ZSTD], 12),
    "children": (["--tree", "--zero-check=off"], 10),
}


@pytest.mark.parametrize("name", KILLS)
def test_kill_at_any_moment_lets_all_go_on(image, there, name):
    """And leaves the old image whole, or the new one."""
    options, moments = KILLS[name]
    standing = 0
    with Writer("memfd", 8, *CALM, *(["--fork", "2"] if "--tree" in options else [])) as writer:
        args = ["save", "--stop", str(writer.pid), "-o", image, "--force", *options]
        killer = Killer(args, moments, name)
        steps = live.load_and_check(image, there)
        for _ in range(moments):
            standing += bool(killer.kill_one(writer.stopped))
            writer.expect_running()
            found = live.load_and_check(image, there)
            assert found >= steps
            steps = found
        assert killer.killed >= moments // 3
        # Most of the time they stand still, when all is written in it.
        assert standing >= moments // 4 or name != "copy none, slow"
        assert os.listdir(os.path.dirname(image)).count("x.torpor") == 1


@pytest.mark.parametrize("options", [[], ["--copy=none", *ZSTD]], ids=["default", "copy none, slow"])
def test_kill_at_any_moment_thaws_a_control_group(image, there, freezer, options):
    """By its guardian, which ends then."""
    with Writer("memfd", 8, "--fork", "1", *CALM, preexec_fn=freezer.enter) as writer:
        killer = Killer(["save", "--freeze", freezer.path, "-o", image, "--force", *options], 8, 3)
        for _ in range(8):
            killer.kill_one()
            rig.wait_until(lambda: freezer.read("cgroup.freeze").strip() == "0", "the group is thawed")
            writer.expect_running()
            live.load_and_check(image, there)
        assert killer.killed >= 2


def start_slow(writer, image, *options):
    """A save that takes seconds to write."""
    slow = ["--codec", "zstd", "--level", "19", "--threads", "1"]
    return rig.start("save", "--stop", str(writer.pid), "-o", image, *options, *slow)


def written(torpor):
    with open(f"/proc/{torpor.pid}/io", encoding="ascii") as f:
        return int(dict(line.split(": ") for line in f)["wchar"])


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_critical_section(image, sig):
    with Writer("memfd", 24) as writer:
        torpor = start_slow(writer, image, "--copy=none")
        rig.wait_until(writer.stopped, "it is stopped")
        torpor.send_signal(sig)
        _, err = torpor.communicate(timeout=rig.DEADLINE_S)
        writer.expect_running()
        assert torpor.returncode == -sig and b"stopped by SIG" in err, err
        assert os.listdir(os.path.dirname(image)) == []


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("options", [[], ["--background"]], ids=["default", "background"])
def test_a_signal_while_it_is_written(image, sig, options):
    """They run already."""
    with Writer("memfd", 24, *CALM) as writer:
        torpor = start_slow(writer, image, *options)
        rig.wait_until(lambda: written(torpor) > 64 << 10, "some of the image is written")
        writer.expect_running()
        torpor.send_signal(sig)
        _, err = torpor.communicate(timeout=rig.DEADLINE_S)
        writer.expect_running()
        assert torpor.returncode == -sig and b"stopped by SIG" in err, err
        assert os.listdir(os.path.dirname(image)) == []


def test_a_full_disk_in_the_critical_section(small_tmpfs):
    disk = small_tmpfs(2 * MIB)
    with Writer("memfd", 16, *CALM) as writer:
        for options in ([], ["--copy=none"], ["--background"]):
            args = ["save", "--stop", str(writer.pid), "-o", os.path.join(disk, "i"), *options]
            assert "No space left" in rig.run(*args, code=rig.FAILED).err
            writer.expect_running()
            assert os.listdir(disk) == []


def test_a_pipe_whose_reader_goes_away(shm):
    with Writer("memfd", 16) as writer:
        torpor = rig.start("save", "--stop", str(writer.pid), "-o", "-", "--copy=none", "--codec", "none")
        assert len(torpor.stdout.read(MIB)) == MIB
        assert writer.stopped()
        torpor.stdout.close()
        torpor.stderr.read()
        assert torpor.wait() == rig.FAILED
        writer.expect_running()
