# SPDX-License-Identifier: LGPL-2.1-or-later
"""Help, man pages, completion and header say the same."""
import os
import re
import subprocess

import pytest

import rig
from test_output import JSON_KEYS, SEGMENT_KEYS

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMANDS = ["save", "load", "info", "verify", "cat", "rebuild", "thaw", "bench"]


def source_text(*parts):
    with open(os.path.join(TOP, *parts), encoding="utf-8") as f:
        return f.read()


def man_text(page):
    return source_text("docs", "man", page + ".scd")


def help_options(command):
    text = rig.run(command, "--help").out
    return set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", text, re.M))


def man_options(page):
    """The options that have a paragraph or an item of a list of their own: it begins with a bold option."""
    lines = [line for line in man_text(page).split("\n") if line.startswith(("*-", "- *-"))]
    return {option for line in lines for option in re.findall(r"\*(--[a-z-]+)\*", line)}


def completed(*words):
    """What bash offers after these words."""
    script = (
        f"source {TOP}/completions/torpor; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); "
        "_torpor; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True)
    return set(done.stdout.split("\n")) - {""}


@pytest.mark.parametrize("command", [[]] + [[c] for c in COMMANDS], ids=lambda c: " ".join(c) or "torpor")
def test_help_goes_to_standard_output_and_fits_80_columns(command):
    for args in ([*command, "--help"], [*command, "-h"], ["help", *command]):
        done = rig.run(*args)
        assert done.raw_err == b""
        assert done.out.startswith("Usage: torpor " + (command[0] if command else "COMMAND"))
        assert max(map(len, done.out.split("\n"))) <= 80
        assert "\t" not in done.out


def test_help_has_help_itself():
    for args in (["help", "help"], ["help", "--help"], ["help", "-h"]):
        done = rig.run(*args)
        assert done.raw_err == b"" and done.out.startswith("Usage: torpor help [COMMAND]\n"), str(done)
        assert max(map(len, done.out.split("\n"))) <= 80
    assert completed("torpor", "help", "") == {*COMMANDS, "help"}
    assert completed("torpor", "help", "--") == help_options("help") == {"--help"}


def test_every_command_stands_everywhere():
    listed = re.findall(r"^  (\w+) +\S", rig.run("--help").out.split("Options:")[0], re.M)
    assert listed == COMMANDS + ["help"]
    assert completed("torpor", "") == {*listed, "--help", "--version"}
    for command in COMMANDS:
        assert re.search(rf"^\*{command}\* ", man_text("torpor.1"), re.M)
        assert man_text(f"torpor-{command}.1").startswith(f"torpor-{command}(1)")
    assert man_options("torpor.1") == {"--help", "--version"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_stands_in_help_man_page_and_completion(command):
    options = help_options(command)
    assert "--help" in options
    assert completed("torpor", command, "--") == options
    if command == "bench":  # its page has those of a benchmark besides
        options = options | set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", rig.run("bench", "load", "--help").out, re.M))
    assert man_options(f"torpor-{command}.1") == options


def benchmarks(*args):
    return re.findall(r"^  (\w+) +\S", rig.run(*args).out, re.M)


def test_every_benchmark_stands_everywhere():
    """The help of torpor, that of torpor-bench, the man page and the completion name the same benchmarks."""
    names = benchmarks("bench", "load", "--help")
    assert len(names) >= 4
    assert benchmarks("bench", "--help") == names
    assert re.findall(r"^\*(\w+)\*$", man_text("torpor-bench.1"), re.M) == names
    assert completed("torpor", "bench", "") == set(names)


def test_every_option_of_a_benchmark_is_completed():
    text = rig.run("bench", "load", "--help").out
    assert max(map(len, text.split("\n"))) <= 80
    for name in benchmarks("bench", "--help"):
        assert rig.run("bench", name, "--help").out == rig.run("bench", name, "-h").out == text
        assert completed("torpor", "bench", name, "--") == set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", text, re.M))
        assert completed("torpor", "bench", name, "--runs", "") == set()


@pytest.mark.parametrize("option, words", [
    ("--codec", {"none", "lz4", "zstd", "lzo"}), ("--latency-guard", {"auto", "on", "off"}),
    ("--progress", {"auto", "always", "never"}),
])
def test_the_words_of_an_option_are_completed(option, words):
    assert completed("torpor", "save", option, "") == words
    assert completed("torpor", "save", option, "=", "") == words
    command = "load" if option == "--latency-guard" else "save"
    text = re.sub(r"\s+", " ", rig.run(command, "--help").out)
    assert all(word in text.split(option)[1][:200] for word in words)


@pytest.mark.parametrize("command", ["save", "load"])
def test_help_states_the_memory_that_is_needed(command):
    text = re.sub(r"\s+", " ", rig.run(command, "--help").out)
    assert "less than 64 MiB + 4 MiB a thread" in text
    assert "64 MiB + 4 MiB" in source_text("include", "torpor.h")


@pytest.mark.parametrize("command", JSON_KEYS)
def test_every_json_key_is_documented(command):
    pages = man_text("torpor.1") + man_text(f"torpor-{command}.1")
    keys = JSON_KEYS[command] | {"error", "error_code"}
    for key in keys | (SEGMENT_KEYS if command == "info" else set()):
        assert re.search(rf"\*{key}\*", pages), key


def test_every_function_of_the_header_is_in_the_library_s_page():
    header = re.sub(r"/\*.*?\*/", "", source_text("include", "torpor.h"), flags=re.S)
    functions = set(re.findall(r"\b(torpor_\w+)\(", header))
    assert len(functions) >= 15
    assert set(re.findall(r"\*(torpor_\w+)\*\(\)", man_text("libtorpor.3"))) == functions


def test_exit_codes_stand_in_the_man_page():
    page = man_text("torpor.1").split("# EXIT STATUS")[1].split("\n# ")[0]
    assert re.findall(r"^\*(\d)\*$", page, re.M) == ["0", "1", "2", "3"]


def test_pages_name_only_pages_that_exist():
    folder = os.path.join(TOP, "docs", "man")
    pages = {name[:-4] for name in os.listdir(folder) if name.endswith(".scd")}
    for page in pages:
        for name, section in re.findall(r"\*((?:lib)?torpor[a-z-]*)\*\((\d)\)", man_text(page)):
            assert f"{name}.{section}" in pages, page


def test_bench_without_its_program_says_so(tmp_path):
    """A copy of the program alone finds no torpor-bench beside it."""
    missing = {**os.environ, "PATH": "/nonexistent"}
    binary = tmp_path / "torpor"
    binary.write_bytes(rig.read_file(rig.torpor_path()))
    binary.chmod(0o755)
    libs = subprocess.run(["ldd", rig.torpor_path()], capture_output=True, text=True, check=False)
    found = re.search(r"=> (\S*)/libtorpor", libs.stdout)
    if found:
        missing["LD_LIBRARY_PATH"] = found[1]
    done = subprocess.run([binary, "bench", "load"], capture_output=True, text=True, env=missing, check=False)
    if "cannot execute" not in done.stderr and done.returncode == 0:
        pytest.skip("torpor-bench is installed on this machine")
    assert done.returncode == rig.FAILED and "torpor-bench" in done.stderr


def test_bench_hands_its_words_on(tmp_path):
    """The program beside torpor gets everything behind `bench`, options too."""
    binary = tmp_path / "torpor"
    binary.write_bytes(rig.read_file(rig.torpor_path()))
    binary.chmod(0o755)
    bench = tmp_path / "torpor-bench"
    bench.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 7\n')
    bench.chmod(0o755)
    libs = subprocess.run(["ldd", rig.torpor_path()], capture_output=True, text=True, check=False)
    found = re.search(r"=> (\S*)/libtorpor", libs.stdout)
    env = {**os.environ, "LD_LIBRARY_PATH": found[1]} if found else None
    words = ["load", "--help", "-n", "a b", "--"]
    done = subprocess.run([binary, "bench", *words], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 7 and done.stdout == "|".join(words) + "|"
