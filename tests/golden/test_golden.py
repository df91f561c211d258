# SPDX-License-Identifier: LGPL-2.1-or-later
"""Images written by earlier versions: today's reader loads the good ones and refuses the others.

TORPOR names the program.  README.md says what each file is.
"""
import json
import os
import subprocess

import pytest

import content

HERE = os.path.dirname(os.path.abspath(__file__))
DONE, FAILED, DAMAGED = 0, 1, 3

with open(os.path.join(HERE, "golden.json"), encoding="utf-8") as facts_file:
    FACTS = json.load(facts_file)


def path_of(name):
    return os.path.join(HERE, name + ".torpor")


def run(*args, **kwargs):
    program = os.path.abspath(os.environ["TORPOR"])
    return subprocess.run([program, *args], capture_output=True, check=False, timeout=60, **kwargs)


def run_codec(facts, *args, **kwargs):
    """As run(); a build without the codec must say so, and the test is then over."""
    done = run(*args, **kwargs)
    if done.returncode == FAILED and b"not built" in done.stderr:
        assert facts["codec"] not in ("none",)
        pytest.skip(f"{facts['codec']} is not in this build")
    return done


def test_every_file_has_a_fact():
    there = {f[: -len(".torpor")] for f in os.listdir(HERE) if f.endswith(".torpor")}
    told = set(FACTS["good"]) | {f"{kind}-{name}" for kind in ("damaged", "refused") for name in FACTS[kind]}
    assert there == told and len(FACTS["good"]) >= 8 and len(FACTS["damaged"]) >= 10 and len(FACTS["refused"]) >= 4


@pytest.mark.parametrize("name", sorted(FACTS["good"]))
def test_good(name, tmp_path):
    facts = FACTS["good"][name]
    assert run_codec(facts, "verify", path_of(name)).returncode == DONE
    for way in "indexed", "streamed":
        to = tmp_path / way
        to.mkdir()
        if way == "indexed":
            done = run("load", path_of(name), "--to", to)
        else:
            with open(path_of(name), "rb") as image:
                read_end, write_end = os.pipe()
                with subprocess.Popen(["cat"], stdin=image, stdout=write_end):
                    os.close(write_end)
                    done = run("load", "-", "--to", to, stdin=read_end)
                os.close(read_end)
        assert done.returncode == DONE, done.stderr
        (root,) = os.listdir(to)
        assert content.digest(to / root) == facts["content"], way


@pytest.mark.parametrize("name", sorted(FACTS["damaged"]))
def test_damaged(name, tmp_path):
    says = FACTS["damaged"][name]
    for args in ["verify"], ["load", "--to", tmp_path]:
        done = run(*args, path_of("damaged-" + name))
        message = done.stderr.decode()
        assert done.returncode == DAMAGED, (args, message)
        assert message.count("\n") == 1 and path_of("damaged-" + name) in message
        assert says.lower() in message.lower(), (args, message)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("way", ["indexed", "streamed"])
@pytest.mark.parametrize("name", sorted(FACTS["refused"]))
def test_refused(name, way, tmp_path):
    """What is sound but newer than the reader is no damage: another exit code, and the reason by its name."""
    path = path_of("refused-" + name)
    for args in ["verify"], ["load", "--to", tmp_path]:
        if way == "indexed":
            done = run(*args, path)
        else:
            with open(path, "rb") as image:
                done = run(*args, "-", input=image.read())
        message = done.stderr.decode()
        assert done.returncode == FAILED, (args, message)
        assert message.count("\n") == 1 and FACTS["refused"][name] in message, (args, message)
    assert not os.listdir(tmp_path)


def test_wrong_content_is_seen(tmp_path):
    """The digest tells folders apart that differ by one byte, one mode or one name."""
    seen = set()
    for name, data, mode in ("a", b"x", 0o644), ("a", b"y", 0o644), ("a", b"x", 0o600), ("b", b"x", 0o644):
        folder = tmp_path / str(len(seen)) / "f"
        folder.mkdir(parents=True)
        (folder / name).write_bytes(data)
        (folder / name).chmod(mode)
        seen.add(content.digest(folder))
    assert len(seen) == 4
