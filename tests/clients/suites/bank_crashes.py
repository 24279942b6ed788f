"""A bank: 64 clients move money in transactions, readers sum in snapshots, and the server is killed (SIGKILL) meanwhile.

From the environment: FROND_SECONDS (20), FROND_KILLS (3), FROND_SEED.
"""

import multiprocessing
import os
import random
import time

from bank import accounts, clients
from bank.clients import DATABASE
from bank.outcome import gather, wrong
from harness import crashing
from harness.server import Server
from harness.tap import equal, run, test
from harness.transactions import connect

BINARY = os.environ.get("FROND_BINARY")
SEED = int(os.environ.get("FROND_SEED", time.time_ns() % 1_000_000))
SECONDS = float(os.environ.get("FROND_SECONDS", 20))
KILLS = int(os.environ.get("FROND_KILLS", 3))
RESTART_SECONDS_MAX = 120
# A run goes on until there are so many transfers, but not for longer than this.
TRANSFERS_WANTED, LONGER_SECONDS_MAX = 1_000, 600
# Each process: clients that move money, that sum, and that write outside of transactions.
PROCESSES, WRITERS, READERS, VISITORS = 4, 16, 2, 1


def wait_for_transfers(database):
    """Lets a slow machine go on until there are enough transfers for rare events to be among them."""
    until = time.monotonic() + LONGER_SECONDS_MAX
    while time.monotonic() < until and database.transfers.estimated_document_count() < TRANSFERS_WANTED:
        time.sleep(0.2)


def check_sum(client):
    with client.start_session(snapshot=True) as session:
        return accounts.sum_of(client[DATABASE], session)


@test
def money_is_neither_lost_nor_made(seed):
    source = random.Random(seed)
    context = multiprocessing.get_context("spawn")
    stop, reports = context.Event(), context.Queue()
    # Several groups of connections, as on a machine with many processors.
    with Server(BINARY, options=["--setParameter", "connectionGroups=3"], replica_set="rs0") as server:
        server.start()
        with connect(server) as client:
            accounts.open_bank(client[DATABASE])
        processes = []
        for number in range(PROCESSES):
            first = number * (WRITERS + READERS + VISITORS)
            arguments = (server.uri, first, WRITERS, READERS, VISITORS, source.random(), stop, reports)
            processes.append(context.Process(target=clients.work, args=arguments, daemon=True))
        for process in processes:
            process.start()
        try:
            for kill in range(KILLS):
                time.sleep(SECONDS / (KILLS + 1) * source.uniform(0.7, 1.3))
                server.kill()
                took = server.start(timeout=RESTART_SECONDS_MAX)
                with connect(server) as client:
                    equal(check_sum(client), (accounts.ACCOUNTS, accounts.TOTAL), f"after kill {kill + 1}, seed {seed}")
                print(f"  # kill {kill + 1}: up after {took:.2f} s", flush=True)
            time.sleep(SECONDS / (KILLS + 1))
            with connect(server) as client:
                wait_for_transfers(client[DATABASE])
        finally:
            stop.set()
        whole = gather(reports, PROCESSES)
        for process in processes:
            process.join(120)
        print(f"  # {dict(whole.counts)}, {whole.visits} visits, {whole.visits_unknown} without an answer")
        equal(whole.problems[:5], [], f"{len(whole.problems)} problems, seed {seed}")
        with connect(server) as client:
            equal(wrong(client[DATABASE], whole)[:5], [], f"seed {seed}")
            for name in [*accounts.COLLECTIONS, "transfers"]:
                equal(crashing.validate(client, DATABASE, name), [], f"{name}, seed {seed}")
        server.stop()
    # The commits of some transfers had no answer.
    assert len(whole.committed) >= TRANSFERS_WANTED / 2, f"only {len(whole.committed)} transfers"
    gone = whole.counts["snapshots gone"]
    assert gone <= KILLS * PROCESSES * READERS, f"{gone} snapshots were gone, more than restarts explain"
    sums = ("sums in a transaction", "sums in a snapshot session")
    for kind in (*sums, "conflicts", "duplicate cards refused", "transfers given up", "moves ok"):
        assert whole.counts[kind] > 0, f"no {kind}"


if __name__ == "__main__":
    print(f"  # seed {SEED}")
    run(SEED)
