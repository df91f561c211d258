# SPDX-License-Identifier: LGPL-2.1-or-later
"""torpor bench finds torpor-bench and prints what its manual says."""
import json
import os

import pytest

import rig
from rig import MIB

KEYS = {
    "load": {"codec", "cpus", "loader", "mb_per_s", "ratio", "cpu_s_per_gib"},
    "codec": {"codec", "level", "chunk_bytes", "ratio", "compress_mb_per_s", "decompress_mb_per_s"},
    "limits": {"what", "s"},
}


@pytest.mark.parametrize("name", sorted(KEYS))
def test_a_benchmark_runs_on_small_data(shm, name):
    data = rig.write_file(os.path.join(shm, "data"), rig.mixed_bytes(4 * MIB))
    before = sorted(os.listdir("/dev/shm"))
    lines = rig.run("bench", name, "--file", data, "--runs", "1", "--json").out.splitlines()
    assert lines
    for line in lines:
        assert set(json.loads(line)) == KEYS[name]
    assert sorted(os.listdir("/dev/shm")) == before


def test_a_wrong_benchmark_is_wrong_usage():
    assert "Usage" in rig.run("bench", "nothing", code=rig.USAGE).err
    rig.run("bench", "load", "--runs", "0", code=rig.FAILED)
