"""The Go driver's own unified runner and prose tests on a replica set, with fail points.

The driver's module carries the runner. The files of tests are those of PyMongo's source distribution, which come from
the same specifications; the module leaves them out.
"""

import os
import re
import subprocess

from specs.report import Report
from specs.servers import run_in_parallel
from specs.skips import Skips

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
CACHE = os.path.join(ROOT, ".cache", "clients")
FILES = os.path.join(CACHE, "pymongo-tests", "test")
# The runner looks for testdata/specifications/source/FOLDER in it.
PROJECT = os.path.join(CACHE, "go-specs")
# Folder in the specifications, folder in PyMongo's.
SPECIFICATIONS = [
    ("transactions/tests/unified", "transactions/unified"),
    ("transactions-convenient-api/tests/unified", "transactions-convenient-api/unified"),
    ("sessions/tests", "sessions"),
    ("retryable-reads/tests/unified", "retryable_reads/unified"),
    ("retryable-writes/tests/unified", "retryable_writes/unified"),
    ("causal-consistency/tests", "causal_consistency"),
]
PROSE = [
    "TestCausalConsistency_Supported",
    "TestCausalConsistency_NotSupported",
    "TestNoWritesPerformedLabel",
    "TestRetryableReadsProse",
    "TestRetryableWritesProse",
    "TestSessionPool",
    "TestSessions",
    "TestSessionsProse.*",
    "TestSession_TransactionRunning",
    "TestNewSessionWithLSID",
    "TestTransactionConvenientApiProse",
]
WORKERS = 6
SECONDS_PART = 240
WORDS = os.environ.get("FROND_TEST", "")


def link_files():
    for specification, folder in SPECIFICATIONS:
        link = os.path.join(PROJECT, "testdata", "specifications", "source", specification)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if not os.path.lexists(link):
            os.symlink(os.path.join(FILES, folder), link)


def parts():
    """Each program with the tests that one worker runs at a time: files of one specification are dealt into heaps."""
    yield "integration", f"^({'|'.join(PROSE)})$"
    for specification, folder in SPECIFICATIONS:
        files = sorted(name for name in os.listdir(os.path.join(FILES, folder)) if name.endswith(".json"))
        heaps = max(1, len(files) // 6)
        for heap in range(heaps):
            names = "|".join(re.escape(name) for name in files[heap::heaps])
            # Each level of the name is matched by itself, so the folder's slashes divide the pattern, too.
            path = "/".join(f"^{level}$" for level in specification.split("/"))
            yield "unified", f"^TestUnifiedSpec$/{path}/^({names})$"


def results_of(lines):
    """(name, outcome, seconds, detail) of each test without sub-tests, from the output of `go test -v`."""
    ended, said, current = [], {}, ""
    for line in lines:
        if match := re.match(r"=== (?:RUN|CONT|NAME) +(\S.*)", line):
            current = match[1].rstrip()
        elif match := re.match(r" *--- (PASS|FAIL|SKIP): (.+) \(([0-9.]+)s\)", line):
            current = match[2]
            ended.append((match[2], match[1], float(match[3])))
        elif line.strip() and not line.startswith("==="):
            said.setdefault(current, []).append(line.rstrip())
    names = {name for name, _, _ in ended}
    parents = {name[:at] for name in names for at, letter in enumerate(name) if letter == "/"}
    outcomes = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
    for name, outcome, seconds in ended:
        # A parent fails with its parts; it counts if none of them says so.
        blames = any(n.startswith(f"{name}/") and o == "FAIL" for n, o, _ in ended)
        if name not in parents or (outcome == "FAIL" and not blames):
            yield name, outcomes[outcome], seconds, "\n".join(said.get(name, []))


def main():
    link_files()
    skips = Skips(os.path.join(HERE, "specs", "go-skipped.txt"))
    report = Report(skips)
    counts = []

    def run_part(server, part):
        program, pattern = part
        environment = {**os.environ, "PROJECT_DIRECTORY": PROJECT, "MONGODB_URI": server.uri}
        done = subprocess.run(
            [os.path.join(CACHE, "go", f"{program}.test"), "-test.v", "-test.run", pattern],
            cwd=PROJECT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS_PART,
        )
        lines = done.stdout.splitlines()
        found = [r for r in results_of(lines) if WORDS in r[0] and not skips.is_left_out(r[0])]
        for result in found:
            report.add(*result)
        whole = "PASS" in lines or "FAIL" in lines
        if not whole or (done.returncode and not any(r[1] == "failed" for r in found) and not WORDS):
            report.add(pattern, "failed", detail=done.stdout)
            found.append(pattern)
        counts.append(len(found))

    run_in_parallel(parts(), run_part, WORKERS)
    report.finish(sum(counts))


main()
