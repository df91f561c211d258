# SPDX-License-Identifier: LGPL-2.1-or-later
"""torpor save --stop: processes that are odd, what is refused before anything is stopped, lists, reports and usage."""
import os
import random
import subprocess

import pytest

import live
import rig
from live import Writer, little_memory  # noqa: F401 (fixtures)
from rig import MIB
from test_stop import REPORT_KEYS, save_stopped


def refused(args, error_code, *said, code=rig.FAILED, **kwargs):
    """Fails with that code and these words, has stopped nobody, and leaves no image."""
    image = args[args.index("-o") + 1]
    done = rig.run(*args, "--json", code=code, **{**live.no_ptrace(), **kwargs})
    assert done.json["error_code"] == error_code, str(done)
    for words in said:
        assert words in done.json["error"], (words, done.json["error"])
    assert not os.path.exists(image)
    return done.json


# ---- processes that are odd ----


def test_one_that_makes_children_all_the_time(image, there):
    """They are stopped too, each of them, and those that come later are no writers of what was saved."""
    with Writer("memfd", 4, "--forking") as writer:
        for options in [[], ["--copy=none"], ["--background"]] * 6:
            save_stopped(writer, image, "--tree", *options)
            live.load_and_check(image, there)
        writer.expect_running()


def test_one_that_ends_in_the_middle(image, there):
    """Saved whole, or said clearly; no image that is torn."""
    rng = random.Random(5)
    ends = {rig.DONE: 0, rig.FAILED: 0}
    for i in range(200):
        if i >= 24 and min(ends.values()) > 0:
            break
        options = ["--copy=none"] if i % 3 == 0 else []
        try:
            writer = Writer("memfd", 4, "--exit-after", str(1 + i * 2 + rng.randrange(4)))
        except AssertionError:
            continue  # it ended before it could be looked at
        with writer:
            done = rig.run("save", "--stop", str(writer.pid), "-o", image, "--force", *options, code=None)
            ends[done.code] += 1
            if done.code == rig.DONE:
                live.load_and_check(image, there)
                os.unlink(image)
            else:
                assert str(writer.pid) in done.err, done.err
                assert any(word in done.err for word in ("ended", "no process", "No such process")), done.err
            assert os.listdir(os.path.dirname(image)) == []
    assert min(ends.values()) > 0, ends


def test_one_that_is_killed_while_it_stands_still(image):
    """SIGKILL wakes what ptrace holds; what was saved until then is no whole image."""
    with Writer("memfd", 64) as writer:
        torpor = rig.start("save", "--stop", str(writer.pid), "-o", image, "--copy=none", "--codec", "zstd", "--level", "19")
        rig.wait_until(lambda: writer.stopped() or torpor.poll() is not None, "it is stopped")
        writer.proc.kill()
        assert writer.proc.wait() == -9
        _, err = torpor.communicate(timeout=rig.DEADLINE_S)
        assert torpor.returncode in (rig.DONE, rig.FAILED), err


def test_one_with_a_debugger(image):
    with Writer("memfd", 1) as writer:
        tracer = subprocess.Popen([live.writer_path(), "trace", str(writer.pid)], stdout=subprocess.PIPE)
        try:
            live.first_line(tracer)
            args = ["save", "--stop", str(writer.pid), "-o", image]
            refused(args, "EPERM", str(writer.pid), f"process {tracer.pid} (writer) traces it")
        finally:
            tracer.kill()
            tracer.communicate()
        writer.expect_running()
        save_stopped(writer, image)


def test_two_at_once(image):
    """The second one finds the first one as a tracer, or comes when it is done."""
    with Writer("memfd", 8) as writer:
        saves = [rig.start("save", "--stop", str(writer.pid), "-o", f"{image}.{i}", "--copy=none") for i in range(2)]
        results = [(save.communicate(timeout=rig.DEADLINE_S)[1], save.returncode) for save in saves]
        assert rig.DONE in [code for _, code in results], results
        for err, code in results:
            assert code == rig.DONE or b"(torpor) traces it" in err, err
        writer.expect_running()


def test_a_kernel_thread(root, image):
    with open("/proc/2/stat", encoding="ascii") as f:
        if "kthreadd" not in f.read():
            pytest.skip("process 2 is no kernel thread")
    refused(["save", "--stop", "2", "-o", image], "EPERM", "process 2 (kthreadd)", "kernel thread")


def test_one_that_is_not_there(image):
    gone = subprocess.Popen(["true"])
    gone.wait()
    refused(["save", "--stop", str(gone.pid), "-o", image], "ESRCH", f"no process {gone.pid}")
    with Writer("memfd", 1) as writer:
        refused(["save", "--stop", f"{writer.pid},{gone.pid}", "-o", image], "ESRCH", f"no process {gone.pid}")


def test_one_that_has_ended_and_was_not_waited_for(image):
    zombie = subprocess.Popen(["true"])
    rig.wait_until(lambda: live.states(zombie.pid) == {"Z"}, "it has ended")
    refused(["save", "--stop", str(zombie.pid), "-o", image], "ESRCH", str(zombie.pid))
    zombie.wait()


def from_shell(script, *args, **kwargs):
    words = ["sh", "-c", script, "sh", rig.torpor_path(), *args]
    return subprocess.run(words, capture_output=True, timeout=rig.DEADLINE_S, check=False, **kwargs)


def test_torpor_does_not_stop_itself(shm, image):
    source = rig.write_file(os.path.join(shm, "mem"), b"x" * 10000)
    done = from_shell('exec "$@" --stop $$', "save", source, "-o", image, **live.no_ptrace())
    assert done.returncode == rig.USAGE and b"this process itself" in done.stderr, done
    # The shell waits for torpor, and would never be woken.
    done = from_shell('"$@" --stop $$ --tree; exit $?', "save", source, "-o", image, **live.no_ptrace())
    assert done.returncode == rig.USAGE and b"this process" in done.stderr, done
    assert not os.path.exists(image)
    # Without its children it can be stopped.
    done = from_shell('"$@" --stop $$; exit $?', "save", source, "-o", image)
    assert done.returncode == rig.DONE, done


def test_one_without_shared_memory(image):
    with subprocess.Popen(["sleep", "60"]) as sleep:
        refused(["save", "--stop", str(sleep.pid), "-o", image], "ENODATA", "no shared memory")
        sleep.kill()


def test_no_ptrace_kills():
    """What the other tests rely on."""
    if not live.no_ptrace():
        pytest.skip("not here")
    with Writer("memfd", 1) as writer:
        args = [rig.torpor_path(), "save", "--stop", str(writer.pid), "-o", "-"]
        done = subprocess.run(args, capture_output=True, check=False, **live.no_ptrace())
        assert done.returncode == -31
        writer.expect_running()


# ---- without root ----


def test_somebody_elses_process(nobody, root, image):
    with Writer("memfd", 1) as writer:
        os.chmod(os.path.dirname(image), 0o777)
        confined = {**nobody, **live.no_ptrace()}
        refused(["save", "--stop", str(writer.pid), "-o", image], "EPERM", str(writer.pid), **confined)


def test_ones_own_process(nobody, shm, there, image):
    os.chmod(os.path.dirname(image), 0o777)
    os.chmod(shm, 0o777)
    with Writer("file", 4, folder=shm, **nobody) as writer:
        report = save_stopped(writer, image, **nobody)
        live.load_and_check(image, there)
        assert report["warnings"] == [] or "may not be looked at" in report["warnings"][0]
        writer.expect_running()


# ---- others that could write ----


def test_writers_that_are_not_stopped(image, there):
    with Writer("memfd", 4, "--fork", "2") as writer:
        args = ["save", "--stop", str(writer.pid), "-o", image]
        named = [f"process {pid} (writer) maps it writably" for pid in live.children(writer.pid)]
        refused(args, "EBUSY", *named)
        told = rig.run(*args, "--allow-writers", "--json").json
        assert any(named[0] in warning for warning in told["warnings"]), told
        assert rig.run("info", image, "--json").json["compatible"] == 1
        assert "0x1 (compatible)" in rig.run("info", image).out
        rig.run("verify", image)
        live.load(image, there)
        save_stopped(writer, image, "--tree", "--allow-writers")
        assert rig.run("info", image, "--json").json["compatible"] == 0
        writer.expect_running()


def test_one_that_holds_it_open(image):
    with Writer("file", 1) as writer:
        args = ["save", "--stop", str(writer.pid), "-o", image]
        with open(writer.path, "r+b"):
            refused(args, "EBUSY", f"process {os.getpid()} ", "holds it open for writing")
        with open(writer.path, "rb"):
            rig.run(*args)


def test_one_that_opens_it_after_the_first_look(image):
    """The second look is when they go on: while it is written."""
    with Writer("file", 64) as writer:
        args = ["--copy=none", "--codec", "zstd", "--level", "19", "--threads", "1"]
        torpor = rig.start("save", "--stop", str(writer.pid), "-o", image, *args)
        rig.wait_until(lambda: writer.stopped() or torpor.poll() is not None, "it is stopped")
        with open(writer.path, "r+b"):
            _, err = torpor.communicate(timeout=rig.DEADLINE_S)
        assert torpor.returncode == rig.FAILED and b"holds it open for writing" in err, err
        assert os.listdir(os.path.dirname(image)) == []
        writer.expect_running()


# ---- not enough memory ----


def test_a_copy_that_does_not_fit(image, there, little_memory):
    with Writer("file", 160) as writer:
        confined = little_memory(160 * MIB)
        args = ["save", "--stop", str(writer.pid), "-o", image, "--threads", "1"]
        enter, no_ptrace = confined["preexec_fn"], live.no_ptrace().get("preexec_fn", lambda: None)

        def both():
            enter()
            no_ptrace()

        refused(args, "ENOMEM", "does not fit", "MiB are available", preexec_fn=both)
        told = rig.run(*args, "--copy=auto", "--json", **confined).json
        assert told["copy"] == "none"
        assert any("does not fit" in warning for warning in told["warnings"])
        live.load_and_check(image, there)
        writer.expect_running()


def test_a_cache_of_files_is_not_in_the_way(image, little_memory, tmp_path):
    """The kernel drops it when memory is asked for."""
    big = rig.write_file(tmp_path / "big", bytes(112 * MIB))
    if subprocess.run(["stat", "-f", "-c", "%T", big], capture_output=True, check=True).stdout.strip() == b"tmpfs":
        pytest.skip("no disk to read from")
    with Writer("file", 48) as writer:
        confined = little_memory(176 * MIB)
        subprocess.run(["dd", f"if={big}", "iflag=nocache", "count=0"], capture_output=True, check=True)
        subprocess.run(["cat", big], stdout=subprocess.DEVNULL, check=True, **confined)
        told = rig.run("save", "--stop", str(writer.pid), "-o", image, "--json", "--threads", "1", **confined).json
        assert told["copy"] == "ram"


# ---- lists, reports, usage ----


def test_list(image):
    with Writer("file", 2) as first, Writer("memfd", 3) as second:
        pids = f"{first.pid},{second.pid}"
        listed = rig.run("save", "--stop", pids, "--list", "--json", **live.no_ptrace()).json["memory"]
        assert [entry["kind"] for entry in listed] == ["file", "memfd"]
        assert [entry["pid"] for entry in listed] == [first.pid, second.pid]
        assert [entry["memory_bytes"] for entry in listed] == [2 * MIB, 3 * MIB]
        assert [entry["origin"] for entry in listed] == [first.path, ""]
        assert all(entry["carried"] and entry["reason"] == "" for entry in listed)
        assert listed[0]["data_bytes"] == os.stat(first.path).st_blocks * 512
        table = rig.run("save", "--stop", pids, "--list").out.splitlines()
        assert len(table) == 3 and first.path in table[1] and "memfd" in table[2]
        # The names are those of the image.
        rig.run("save", "--stop", pids, "-o", image)
        names = [s["name"] for s in rig.run("info", image, "--json").json["segment_list"]]
        assert names == [entry["name"] for entry in listed]


def test_what_is_not_carried_is_said(image, shm):
    script = (
        "import ctypes,mmap,os,sys\n"
        "libc=ctypes.CDLL(None,use_errno=True)\n"
        "libc.shmat.restype=ctypes.c_void_p\n"
        "i=libc.shmget(0,8192,0o1600)\n"
        "a=libc.shmat(i,None,0)\n"
        "libc.shmctl(i,0,None)\n"
        "m=mmap.mmap(-1,1<<20); m.write(b'x'*4096)\n"
        "print('ready',i,flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(["/usr/bin/python3", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as proc:
        _, segment = live.first_line(proc)
        listed = rig.run("save", "--stop", str(proc.pid), "--list", "--json").json["memory"]
        assert sorted((m["kind"], m["carried"]) for m in listed) == [("memfd", True), ("sysv", False)]
        told = rig.run("save", "--stop", str(proc.pid), "-o", image, "--json").json
        assert any(f"sysv-{segment}" in warning for warning in told["warnings"])
        proc.stdin.close()


def test_list_of_none(image):
    gone = subprocess.Popen(["true"])
    gone.wait()
    told = rig.run("save", "--stop", str(gone.pid), "--list", "--json", code=rig.FAILED).json
    assert told["error_code"] == "ESRCH" and "memory" not in told


def test_the_report(image):
    with Writer("memfd", 8) as writer:
        told = save_stopped(writer, image)
        assert REPORT_KEYS <= told.keys()
        assert 0 < told["stop_ns"] <= told["critical_ns"] < told["wall_ns"]
        assert 0 < told["copy_ns"] <= told["critical_ns"]
        assert told["copied_bytes"] == told["data_bytes"]
        assert told["looked_bytes"] == told["data_bytes"] + told["zero_bytes"]
        assert (told["processes"], told["stopped_threads"], told["passes"]) == (1, 3, 1)
        assert told["unreadable_bytes"] == told["precopied_bytes"] == 0
        off = save_stopped(writer, image, "--zero-check=off")
        assert off["copied_bytes"] == off["looked_bytes"] == off["data_bytes"] + off["zero_bytes"]
        none = save_stopped(writer, image, "--copy=none")
        assert none["copied_bytes"] == none["looked_bytes"] == none["copy_ns"] == 0
        text = rig.run("save", "--stop", str(writer.pid), "-o", image, "--force").out
        assert "critical" in text and "1 process, 3 threads stood still; stop" in text
        text = rig.run("save", "--stop", str(writer.pid), "-o", image, "--force", "--copy=none").out
        assert "stood still until all was written" in text


def test_without_a_stop_there_is_no_critical_section(shm, image):
    source = rig.write_file(os.path.join(shm, "mem"), b"x")
    assert not REPORT_KEYS & rig.run("save", source, "-o", image, "--json").json.keys()


def test_an_image_that_exists_is_seen_before_anything_is_stopped(image):
    rig.write_file(image, b"old")
    with Writer("memfd", 1) as writer:
        done = rig.run("save", "--stop", str(writer.pid), "-o", image, code=rig.FAILED, **live.no_ptrace())
        assert "exists" in done.err
    assert rig.read_file(image) == b"old"


def test_background_is_idle(image):
    """Its threads write at the priority of nobody, when the others run again."""
    with Writer("memfd", 96, "--rate", "1000") as writer:
        args = ["--background", "--codec", "zstd", "--level", "19", "--threads", "2"]
        torpor = rig.start("save", "--stop", str(writer.pid), "-o", image, *args)

        def policies():
            found = []
            for tid, _ in live.threads(torpor.pid):
                try:
                    found.append(os.sched_getscheduler(tid))
                except ProcessLookupError:
                    continue
            return found

        rig.wait_until(lambda: os.SCHED_IDLE in policies() or torpor.poll() is not None, "it is idle")
        assert torpor.poll() is None
        assert not writer.stopped()
        rig.wait_until(lambda: policies().count(os.SCHED_IDLE) == 2 or torpor.poll() is not None, "both are")
        torpor.kill()
        torpor.communicate()


STOP = ["--stop", "1"]
USAGE = {
    "tree alone": (["SOURCE", "--tree"], "nothing to be stopped"),
    "copy alone": (["SOURCE", "--copy=none"], "nothing to be stopped"),
    "background alone": (["SOURCE", "--background"], "nothing to be stopped"),
    "allow writers alone": (["SOURCE", "--allow-writers"], "nothing to be stopped"),
    "zero check alone": (["SOURCE", "--zero-check=off"], "nothing to be stopped"),
    "skip unreadable alone": (["SOURCE", "--skip-unreadable"], "nothing to be stopped"),
    "passes alone": (["SOURCE", "--passes", "2"], "nothing to be stopped"),
    "list alone": (["--list"], "nothing to be stopped"),
    "list of a source": (["SOURCE", "--list", *STOP], "--list takes --stop PID alone"),
    "list of a group": (["--list", "--freeze", "g"], "--list takes --stop PID alone"),
    "nothing": ([], "no SOURCE named"),
    "no number": (["--stop", "x"], "not numbers"),
    "empty": (["--stop", ""], "not numbers"),
    "zero": (["--stop", "0"], "not numbers"),
    "negative": (["--stop=-1"], "not numbers"),
    "ends with a comma": (["--stop", "1,"], "not numbers"),
    "too large": (["--stop", "4294967297"], "not numbers"),
    "no value": (["--stop"], "needs a value"),
    "empty group": (["--freeze", ""], "empty name"),
    "unknown copy": ([*STOP, "--copy=disk"], "not ram, none or auto"),
    "unknown zero check": ([*STOP, "--zero-check=maybe"], "not on or off"),
    "no passes": ([*STOP, "--passes", "0"], "not a number from 1 to 1000"),
}


@pytest.mark.parametrize("name", USAGE)
def test_usage(shm, image, name):
    words, said = USAGE[name]
    source = rig.write_file(os.path.join(shm, "mem"), b"x")
    args = [source if word == "SOURCE" else word for word in words]
    done = rig.run("save", "-o", image, *args, code=rig.USAGE, **live.no_ptrace())
    assert said in done.err and done.out == ""
    assert not os.path.exists(image)


def test_no_image_named(shm):
    assert "no image named" in rig.run("save", *STOP, code=rig.USAGE).err


def test_passes_need_a_copy(image):
    with Writer("memfd", 1) as writer:
        args = ["save", "--stop", str(writer.pid), "-o", image, "--passes", "2", "--copy=none"]
        refused(args, "EINVAL", "passes need a copy", code=rig.USAGE)
