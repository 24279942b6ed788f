"""Reports the results of a driver's own tests as TAP, and checks the list of those that were skipped."""

import collections
import os
import sys
import threading

SECONDS_SLOW = 5


class Report:
    """Collects results, from several threads, and prints a line of TAP for each that passed or failed."""

    def __init__(self, skips):
        self.skips = skips
        self.passed = self.failed = self.skipped = 0
        self.not_listed = []
        self._lock = threading.Lock()

    def add(self, name, outcome, seconds=0.0, detail=""):
        """`outcome` is passed, failed or skipped."""
        with self._lock:
            if outcome == "skipped":
                self.skipped += 1
                if not self.skips.is_expected(name):
                    self.not_listed.append(f"{name}: {detail}")
                return
            if outcome == "passed":
                self.passed += 1
            else:
                self.failed += 1
            took = f" ({seconds:.1f} s)" if seconds >= SECONDS_SLOW else ""
            print(f"{'ok' if outcome == 'passed' else 'not ok'} {self.passed + self.failed} - {name}{took}")
            if outcome == "failed":
                for line in detail.rstrip().splitlines()[-400:]:
                    print(f"  # {line[:400]}")
            sys.stdout.flush()

    def finish(self, planned):
        """Checks the list and that all `planned` tests ended, prints the plan, and ends the process."""
        whole = not (os.environ.get("FROND_TEST") or os.environ.get("FROND_SHORT"))
        ran = self.passed + self.failed + self.skipped
        print(f"  # {self.skipped} tests were skipped")
        for reason, count in sorted(collections.Counter(self.skips.reasons.values()).items()):
            print(f"  # {count} skipped or left out: {reason}")
        problems = [f"skipped, and not in the list: {line}" for line in self.not_listed]
        if whole:
            problems += [f"in the list, but no such test was skipped: {line}" for line in self.skips.unmet()]
        self.add("the list of skipped tests is true", "failed" if problems else "passed", detail="\n".join(problems))
        missing = f"{ran} of {planned} tests ended" if ran != planned else "" if planned else "there are no tests"
        self.add("all tests ended", "failed" if missing else "passed", detail=missing)
        print(f"1..{self.passed + self.failed}")
        sys.exit(1 if self.failed else 0)
