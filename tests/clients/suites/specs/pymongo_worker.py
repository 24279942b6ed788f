"""Runs tests of PyMongo's own against one server: test classes come in lines, results go out as lines of JSON.

Its folder of tests comes first in the path, as both it and Python's own tests are called `test`.
"""

import json
import os
import sys
import time
import traceback
import unittest
import warnings

sys.path.insert(0, sys.argv[1])
import pymongo  # noqa: E402
import test  # noqa: E402

# Some tests make a client of no address.
pymongo.MongoClient.HOST, pymongo.MongoClient.PORT = os.environ["DB_IP"], int(os.environ["DB_PORT"])
out = sys.stdout
# What tests print must not come between the results.
sys.stdout = sys.stderr


def tell(**fields):
    out.write(json.dumps(fields) + "\n")
    out.flush()


class Results(unittest.TestResult):
    """Tells how each test ended. Of a test with sub-tests the first failure counts."""

    reason = ""

    def __init__(self):
        super().__init__()
        self.started = set()

    def startTest(self, case):
        super().startTest(case)
        self.started.add(name_of(case))
        self.began = time.monotonic()
        self.outcome, self.detail = "passed", ""

    def _set(self, outcome, detail):
        if self.outcome != "failed":
            self.outcome, self.detail = outcome, detail

    def _fail(self, error):
        self._set("failed", "".join(traceback.format_exception(*error)))

    def addError(self, case, error):
        if not isinstance(case, unittest.TestCase) or not hasattr(self, "outcome"):
            # The set-up of a class or module failed: none of its tests start.
            tell(name=f"{case}", outcome="failed", seconds=0, detail="".join(traceback.format_exception(*error)))
            return
        self._fail(error)

    def addFailure(self, case, error):
        self._fail(error)

    def addSubTest(self, case, part, error):
        if error:
            self._fail(error)

    def addSkip(self, case, reason):
        if isinstance(case, unittest.TestCase):
            self._set("skipped", reason)
        else:
            # That of a class or module: none of its tests start.
            self.reason = reason

    def addExpectedFailure(self, case, error):
        # PyMongo marks tests that it cannot pass by design.
        self._set("skipped", "expected to fail by PyMongo: " + str(error[1]))

    def addUnexpectedSuccess(self, case):
        self._set("failed", "expected to fail by PyMongo, but passed")

    def stopTest(self, case):
        super().stopTest(case)
        tell(
            name=name_of(case),
            outcome=self.outcome,
            seconds=time.monotonic() - self.began,
            detail=self.detail,
        )


def name_of(case):
    return case.id().removeprefix("test.")


def flat(suite):
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from flat(part)
        else:
            yield part


def classes_of(modules):
    """The names of the tests of each class in the modules."""
    found = {}
    for case in flat(unittest.defaultTestLoader.loadTestsFromNames(modules)):
        # The name of a test may have points.
        found.setdefault(f"{type(case).__module__}.{type(case).__qualname__}", []).append(name_of(case))
    return found


test.setup()
warnings.simplefilter("ignore")
for line in sys.stdin:
    order = json.loads(line)
    if "list" in order:
        tell(classes=classes_of(order["list"]))
    else:
        chosen = unittest.TestSuite(
            case
            for case in flat(unittest.defaultTestLoader.loadTestsFromName(order["run"]))
            if name_of(case) not in order["without"]
        )
        results = Results()
        names = [name_of(case) for case in flat(chosen)]
        chosen.run(results)
        for name in names:
            if results.reason and name not in results.started:
                tell(name=name, outcome="skipped", seconds=0, detail=results.reason)
        tell(done=True)
test.teardown()
