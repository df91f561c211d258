# SPDX-License-Identifier: LGPL-2.1-or-later
"""torpor bench finds torpor-bench and prints what its manual says."""
import json
import os
import re

import pytest

import rig
from rig import MIB

KEYS = {
    "load": {"codec", "cpus", "loader", "mb_per_s", "ratio", "cpu_s_per_gib"},
    "codec": {"codec", "level", "chunk_bytes", "ratio", "compress_mb_per_s", "decompress_mb_per_s"},
    "limits": {"what", "s"},
    "copy": {"pages", "zero_percent", "zero_pages", "placed", "rival", "gb_per_s", "ratio", "zero_pages_found"},
    "fill": {"way", "one_gb_per_s", "all_gb_per_s"},
    "keep": {"design", "what", "threads", "unit", "value", "ratio"},
}

# It runs a service of 2 GiB, whatever the data.
TOO_LARGE = {"critical"}

WRONG = [
    ["nothing"], ["-x"], ["load", "--runs", "0"], ["load", "--runs", "x"], ["load", "--runs", ""], ["load", "--runs", "-1"],
    ["load", "--runs"], ["load", "--threads", "4294967297"], ["load", "--run", "1"], ["load", "--json=1"],
    ["load", "-x"], ["load", "extra"], ["fill", "--frobnicate"],
]


def left():
    return sorted(name for name in os.listdir("/dev/shm") if name.startswith("torpor-bench"))


@pytest.mark.parametrize("name", sorted(KEYS))
def test_a_benchmark_runs_on_small_data(shm, name):
    data = rig.write_file(os.path.join(shm, "data"), rig.mixed_bytes(4 * MIB))
    before = left()
    lines = rig.run("bench", name, "--file", data, "--runs", "1", "--json").out.splitlines()
    assert lines
    for line in lines:
        assert set(json.loads(line)) == KEYS[name]
    assert left() == before


def test_every_benchmark_is_tested():
    assert set(re.findall(r"^  (\w+) +\S", rig.run("bench", "--help").out, re.M)) == set(KEYS) | TOO_LARGE


@pytest.mark.parametrize("args", WRONG, ids=" ".join)
def test_wrong_usage_is_said_with_a_hint(args):
    failed = rig.run("bench", *args, code=rig.USAGE)
    assert failed.raw == b""
    assert failed.err.startswith("torpor-bench: ") and failed.err.count("\n") == 2, failed.err
    assert failed.err.endswith("\nTry 'torpor bench --help'.\n")
    option = next((word for word in args if word.startswith("-")), args[-1])
    assert option.split("=")[0] in failed.err
