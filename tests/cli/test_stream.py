# SPDX-License-Identifier: LGPL-2.1-or-later
"""Standard output and input as the image: pipes, and what makes no sense at the other end."""
import array
import fcntl
import os
import pty
import signal
import subprocess
import termios

import pytest

import rig
from rig import MIB


@pytest.fixture
def source(shm):
    return rig.write_file(os.path.join(shm, "mem"), rig.mixed_bytes(5 * MIB + 3))


@pytest.mark.parametrize("options", [[], ["--codec", "zstd"], ["--codec", "none"], ["--threads", "1"]])
def test_an_image_goes_through_a_pipe(source, there, options):
    save = rig.start("save", source, "-o", "-", *options)
    loaded = rig.run("load", "-", "--to", there, stdin=save.stdout)
    save.stdout.close()
    assert save.wait() == 0
    assert rig.read_file(os.path.join(there, "mem")) == rig.read_file(source)
    assert "memory" in loaded.out


def test_a_tree_goes_through_a_pipe(shm, there):
    top = os.path.join(shm, "mc")
    os.makedirs(os.path.join(top, "empty"))
    for i in range(50):
        rig.write_file(os.path.join(top, f"f{i}"), rig.mixed_bytes(i * 1000, i))
    os.symlink("f1", os.path.join(top, "link"))
    content = rig.run("save", top, "-o", "-").raw
    rig.run("load", "-", "--to", there, input=content)
    assert rig.tree(os.path.join(there, "mc")) == rig.tree(top)


def test_an_image_from_a_pipe_is_a_file_s_equal(source, image, there):
    """What went to standard output is an image as any other, index and all."""
    rig.write_file(image, rig.run("save", source, "-o", "-").raw)
    rig.run("verify", image)
    assert rig.run("cat", image, "mem").raw == rig.read_file(source)
    rig.run("load", image, "--to", there)


def test_a_file_as_standard_output_or_input_is_written_and_read_where_it_stands(source, image, there):
    with open(image, "wb") as f:
        f.write(b"before")
        f.flush()
        rig.run("save", source, "-o", "-", stdout=f)
    with open(image, "rb") as f:
        assert f.read(6) == b"before"
    with open(image, "rb", buffering=0) as f:
        f.seek(6)
        rig.run("load", "-", "--to", there, stdin=f)
    assert rig.read_file(os.path.join(there, "mem")) == rig.read_file(source)


def test_verify_reads_standard_input(source):
    content = rig.run("save", source, "-o", "-").raw
    rig.run("verify", "-", input=content)
    at = len(content) // 2
    failed = rig.run("verify", "-", input=rig.flip(content, at), code=rig.DAMAGED)
    assert "mem" in failed.err


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, -1])
def test_an_image_that_ends_early_is_refused_and_leaves_nothing(source, there, keep):
    content = rig.run("save", source, "-o", "-").raw
    part = content[: int(len(content) * keep) if isinstance(keep, float) else keep]
    rig.run("load", "-", "--to", there, input=part, code=rig.DAMAGED)
    assert os.listdir(there) == []
    rig.run("verify", "-", input=part, code=rig.DAMAGED)


def test_the_report_goes_to_standard_error_when_the_image_is_standard_output(source):
    done = rig.run("save", source, "-o", "-")
    assert "memory" in done.err and "GB/s" in done.err
    assert rig.run("save", source, "-o", "-", "--quiet").err == ""


def test_a_reader_that_goes_away_is_an_error(source):
    read_end, write_end = os.pipe()
    os.close(read_end)
    failed = rig.run("save", source, "-o", "-", stdout=write_end, code=rig.FAILED)
    os.close(write_end)
    assert "Broken pipe" in failed.err


def test_a_full_device_as_the_image_is_an_error(source):
    with open("/dev/full", "wb") as full:
        failed = rig.run("save", source, "-o", "-", stdout=full, code=rig.FAILED)
    assert "No space left" in failed.err


def test_a_closed_standard_output_is_an_error(source):
    """And the image does not land in whatever took the descriptor's number."""
    command = f'exec "$TORPOR" save "{source}" -o - >&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert done.returncode == rig.FAILED and b"Bad file descriptor" in done.stderr


def test_a_closed_standard_output_does_not_damage_the_image(source, image, there):
    command = f'exec "$TORPOR" save "{source}" -o "{image}" >&- <&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert done.returncode == rig.FAILED and b"standard output" in done.stderr
    rig.run("load", image, "--to", there)


def test_a_closed_standard_error_does_not_damage_what_is_loaded(source, there):
    """The file that is being restored would take its number, and progress be written into it."""
    content = rig.run("save", source, "-o", "-").raw
    command = f'exec "$TORPOR" load - --to "{there}" --progress always 2>&-'
    load = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    load.stdin.write(content[:-100])
    load.stdin.flush()
    # It waits for the rest while the first line of progress is due, after a second.
    with pytest.raises(subprocess.TimeoutExpired):
        load.wait(timeout=1.4)
    load.stdin.write(content[-100:])
    load.stdin.close()
    assert load.wait(timeout=rig.DEADLINE_S) == 0
    assert rig.read_file(os.path.join(there, "mem")) == rig.read_file(source)


def test_an_image_is_not_written_to_a_terminal(source):
    master, slave = pty.openpty()
    failed = rig.run("save", source, "-o", "-", stdout=slave, code=rig.USAGE)
    os.close(slave)
    os.close(master)
    assert "terminal" in failed.err


@pytest.mark.parametrize("command", ["load", "verify"])
def test_an_image_is_not_read_from_a_terminal(command):
    master, slave = pty.openpty()
    failed = rig.run(command, "-", stdin=slave, code=rig.USAGE)
    os.close(slave)
    os.close(master)
    assert "terminal" in failed.err


@pytest.mark.parametrize("args", [["info", "-"], ["cat", "-", "mem"], ["rebuild", "-", "-o", "x"]])
def test_commands_that_must_seek_say_so(args):
    assert "seek" in rig.run(*args, code=rig.USAGE).err


def test_a_pipe_is_no_image_to_seek_in(source, shm):
    fifo = os.path.join(shm, "fifo")
    os.mkfifo(fifo)
    keep_open = os.open(fifo, os.O_RDWR)
    failed = rig.run("info", fifo, code=rig.FAILED)
    os.close(keep_open)
    assert "fifo" in failed.err


def test_a_load_that_waits_for_a_pipe_ends_at_a_signal(source, there):
    """Half an image has come and no more: the read that waits must end, with nothing left."""
    content = rig.run("save", source, "-o", "-").raw
    read_end, write_end = os.pipe()
    load = rig.start("load", "-", "--to", there, stdin=read_end)
    os.close(read_end)
    os.write(write_end, content[: len(content) // 2][:65536])
    with open(write_end, "wb", buffering=0) as f:
        f.write(content[65536 : len(content) // 2])
        rig.wait_until(lambda: pipe_is_empty(f.fileno()), "the load has read all there is")
        load.send_signal(signal.SIGINT)
        load.communicate(timeout=rig.DEADLINE_S)
    assert load.returncode == -signal.SIGINT
    assert os.listdir(there) == []


def pipe_is_empty(fd):
    waiting = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, waiting)
    return waiting[0] == 0


def test_a_save_that_waits_for_its_reader_ends_at_a_signal(shm):
    source = rig.write_file(os.path.join(shm, "big"), rig.random_bytes(8 * MIB))
    save = rig.start("save", source, "-o", "-")
    # It has begun to write, and after a pipe's 64 KiB it waits for us.
    assert len(save.stdout.read(1)) == 1
    save.send_signal(signal.SIGTERM)
    assert save.wait(timeout=rig.DEADLINE_S) == -signal.SIGTERM
    save.stdout.close()
    save.stderr.close()
