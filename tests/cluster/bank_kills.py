"""The bank of tests/clients over two servers, while nodes of the store, servers and PD are killed.

From the environment: MINUTES (5), SEED, NODES. Every 10 s a server is killed and started again, every 20 s a node is killed or hangs for some
seconds, and PD is restarted two times, or every three minutes. All nodes are never killed at once: the test cluster's store loses locks then (cluster/README.md). With
NODES=lose a node is killed in the middle instead, and stays away. Money is neither lost nor made, what was acknowledged is there, and
no pause of the clients is longer than a bound.
"""

import multiprocessing
import os
import random
import re
import sys
import threading
import time
from collections import Counter

import bank_crashes
from bank import accounts, clients
from cluster import Cluster, Servers
from harness import crashing
from harness.server import ServerError
from harness.tap import equal, run, test
from harness.transactions import connect
from pymongo.errors import PyMongoError

BINARY = os.environ["FROND_BINARY"]
SECONDS = 60 * float(os.environ.get("MINUTES") or 5)
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
LOSES_A_NODE = os.environ.get("NODES") == "lose"
PAUSE_MAX = 30
PROCESSES, WRITERS, READERS, VISITORS = 2, 8, 2, 1
NODE_EVERY, SERVER_EVERY, PD_KILLS, PD_EVERY = 20, 10, 2, 180
# A hung node loses its leaderships after 5 to 10 s, so some of these times are shorter and some are longer.
HANGS = (0.5, 12)


class Pauses:
    """Reads and writes one document again and again through both servers, and notes the longest time without success."""

    def __init__(self, uri):
        self.longest, self.stop = 0.0, threading.Event()
        # When the longest one ended, and what was killed when.
        self.until, self.killed = 0.0, []
        self.thread = threading.Thread(target=self._run, args=(uri,))
        self.thread.start()

    def _run(self, uri):
        with connect(clients.Server(uri)) as client:
            last = time.monotonic()
            while not self.stop.is_set():
                try:
                    client.pauses.c.update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
                    client.pauses.c.find_one({"_id": 1})
                except PyMongoError:
                    time.sleep(0.05)
                    continue
                now = time.monotonic()
                if now - last > self.longest:
                    self.longest, self.until = now - last, now
                last = now
                time.sleep(0.05)

    def kills(self):
        """What was killed in the longest pause, or shortly before, in seconds from its begin."""
        began = self.until - self.longest
        return [(what, round(at - began, 1)) for what, at in self.killed if began - 5 < at < self.until]

    def end(self):
        self.stop.set()
        self.thread.join(120)
        return self.longest


def disturb(cluster, servers, source, until, problems, killed):
    """Kills one thing after the other. A node of three at a time, so that a majority lives."""

    def repeat(every, action):
        times = 1 if action is lose_a_node else sys.maxsize
        while time.monotonic() + every < until and times > 0:
            times -= 1
            time.sleep(every * source.uniform(0.8, 1.2))
            try:
                action()
            except Exception as error:  # ends the test at its end
                problems.append(repr(error))
                return

    def node():
        number = source.randrange(1, cluster.nodes + 1)
        if source.random() < 0.5:
            killed.append((f"node {number} hangs", time.monotonic()))
            cluster.hang_node(number)
            time.sleep(source.uniform(*HANGS))
            cluster.resume_node(number)
            return
        killed.append((f"node {number}", time.monotonic()))
        cluster.kill_node(number)
        time.sleep(3)
        # A node that is started while PD restarts ends again.
        for attempt in range(10):
            try:
                cluster.start_node(number)
                return
            except ServerError:
                if attempt == 9:
                    raise
                time.sleep(2)

    def server():
        one = source.choice(servers.all)
        killed.append((f"server {servers.all.index(one) + 1}", time.monotonic()))
        one.kill()
        time.sleep(1)
        one.start(timeout=90)

    def pd():
        killed.append(("PD", time.monotonic()))
        cluster.restart_pd()

    def lose_a_node():
        number = source.randrange(1, cluster.nodes + 1)
        killed.append((f"node {number} for good", time.monotonic()))
        cluster.kill_node(number)

    nodes = (SECONDS / 2, lose_a_node) if LOSES_A_NODE else (NODE_EVERY, node)
    jobs = [nodes, (SERVER_EVERY, server), (min(SECONDS / (PD_KILLS + 1), PD_EVERY), pd)]
    threads = [threading.Thread(target=repeat, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@test
def money_is_neither_lost_nor_made_while_everything_is_killed_in_turn(seed):
    source = random.Random(seed)
    context = multiprocessing.get_context("spawn")
    stop, reports = context.Event(), context.Queue()
    with Cluster() as cluster, Servers(BINARY, cluster.pd) as servers:
        servers.start()
        with connect(servers) as client:
            accounts.open_bank(client[clients.DATABASE])
        pauses = Pauses(servers.uri)
        processes = []
        for number in range(PROCESSES):
            first = number * (WRITERS + READERS + VISITORS)
            arguments = (servers.uri, first, WRITERS, READERS, VISITORS, source.random(), stop, reports)
            processes.append(context.Process(target=clients.work, args=arguments, daemon=True))
        for process in processes:
            process.start()
        problems = []
        try:
            disturb(cluster, servers, source, time.monotonic() + SECONDS, problems, pauses.killed)
        finally:
            longest = pauses.end()
            stop.set()
        whole = bank_crashes.gather(reports, PROCESSES)
        for process in processes:
            process.join(30)
        print(f"  # {dict(whole.counts)}, {whole.visits} visits, {whole.visits_unknown} without an answer")
        print(f"  # longest pause {longest:.1f} s, seed {seed}, meanwhile {pauses.kills()}", flush=True)
        if whole.problems:
            kinds = Counter(re.sub(r"\d+", "N", problem)[:200] for problem in whole.problems)
            print(f"  # problems: {kinds.most_common(5)}", flush=True)
        equal(problems, [], "killing")
        equal(whole.problems[:5], [], f"{len(whole.problems)} problems, seed {seed}")
        with connect(servers) as client:
            equal(bank_crashes.wrong(client[clients.DATABASE], whole)[:5], [], f"seed {seed}")
            for name in [*accounts.COLLECTIONS, "transfers"]:
                equal(crashing.validate(client, clients.DATABASE, name), [], f"{name}, seed {seed}")
        assert whole.committed, "no transfers"
        assert longest <= PAUSE_MAX, f"no answer for {longest:.1f} s, seed {seed}"
        servers.stop()


if __name__ == "__main__":
    print(f"  # seed {SEED}")
    # `bank_crashes` has a test of one server.
    os.environ.setdefault("FROND_TEST", "everything is killed in turn")
    run(SEED)
