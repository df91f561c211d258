# SPDX-License-Identifier: LGPL-2.1-or-later
"""Damaged images: found, said where, or harmless; never a crash, never a wrong byte.

Here the whole program is tried at a sample of places; tests/unit/test_api_damage.c tries every byte and every length
through the library.
"""
import concurrent.futures
import itertools
import os
import re

import pytest

import rig
from rig import PAGE

# Places that one test tries, spread evenly, besides the first and the last 64.
PLACES = 300


@pytest.fixture
def small(shm, image):
    """A small image with every kind of segment and of page, as bytes; and its source."""
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    rig.write_pieces(
        os.path.join(top, "mem"),
        12 * PAGE,
        [(0, b"text " * 819), (2 * PAGE, bytes(PAGE)), (5 * PAGE, rig.random_bytes(100))],
    )
    rig.write_file(os.path.join(top, "tail"), b"short")
    os.symlink("mem", os.path.join(top, "link"))
    rig.run("save", top, "-o", image)
    return rig.read_file(image), top


class Trial:
    """Writes variants of an image and tries them; a load that succeeds must give the original."""

    numbers = itertools.count()

    def __init__(self, folder, source):
        self.folder, self.want = folder, rig.tree(source)

    def __call__(self, content):
        n = next(self.numbers)
        path = rig.write_file(os.path.join(self.folder, f"image{n}"), content)
        there = os.path.join(self.folder, f"there{n}")
        os.mkdir(there)
        checked = rig.run("verify", path, code=None)
        loaded = rig.run("load", path, "--to", there, code=None)
        if loaded.code == 0:
            assert rig.tree(os.path.join(there, "mc")) == self.want
        else:
            assert os.listdir(there) == []
        os.unlink(path)
        return checked, loaded


def try_all(trial, variants):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda v: (v[0], *trial(v[1])), variants))


def test_a_byte_that_changes_is_found_or_harmless(shm, small):
    content, source = small
    variants = ((at, rig.flip(content, at)) for at in rig.sample(len(content), PLACES))
    for at, checked, loaded in try_all(Trial(shm, source), variants):
        # Versions, features and codecs that are not known stand under hashes too: see tests/golden.
        assert checked.code == rig.DAMAGED, f"byte {at}: {checked}"
        assert loaded.code in (rig.DONE, rig.DAMAGED), f"byte {at}: {loaded}"


def test_an_image_that_was_cut_off_is_refused(shm, small):
    content, source = small
    variants = ((n, content[:n]) for n in rig.sample(len(content), PLACES))
    for n, checked, loaded in try_all(Trial(shm, source), variants):
        assert checked.code == rig.DAMAGED, f"{n} bytes of {len(content)}: {checked}"
        assert loaded.code == rig.DAMAGED, f"{n} bytes of {len(content)}: {loaded}"


def test_bytes_behind_an_image_are_seen_or_harmless(shm, small):
    content, source = small
    for tail in (b"x", bytes(PAGE), content):
        _, loaded = Trial(shm, source)(content + tail)
        assert loaded.code in (rig.DONE, rig.DAMAGED)


@pytest.fixture
def noise(shm, image):
    """An image of two segments whose bytes stand in it as they are, so that a page is found there."""
    top = os.path.join(shm, "mc")
    os.mkdir(top)
    for name, seed in (("first", 1), ("second", 2)):
        rig.write_file(os.path.join(top, name), rig.random_bytes(64 * PAGE, seed))
    rig.run("save", top, "-o", image, "--chunk-size", "16K")
    return image, top


@pytest.mark.parametrize("command", ["verify", "load"])
@pytest.mark.parametrize("page", [0, 21, 63])
def test_a_damaged_chunk_is_named_with_segment_pages_and_offset(noise, there, command, page):
    image, top = noise
    content = rig.read_file(image)
    at = content.index(rig.read_file(os.path.join(top, "second"))[page * PAGE :][:PAGE])
    rig.write_file(image, rig.flip(content, at + 100))
    args = [command, image] + (["--to", there] if command == "load" else [])
    failed = rig.run(*args, code=rig.DAMAGED)
    assert "x.torpor" in failed.err and "mc/second" in failed.err, failed.err
    found = re.search(r"pages? (\d+)-(\d+)", failed.err)
    assert found and int(found[1]) <= page <= int(found[2]), failed.err
    offset = int(re.search(r"offset (\d+)", failed.err)[1])
    # The chunk's record begins before the byte, and not a whole chunk before it.
    assert at + 100 - 16384 - 512 < offset <= at + 100, failed.err
    assert os.listdir(there) == []


def test_cat_shows_what_is_sound_and_refuses_what_is_not(noise):
    image, top = noise
    content, second = rig.read_file(image), rig.read_file(os.path.join(top, "second"))
    rig.write_file(image, rig.flip(content, content.index(second[-PAGE:])))
    assert rig.run("cat", image, "mc/first").raw == rig.read_file(os.path.join(top, "first"))
    assert rig.run("cat", image, "mc/second", "--length", "4K").raw == second[:PAGE]
    failed = rig.run("cat", image, "mc/second", code=rig.DAMAGED)
    assert second.startswith(failed.raw) and "mc/second" in failed.err


def test_an_image_that_was_cut_off_can_be_rebuilt(noise, there, shm):
    """What is lost is said and counted, all else comes back; the exit code warns of the loss."""
    image, top = noise
    content = rig.read_file(image)
    new = image + ".new"
    rig.run("rebuild", image, "-o", new)
    rig.run("load", new, "--to", there)
    assert rig.tree(os.path.join(there, "mc")) == rig.tree(top)

    second = rig.read_file(os.path.join(top, "second"))
    rig.write_file(image, content[: content.index(second[40 * PAGE : 41 * PAGE])])
    rig.run("verify", image, code=rig.DAMAGED)
    rig.run("rebuild", image, "-o", new, code=rig.FAILED)
    rebuilt = rig.run("rebuild", image, "-o", new, "--force", "--json", code=rig.DAMAGED)
    assert rebuilt.json["lost_bytes"] % PAGE == 0 and rebuilt.json["lost_bytes"] > 0
    assert "lost" in rebuilt.err
    rig.run("verify", new)
    rig.run("load", new, "--to", there, "--force")
    loaded = os.path.join(there, "mc")
    assert rig.read_file(os.path.join(loaded, "first")) == rig.read_file(os.path.join(top, "first"))
    again = rig.read_file(os.path.join(loaded, "second"))
    for begin in range(0, len(again), PAGE):
        assert again[begin : begin + PAGE] in (second[begin : begin + PAGE], bytes(PAGE))
    assert again[: 30 * PAGE] == second[: 30 * PAGE]


def test_one_damaged_chunk_costs_no_other_when_rebuilt(noise, there):
    image, top = noise
    content, second = rig.read_file(image), rig.read_file(os.path.join(top, "second"))
    rig.write_file(image, rig.flip(content, content.index(second[8 * PAGE : 9 * PAGE])))
    new = image + ".new"
    rebuilt = rig.run("rebuild", image, "-o", new, "--json", code=rig.DAMAGED)
    assert rebuilt.json["lost_bytes"] == 4 * PAGE
    rig.run("load", new, "--to", there)
    again = rig.read_file(os.path.join(there, "mc", "second"))
    assert again == second[: 8 * PAGE] + bytes(4 * PAGE) + second[12 * PAGE :]
