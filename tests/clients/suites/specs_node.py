"""The files of the drivers' unified tests, run by the Node.js driver on a replica set, with fail points; on one of several members
also those of server discovery. FROND_SHORT=1 runs a few.

The driver's package carries neither tests nor a runner: the files are those of PyMongo's source distribution, the runner
is specs/unified.mjs.
"""

import glob
import json
import os

from specs.report import Report
from specs.servers import MEMBERS, WORKERS, make_set_with_users, needs_users, run_in_parallel, run_program
from specs.skips import Skips

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
FILES = os.path.join(ROOT, ".cache", "clients", "pymongo-tests", "test")
FOLDERS = [
    "transactions/unified",
    "transactions-convenient-api/unified",
    "sessions",
    "retryable_reads/unified",
    "retryable_writes/unified",
    "causal_consistency",
    "change_streams/unified",
    "read_write_concern/operation",
    "read_write_concern/write-concern-errors",
]
if MEMBERS > 1:
    FOLDERS.append("discovery_and_monitoring/unified")
if os.environ.get("FROND_SHORT"):
    FOLDERS = [
        "transactions-convenient-api/unified",
        "retryable_writes/unified",
        "read_write_concern/write-concern-errors",
        "discovery_and_monitoring/unified",
    ]
FILES_AT_A_TIME = 4
WORDS = os.environ.get("FROND_TEST", "")


def tests_of(path):
    with open(path, encoding="utf-8") as file:
        return len(json.load(file)["tests"])


def main():
    skips = Skips(os.path.join(HERE, "specs", "node-skipped.txt"), MEMBERS)
    report = Report(skips)
    parts, with_users, planned = [], [], 0
    for folder in FOLDERS:
        files = sorted(glob.glob(os.path.join(FILES, folder, "*.json")))
        assert files, f"no files of tests in {folder}"
        planned += sum(map(tests_of, files))
        with_users += [(folder.split("/")[0], [name]) for name in files if needs_users(os.path.basename(name))]
        files = [name for name in files if not needs_users(os.path.basename(name))]
        heaps = -(-len(files) // FILES_AT_A_TIME)
        parts += [(folder.split("/")[0], files[heap::heaps]) for heap in range(heaps)]
    not_reported = []

    def run_part(server, part):
        folder, files = part
        process = run_program(
            ["node", os.path.join(HERE, "specs", "unified.mjs"), *files],
            HERE,
            {**os.environ, "FROND_URI": server.uri},
        )
        results = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
        for result in results:
            name = f"{folder}/{result['name']}"
            if skips.is_left_out(name) or WORDS not in name:
                not_reported.append(name)
                continue
            report.add(name, result["outcome"], result["seconds"], result["detail"])
        if process.returncode:
            report.add(f"{folder}: the runner ended with {process.returncode}", "failed", detail=process.stdout)

    run_in_parallel(parts, run_part, WORKERS)
    if with_users:
        run_in_parallel(with_users, run_part, 1, make_set_with_users)
    report.finish(planned - len(not_reported))


main()
