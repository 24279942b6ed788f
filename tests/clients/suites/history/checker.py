"""Finds anomalies in a recorded history of transactions, after Adya's definitions and the method of Elle
(Kingsbury and Alvaro, VLDB 2020).

A history is a list of `Transaction`. There are two kinds:

lists      operations are ("append", key, value) and ("r", key, [values]); each value is appended once
registers  operations are ("w", key, value) and ("r", key, value); each value is written once; None is the initial one

The values that were read tell in which order the versions of a key came. Dependencies between transactions follow:

ww   wrote the version before the other's
wr   wrote the version that the other read
rw   read a version before the one that the other wrote (anti-dependency)
rt   had ended before the other began

Snapshot isolation allows only cycles in which two rw edges are neighbours: G2-item, write skew. A cycle that needs an rt
edge breaks strong snapshot isolation: a transaction did not see one that had ended before it began.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from .graph import RT, RW, WR, WW, Graph, components, shortest_path

OK, FAIL, INFO = "ok", "fail", "info"
ALLOWED = {"G2-item"}


@dataclass
class Transaction:
    """What one client did. `status` is ok (committed), fail (surely aborted) or info (not known).

    `began` is a time before its first statement was sent, `ended` one after the reply to its commit.
    """

    ops: list
    status: str = OK
    began: float = 0.0
    ended: float = float("inf")


@dataclass
class Verdict:
    """The anomalies that were found, with an explanation of each."""

    anomalies: dict = field(default_factory=lambda: defaultdict(list))
    edges: dict = field(default_factory=dict)

    def add(self, name, text):
        self.anomalies[name].append(text)

    @property
    def forbidden(self):
        """The anomalies that snapshot isolation forbids."""
        return {name: texts for name, texts in self.anomalies.items() if name not in ALLOWED}


def check_lists(history):
    """Checks a history of lists."""
    return _Lists(history).run()


def check_registers(history):
    """Checks a history of registers."""
    return _Registers(history).run()


class _Check:
    """What both kinds of histories have in common."""

    write = None

    def __init__(self, history):
        self.history = history
        self.verdict = Verdict()
        self.graph = Graph(len(history))
        # (key, value) → number of the transaction that wrote it.
        self.writer = {}
        # Values that a later write of the same transaction replaced.
        self.intermediate = set()
        # (number, key) → the version that the transaction read before its first write of the key.
        self.read = {}

    def run(self):
        self._index_writes()
        for number, transaction in enumerate(self.history):
            if transaction.status != FAIL:
                self._read_versions(number, transaction)
        self._add_dependencies()
        self._find_lost_updates()
        self._find_cycles(frozenset((WW, WR)), "")
        if not self.verdict.forbidden:
            self._add_real_time()
            self._find_cycles(frozenset((WW, WR, RT)), " with real time")
        self.verdict.edges = {kind: sum(1 for _ in self.graph.of_kind(kind)) for kind in (WW, WR, RW, RT)}
        return self.verdict

    def _index_writes(self):
        for number, transaction in enumerate(self.history):
            last = {}
            for op, key, value in transaction.ops:
                if op != self.write:
                    continue
                if (key, value) in self.writer:
                    raise ValueError(f"{value!r} was written to {key!r} twice: values must be unique")
                self.writer[key, value] = number
                if key in last:
                    self.intermediate.add((key, last[key]))
                last[key] = value

    def _check_value(self, number, key, value):
        """Checks a value that a transaction read, and did not write before."""
        writer = self.writer.get((key, value))
        if writer is None:
            self.verdict.add("garbage read", f"T{number} read {value!r} of {key!r}, which nobody wrote")
        elif writer == number:
            self.verdict.add("internal", f"T{number} read {value!r} of {key!r} before it wrote it")
        elif self.history[writer].status == FAIL:
            self.verdict.add("G1a", f"T{number} read {value!r} of {key!r}, which T{writer} wrote and aborted")

    def _check_version(self, number, key, value):
        """Checks that the version was not an intermediate one of its writer's."""
        writer = self.writer.get((key, value))
        if (key, value) in self.intermediate and writer != number:
            self.verdict.add("G1b", f"T{number} read {value!r} of {key!r}, which T{writer} itself replaced")

    def _add(self, kind, before, after, key, version, next_version):
        if before is not None and after is not None:
            self.graph.add(before, after, kind, _reason(kind, key, version, next_version))

    def _find_lost_updates(self):
        """Two commits that read the same version of a key and wrote it: the second did not see the first."""
        updates = defaultdict(list)
        for (number, key), version in self.read.items():
            transaction = self.history[number]
            if transaction.status == OK and any(op == self.write and k == key for op, k, _ in transaction.ops):
                updates[key, version].append(number)
        for (key, version), numbers in updates.items():
            if len(numbers) > 1:
                names = " and ".join(f"T{number}" for number in numbers)
                self.verdict.add("lost update", f"{names} read {version!r} of {key!r}, wrote it and committed")

    def _add_real_time(self):
        """Edges from what ended to what began after it, but for those that follow from others."""
        events = []
        for number, transaction in enumerate(self.history):
            if transaction.status != FAIL:
                events.append((transaction.began, number, True))
            if transaction.status == OK:
                events.append((transaction.ended, number, False))
        # Of what has ended, what no later one that has ended began after.
        frontier, before = set(), {}
        for _, number, begins in sorted(events):
            if begins:
                before[number] = frozenset(frontier)
                for earlier in frontier:
                    self.graph.add(earlier, number, RT, "had ended before it began")
            else:
                frontier -= before[number]
                frontier.add(number)

    def _find_cycles(self, kinds, suffix):
        """Reports one cycle of each name in each strongly connected component."""
        graph = self.graph
        for name, last, rest in (("G0", WW, kinds - {WR}), ("G1c", WR, kinds)):
            home = components(range(len(self.history)), graph.steps(rest))
            self._report_cycles(name + suffix, last, rest, home)
        # Only where rw edges that are apart close a cycle, the slower search for one that has just one of them.
        apart = graph.steps_apart(kinds)
        home = components(graph.states(), apart)
        bad = [(a, b) for a, b in graph.of_kind(RW) if home[a, False] == home[b, True]]
        everything = components(range(len(self.history)), graph.steps(kinds | {RW}))
        reported = set()
        for before, after in bad:
            if everything[before] in reported:
                continue
            path = shortest_path(after, before, graph.steps(kinds))
            if path:
                reported.add(everything[before])
                self._report("G-single" + suffix, path, kinds, RW)
        for before, after in bad:
            if everything[before] in reported:
                continue
            reported.add(everything[before])
            states = shortest_path((after, True), (before, False), apart)
            kinds_of = ["rw" if over_rw else graph.kind_among(a, b, _ORDER)
                        for (a, _), (b, over_rw) in zip(states, states[1:])]
            path = [node for node, _ in states]
            self.verdict.add("G-nonadjacent" + suffix, graph.describe(path, [*kinds_of, RW]))
        if suffix:
            return
        for before, after in graph.of_kind(RW):
            if everything[before] == everything[after] and everything[before] not in reported:
                reported.add(everything[before])
                path = shortest_path(after, before, graph.steps(kinds | {RW}))
                self._report("G2-item", path, kinds | {RW}, RW)

    def _report_cycles(self, name, last, rest, home):
        """Cycles that an edge of the kind `last` closes over edges of the kinds `rest`."""
        reported = set()
        for before, after in self.graph.of_kind(last):
            if home[before] == home[after] and home[before] not in reported:
                reported.add(home[before])
                path = shortest_path(after, before, self.graph.steps(rest))
                self._report(name, path, rest, last)

    def _report(self, name, path, kinds, last):
        order = [kind for kind in _ORDER if kind in kinds]
        found = [self.graph.kind_among(a, b, order) for a, b in zip(path, path[1:])]
        self.verdict.add(name, self.graph.describe(path, [*found, last]))


_ORDER = (WW, WR, RT, RW)


class _Lists(_Check):
    write = "append"

    def _read_versions(self, number, transaction):
        """Splits each list that was read into the version before the transaction and its own values."""
        own = defaultdict(list)
        for op, key, value in transaction.ops:
            if op == "append":
                own[key].append(value)
                continue
            found = list(value)
            mine = own[key]
            version = tuple(found[: len(found) - len(mine)])
            if found[len(version):] != mine:
                self.verdict.add("internal", f"T{number} appended {mine} to {key!r}, then read {found}")
                continue
            if len(set(found)) != len(found):
                self.verdict.add("duplicate", f"T{number} read values of {key!r} twice: {found}")
            known = self.read.setdefault((number, key), version)
            if known != version:
                text = f"T{number} read {list(known)} of {key!r}, then {list(version)}"
                self.verdict.add("internal", text)
                continue
            for element in version:
                self._check_value(number, key, element)
            if version:
                self._check_version(number, key, version[-1])

    def _add_dependencies(self):
        longest = defaultdict(tuple)
        for (_, key), version in self.read.items():
            longest[key] = max(longest[key], version, key=len)
        for (number, key), version in self.read.items():
            if longest[key][: len(version)] != version:
                self.verdict.add(
                    "incompatible order",
                    f"T{number} read {list(version)} of {key!r}, others read {list(longest[key])}",
                )
        for key, order in longest.items():
            for earlier, later in zip(order, order[1:]):
                self._add(WW, self.writer.get((key, earlier)), self.writer.get((key, later)), key, earlier, later)
        unread = defaultdict(list)
        for (key, value), number in self.writer.items():
            if self.history[number].status == OK and value not in longest[key]:
                unread[key].append((value, number))
        for key, missing in unread.items():
            self._check_unread(key, missing)
        for (number, key), version in self.read.items():
            if version:
                self._add(WR, self.writer.get((key, version[-1])), number, key, version[-1], version[-1])
            last = version[-1] if version else None
            order = longest[key]
            if len(version) < len(order):
                after = order[len(version)]
                self._add(RW, number, self.writer.get((key, after)), key, last, after)
            else:
                # What is committed and in no list comes after all that was read.
                for value, writer in unread[key]:
                    self._add(RW, number, writer, key, last, value)

    def _check_unread(self, key, missing):
        """A committed value must be in what is read later."""
        readers = [(self.history[number].began, number) for number, k in self.read if k == key]
        if not readers:
            return
        began, reader = max(readers)
        for value, number in missing:
            if self.history[number].ended < began:
                self.verdict.add("lost write", f"T{number} appended {value!r} to {key!r}; T{reader} did not read it")


class _Registers(_Check):
    write = "w"

    def _read_versions(self, number, transaction):
        own = {}
        for op, key, value in transaction.ops:
            if op == "w":
                own[key] = value
                continue
            if key in own:
                if own[key] != value:
                    self.verdict.add("internal", f"T{number} wrote {own[key]!r} to {key!r}, then read {value!r}")
                continue
            known = self.read.setdefault((number, key), value)
            if known != value:
                self.verdict.add("internal", f"T{number} read {known!r} of {key!r}, then {value!r}")
            elif value is not None:
                self._check_value(number, key, value)
                self._check_version(number, key, value)

    def _add_dependencies(self):
        """Versions are ordered where a transaction read one and wrote the next; the initial one is before all."""
        committed = {version for version, number in self.writer.items() if self.history[number].status == OK}
        committed |= {(key, value) for (_, key), value in self.read.items() if value is not None}
        following = defaultdict(list)
        for (key, value), number in self.writer.items():
            if (key, value) not in committed or (key, value) in self.intermediate:
                continue
            following[key, None].append((value, number))
            known = self.read.get((number, key))
            if known is not None:
                following[key, known].append((value, number))
                self._add(WW, self.writer.get((key, known)), number, key, known, value)
        for (number, key), version in self.read.items():
            if version is not None:
                self._add(WR, self.writer.get((key, version)), number, key, version, version)
            for value, writer in following[key, version]:
                self._add(RW, number, writer, key, version, value)


def _reason(kind, key, version, next_version):
    if kind == WW:
        return f"wrote {version!r} to {key!r} before {next_version!r}"
    if kind == WR:
        return f"wrote {version!r} to {key!r}, which it read"
    return f"read {version!r} of {key!r}, before {next_version!r} was written"
