# SPDX-License-Identifier: LGPL-2.1-or-later
"""The story that ./demo tells; see there.  TORPOR names the program."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from realprog import memcached

TORPOR = os.environ["TORPOR"]
VALUES_BYTES = 1 << 30
CACHE_MEGABYTES = 2048  # with memcached's overhead, and room to spare
GIB = 1 << 30


class Failure(Exception):
    """Something the user has to know; the message is for them."""


def say(text=""):
    print(text, flush=True)


def run(*command, **options):
    """Runs a command to its end; returns how many seconds it took."""
    start = time.monotonic()
    done = subprocess.run(command, check=False, **options)
    if done.returncode:
        raise Failure(f"{' '.join(command)} failed (exit code {done.returncode})")
    return time.monotonic() - start


def torpor(*arguments):
    """Runs torpor; returns its report."""
    done = subprocess.run([TORPOR, *arguments, "--json"], check=False, stdout=subprocess.PIPE)
    if done.returncode:
        raise Failure(f"torpor {' '.join(arguments)} failed (exit code {done.returncode})")
    return json.loads(done.stdout)


def need_room(folder, need, what):
    """Ends with a clear message rather than in the middle."""
    stats = os.statvfs(folder)
    free = stats.f_bavail * stats.f_frsize
    if free < need:
        raise Failure(f"{folder} has {free / GIB:.1f} GiB free, and {what} needs {need / GIB:.1f}")


def need_memory(need):
    with open("/proc/meminfo", encoding="ascii") as info:
        kib = next(int(line.split()[1]) for line in info if line.startswith("MemAvailable:"))
    if kib << 10 < need:
        raise Failure(f"{kib / (1 << 20):.1f} GiB of memory are available, and the demo needs {need / GIB:.1f}")


def tree_bytes(folder):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)


def rivals(folder, disk, rows):
    """Saves and loads the same folder with the tools people use today."""
    parent, name = os.path.split(folder)
    for label, pack, unpack in (
        ("tar + zstd -1 -T0", "zstd -q -1 -T0", "zstd -q -d -T0"),
        ("tar + lz4", "lz4 -q -1", "lz4 -q -d"),
    ):
        archive = os.path.join(disk, "rival")
        back = os.path.join(parent, "rival")
        os.mkdir(back)
        save = run("bash", "-c", f"set -o pipefail; tar -C '{parent}' -cS '{name}' | {pack} > '{archive}' && sync '{archive}'")
        load = run("bash", "-c", f"set -o pipefail; {unpack} < '{archive}' | tar -C '{back}' -x")
        rows.append((label, os.path.getsize(archive), save, load))
        os.unlink(archive)
        shutil.rmtree(back)


def table(memory, rows):
    say()
    say(f"{'':20} {'image MB':>9} {'save s':>8} {'GB/s':>6} {'load s':>8} {'GB/s':>6}")
    for label, size, save, load in rows:
        say(f"{label:20} {size / 1e6:9.0f} {save:8.2f} {memory / save / 1e9:6.2f} {load:8.2f} {memory / load / 1e9:6.2f}")
    say()
    say(f"{memory / 1e6:.0f} MB of memory without holes; images on disk, flushed; one run: see docs/performance.md for medians.")


def cache_demo(shm, disk):
    need_memory(5 * GIB)
    need_room(shm, 4 * GIB, "the demo")
    need_room(disk, 3 * GIB, "the demo")
    folder = os.path.join(shm, "cache")
    os.mkdir(folder)
    image = os.path.join(disk, "cache.torpor")
    server = memcached.Memcached(os.path.join(folder, "mem"), os.path.join(shm, "socket"), CACHE_MEGABYTES)
    try:
        say("1. memcached keeps its memory in a file on tmpfs; it is filled with 1 GiB of mixed values.")
        server.start()
        items, stored = server.fill(VALUES_BYTES)
        say(f"   {items} items, {stored / 1e6:.0f} MB of values")
        server.stop()
        say("2. It stops.  torpor save writes its memory to an image on disk.")
        saved = torpor("save", folder, "-o", image)
        say(f"   {saved['memory_bytes'] / 1e6:.0f} MB of memory, {saved['zero_bytes'] / 1e6:.0f} MB of it zero pages and "
            f"{saved['hole_bytes'] / 1e6:.0f} MB holes, became {saved['image_bytes'] / 1e6:.0f} MB")
        rows = []
        say("3. For comparison, the same with what people use today (this takes a moment).")
        rivals(folder, disk, rows)
        say("4. The memory is deleted, as a reboot would do it.")
        shutil.rmtree(folder)
        say("5. torpor load brings it back to where it was.")
        loaded = torpor("load", image)
        say("6. memcached starts again on it, and is asked for every item.")
        server.start()
        hits, same = server.compare(items)
        say(f"   {hits} of {items} are hits, {same} with the right value")
        rows.insert(0, ("torpor", saved["image_bytes"], saved["wall_ns"] / 1e9, loaded["wall_ns"] / 1e9))
        table(saved["memory_bytes"] - saved["hole_bytes"], rows)
        if hits != items or same != items:
            raise Failure("not every item came back")
    finally:
        server.kill()


def path_demo(path, shm, disk):
    path = os.path.realpath(path)
    name = os.path.basename(path)
    need = tree_bytes(path) if os.path.isdir(path) else os.path.getsize(path)
    need_room(shm, 2 * need, "two copies of it")
    need_room(disk, need, "its image")
    need_memory(2 * need)
    copy, image = os.path.join(shm, name), os.path.join(disk, "demo.torpor")
    say(f"1. A copy of {path} is made on tmpfs; the original is only read.")
    run("cp", "-a", "--sparse=auto", path, copy)
    say("2. torpor save")
    saved = torpor("save", copy, "-o", image)
    say("3. The copy is removed.")
    shutil.rmtree(copy) if os.path.isdir(copy) else os.unlink(copy)
    say("4. torpor load")
    loaded = torpor("load", image)
    run("diff", "-r", "--no-dereference", path, copy)
    say("5. What came back is the same, byte for byte.")
    table(saved["memory_bytes"] - saved["hole_bytes"], [("torpor", saved["image_bytes"], saved["wall_ns"] / 1e9, loaded["wall_ns"] / 1e9)])


def main():
    # Ctrl-C and kill alike unwind through the clean-up below.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="torpor-demo-", dir="/dev/shm") as shm, \
            tempfile.TemporaryDirectory(prefix="torpor-demo-", dir="/var/tmp") as disk:
        try:
            if len(sys.argv) > 1:
                path_demo(sys.argv[1], shm, disk)
            else:
                cache_demo(shm, disk)
        except (Failure, memcached.Failure) as failure:
            sys.exit(f"demo: {failure}")
        except KeyboardInterrupt:
            sys.exit(130)


if __name__ == "__main__":
    main()
