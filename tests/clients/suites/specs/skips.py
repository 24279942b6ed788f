"""The lists of skipped tests: files of patterns, each under the reason.

    runner: Needs a sharded cluster.
        TestUnifiedMongosPinAuto.*
    left out: Needs a log-in.
        TestSession.test_cluster_time

Tests under `runner` are skipped by the driver's own runner, those under `left out` are not run here. `runner, one member` and
`left out, several members` are of such sets only. A pattern is that of a shell, over the whole name of a test. A list is true if
all skipped tests are in it and each of its patterns is that of a skipped test.
"""

import fnmatch
import re


class Skips:
    """The list for a set of so many members, and which of its patterns were met."""

    def __init__(self, path, members=1):
        # Patterns with their reasons.
        self.runner, self.left_out = [], []
        self._met = set()
        # The reasons of the tests that were skipped, by their names.
        self.reasons = {}
        patterns = reason = None
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                text = line.split("#")[0].rstrip()
                if not text:
                    continue
                if text[0].isspace():
                    if patterns is None:
                        raise ValueError(f"{path}:{number}: a pattern without a reason")
                    patterns.append((text.strip(), reason))
                elif match := re.fullmatch(r"(runner|left out)(, (one member|several members))?: (.+)", text):
                    patterns, reason = (self.runner if match[1] == "runner" else self.left_out), match[4]
                    if match[3] not in (None, "one member" if members == 1 else "several members"):
                        patterns = []
                else:
                    raise ValueError(f"{path}:{number}: expected 'runner: REASON' or 'left out: REASON'")

    def _matches(self, kind, patterns, name):
        # Brackets are literal: names of tests have them.
        found = [(p, reason) for p, reason in patterns if fnmatch.fnmatchcase(name, p.replace("[", "[[]"))]
        self._met.update((kind, p) for p, _ in found)
        self.reasons.update((name, reason) for _, reason in found)
        return bool(found)

    def is_left_out(self, name):
        return self._matches("left out", self.left_out, name)

    def is_expected(self, name):
        """Whether the list has a test that the runner skipped."""
        return self._matches("runner", self.runner, name)

    def unmet(self):
        """Patterns of no skipped test."""
        listed = [("runner", p) for p, _ in self.runner] + [("left out", p) for p, _ in self.left_out]
        return [f"{kind}: {pattern}" for kind, pattern in listed if (kind, pattern) not in self._met]
