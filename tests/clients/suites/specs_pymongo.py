"""PyMongo's own tests of sessions, transactions, retries, change streams and read and write concerns, with fail points, on a replica
set; on one of several members also those of server discovery and server selection."""

import os
import re

from specs.workers import Worker
from specs.report import Report
from specs.servers import MEMBERS, WORKERS, SetWithUsers, drop_databases, make_set_with_users, run_in_parallel
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
    "test.test_read_concern",
    "test.test_write_concern",
    "test.test_read_write_concern_spec",
]
DISCOVERY = [
    "test.test_connections_survive_primary_stepdown_spec",
    "test.test_discovery_and_monitoring",
    "test.test_heartbeat_monitoring",
    "test.test_max_staleness",
    "test.test_read_preferences",
    "test.test_sdam_monitoring_spec",
    "test.test_server_selection",
    "test.test_server_selection_in_window",
    "test.test_streaming_protocol",
    "test.test_topology",
]
if MEMBERS > 1:
    MODULES += DISCOVERY
# Tests of sets with users; a set of one member has none here.
WITH_USERS = r"test\.test_\w+\.TestUnified(\w*Handshake\w*|Auth\w*)"
SLOW = ("test.test_retryable_reads.", "test.test_retryable_writes.")
WORDS = os.environ.get("FROND_TEST", "")


def main():
    skips = Skips(os.path.join(HERE, "specs", "pymongo-skipped.txt"), MEMBERS)
    report = Report(skips)
    workers = {}

    def worker_of(server):
        if server not in workers:
            users = {"DB_USER": server.USER, "DB_PASSWORD": server.PASSWORD} if isinstance(server, SetWithUsers) else {}
            workers[server] = Worker(server, **users)
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
    with_users = [name for name in found if MEMBERS > 1 and re.fullmatch(WITH_USERS, name) and chosen.intersection(found[name])]
    # Of the others a class at a time, large ones first.
    rest = sorted(set(found) - set(slow) - set(with_users), key=lambda name: -len(found[name]))
    parts += [name for name in rest if chosen.intersection(found[name])]

    def run_part(server, name):
        drop_databases(server)
        leave = sorted(set(found.get(name, [])) - chosen)
        for reply in worker_of(server).ask(run=name, without=leave):
            if "done" not in reply:
                report.add(reply["name"], reply["outcome"], reply["seconds"], reply["detail"])

    run_in_parallel(parts, run_part, WORKERS)
    if with_users:
        run_in_parallel(with_users, run_part, 1, make_set_with_users)
    for worker in workers.values():
        worker.close()
    report.finish(len(chosen))


main()
