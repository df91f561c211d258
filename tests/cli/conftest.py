# SPDX-License-Identifier: LGPL-2.1-or-later
"""Folders to work in, and the privileges that some tests need."""
import os
import shutil
import signal
import subprocess
import tempfile

import pytest

import injecting
import rig


def pytest_configure(config):
    # What nohup or a background job of a shell ignores, the programs under test would ignore too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if not os.access(os.environ.get("TORPOR", ""), os.X_OK):
        pytest.exit("set TORPOR to the program to test", returncode=2)


@pytest.fixture
def shm():
    """A folder on tmpfs, open to all so that tests may give up root."""
    path = tempfile.mkdtemp(prefix="torpor-test-", dir="/dev/shm")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def there(shm):
    """An empty folder to load into."""
    path = os.path.join(shm, "there")
    os.mkdir(path)
    return path


@pytest.fixture
def image(shm):
    """A name for an image, in a folder of its own so that what else appears there is seen."""
    folder = os.path.join(shm, "images")
    os.mkdir(folder)
    return os.path.join(folder, "x.torpor")


@pytest.fixture
def root():
    if os.getuid() != 0:
        pytest.skip("needs root")


@pytest.fixture
def nobody():
    """Arguments for rig.run() that drop root, when the program can be reached without it."""
    drop = rig.as_nobody()
    try:
        subprocess.run([rig.torpor_path(), "--version"], check=True, capture_output=True, **drop)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the program's folder cannot be entered without root")
    return drop


@pytest.fixture
def small_tmpfs(root, shm):
    """Mounts tmpfs of a given size; gone at the end."""
    mounted = []

    def mount(size_bytes, *options):
        path = os.path.join(shm, f"small{len(mounted)}")
        os.mkdir(path)
        options = ",".join((f"size={size_bytes}", "mode=755", *options))
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "torpor-test", path],
            capture_output=True,
            check=False,
        )
        if made.returncode != 0:
            pytest.skip(f"tmpfs cannot be mounted: {made.stderr.decode().strip()}")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture(scope="session")
def inject_library():
    """What makes system calls fail, compiled; where other users than root reach it."""
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    source = os.path.join(top, "tests", "fault", "inject.c")
    with tempfile.TemporaryDirectory(prefix="torpor-inject-") as folder:
        os.chmod(folder, 0o755)
        library = os.path.join(folder, "inject.so")
        command = [os.environ.get("CC", "cc"), "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-o"]
        subprocess.run([*command, library, source], check=True)
        yield library


@pytest.fixture
def inject(inject_library):
    with tempfile.TemporaryDirectory(prefix="torpor-told-") as folder:
        os.chmod(folder, 0o777)
        yield injecting.Injector(inject_library, os.path.join(folder, "told"))


@pytest.fixture
def loop_device(root, shm, tmp_path):
    """A block device of 16 MiB."""
    backing = os.path.join(shm, "disk")
    with open(backing, "wb") as f:
        f.truncate(16 * rig.MIB)
    made = subprocess.run(
        ["losetup", "--show", "-f", backing], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"no loop device: {made.stderr.strip()}")
    device = made.stdout.strip()
    # A node of our own: whoever would replace it instead of writing to it does no harm.
    node = str(tmp_path / "device")
    os.mknod(node, 0o060600, os.stat(device).st_rdev)
    yield node
    subprocess.run(["losetup", "-d", device], check=True)
