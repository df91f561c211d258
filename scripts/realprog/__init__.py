# SPDX-License-Identifier: LGPL-2.1-or-later
"""Real programs whose memory torpor carries, driven from Python's standard library alone.

The demo, the benchmarks' memory mix and the tests in tests/real share this package.  It starts,
fills, stops and questions programs; it never saves or loads anything.
"""
