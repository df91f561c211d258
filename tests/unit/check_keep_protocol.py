#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The pin and release protocol of docs/design/keep.md, every interleaving of it, as TAP.

The state is one descriptor, the bits of the table it leads to (one a thread), a slot a thread, and
where each thread is.  A thread sets (S) and clears (C) its bit, looks at it (K), and rests (R).
In no order of their single accesses may a thread write into a table that is not linked, may a bit get lost, or
may a table that is uniform be left when all rest.  Then the same with one rule of the protocol
broken at a time: each time an order must be found in which something is wrong, else the rule, or
this model, is for nothing.
"""
import sys

EMPTY, FULL = ("E",), ("F",)


class Wrong(Exception):
    pass


class Model:
    def __init__(self, programs, broken=()):
        self.programs = programs
        self.n = len(programs)
        self.all = (1 << self.n) - 1
        self.broken = broken

    # A state: (descriptor, bits, tables made, freezes, slots, threads).  A thread: (place, index
    # into its program, its table or None, what it saw, its freeze, other thread to look at).
    def start(self):
        return (EMPTY, 0, 0, 0, (0,) * self.n, (("next", 0, None, None, None, 0),) * self.n)

    def bits_now(self, state):
        desc, bits = state[0], state[1]
        return 0 if desc == EMPTY else self.all if desc == FULL else bits

    def uniform(self, state, table):
        """What a look at all of the table shows; of one not linked any more: anything."""
        desc, bits = state[0], state[1]
        if desc in (EMPTY, FULL) or desc[1] != table:
            return EMPTY
        return EMPTY if bits == 0 else FULL if bits == self.all else None

    def look(self, is_set, me, at):
        """What a thread sees of its own bit is what it made of it last."""
        changes = [c for c in self.programs[me][:at] if c in "SC"]
        if is_set != (changes[-1:] == ["S"]):
            raise Wrong("a bit got lost")

    def step(self, state, me):
        desc, bits, tables, freezes, slots, threads = state
        place, at, table, seen, mine, other = threads[me]
        bit = 1 << me
        what = self.programs[me][at] if at < len(self.programs[me]) else None

        def go(place, **new):
            nonlocal at, table, seen, mine, other
            at, table = new.get("at", at), new.get("table", table)
            seen, mine, other = new.get("seen", seen), new.get("mine", mine), new.get("other", 0)
            thread = (place, at, table, seen, mine, other)
            return (desc, bits, tables, freezes, slots, threads[:me] + (thread,) + threads[me + 1:])

        def slot(value):
            return slots[:me] + (value,) + slots[me + 1:]

        def after_write():
            shown = self.uniform((desc, bits), table)
            return go("F0" if shown else "next", at=at + 1)

        frozen_counts = "skip_frozen" not in self.broken
        if place == "next":
            if what is None:
                return None
            if what == "R":
                if "l2_first" in self.broken:
                    return go("L2", at=at + 1)
                return go("L1", at=at + 1)
            return go("W" if table is not None else "P1", seen=None)
        if place == "P1":
            slots = slot(1)
            return go("P2")
        if place == "P2":
            if desc in (EMPTY, FULL):
                if what == "K":
                    self.look(desc == FULL, me, at)
                    return go("next", at=at + 1)
                if desc != (EMPTY if what == "S" else FULL):
                    raise Wrong("a bit got lost")
                return go("install", seen=desc)
            if desc[0] == "T":
                return go("W", table=desc[1], seen=None)
            if "no_thaw" in self.broken:
                return go("W", table=desc[1], seen=None)
            return go("thaw", seen=desc)
        if place == "thaw":
            if desc == seen:
                desc = ("T", desc[1], 0 if "thaw_no_want" in self.broken else 1)
            return go("P2", seen=None)
        if place == "install":
            if desc != seen:
                return go("P2", seen=None)
            bits = bit if what == "S" else self.all & ~bit
            desc = ("T", tables, 0)
            tables += 1
            return go("next", at=at + 1, seen=None)
        if place == "W":
            if desc in (EMPTY, FULL) or desc[1] != table:
                raise Wrong("a write into a table that was released")
            if what == "K":
                self.look(bool(bits & bit), me, at)
                return go("next", at=at + 1)
            if bool(bits & bit) == (what == "S"):
                raise Wrong("a bit got lost")
            bits ^= bit
            return after_write()
        if place in ("F0", "F0again"):
            if desc in (EMPTY, FULL) or (place == "F0again" and desc[1] != seen[1]):
                return go("next", seen=None)
            if desc[0] == "Z" and not frozen_counts:
                return go("next", seen=None)
            return go("F1" if place == "F0" else "F1again", seen=desc)
        if place in ("F1", "F1again"):
            if desc != seen:
                return go("F0again") if place == "F1" else go("next", seen=None)
            freezes += "no_number" not in self.broken
            desc = ("Z", desc[1], freezes)
            return go("F3" if "look_first" in self.broken else "F2", mine=desc, seen=None)
        if place == "F2":
            if other == self.n or "no_pins" in self.broken:
                return go("F4" if "look_first" in self.broken else "F3")
            if other != me and slots[other]:
                return go("give_up")
            return go("F2", other=other + 1)
        if place == "give_up":
            if desc == mine:
                desc = ("T", desc[1], 0 if "no_want" in self.broken else 1)
            return go("next", mine=None)
        if place == "F3":
            shown = self.uniform(state, mine[1])
            if "look_first" in self.broken:
                return go("F2", seen=shown) if shown else go("thaw_mine")
            return go("F4", seen=shown) if shown else go("thaw_mine")
        if place == "thaw_mine":
            if desc == mine:
                desc = ("T", desc[1], 0)
            return go("next", mine=None)
        if place == "F4":
            if desc == mine:
                if bits != (0 if seen == EMPTY else self.all):
                    raise Wrong("a bit got lost")
                desc = seen
                table = None
            return go("next", table=table, seen=None, mine=None)
        if place == "L1":
            slots = slot(0)
            return go("next" if "l2_first" in self.broken else "L2", table=None)
        assert place == "L2"
        wants = desc not in (EMPTY, FULL) and (desc[0] == "Z" and frozen_counts or desc[0] == "T" and desc[2])
        if "l2_first" in self.broken:
            return go("L1")
        return go("F0" if wants else "next")

    def finish(self, state):
        for me, program in enumerate(self.programs):
            self.look(bool(self.bits_now(state) >> me & 1), me, len(program))
        if state[0] not in (EMPTY, FULL) and state[1] in (0, self.all):
            raise Wrong("a uniform table is left")

    def run(self):
        """The number of states; raises Wrong."""
        todo, known = [self.start()], {self.start()}
        while todo:
            state = todo.pop()
            ended = True
            for me in range(self.n):
                following = self.step(state, me)
                if following is None:
                    continue
                ended = False
                if following not in known:
                    known.add(following)
                    todo.append(following)
            if ended:
                self.finish(state)
        return len(known)


PROGRAMS = [
    ("SCR", "SCR"),
    ("SCSR", "SCSR"),
    ("SRCR", "SCR"),
    ("SRCRSCR", "SRCR"),
    ("SRCSR", "SCRSR"),
    ("SCR", "SCR", "SR"),
    ("SR", "SR", "SCR"),
    ("SRCR", "SR", "SCR"),
    ("SCR", "SCR", "SCR"),
    ("SKCKR", "SCKR"),
    ("SCR", "KR"),
    ("SCR", "SCR", "KR"),
]
RULES = ["look_first", "no_pins", "no_want", "thaw_no_want", "skip_frozen", "no_number", "no_thaw", "l2_first"]


def find_wrong(rule):
    for programs in PROGRAMS:
        try:
            Model(programs, (rule,)).run()
        except Wrong as wrong:
            return f"{' '.join(programs)}: {wrong}"
    return None


def main():
    failed = 0
    number = 0
    print(f"1..{len(PROGRAMS) + len(RULES)}")
    for programs in PROGRAMS:
        number += 1
        try:
            print(f"ok {number} - {' '.join(programs)}: {Model(programs).run()} states")
        except Wrong as wrong:
            failed = 1
            print(f"not ok {number} - {' '.join(programs)}: {wrong}")
    for rule in RULES:
        number += 1
        wrong = find_wrong(rule)
        failed |= not wrong
        print(f"{'ok' if wrong else 'not ok'} {number} - without {rule}: {wrong or 'nothing is wrong'}")
    sys.exit(failed)


main()
