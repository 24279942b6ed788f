"""Runs modules of PyMongo's own tests side by side."""

import os
import re

from specs.report import Report
from specs.servers import SetWithUsers, drop_databases, make_set, make_set_with_users, run_in_parallel
from specs.workers import Worker

SLOW = ("test.test_retryable_reads.", "test.test_retryable_writes.")
WORDS = os.environ.get("FROND_TEST", "")


def run_modules(modules, skips, workers, make=make_set, with_users=None):
    """Runs all tests of the modules but those that `skips` leaves out, and ends the process. Each of the workers has servers of its
    own, from `make`; classes whose name matches `with_users` get a set with users."""
    report = Report(skips)
    processes = {}

    def worker_of(server):
        if server not in processes:
            users = {"DB_USER": server.USER, "DB_PASSWORD": server.PASSWORD} if isinstance(server, SetWithUsers) else {}
            processes[server] = Worker(server, **users)
        return processes[server]

    found = {}

    def list_classes(server, modules):
        for reply in worker_of(server).ask(list=modules):
            found.update(reply["classes"])
        processes.pop(server).close()

    run_in_parallel([modules], list_classes, 1, make)
    without = {name for names in found.values() for name in names if skips.is_left_out(name)}
    chosen = {name for names in found.values() for name in names if WORDS in name} - without
    # Those of retries that are no files wait long for the driver's timers: they come first, and one at a time.
    slow = [name for name in found if name.startswith(SLOW)]
    parts = [f"test.{test}" for name in slow for test in found[name] if test in chosen]
    apart = [name for name in found if with_users and re.fullmatch(with_users, name) and chosen.intersection(found[name])]
    # Of the others a class at a time, large ones first.
    rest = sorted(set(found) - set(slow) - set(apart), key=lambda name: -len(found[name]))
    parts += [name for name in rest if chosen.intersection(found[name])]

    def run_part(server, name):
        drop_databases(server)
        leave = sorted(set(found.get(name, [])) - chosen)
        for reply in worker_of(server).ask(run=name, without=leave):
            if "done" not in reply:
                report.add(reply["name"], reply["outcome"], reply["seconds"], reply["detail"])

    run_in_parallel(parts, run_part, workers, make)
    if apart:
        run_in_parallel(apart, run_part, 1, make_set_with_users)
    for worker in processes.values():
        worker.close()
    report.finish(len(chosen))
