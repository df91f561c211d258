# SPDX-License-Identifier: LGPL-2.1-or-later
"""A small virtual machine whose RAM is a shared file: boot it, put it away, bring it back.

The guest is Debian's kernel and a busybox; QEMU interprets it (no KVM is needed).  On its serial
console it counts, and at each count it checks that what it keeps in memory is still what it was.
The state of its devices goes into a file of its own beside the RAM, as QEMU's migration writes it.
"""
import json
import os
import shutil
import socket
import subprocess
import time

# The guest keeps /data on tmpfs.  `work` is what the caller wants it to do before it counts.
_INIT = r"""#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
exec </dev/ttyS0 >/dev/ttyS0 2>&1
mount -t tmpfs -o size=90% data /data
cd /data
@WORK@
sum=$(cat $(find . -type f | sort) | md5sum)
echo "READY $sum"
i=0
while :; do
    i=$((i + 1))
    [ "$(cat $(find . -type f | sort) | md5sum)" = "$sum" ] && state=intact || state=DIFFERS
    echo "COUNT $i $state"
    sleep @PAUSE@
done
"""


class Failure(Exception):
    """QEMU or the guest did not do what it should."""


def missing():
    """What is needed and not there: a list of Debian packages, empty when all is there."""
    lacks = []
    if not shutil.which("qemu-system-x86_64"):
        lacks.append("qemu-system-x86")
    if not os.path.exists("/bin/busybox"):
        lacks.append("busybox-static")
    if not shutil.which("cpio"):
        lacks.append("cpio")
    return lacks


def kernel(fetch=True):
    """The path of a kernel (scripts/guest-kernel), or None."""
    script = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "guest-kernel")
    done = subprocess.run([script] + ([] if fetch else ["--cached"]), stdout=subprocess.PIPE, check=False)
    return done.stdout.decode().strip() or None


def make_initramfs(path, work=":", pause="0.1", payload=(), init=None, files=None):
    """Writes an initramfs to `path`.

    `payload` are files and folders that the guest finds in /payload, `files` others by the name that they get.
    `init` is a script to be run instead of the one that counts.
    """
    root = path + ".root"
    for name in ("bin", "dev", "proc", "data", "payload"):
        os.makedirs(os.path.join(root, name))
    shutil.copy("/bin/busybox", os.path.join(root, "bin/busybox"))
    for item in payload:
        shutil.copy(item, os.path.join(root, "payload"))
    for name, source in (files or {}).items():
        os.makedirs(os.path.dirname(root + name), exist_ok=True)
        shutil.copy(source, root + name)
    with open(os.path.join(root, "init"), "w", encoding="ascii") as out:
        out.write(init or _INIT.replace("@WORK@", work).replace("@PAUSE@", pause))
    os.chmod(os.path.join(root, "init"), 0o755)
    with open(path, "wb") as out:
        subprocess.run("find . | cpio --quiet -o -H newc", shell=True, cwd=root, stdout=out, check=True)
    shutil.rmtree(root)


class Guest:
    """One guest with `megabytes` of RAM in the file `memory`; sockets and console log go to `folder`.

    `options` are more words for QEMU's command line.
    """

    def __init__(self, memory, folder, megabytes, kernel_path, initramfs, options=()):
        self.memory = memory
        self.folder = folder
        self.megabytes = megabytes
        self.kernel = kernel_path
        self.initramfs = initramfs
        self.options = options
        self.process = None
        self.qmp = None
        self.boots = 0
        self.console = ""

    def start(self, incoming=False):
        """Starts QEMU; the guest boots, or waits for resume() when `incoming`."""
        self.boots += 1
        self.console = os.path.join(self.folder, f"console{self.boots}")
        control = os.path.join(self.folder, f"qmp{self.boots}")
        backend = f"memory-backend-file,id=m0,size={self.megabytes}M,mem-path={self.memory},share=on"
        command = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", f"{self.megabytes}M"]
        command += ["-object", backend, "-machine", "pc,memory-backend=m0", "-nodefaults", "-no-user-config"]
        command += ["-display", "none", "-serial", f"file:{self.console}", "-qmp", f"unix:{control},server=on,wait=off"]
        command += ["-kernel", self.kernel, "-initrd", self.initramfs, "-append", "console=ttyS0 quiet panic=-1"]
        command += self.options
        if incoming:
            command += ["-incoming", "defer"]
        with open(os.path.join(self.folder, "qemu.log"), "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.qmp = _Qmp(control, self.process)

    def wait_for(self, text, seconds):
        """Waits until a line of the console begins with `text`; returns all such lines."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            lines = self.lines(text)
            if lines:
                return lines
            if self.process.poll() is not None:
                raise Failure("QEMU ended")
            time.sleep(0.05)
        raise Failure(f"the guest did not print {text!r} within {seconds} s")

    def lines(self, text):
        """The whole lines of the console, so far, that begin with `text`."""
        try:
            with open(self.console, encoding="ascii", errors="replace") as log:
                read = log.read()
        except FileNotFoundError:
            return []
        whole = read[: read.rfind("\n") + 1].splitlines()
        return [line for line in whole if line.startswith(text)]

    def pause(self):
        """Stops the guest's CPU: its memory stands still."""
        self.qmp.call("stop")

    def put_away(self, state):
        """Writes the devices' state to the file `state` and ends QEMU; the RAM stays in its file."""
        self.pause()
        self._share()
        self.qmp.call("migrate", uri=f"exec:cat > {state}")
        self._completed()
        self.qmp.call("quit")
        self.process.wait(30)

    def resume(self, state):
        """After start(incoming=True): takes up the state and lets the guest go on."""
        self._share()
        self.qmp.call("migrate-incoming", uri=f"exec:cat {state}")
        self._completed()
        self.qmp.call("cont")

    def kill(self):
        """Ends it in any state; for cleaning up."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _share(self):
        ignore = [{"capability": "x-ignore-shared", "state": True}]
        self.qmp.call("migrate-set-capabilities", capabilities=ignore)

    def _completed(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            status = self.qmp.call("query-migrate").get("status")
            if status == "completed":
                return
            if status == "failed":
                raise Failure("QEMU could not migrate")
            time.sleep(0.02)
        raise Failure("QEMU's migration did not end within a minute")


class _Qmp:
    """QEMU's control socket."""

    def __init__(self, path, process):
        deadline = time.monotonic() + 30
        self.sock = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self.sock.connect(path)
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise Failure("QEMU does not answer; see qemu.log") from None
                time.sleep(0.02)
        self.stream = self.sock.makefile("r", encoding="utf-8")
        self.stream.readline()
        self.call("qmp_capabilities")

    def call(self, command, **arguments):
        """Runs one command and returns its answer."""
        self.sock.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        for line in self.stream:
            answer = json.loads(line)
            if "error" in answer:
                raise Failure(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        if command == "quit":
            return {}
        raise Failure(f"QEMU ended during {command}")
