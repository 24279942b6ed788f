"""Histories of random transactions on a built server, which is killed (SIGKILL) meanwhile, checked for anomalies.

From the environment: FROND_SECONDS for each workload (8), FROND_KILLS in each (1), FROND_CLIENTS (12), FROND_SEED.
"""

import os
import pickle
import random
import threading
import time

from harness.server import Server
from harness.tap import equal, run, test
from history import recorder
from history.checker import FAIL, INFO, OK

BINARY = os.environ["FROND_BINARY"]
SEED = int(os.environ.get("FROND_SEED", time.time_ns() % 1_000_000))
SECONDS = float(os.environ.get("FROND_SECONDS", 8))
KILLS = int(os.environ.get("FROND_KILLS", 1))
CLIENTS = int(os.environ.get("FROND_CLIENTS", 12))
# A run goes on until there are so many transactions, but not for longer than this.
TRANSACTIONS_WANTED, LONGER_SECONDS_MAX = 500, 600
KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", ".cache", "history")


def record(workload, seed, replica_set):
    """(history, problems that clients had) of one run on a server of its own."""
    source = random.Random(seed)
    keys, stopping, history = recorder.Keys(), threading.Event(), []
    with Server(BINARY, replica_set=replica_set) as server:
        server.start()
        recorder.prepare(server)
        clients = [
            recorder.Client(server, workload, keys, history, source.random(), stopping) for _ in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        for _ in range(KILLS):
            time.sleep(SECONDS / (KILLS + 1) * source.uniform(0.7, 1.3))
            server.kill()
            server.start()
        time.sleep(SECONDS / (KILLS + 1))
        until = time.monotonic() + LONGER_SECONDS_MAX
        while time.monotonic() < until and len(history) < TRANSACTIONS_WANTED:
            time.sleep(0.2)
        stopping.set()
        for client in clients:
            client.join(90)
        problems = [problem for client in clients for problem in client.problems]
        problems += ["a client did not stop" for client in clients if client.is_alive()]
        history = list(history)
        history.append(recorder.read_all(server, workload, keys))
        server.stop()
    return history, problems


def check(workload, seed, replica_set):
    history, problems = record(workload, seed, replica_set)
    counts = {status: sum(1 for t in history if t.status == status) for status in (OK, FAIL, INFO)}
    verdict = workload.check(history)
    print(f"  # {workload.name}: {counts}, dependencies {verdict.edges}, {KILLS} kills")
    skewed = len(verdict.anomalies.get("G2-item", []))
    print(f"  # write skew, which snapshot isolation allows: {skewed} components of the graph")
    if problems or verdict.forbidden:
        os.makedirs(KEPT, exist_ok=True)
        path = os.path.abspath(os.path.join(KEPT, f"{workload.name}-{seed}.pickle"))
        with open(path, "wb") as file:
            pickle.dump(history, file)
        print(f"  # the history is in {os.path.relpath(path)}")
    found = {name: texts[:2] for name, texts in verdict.forbidden.items()}
    equal(found, {}, f"seed {seed}")
    equal(problems[:5], [], f"seed {seed}")
    assert counts[OK] >= TRANSACTIONS_WANTED / 10, f"only {counts[OK]} transactions were committed"
    assert counts[FAIL] > 0, "no conflict, and nothing was aborted"


@test
def appends_to_lists_have_snapshot_isolation(seed):
    check(recorder.Lists, seed, "rs0")


@test
def registers_have_snapshot_isolation(seed):
    check(recorder.Registers, seed + 1, "rs0")


@test
def a_server_on_its_own_has_it_too(seed):
    check(recorder.Lists, seed + 2, None)


print(f"  # seed {SEED}")
run(SEED)
