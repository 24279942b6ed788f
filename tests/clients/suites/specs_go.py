"""The Go driver's own runners and prose tests of sessions, transactions, retries and change streams, with fail points; on a set of
several members also those of server discovery and of read and write concerns.

The modules of both major versions carry their runners. That of version 1 carries its files of tests, too; version 2 gets
those of PyMongo's source distribution, which come from the same specifications.
"""

import os
import re
from dataclasses import dataclass

from specs.report import Report
from specs.servers import MEMBERS, WORKERS, drop_databases, make_set_with_users, needs_users, run_in_parallel, run_program
from specs.skips import Skips

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
CACHE = os.path.join(ROOT, ".cache", "clients")
FILES = os.path.join(CACHE, "pymongo-tests", "test")
# The runner of version 2 looks for testdata/specifications/source/FOLDER in it.
PROJECT = os.path.join(CACHE, "go-specs")
# Folder in the specifications, folder in PyMongo's.
SPECIFICATIONS = {
    "transactions/tests/unified": "transactions/unified",
    "transactions-convenient-api/tests/unified": "transactions-convenient-api/unified",
    "sessions/tests": "sessions",
    "retryable-reads/tests/unified": "retryable_reads/unified",
    "retryable-writes/tests/unified": "retryable_writes/unified",
    "causal-consistency/tests": "causal_consistency",
    "change-streams/tests/unified": "change_streams/unified",
}
# Folders in version 1, by their format.
UNIFIED_1 = ["transactions/unified", "sessions", "retryable-writes/unified", "change-streams"]
LEGACY_1 = ["transactions/legacy", "convenient-transactions", "retryable-reads"]
# Prose tests by what runs at a time; those of retries wait for the driver's timers, so that their parts are divided.
PROSE = [
    "TestRetryableReadsProse$/^s",
    "TestRetryableReadsProse$/^d",
    "TestRetryableReadsProse$/^[^ds]",
    "TestRetryableWritesProse$/^[a-m]",
    "TestRetryableWritesProse$/^[^a-m]",
    "TestRetryableWritesSpec$",
    "TestTransactionConvenientApiProse$",
    "TestChangeStream_ReplicaSet$/^[a-m]",
    "TestChangeStream_ReplicaSet$/^[^a-m]",
    "TestChangeStream_Standalone$|^TestCausalConsistency_|^TestNoWritesPerformedLabel$|^TestSession(Pool$|s$|sProse|_)|^TestNewSessionWithLSID$",
]
if MEMBERS > 1:
    SPECIFICATIONS["server-discovery-and-monitoring/tests/unified"] = "discovery_and_monitoring/unified"
    UNIFIED_1.append("server-discovery-and-monitoring/unified")
    LEGACY_1 += ["server-discovery-and-monitoring/integration", "read-write-concern/operation"]
    PROSE += [
        "TestSDAMProse$",
        "TestSDAMErrorHandling$/^after",
        "TestConnectionsSurvivePrimaryStepDown$",
        "TestServerSelectionProse$",
    ]
FILES_AT_A_TIME = 6
# Parts that print these are run again. The runner gives up when the driver, which reads the topology in the background, has not done so
# yet, or not within two seconds; and a test gives an event of 10 MiB ten seconds, which a debug build on a busy machine exceeds.
TOO_EARLY = ("could not detect topology kind", "ping error: server selection error", "failed to decode first iteration")
WORDS = os.environ.get("FROND_TEST", "")


@dataclass
class Part:
    """The tests that one worker runs at a time."""

    version: int
    program: str
    pattern: str

    @property
    def folder(self):
        """Where the driver expects to be run; relative paths to files of tests start there."""
        module = os.path.join(CACHE, "go", f"driver-{self.version}")
        root = os.path.join(module, "internal" if self.version == 2 else "mongo", "integration")
        return os.path.join(root, "unified") if self.program == "unified" else root


def link_files():
    for specification, folder in SPECIFICATIONS.items():
        link = os.path.join(PROJECT, "testdata", "specifications", "source", specification)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        target = os.path.join(FILES, folder)
        if os.path.lexists(link) and os.readlink(link) != target:
            # Of another checkout, which shares the cache.
            os.remove(link)
        if not os.path.lexists(link):
            os.symlink(target, link)


def parts():
    """All parts for sets without users, long ones first."""
    for pattern in PROSE:
        for version in (2, 1):
            yield Part(version, "integration", f"^{pattern}")
    yield from parts_of_files(lambda name: not needs_users(name))


def parts_with_users():
    """The parts for a set with users."""
    for version in (2, 1):
        yield Part(version, "integration", "^TestSDAMErrorHandling$/^before")
    yield from parts_of_files(needs_users)


def parts_of_files(wanted):
    for specification, folder in SPECIFICATIONS.items():
        yield from parts_of_folder(2, "unified", "TestUnifiedSpec", specification, os.path.join(FILES, folder), wanted)
    data = os.path.join(CACHE, "go", "driver-1", "testdata")
    for folder in UNIFIED_1:
        yield from parts_of_folder(1, "unified", "TestUnifiedSpec", folder, os.path.join(data, folder), wanted)
    for folder in LEGACY_1:
        yield from parts_of_folder(1, "integration", "TestUnifiedSpecs", folder, os.path.join(data, folder), wanted)


def parts_of_folder(version, program, test, folder, path, wanted):
    """The wanted files of one specification, some at a time."""
    files = sorted(name for name in os.listdir(path) if name.endswith(".json"))
    assert files, f"no files of tests in {path}"
    files = [name for name in files if wanted(name)]
    heaps = -(-len(files) // FILES_AT_A_TIME)
    # Each level of a name is matched by itself, and the folder's slashes make levels, too.
    levels = "/".join(f"^{level}$" for level in folder.split("/"))
    for heap in range(heaps):
        names = "|".join(re.escape(name) for name in files[heap::heaps])
        yield Part(version, program, f"^{test}$/{levels}/^({names})$")


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


def go_test(part, environment):
    program = os.path.join(CACHE, "go", f"driver-{part.version}-{part.program}.test")
    return run_program([program, "-test.v", "-test.run", part.pattern], part.folder, environment)


def main():
    link_files()
    skips = Skips(os.path.join(HERE, "specs", "go-skipped.txt"), MEMBERS)
    report = Report(skips)
    counts = []

    def run_part(server, part):
        drop_databases(server)
        environment = {**os.environ, "PROJECT_DIRECTORY": PROJECT, "MONGODB_URI": server.uri}
        if "@" in server.uri:
            environment["AUTH"] = "auth"
        done = go_test(part, environment)
        for _ in range(10):
            if not any(text in done.stdout for text in TOO_EARLY):
                break
            done = go_test(part, environment)
        lines = done.stdout.splitlines()
        every = [(f"{part.version}/{name}", *rest) for name, *rest in results_of(lines)]
        found = [r for r in every if WORDS in r[0] and not skips.is_left_out(r[0])]
        for result in found:
            report.add(*result)
        # A part of which version 1 has no test says so and passes.
        whole = "PASS" in lines or "FAIL" in lines
        if not whole or (done.returncode and not any(r[1] == "failed" for r in every)):
            report.add(part.pattern, "failed", detail=done.stdout)
            found.append(part.pattern)
        counts.append(len(found))

    run_in_parallel(parts(), run_part, WORKERS)
    if MEMBERS > 1:
        run_in_parallel(parts_with_users(), run_part, 1, make_set_with_users)
    report.finish(sum(counts))


main()
