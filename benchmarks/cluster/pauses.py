#!/usr/bin/env python3
"""Measures how long clients wait after something fails: no write and read through a server succeeds for so long.

    pauses.py --server target/release/frond [--runs 20] [--faults node hung …] [--out FILE]

Each run starts a cluster of three nodes and two servers on this machine, makes one thing fail, and brings it back:

    node     the node that leads the most regions is killed (SIGKILL), and started again when all write again
    hung     the same node is stopped (SIGSTOP), and goes on when all write again
    server   a server is killed and started again after a second; through the other one and through both
    both     the leading node and a server are killed; the server is started again at once
    pd       PD is killed, and started again at once
    pd-10s   PD is killed, and started again after 10 s, which are part of the pause
    nodes    all nodes are killed at once, and started again

A client for each server, and one for both, updates and reads a document again and again. A pause is the longest time between two
successes of a client while the fault lasts. The table has the median, the longest one and the shortest one of the runs, in seconds.
It needs the environment of the client suites: .cache/clients/venv/bin/python.
"""

import argparse
import json
import os
import statistics
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "cluster")]
from cluster import Cluster, Servers  # noqa: E402
from pymongo import MongoClient  # noqa: E402
from pymongo.errors import PyMongoError  # noqa: E402

# A fault whose effect has not ended after this time ends the measurement.
PATIENCE = 180
# Clients run for this time before and after a fault.
QUIET = 2


class Client:
    """Updates and reads a document again and again, and notes the longest time without success."""

    def __init__(self, name, uri):
        self.name, self.longest, self.began = name, 0.0, 0.0
        self.stop = threading.Event()
        self.client = MongoClient(uri, connectTimeoutMS=20_000, serverSelectionTimeoutMS=1_000, heartbeatFrequencyMS=500)
        self.last = time.monotonic()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                self.client.pauses.c.update_one({"_id": self.name}, {"$inc": {"n": 1}}, upsert=True)
                self.client.pauses.c.find_one({"_id": self.name})
            except PyMongoError:
                time.sleep(0.05)
                continue
            now = time.monotonic()
            self.longest = max(self.longest, now - self.last)
            self.last, self.began = now, began
            time.sleep(0.02)

    def reset(self):
        self.longest = 0.0

    def end(self):
        self.stop.set()
        self.thread.join(PATIENCE)
        self.client.close()


def wait(what, holds):
    until = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > until:
            sys.exit(f"{what}: not within {PATIENCE} s")
        time.sleep(0.05)


def one(binary, fault, without=()):
    """One run. Returns the pause of each client."""
    with Cluster() as cluster, Servers(binary, cluster.pd) as servers:
        servers.start()
        uris = {f"server {n}": f"mongodb://127.0.0.1:{server.port}/?directConnection=true" for n, server in enumerate(servers.all, 1)}
        uris["both"] = servers.uri
        clients = [Client(name, uri) for name, uri in uris.items() if name not in without]

        def again(since=None, names=None):
            since = since or time.monotonic()
            wait("all write again", lambda: all(c.began > since for c in clients if not names or c.name in names))

        try:
            again()
            time.sleep(QUIET)
            for client in clients:
                client.reset()
            node, server = cluster.leading_node(), servers.all[0]
            began = time.monotonic()
            if fault == "node":
                cluster.kill_node(node)
                again()
            elif fault == "hung":
                cluster.hang_node(node)
                again()
                cluster.resume_node(node)
            elif fault in ("server", "both"):
                if fault == "both":
                    cluster.kill_node(node)
                server.kill()
                time.sleep(1 if fault == "server" else 0)
                server.start()
                again()
            elif fault == "pd":
                cluster.restart_pd()
                again()
            elif fault == "pd-10s":
                cluster.kill_pd()
                time.sleep(max(0, began + 10 - time.monotonic()))
                cluster.start_pd()
                again()
            elif fault == "nodes":
                cluster.restart_nodes()
                again()
            time.sleep(QUIET)
            found = {client.name: round(client.longest, 2) for client in clients}
        finally:
            for client in clients:
                client.end()
        if fault == "node":
            cluster.start_node(node)
        servers.stop()
    return found


FAULTS = {
    "node": "a node is killed",
    "hung": "a node hangs",
    "server": "a server is killed",
    "both": "a node and a server are killed",
    "pd": "PD is restarted",
    "pd-10s": "PD is away for 10 s",
    "nodes": "all nodes are restarted",
}


def table(runs):
    lines = ["| fault | client of | runs | median | shortest | longest |", "| --- | --- | --- | --- | --- | --- |"]
    for fault, pauses in runs.items():
        for name in pauses[0]:
            values = [pause[name] for pause in pauses]
            figures = (statistics.median(values), min(values), max(values))
            lines.append(f"| {FAULTS[fault]} | {name} | {len(values)} | " + " | ".join(f"{value:.1f}" for value in figures) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="the built frond binary")
    parser.add_argument("--runs", type=int, default=20, help="runs of each fault (20)")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS), help="only these")
    parser.add_argument("--out", help="a file for the pauses of all runs, as JSON")
    arguments = parser.parse_args()
    runs = {}
    for fault in arguments.faults:
        for number in range(arguments.runs):
            # The client of the killed server would measure how fast it starts.
            without = ("server 1",) if fault in ("server", "both") else ()
            found = one(arguments.server, fault, without)
            runs.setdefault(fault, []).append(found)
            print(f"# {fault} {number + 1}: {found}", file=sys.stderr, flush=True)
            if arguments.out:
                with open(arguments.out, "w", encoding="utf-8") as out:
                    json.dump(runs, out, indent=1)
    print(table(runs))


if __name__ == "__main__":
    main()
