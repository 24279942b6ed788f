"""A small database in memory with a choice of isolation, which runs random transactions interleaved.

The checker's tests record its histories: those of snapshot isolation must pass, those of weaker levels must not.
"""

import random

from .checker import FAIL, OK, Transaction

LEVELS = ("snapshot", "no conflicts", "read committed", "read uncommitted", "stale snapshot")


class Database:
    """Versions of each key, oldest first, as (time of commit, list)."""

    def __init__(self, level):
        self.level = level
        self.time = 0
        self.versions = {}
        # Without isolation there is one list for each key, and nothing is undone.
        self.shared = {}

    def newest(self, key, time):
        return next((value for at, value in reversed(self.versions.get(key, [])) if at <= time), [])


class Session:
    """One transaction."""

    def __init__(self, database):
        self.database = database
        delay = 4 if database.level == "stale snapshot" else 0
        self.snapshot = max(0, database.time - delay)
        self.own = {}

    def read(self, key):
        base = self.database
        if base.level == "read uncommitted":
            return list(base.shared.get(key, []))
        time = base.time if base.level == "read committed" else self.snapshot
        return base.newest(key, time) + self.own.get(key, [])

    def append(self, key, value):
        self.own.setdefault(key, []).append(value)
        self.database.shared.setdefault(key, []).append(value)

    def commit(self):
        """Whether it committed: under snapshot isolation not over a newer version of a key that it wrote."""
        base = self.database
        newer = any(key in base.versions and base.versions[key][-1][0] > self.snapshot for key in self.own)
        if newer and base.level in ("snapshot", "stale snapshot"):
            return False
        base.time += 1
        for key, values in self.own.items():
            # Without a check for conflicts the later commit replaces the earlier one.
            seen = self.snapshot if base.level == "no conflicts" else base.time
            base.versions.setdefault(key, []).append((base.time, base.newest(key, seen) + values))
        return True


def record(level, seed, transactions=300, sessions=6, keys=5):
    """A history of lists: random transactions of several sessions, one operation of one of them at a time.

    The last one reads everything.
    """
    source = random.Random(seed)
    base = Database(level)
    history, open_ones, clock, next_value = [], [], 0, 0
    while len(history) < transactions or open_ones:
        clock += 1
        if len(open_ones) < sessions and len(history) < transactions:
            entry = Transaction([], began=clock)
            history.append(entry)
            open_ones.append((Session(base), entry, source.randint(1, 5)))
            continue
        place = source.randrange(len(open_ones))
        session, entry, left = open_ones[place]
        if left:
            key = f"k{source.randrange(keys)}"
            if source.random() < 0.5:
                entry.ops.append(("r", key, session.read(key)))
            else:
                next_value += 1
                session.append(key, next_value)
                entry.ops.append(("append", key, next_value))
            open_ones[place] = (session, entry, left - 1)
        else:
            del open_ones[place]
            aborts = source.random() < 0.1
            entry.status = OK if not aborts and session.commit() else FAIL
            entry.ended = clock
    last = Session(base)
    last.snapshot = base.time
    history.append(Transaction([("r", f"k{n}", last.read(f"k{n}")) for n in range(keys)], began=clock + 1, ended=clock + 2))
    return history
