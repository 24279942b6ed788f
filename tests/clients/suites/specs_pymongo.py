"""PyMongo's own tests of sessions, transactions, retries and change streams, with fail points, on a replica set."""

import os

from specs.workers import Worker
from specs.report import Report
from specs.servers import run_in_parallel
from specs.skips import Skips

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = [
    "test.test_transactions",
    "test.test_transactions_unified",
    "test.test_session",
    "test.test_sessions_unified",
    "test.test_retryable_writes",
    "test.test_retryable_writes_unified",
    "test.test_retryable_reads",
    "test.test_retryable_reads_unified",
    "test.test_causal_consistency",
    "test.test_change_stream",
]
SLOW = ("test.test_retryable_reads.", "test.test_retryable_writes.")
# Most of the time the tests wait for the driver's timers.
WORKERS = 6
WORDS = os.environ.get("FROND_TEST", "")


def main():
    skips = Skips(os.path.join(HERE, "specs", "pymongo-skipped.txt"))
    report = Report(skips)
    workers = {}

    def worker_of(server):
        if server not in workers:
            workers[server] = Worker(server)
        return workers[server]

    found = {}

    def list_classes(server, modules):
        for reply in worker_of(server).ask(list=modules):
            found.update(reply["classes"])
        workers.pop(server).close()

    run_in_parallel([MODULES], list_classes, 1)
    without = {name for names in found.values() for name in names if skips.is_left_out(name)}
    chosen = {name for names in found.values() for name in names if WORDS in name} - without
    # Those of retries that are no files wait long for the driver's timers: they come first, and one at a time.
    slow = [name for name in found if name.startswith(SLOW)]
    parts = [f"test.{test}" for name in slow for test in found[name] if test in chosen]
    # Of the others a class at a time, large ones first.
    rest = sorted(set(found) - set(slow), key=lambda name: -len(found[name]))
    parts += [name for name in rest if chosen.intersection(found[name])]

    def run_part(server, name):
        leave = sorted(set(found.get(name, [])) - chosen)
        for reply in worker_of(server).ask(run=name, without=leave):
            if "done" not in reply:
                report.add(reply["name"], reply["outcome"], reply["seconds"], reply["detail"])

    run_in_parallel(parts, run_part, WORKERS)
    for worker in workers.values():
        worker.close()
    report.finish(len(chosen))


main()
