# SPDX-License-Identifier: LGPL-2.1-or-later
"""Compares what the shared library exports with its header and its version script.

usage: check_exports.py LIBRARY HEADER MAP
"""
import re
import subprocess
import sys


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True)
    names = {line.split()[-1].split("@")[0] for line in out.stdout.splitlines()}
    return {n for n in names if not re.fullmatch(r"TORPOR_\d+", n)}


def declared(header):
    with open(header, encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    return set(re.findall(r"\b(torpor_\w+)\s*\(", text))


def listed(version_script):
    with open(version_script, encoding="utf-8") as f:
        return set(re.findall(r"^\s*(torpor_\w+);", f.read(), flags=re.M))


def main():
    library, header, version_script = sys.argv[1:]
    want = declared(header)
    failed = len(want) < 10
    for what, names in ("the library", exported(library)), ("the version script", listed(version_script)):
        for name in sorted(want - names):
            print(f"{name} is in the header and not in {what}")
            failed = True
        for name in sorted(names - want):
            print(f"{name} is in {what} and not in the header")
            failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
