# SPDX-License-Identifier: LGPL-2.1-or-later
"""One number for what a file or a folder holds: names, kinds, modes, link texts and bytes."""
import hashlib
import os
import stat


def file_hash(path):
    """Of a file's bytes, holes passed over: (offset, data) pairs without zero pages."""
    h = hashlib.sha256()
    with open(path, "rb", buffering=0) as f:
        end = os.fstat(f.fileno()).st_size
        h.update(f"{end} ".encode())
        at = 0
        while at < end:
            try:
                at = os.lseek(f.fileno(), at, os.SEEK_DATA) // 4096 * 4096
            except OSError:
                break
            hole = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            while at < hole:
                page = os.pread(f.fileno(), 4096, at)
                if page.strip(b"\0"):
                    h.update(f"{at} ".encode() + page)
                at += 4096
    return h.hexdigest()


def lines(path, name):
    st = os.lstat(path)
    mode = stat.S_IMODE(st.st_mode)
    if stat.S_ISLNK(st.st_mode):
        yield f"{name} link {os.readlink(path)}"
    elif stat.S_ISDIR(st.st_mode):
        yield f"{name} folder {mode:o}"
        for entry in sorted(os.listdir(path)):
            yield from lines(os.path.join(path, entry), f"{name}/{entry}")
    else:
        yield f"{name} file {mode:o} {file_hash(path)}"


def digest(path):
    text = "\n".join(lines(path, os.path.basename(path)))
    return hashlib.sha256(text.encode()).hexdigest()
