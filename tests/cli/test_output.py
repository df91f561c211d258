# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is said, where, and with which exit code: reports, JSON, the progress bar, wrong usage."""
import json
import os
import pty
import re
import select
import time

import pytest

import rig
from rig import MIB

REPORT_KEYS = {
    "segments", "chunks", "memory_bytes", "data_bytes", "zero_bytes", "hole_bytes",
    "unpreserved_bytes", "stored_bytes", "image_bytes", "ratio", "wall_ns", "cpu_ns",
    "bytes_per_second", "threads", "codec",
}
COMMON_KEYS = {"command", "image", "exit", "warnings"}
GUARD_KEYS = {"guard_held", "guard_reason"}
JSON_KEYS = {
    "save": COMMON_KEYS | REPORT_KEYS | {"level"},
    "load": COMMON_KEYS | REPORT_KEYS | GUARD_KEYS,
    "verify": COMMON_KEYS | REPORT_KEYS | GUARD_KEYS,
    "rebuild": COMMON_KEYS | {"output", "lost_bytes"},
    "info": COMMON_KEYS | {
        "version", "incompatible", "compatible", "id", "created", "segments", "chunks",
        "chunk_bytes", "data_bytes", "zero_bytes", "hole_bytes", "unpreserved_bytes",
        "stored_bytes", "image_bytes", "codec", "segment_list",
    },
}
SEGMENT_KEYS = {
    "index", "kind", "name", "origin", "link", "mode", "uid", "gid", "bytes", "page_bytes",
    "huge_page_bytes", "mtime",
}


@pytest.fixture
def source(shm):
    return rig.write_file(os.path.join(shm, "mem"), rig.mixed_bytes(2 * MIB + 3), 0o640)


@pytest.fixture
def saved(source, image):
    rig.run("save", source, "-o", image)
    return image


def command_line(command, source, image, there):
    return {
        "save": ["save", source, "-o", image, "--force"],
        "load": ["load", image, "--to", there, "--force"],
        "verify": ["verify", image],
        "info": ["info", image],
        "rebuild": ["rebuild", image, "-o", image + ".new", "--force"],
    }[command]


@pytest.mark.parametrize("command", JSON_KEYS)
def test_json_has_its_keys_and_nothing_else_is_printed(source, saved, there, command):
    """Keys are never renamed: a change of this table breaks scripts out there."""
    done = rig.run(*command_line(command, source, saved, there), "--json")
    assert done.raw.count(b"\n") == 1 and done.raw.endswith(b"}\n")
    assert set(done.json) == JSON_KEYS[command]
    assert done.json["command"] == command
    assert done.json["exit"] == 0 and done.json["warnings"] == []
    assert done.json["image"] == saved


@pytest.mark.parametrize("command", JSON_KEYS)
def test_json_goes_to_the_descriptor_that_is_named(source, saved, there, command):
    read_end, write_end = os.pipe()
    args = command_line(command, source, saved, there)
    done = rig.run(*args, f"--json={write_end}", pass_fds=[write_end])
    os.close(write_end)
    with open(read_end, "rb") as f:
        assert set(json.load(f)) == JSON_KEYS[command]
    assert done.raw == b"" and done.err == ""


def test_the_image_and_json_do_not_mix(source):
    for option in ("--json", "--json=1"):
        assert "--json=FD" in rig.run("save", source, "-o", "-", option, code=rig.USAGE).err
    read_end, write_end = os.pipe()
    done = rig.run("save", source, "-o", "-", f"--json={write_end}", pass_fds=[write_end])
    os.close(write_end)
    with open(read_end, "rb") as f:
        assert json.load(f)["image_bytes"] == len(done.raw)


@pytest.mark.parametrize("word", ["99", "x", "0", "-1", "", "99999999999999999999"])
def test_a_descriptor_for_json_that_is_not_open_is_wrong_usage(source, image, word):
    rig.run("save", source, "-o", image, f"--json={word}", code=rig.USAGE)
    assert not os.path.exists(image)


def test_json_of_a_failure_says_why(source, saved, there):
    rig.write_file(os.path.join(there, "mem"), b"x")
    failed = rig.run("load", saved, "--to", there, "--json", code=rig.FAILED)
    assert failed.json["exit"] == rig.FAILED
    assert failed.json["error_code"] == "EEXIST"
    assert "mem" in failed.json["error"] and failed.json["error"] in failed.err
    assert set(failed.json) == COMMON_KEYS | {"error", "error_code"}
    content = rig.read_file(saved)
    rig.write_file(saved, content[: len(content) // 2])
    for command in ("verify", "info"):
        failed = rig.run(command, saved, "--json", code=rig.DAMAGED)
        assert failed.json["exit"] == rig.DAMAGED and failed.json["error_code"] == "EBADMSG"


def test_json_of_any_name_is_valid_and_loses_nothing(shm, image):
    top = os.path.join(os.fsencode(shm), b"mc\xff")
    os.mkdir(top)
    odd = [b"new\nline", b'quote"\\', b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
           b"\xc0\xaf", b"\xe2\x82", b"umlaut-\xc3\xa4", b"\xf0\x9f\x98\xb4", b"\x01\x7f"]
    for name in odd:
        rig.write_file(os.path.join(top, name), b"x")
    os.symlink(b"to-\xff", os.path.join(top, b"link"))
    rig.run("save", top, "-o", image)
    info = json.loads(rig.run("info", image, "--json").raw.decode("utf-8"))

    def bytes_of(segment, key):
        if key + "_hex" in segment:
            assert "\ufffd" in segment[key]
            return bytes.fromhex(segment[key + "_hex"])
        return segment[key].encode("utf-8")

    found = {bytes_of(s, "name") for s in info["segment_list"]}
    assert found == {b"mc\xff"} | {b"mc\xff/" + name for name in odd + [b"link"]}
    assert {bytes_of(s, "link") for s in info["segment_list"]} == {b"", b"to-\xff"}
    assert {bytes_of(s, "origin") for s in info["segment_list"]} == {b"", top}


def test_info_describes_each_segment(shm, image):
    top = os.path.join(shm, "mc")
    os.mkdir(top, 0o750)
    rig.write_file(os.path.join(top, "mem"), b"x" * 5000, 0o604)
    os.utime(os.path.join(top, "mem"), ns=(0, 1_500_000_000_123_456_789))
    os.symlink("mem", os.path.join(top, "link"))
    rig.run("save", top, "-o", image)
    info = rig.run("info", image, "--json").json
    assert info["segments"] == len(info["segment_list"]) == 3
    for i, segment in enumerate(info["segment_list"]):
        assert set(segment) == SEGMENT_KEYS
        assert segment["index"] == i
    by_name = {s["name"]: s for s in info["segment_list"]}
    mem = by_name["mc/mem"]
    assert (mem["kind"], mem["bytes"], mem["mode"]) == ("file", 5000, "0604")
    assert mem["mtime"] == "2017-07-14T02:40:00.123456789Z"
    assert (mem["uid"], mem["gid"]) == (os.getuid(), os.getgid())
    assert mem["page_bytes"] == 4096 and mem["huge_page_bytes"] == 0
    assert (by_name["mc"]["kind"], by_name["mc"]["origin"]) == ("folder", top)
    assert (by_name["mc/link"]["kind"], by_name["mc/link"]["link"]) == ("link", "mem")
    text = rig.run("info", image, env={**os.environ, "TZ": "UTC"}).out
    assert re.search(r"^ +\d  file +0604 +\d+:\d+ +4\.88 KiB +2017-07-14 02:40:00 +mc/mem$", text, re.M)
    assert re.search(rf"^ +0  folder .* mc  \(from {re.escape(top)}\)$", text, re.M)
    assert re.search(r"^ +\d  link .* mc/link -> mem$", text, re.M)


def test_times_before_1970_are_right(shm, image):
    source = rig.write_file(os.path.join(shm, "mem"), b"x")
    os.utime(source, ns=(0, -500_000_000))
    rig.run("save", source, "-o", image)
    (segment,) = rig.run("info", image, "--json").json["segment_list"]
    assert segment["mtime"] == "1969-12-31T23:59:59.500000000Z"


@pytest.fixture
def odd_warnings(root, nobody, shm, image):
    """A load without root of what root owns under names that are no UTF-8: arguments that make it warn."""
    top = os.path.join(os.fsencode(shm), b"mc\xff")
    os.mkdir(top)
    for name in (b"plain", b"f\xff"):
        rig.write_file(os.path.join(top, name), b"x")
    rig.run("save", top, "-o", image)
    os.chmod(image, 0o644)
    mine = os.path.join(shm, "mine")
    os.mkdir(mine)
    os.chown(mine, rig.NOBODY, rig.NOBODY)
    return ["load", image, "--to", mine, "--json"], nobody


def test_json_of_messages_loses_no_byte_of_a_name(shm, image, odd_warnings):
    name = os.path.join(os.fsencode(shm), b"f\xff")
    failed = rig.run("save", name, "-o", image + "2", "--json", code=rig.FAILED).json
    assert name in bytes.fromhex(failed["error_hex"])
    assert bytes.fromhex(failed["error_hex"]).decode("utf-8", "replace") == failed["error"]
    plain = rig.run("save", os.path.join(shm, "none"), "-o", image + "2", "--json", code=rig.FAILED).json
    assert "error_hex" not in plain and "warnings_hex" not in plain

    args, nobody = odd_warnings
    done = rig.run(*args, **nobody).json
    assert len(done["warnings"]) >= 2
    exact = [bytes.fromhex(w) for w in done["warnings_hex"]]
    assert [w.decode("utf-8", "replace") for w in exact] == done["warnings"]
    assert any(b"mc\xff/f\xff" in w for w in exact), exact


INVISIBLE = [
    0x1B, 0x7F, 0x80, 0x9B, 0x9F, 0xAD, 0x600, 0x61C, 0x180E, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2028, 0x2029,
    *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF, 0xFFF9, 0xFFFB, 0xE0001, 0xE007F,
]
VISIBLE = [0x41, 0xA0, 0xA1, 0xE4, 0x5D0, 0x627, 0x2010, 0x2027, 0x202F, 0x205F, 0x2070, 0xFEFE, 0xFF00, 0x1F634]


def test_every_mark_that_is_not_seen_is_written_out(shm, image):
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    for point in INVISIBLE + VISIBLE:
        rig.write_file(os.path.join(top, f"<{chr(point)}>"), b"x")
    rig.run("save", top, "-o", image)
    text = rig.run("info", image).out
    for point in INVISIBLE:
        encoded = "".join(f"\\x{byte:02x}" for byte in chr(point).encode())
        assert f"mc/<{encoded}>" in text and chr(point) not in text, hex(point)
    for point in VISIBLE:
        assert f"mc/<{chr(point)}>" in text, hex(point)


def test_every_segment_that_info_shows_can_be_named_by_its_number(shm, image):
    """A name as text is not always the name: new lines and backslashes look alike in a message."""
    top = os.path.join(shm, "odd")
    os.mkdir(top)
    contents = {"n\nl": b"new line", "n\\nl": b"backslash", "plain": b"plain"}
    for name, content in contents.items():
        rig.write_file(os.path.join(top, name), content)
    rig.run("save", top, "-o", image)
    segments = rig.run("info", image, "--json").json["segment_list"]
    for segment in segments[1:]:
        want = contents[segment["name"][len("odd/"):]]
        assert rig.run("cat", image, segment["name"]).raw == want
        assert rig.run("cat", image, "--index", str(segment["index"])).raw == want
        assert rig.run("cat", image, "--index", str(segment["index"]), "--offset", "2", "--length=1").raw == want[2:3]
    text = rig.run("info", image).out
    for name, spelling in (("n\nl", r"odd/n\nl"), ("n\\nl", r"odd/n\\nl")):
        (number,) = re.findall(rf"^ +(\d+)  file .* {re.escape(spelling)}$", text, re.M)
        assert rig.run("cat", image, "--index", number).raw == contents[name]
    assert "folder" in rig.run("cat", image, "--index", "0", code=rig.FAILED).err
    for number in (str(len(segments)), "18446744073709551615"):
        failed = rig.run("cat", image, "--index", number, code=rig.FAILED)
        assert failed.raw == b"" and number in failed.err and str(len(segments)) in failed.err


def test_the_codec_of_a_report_is_the_one_that_was_asked_for(shm, image, there):
    """Also when not a chunk could be shortened by it."""
    source = rig.write_file(os.path.join(shm, "mem"), rig.random_bytes(MIB))
    rig.run("save", source, "-o", image, "--codec", "zstd")
    for args in (["info", image], ["verify", image], ["load", image, "--to", there]):
        assert rig.run(*args, "--json").json["codec"] == "zstd", args
    with open(image, "rb") as f:
        assert rig.run("verify", "-", "--json", stdin=f).json["codec"] == "zstd"
    empty = rig.write_file(os.path.join(shm, "empty"), b"")
    rig.run("save", empty, "-o", image, "--codec", "lzo", "--force")
    assert rig.run("verify", image, "--json").json["codec"] == "lzo"


def test_sizes_go_up_to_petabytes(shm, image):
    ends = {"1T": 1 << 40, "2TiB": 2 << 40, "1P": 1 << 50}
    source = rig.write_pieces(os.path.join(shm, "mem"), (1 << 50) + 5, [(at, b"right") for at in ends.values()])
    rig.run("save", source, "-o", image)
    for word in ends:
        assert rig.run("cat", image, "mem", "--offset", word, "--length", "5").raw == b"right"
    rig.run("cat", image, "mem", "--offset", "16384P", code=rig.USAGE)


@pytest.mark.parametrize("command", ["info", "cat", "rebuild"])
def test_what_cannot_seek_is_said_in_words(shm, image, command):
    os.mkfifo(image)
    for path in (image, "/dev/null", "/dev/zero"):
        args = {"info": [path], "cat": [path, "mem"], "rebuild": [path, "-o", image + ".new"]}[command]
        failed = rig.run(command, *args, code=rig.FAILED)
        assert path in failed.err and "pipe or a device without a size" in failed.err
        assert "seek" not in failed.err


def test_names_cannot_command_a_terminal(shm, image, there):
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    evil = b"\x1b]0;title\x07\x1b[2J\xc2\x9b31m\xe2\x80\xaetxt\nsecond line"
    rig.write_file(os.path.join(os.fsencode(top), evil), b"x")
    rig.run("save", top, "-o", image)
    runs = [
        rig.run("info", image),
        rig.run("cat", image, evil, code=rig.FAILED),
        rig.run("load", os.path.join(os.fsencode(shm), evil), code=rig.FAILED),
    ]
    os.mkfifo(os.path.join(os.fsencode(top), evil + b"2"))
    runs.append(rig.run("save", top, "-o", image + "2", code=rig.FAILED))
    for done in runs:
        text = done.raw + done.raw_err
        assert b"title" in text, str(done)
        assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80\xae", text)
        assert b"\nsecond line" not in text


def test_the_report_after_a_save_says_all(source, image):
    text = rig.run("save", source, "-o", image, "--threads", "2").out
    for pattern in (
        r"^memory +2\.00 MiB", r"^  data +\S+ [KM]iB", r"^  zero +", r"^  hole +0 bytes",
        r"^stored +\S+ [KM]iB +codec lz4 \(level 1\), ratio \d\.\d\d$", r"^image +.* ratio \d",
        r"^time +\d+\.\d\d s +\d+\.\d\d GB/s, CPU \d+\.\d\d s, 2 threads$",
    ):
        assert re.search(pattern, text, re.M), (pattern, text)


@pytest.mark.parametrize("command", ["load", "verify"])
def test_the_report_says_whether_the_guard_was_held_and_why_not(source, saved, there, command):
    args = command_line(command, source, saved, there)
    text = rig.run(*args).out
    assert re.search(r"^latency guard (held|not held: \S.*)$", text, re.M), text
    off = rig.run(*args, "--latency-guard=off", "--json").json
    assert off["guard_held"] is False and off["guard_reason"] != ""
    auto = rig.run(*args, "--latency-guard", "auto", "--json").json
    assert auto["guard_held"] is (auto["guard_reason"] == "")


@pytest.mark.parametrize("command", ["load", "verify"])
def test_a_guard_that_must_be_held_and_cannot_is_an_error(root, nobody, shm, saved, command):
    """Without root /dev/cpu_dma_latency cannot be opened, where it exists at all."""
    os.chmod(saved, 0o644)
    mine = os.path.join(shm, "mine")
    os.mkdir(mine)
    os.chown(mine, rig.NOBODY, rig.NOBODY)
    args = [command, saved] + (["--to", mine] if command == "load" else [])
    if os.path.exists("/dev/cpu_dma_latency") and os.stat("/dev/cpu_dma_latency").st_mode & 0o006:
        pytest.skip("everybody may hold the latency guard here")
    failed = rig.run(*args, "--latency-guard=on", code=rig.FAILED, **nobody)
    assert "cpu_dma_latency" in failed.err
    assert os.listdir(mine) == []
    rig.run(*args, "--latency-guard=auto", **nobody)


@pytest.mark.parametrize("command", ["save", "load", "verify", "rebuild"])
def test_quiet_says_nothing(source, saved, there, command):
    done = rig.run(*command_line(command, source, saved, there), "--quiet")
    assert done.raw == b"" and done.raw_err == b""


@pytest.mark.parametrize("command", ["save", "load", "verify", "info", "rebuild"])
def test_a_report_that_cannot_be_written_is_a_failure(source, saved, there, command):
    for option in ([], ["--json"]):
        with open("/dev/full", "wb") as full:
            args = command_line(command, source, saved, there)
            failed = rig.run(*args, *option, stdout=full, code=rig.FAILED)
        assert "No space left" in failed.err


def test_cat_to_a_full_device_fails_and_to_a_reader_that_left_is_silent(saved):
    with open("/dev/full", "wb") as full:
        assert "No space" in rig.run("cat", saved, "mem", stdout=full, code=rig.FAILED).err
    read_end, write_end = os.pipe()
    os.close(read_end)
    assert rig.run("cat", saved, "mem", stdout=write_end, code=rig.FAILED).err == ""
    os.close(write_end)


WRONG = [
    [], ["frobnicate"], ["--frobnicate"], ["save"], ["load"], ["info"], ["verify"], ["cat", "i"],
    ["rebuild"], ["bench"], ["save", "s"], ["rebuild", "i"], ["load", "i", "j"], ["cat", "i", "s", "t"],
    ["save", "s", "-o"], ["save", "s", "-o", ""], ["load", "i", "--to", ""], ["save", "s", "-o", "i", "-z"],
    ["save", "s", "-o", "i", "--threads", "0"], ["save", "s", "-o", "i", "--threads", "1025"],
    ["save", "s", "-o", "i", "--threads", "-1"], ["save", "s", "-o", "i", "--threads", "2x"],
    ["save", "s", "-o", "i", "--threads", ""], ["save", "s", "-o", "i", "--level", "high"],
    ["save", "s", "-o", "i", "--level", "99999999999"], ["save", "s", "-o", "i", "--force=yes"],
    ["save", "s", "-o", "i", "--chunk-size", "5K"], ["save", "s", "-o", "i", "--chunk-size", "2K"],
    ["save", "s", "-o", "i", "--chunk-size", "2M"], ["save", "s", "-o", "i", "--chunk-size", "4KB"],
    ["save", "s", "-o", "i", "--chunk-size", "18446744073709551616"],
    ["save", "s", "-o", "i", "--chunk-size", "18014398509481984K"], ["save", "s", "-o", "i", "--to", "d"],
    ["save", "s", "-o", "i", "--progress", "sometimes"], ["load", "i", "--latency-guard", "maybe"],
    ["load", "i", "--codec", "lz4"], ["cat", "i", "s", "--offset", "-1"], ["cat", "i", "s", "--index", "1"],
    ["cat", "i", "--index", "x"], ["cat", "i", "--index"], ["save", "s", "-o", "i", "--thr", "2"],
    ["save", "s", "-o", "i", "--thr=2"], ["save", "s", "-o", "i", "--f"], ["save", "s", "--out", "i"],
    ["load", "i", "--trust"], ["load", "i", "--forc"], ["info", "i", "--js"], ["--vers"], ["--version", "--bogus"],
    ["-V", "x"], ["-h", "extra"], ["--help", "save"], ["help", "save", "x"], ["help", "-x"],
    ["cat", "i", "s", "--length", "1e3"], ["help", "frobnicate"],
]


@pytest.mark.parametrize("args", WRONG, ids=" ".join)
def test_wrong_usage_is_said_with_a_hint(shm, args):
    failed = rig.run(*args, code=rig.USAGE, cwd=shm)
    assert failed.raw == b""
    assert failed.err.startswith("torpor: ")
    assert re.search(r"^Try 'torpor( \w+)? --help'\.$", failed.err, re.M)
    assert os.listdir(shm) == []


@pytest.mark.parametrize(
    "options", [["--codec", "zip"], ["--codec", "lz4", "--level", "-1"], ["--codec", "zstd", "--level", "23"],
                ["--codec", "none", "--level", "7"]], ids=" ".join)
def test_a_codec_or_level_that_there_is_not_is_wrong_usage_and_named(source, image, options):
    failed = rig.run("save", source, "-o", image, *options, code=rig.USAGE)
    assert options[1] in failed.err and options[-1] in failed.err
    assert not os.path.exists(image)


@pytest.mark.parametrize("command", ["load", "info", "verify", "rebuild"])
def test_an_image_that_is_missing_is_named(shm, there, image, command):
    failed = rig.run(*command_line(command, "", image, there), code=rig.FAILED)
    assert "x.torpor" in failed.err and "No such file" in failed.err


@pytest.mark.parametrize("command", ["load", "info", "verify"])
@pytest.mark.parametrize("content", [b"", b"x", b"not an image\n" * 1000, bytes(100000)],
                         ids=["empty", "1 byte", "text", "zeros"])
def test_what_is_no_image_is_called_damaged(there, image, command, content):
    rig.write_file(image, content)
    failed = rig.run(*command_line(command, "", image, there), code=rig.DAMAGED)
    assert "x.torpor" in failed.err
    assert os.listdir(there) == []


def test_a_folder_is_no_image(shm, there):
    for args in (["load", shm, "--to", there], ["info", shm], ["verify", shm]):
        assert shm in rig.run(*args, code=rig.FAILED).err


def test_cat_of_what_is_not_there_says_so(shm, image):
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    rig.write_file(os.path.join(top, "mem"), b"x" * 5000)
    os.symlink("mem", os.path.join(top, "link"))
    rig.run("save", top, "-o", image)
    assert "no-such" in rig.run("cat", image, "no-such", code=rig.FAILED).err
    assert "folder" in rig.run("cat", image, "mc", code=rig.FAILED).err
    assert "symlink" in rig.run("cat", image, "mc/link", code=rig.FAILED).err
    for options in (["--offset", "5001"], ["--length", "5001"], ["--offset", "4999", "--length", "2"],
                    ["--offset", "1", "--length", "18446744073709551615"]):
        failed = rig.run("cat", image, "mc/mem", *options, code=rig.FAILED)
        assert failed.raw == b"" and "5000 bytes" in failed.err
    assert rig.run("cat", image, "mc/mem", "--offset", "5000").raw == b""


def test_version():
    for option in ("--version", "-V"):
        assert re.fullmatch(r"torpor \d+\.\d+\.\d+\n", rig.run(option).out)


def on_a_terminal(source, seen, *options):
    """Saves into a pipe that is not read until `seen` says so; returns all of the terminal's text.

    The save waits for its reader meanwhile, so that it lasts as long as the test needs.
    """
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm"}
    save = rig.start("save", source, "-o", "-", *options, stderr=slave, env=env)
    os.close(slave)
    text, end = b"", time.monotonic() + rig.DEADLINE_S
    while not seen(text) and time.monotonic() < end:
        if select.select([master], [], [], 0.05)[0]:
            text += os.read(master, 4096)
    while save.stdout.read(1 << 20):
        pass
    save.stdout.close()
    assert save.wait() == 0
    try:
        while piece := os.read(master, 4096):
            text += piece
    except OSError:
        pass  # what a terminal says when its other end is closed
    os.close(master)
    return text


def test_a_long_save_shows_a_bar_and_takes_it_away(shm):
    source = rig.write_file(os.path.join(shm, "big"), rig.random_bytes(32 * MIB))
    text = on_a_terminal(source, lambda text: text.count(b"left") >= 3)
    lines = text.split(b"\r")
    assert re.match(rb"saving +\d+ % \[=* *>? *\] .* of 32\.0 MiB, \d+\.\d\d GB/s, \d+:\d\d left\x1b\[K$",
                    lines[1]), lines
    assert all(len(line) <= 80 + 3 for line in lines[1:4])
    # The bar is cleared, then comes the report: nothing of the bar stands in what follows.
    assert b"\r\x1b[K" in text
    report = text[text.rindex(b"\x1b[K") + 3 :]
    assert report.startswith(b"memory") and b"left" not in report


@pytest.mark.parametrize("options", [["--quiet"], ["--progress", "never"]], ids=" ".join)
def test_a_bar_that_is_not_wanted_does_not_appear(shm, options):
    source = rig.write_file(os.path.join(shm, "big"), rig.random_bytes(32 * MIB))
    begin = time.monotonic()
    text = on_a_terminal(source, lambda text: text or time.monotonic() > begin + 1.4, *options)
    assert b"saving" not in text and b"\x1b" not in text


def test_a_short_save_shows_no_bar(source):
    text = on_a_terminal(source, lambda text: True)
    assert b"saving" not in text and b"\x1b" not in text


def test_a_bar_is_for_terminals_alone(shm):
    """Standard error that is no terminal gets lines when they are asked for, else nothing."""
    source = rig.write_file(os.path.join(shm, "big"), rig.random_bytes(32 * MIB))
    for options, expected in ([], 0), (["--progress", "always"], 1):
        save = rig.start("save", source, "-o", "-", *options)
        ready = select.select([save.stderr], [], [], 1.6)[0]
        assert len(ready) == expected
        if expected:
            assert re.match(rb"saving +\d+ % .* GB/s, .*\n$", save.stderr.readline())
        save.stdout.read()
        assert save.wait() == 0
        save.stdout.close()
        save.stderr.close()
