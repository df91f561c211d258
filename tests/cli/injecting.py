# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs of torpor in which the Nth system call of a kind fails, or is the last one."""
import contextlib
import errno
import os
import signal

import rig

# Far more calls than any of these runs makes.
CALLS_MAX = 3000


class Injector:
    def __init__(self, library, told):
        self.library, self.told = library, told

    def env(self, calls="", at=0, do="", without=""):
        return {
            **os.environ,
            "LD_PRELOAD": self.library,
            # The library comes before that of a sanitizer, which would mind.
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0",
            "INJECT_CALLS": calls,
            "INJECT_AT": str(at),
            "INJECT_DO": str(do),
            "INJECT_TOLD": self.told,
            "INJECT_WITHOUT": without,
        }

    def run(self, *args, code=rig.DONE, without="", **kwargs):
        return rig.run(*args, code=code, env=self.env(without=without), **kwargs)

    def each(self, calls, do, args, without="", **kwargs):
        """For each call of a run: that run's result, after `do` was done to it.  The run without is not among them."""
        for at in range(1, CALLS_MAX):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.told)
            streams = {k: open(v, "wb") if k == "stdout" else open(v, "rb") for k, v in kwargs.items()}
            proc = rig.start(*args, env=self.env(calls, at, do, without), **streams)
            out, err = proc.communicate(timeout=rig.DEADLINE_S)
            for stream in streams.values():
                stream.close()
            result = rig.Result([*args, calls, at, without], proc.returncode, out, err)
            if not os.path.exists(self.told):
                assert result.code == rig.DONE, str(result)
                return
            if do == "kill":
                assert result.code == -signal.SIGKILL, str(result)
            else:
                # An error, or one that has another way around it.
                assert result.code in (rig.DONE, rig.FAILED), str(result)
                if result.code == rig.FAILED:
                    assert os.strerror(do) in result.err, str(result)
            yield result
        raise AssertionError(f"{calls}: there is no end to them")


ENOSPC, EIO, EMFILE = errno.ENOSPC, errno.EIO, errno.EMFILE
