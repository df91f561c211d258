# SPDX-License-Identifier: LGPL-2.1-or-later
"""What goes into an image comes back byte for byte, whatever it is and whatever the options."""
import os

import pytest

import rig
from rig import GIB, MIB, PAGE

CONTENTS = {
    "0 bytes": (0, []),
    "1 byte": (1, [(0, b"x")]),
    "1 zero byte": (1, [(0, b"\0")]),
    "1 page": (PAGE, [(0, rig.random_bytes(PAGE))]),
    "1 page less 1 byte": (PAGE - 1, [(0, rig.random_bytes(PAGE - 1))]),
    "1 page and 1 byte": (PAGE + 1, [(0, rig.random_bytes(PAGE + 1))]),
    "not whole pages": (3 * MIB + 123, [(0, rig.mixed_bytes(3 * MIB + 123))]),
    "last page short and zero": (PAGE + 7, [(0, b"a" * PAGE + bytes(7))]),
    "all zero": (MIB, [(0, bytes(MIB))]),
    "all random": (5 * MIB, [(0, rig.random_bytes(5 * MIB))]),
    "only a hole": (8 * MIB, []),
    "only a hole, not whole pages": (8 * MIB + 1, []),
    "hole, then data": (4 * MIB, [(3 * MIB, rig.random_bytes(MIB))]),
    "data, then hole": (4 * MIB + 5, [(0, rig.random_bytes(MIB))]),
    "data, hole, zero and data in turn": (
        4 * MIB,
        [(i * 16 * PAGE, rig.random_bytes((i % 5 + 1) * PAGE, i)) for i in range(0, 64, 2)]
        + [(i * 16 * PAGE, bytes(PAGE)) for i in range(1, 64, 4)],
    ),
    "every second page": (MIB, [(i * PAGE, b"p" * PAGE) for i in range(0, 256, 2)]),
}


def save_and_load(shm, image, there, size, pieces, *options):
    source = rig.write_pieces(os.path.join(shm, "mem"), size, pieces)
    rig.run("save", source, "-o", image, *options)
    rig.run("verify", image)
    rig.run("load", image, "--to", there)
    return source, os.path.join(there, "mem")


@pytest.mark.parametrize("size, pieces", CONTENTS.values(), ids=CONTENTS.keys())
def test_content_comes_back(shm, image, there, size, pieces):
    source, target = save_and_load(shm, image, there, size, pieces)
    assert rig.read_file(target) == rig.read_file(source)
    assert rig.describe(target) == rig.describe(source)


@pytest.mark.parametrize("size, pieces", CONTENTS.values(), ids=CONTENTS.keys())
def test_holes_and_zero_pages_cost_no_memory_after_a_load(shm, image, there, size, pieces):
    with open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", encoding="ascii") as f:
        setting = f.read()
    if "[never]" not in setting and "[deny]" not in setting:
        pytest.skip("tmpfs may give out huge pages: holes are not of 4 KiB pages")
    source, target = save_and_load(shm, image, there, size, pieces)
    want = rig.nonzero_extents(rig.read_file(source))
    assert rig.extents(target) == want


@pytest.mark.parametrize("size, pieces", CONTENTS.values(), ids=CONTENTS.keys())
def test_saving_allocates_nothing_in_the_source(shm, image, size, pieces):
    source = rig.write_pieces(os.path.join(shm, "mem"), size, pieces)
    before = os.stat(source).st_blocks, rig.extents(source), os.stat(source).st_mtime_ns
    rig.run("save", source, "-o", image)
    assert (os.stat(source).st_blocks, rig.extents(source), os.stat(source).st_mtime_ns) == before


def test_pages_are_counted_by_kind(shm, image):
    """Data, zero pages and holes are told apart, and their sum is the memory in whole pages."""
    source = rig.write_pieces(
        os.path.join(shm, "mem"),
        100 * PAGE + 1,
        [(0, rig.random_bytes(10 * PAGE)), (20 * PAGE, bytes(7 * PAGE)), (100 * PAGE, b"z")],
    )
    report = rig.run("save", source, "-o", image, "--json").json
    assert report["data_bytes"] == 11 * PAGE
    assert report["zero_bytes"] == 7 * PAGE
    assert report["hole_bytes"] == (101 - 11 - 7) * PAGE
    assert report["unpreserved_bytes"] == 0
    assert report["memory_bytes"] == 101 * PAGE
    assert report["image_bytes"] == os.path.getsize(image)
    for command in ("verify", "info"):
        again = rig.run(command, image, "--json").json
        for key in ("data_bytes", "zero_bytes", "hole_bytes", "stored_bytes", "image_bytes"):
            assert again[key] == report[key], (command, key)


def test_a_huge_hole_costs_next_to_nothing(shm, image):
    source = rig.write_pieces(os.path.join(shm, "mem"), 1 << 40, [(1 << 39, b"x")])
    rig.run("save", source, "-o", image)
    assert os.path.getsize(image) < 64 << 10


LEVELS = [
    ("none", None), ("lz4", None), ("lz4", 1), ("lz4", 8), ("lz4", 65537), ("zstd", None),
    ("zstd", -100), ("zstd", -3), ("zstd", 1), ("zstd", 3), ("zstd", 19), ("zstd", 22), ("lzo", None),
]


@pytest.mark.parametrize("codec, level", LEVELS)
def test_every_codec_and_level(shm, image, there, codec, level):
    options = ["--codec", codec] + (["--level", str(level)] if level is not None else [])
    source = rig.write_file(os.path.join(shm, "mem"), rig.mixed_bytes(2 * MIB + 77))
    report = rig.run("save", source, "-o", image, *options, "--json").json
    assert report["codec"] == codec
    assert report["level"] == (level if level is not None else report["level"])
    # At its greatest acceleration lz4 looks for next to nothing.
    if codec != "none" and level != 65537:
        assert report["stored_bytes"] < report["data_bytes"]
    assert rig.run("info", image, "--json").json["codec"] == codec
    rig.run("load", image, "--to", there)
    assert rig.read_file(os.path.join(there, "mem")) == rig.read_file(source)


def test_a_chunk_that_does_not_shrink_is_stored_as_it_is(shm, image):
    """The image of noise is larger than the noise by headers and index alone."""
    source = rig.write_file(os.path.join(shm, "mem"), rig.random_bytes(4 * MIB))
    for codec in ("lz4", "zstd", "lzo"):
        report = rig.run("save", source, "-o", image, "--codec", codec, "--force", "--json").json
        assert report["stored_bytes"] == 4 * MIB
        assert report["image_bytes"] < 4 * MIB + 256 * 1024


@pytest.mark.parametrize("chunk", ["4K", "8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M"])
def test_every_chunk_size(shm, image, there, chunk):
    source = rig.write_file(os.path.join(shm, "mem"), rig.mixed_bytes(3 * MIB + 4097))
    rig.run("save", source, "-o", image, "--chunk-size", chunk)
    want = int(chunk[:-1]) * (MIB if chunk[-1] == "M" else 1024)
    assert rig.run("info", image, "--json").json["chunk_bytes"] == want
    rig.run("load", image, "--to", there)
    assert rig.read_file(os.path.join(there, "mem")) == rig.read_file(source)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_every_number_of_threads(shm, image, there, threads):
    source = rig.write_file(os.path.join(shm, "mem"), rig.mixed_bytes(6 * MIB + 1))
    report = rig.run("save", source, "-o", image, "--threads", str(threads), "--json").json
    assert report["threads"] == threads
    report = rig.run("load", image, "--to", there, "--threads", str(threads), "--json").json
    assert report["threads"] == threads
    assert rig.run("verify", image, "--threads", str(threads), "--json").json["threads"] == threads
    assert rig.read_file(os.path.join(there, "mem")) == rig.read_file(source)


@pytest.mark.parametrize("extra", [0, 1, 4096, 4097], ids=lambda n: f"4 GiB + {n}")
def test_a_file_around_4_gib_keeps_its_size_and_both_ends(shm, image, there, extra):
    """A length that is kept in 32 bits anywhere would cut it to `extra` bytes."""
    size = 4 * GIB + extra
    ends = [0, size - 5000, 2 * GIB - 3000, 4 * GIB - 9000]
    pieces = [(at, rig.random_bytes(min(6000, size - at), i)) for i, at in enumerate(ends)]
    source, target = save_and_load(shm, image, there, size, pieces)
    assert os.path.getsize(target) == size
    assert rig.content_hash(target) == rig.content_hash(source)
    tail = rig.run("cat", image, "mem", "--offset", str(size - 5000)).raw
    with open(source, "rb") as f:
        assert tail == os.pread(f.fileno(), 5000, size - 5000)


def test_several_sources_go_into_one_image(shm, image, there):
    first = rig.write_file(os.path.join(shm, "a"), rig.mixed_bytes(MIB, 1))
    second = rig.write_file(os.path.join(shm, "b"), rig.mixed_bytes(MIB, 2))
    folder = os.path.join(shm, "c")
    os.mkdir(folder)
    rig.write_file(os.path.join(folder, "a"), rig.mixed_bytes(MIB, 3))
    rig.run("save", first, second, folder, "-o", image)
    rig.run("load", image, "--to", there)
    for name in ("a", "b", "c"):
        assert rig.tree(os.path.join(there, name)) == rig.tree(os.path.join(shm, name))


def test_two_images_of_one_source_can_be_saved_at_once(shm, image, there):
    source = rig.write_file(os.path.join(shm, "mem"), rig.mixed_bytes(16 * MIB))
    saves = [rig.start("save", source, "-o", f"{image}.{i}") for i in range(2)]
    for save in saves:
        _, err = save.communicate(timeout=rig.DEADLINE_S)
        assert save.returncode == 0, err
    for i in range(2):
        rig.run("load", f"{image}.{i}", "--to", there, "--force")
        assert rig.read_file(os.path.join(there, "mem")) == rig.read_file(source)


def test_two_saves_to_one_name_leave_one_whole_image(shm, image, there):
    contents = [rig.mixed_bytes(8 * MIB, seed) for seed in (1, 2)]
    folders = [os.path.join(shm, f"s{i}") for i in range(2)]
    for folder, content in zip(folders, contents):
        os.mkdir(folder)
        rig.write_file(os.path.join(folder, "mem"), content)
    saves = [rig.start("save", os.path.join(f, "mem"), "-o", image, "--force") for f in folders]
    for save in saves:
        _, err = save.communicate(timeout=rig.DEADLINE_S)
        assert save.returncode == 0, err
    assert os.listdir(os.path.dirname(image)) == ["x.torpor"]
    rig.run("load", image, "--to", there)
    assert rig.read_file(os.path.join(there, "mem")) in contents


def test_one_image_can_be_loaded_twice(shm, image, there):
    source = rig.write_file(os.path.join(shm, "mem"), rig.mixed_bytes(MIB))
    rig.run("save", source, "-o", image)
    before = rig.read_file(image)
    for _ in range(2):
        rig.run("load", image, "--to", there, "--force")
        assert rig.read_file(os.path.join(there, "mem")) == rig.read_file(source)
    assert rig.read_file(image) == before


@pytest.mark.parametrize(
    "offset, length",
    [(None, None), (0, 0), (0, 1), (4095, 2), (MIB - 1, 2), (3 * MIB + 5, None), (4000, 2 * MIB)],
)
def test_cat_writes_the_bytes_that_were_asked_for(shm, image, offset, length):
    content = rig.mixed_bytes(3 * MIB + 10)
    source = rig.write_file(os.path.join(shm, "mem"), content)
    rig.run("save", source, "-o", image)
    options = ["--offset", str(offset)] if offset is not None else []
    options += ["--length", str(length)] if length is not None else []
    begin = offset or 0
    end = begin + length if length is not None else len(content)
    assert rig.run("cat", image, "mem", *options).raw == content[begin:end]


@pytest.mark.parametrize("threads, chunk, codec, size", [
    (2, "128K", ["lz4"], 200 * MIB), (16, "1M", ["lz4"], 200 * MIB), (64, "1M", ["zstd", "--level", "8"], 200 * MIB),
    (16, "1M", ["zstd", "--level", "22"], 64 * MIB), (32, "1M", ["zstd", "--level", "12"], 200 * MIB),
    (24, "512K", ["zstd", "--level", "15"], 100 * MIB), (32, "128K", ["zstd", "--level", "19"], 80 * MIB),
], ids=str)
def test_memory_needed_is_bounded(shm, image, there, threads, chunk, codec, size):
    """Under 64 MiB + 4 MiB a thread; a load's own pages on tmpfs are not the program's."""
    if rig.is_sanitized():
        pytest.skip("a sanitizer needs memory of its own")
    source = rig.write_file(os.path.join(shm, "mem"), (rig.mixed_bytes(4 * MIB) * 50)[:size])
    save = ["save", source, "-o", image, "--chunk-size", chunk, "--codec", *codec]
    for args in (save, ["verify", image], ["load", image, "--to", there]):
        proc = rig.start(*args, "--threads", str(threads), "--quiet", stderr=None, stdout=None)
        most_kib = 0

        def peak(pid=proc.pid):
            nonlocal most_kib
            try:
                with open(f"/proc/{pid}/status", encoding="ascii") as f:
                    fields = dict(line.split(":", 1) for line in f)
            except OSError:
                return True
            if "RssAnon" not in fields:
                return True
            most_kib = max(most_kib, int(fields["RssAnon"].split()[0]))
            return False

        rig.wait_until(peak, "the operation is over")
        assert proc.wait() == 0
        assert 0 < most_kib < (64 + threads * 4) * 1024, args[0]
        print(args[0], most_kib >> 10, "MiB")
