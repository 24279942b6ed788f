#!/usr/bin/env python3
"""Measures what operations cost over a TiKV cluster: speed, latency, round trips, processor time of servers and nodes.

    measure.py --server target/release/frond --out costs.json     1 and 3 nodes, 1 and 2 servers, on this machine
    measure.py --server … --nodes 3 --servers 1 2 …               only these
    measure.py --server … --pd HOST:PORT …                        over a cluster that runs; without the processor time of its nodes

It needs the environment of the client suites: .cache/clients/venv/bin/python.
"""

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "cluster"), os.path.join(ROOT, "benchmarks")]
from cluster import Cluster, Running, Servers  # noqa: E402
from common import cpu_seconds  # noqa: E402
from pymongo import MongoClient  # noqa: E402

BATCH = 1_000
INDEXES = ["a", "b", "c", "d"]


def document(source, key):
    return {"_id": key, "pad": "x" * 100, **{name: source.randrange(1 << 40) for name in INDEXES}}


def new_keys(number, many):
    """Keys of one client that nobody else has, and that ascend with time, as those do that drivers make. At most 4,096 at once."""
    tenths_of_ms = time.time_ns() // 100_000 - 17_000_000_000_000
    first = (tenths_of_ms << 22) | (number << 12)
    return range(first, first + many)


def insert(database, source, number):
    database.c.insert_many([document(source, key) for key in new_keys(number, BATCH)])
    return BATCH


def insert_one(database, source, number):
    database.single.insert_one(document(source, new_keys(number, 1)[0]))
    return 1


def point(database, source, number):
    assert database.c.find_one({"_id": source.randrange(BATCH * 10)}, {"pad": 1})
    return 1


def fetch(database, source, number):
    found = list(database.c.find({"a": {"$gte": source.randrange(1 << 40)}}).hint("a_1").limit(100))
    assert found
    return 1


def update(database, source, number):
    database.c.update_one({"_id": source.randrange(BATCH * 10)}, {"$set": {"a": source.randrange(1 << 40)}})
    return 1


# Name, what one operation is, keys that it writes, keys that it reads.
OPERATIONS = [
    ("insert", insert, 2 + len(INDEXES), 1),
    ("insert one", insert_one, 2 + len(INDEXES), 1),
    ("find by _id", point, 0, 1),
    ("scan of 100 with fetch", fetch, 0, 200),
    ("update of an indexed field", update, 4, 1),
]


def client(uri, which, number, seconds, reports, start):
    _, operation, _, _ = OPERATIONS[which]
    source = random.Random(number)
    with MongoClient(uri) as connection:
        database = connection.bench
        operation(database, source, number)
        start.wait()
        done, latencies = 0, []
        busy = time.process_time()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic()
            done += operation(database, source, number)
            latencies.append(time.monotonic() - began)
        reports.put((done, latencies, time.process_time() - busy))


# Each commit waits for an answer three times: for the first phase, a timestamp, and the second phase of the first key.
KINDS = {"timestamps": 1, "gets": 1, "scans": 1, "commits": 3, "regions": 1, "collector": 1}


def round_trips(servers):
    """Steps of all servers that have waited for an answer of the cluster, one after the other: of each kind, and in all."""
    total = dict.fromkeys(["all", *KINDS], 0)
    for server in servers.all:
        with MongoClient(f"mongodb://127.0.0.1:{server.port}/?directConnection=true") as connection:
            status = connection.admin.command("serverStatus")["tikv"]
            total["all"] += status["roundTrips"]
            for kind, trips in KINDS.items():
                total[kind] += status["requests"][kind]["count"] * trips
    return total


def idle_trips(servers, seconds=3):
    """Those that the servers make each second of themselves, once they do not look for changes of definitions any more."""
    time.sleep(2)
    before, began = round_trips(servers), time.monotonic()
    time.sleep(seconds)
    now, took = round_trips(servers), time.monotonic() - began
    return {kind: (now[kind] - before[kind]) / took for kind in now}


def measure(servers, nodes, which, clients, seconds, idle):
    context = multiprocessing.get_context("fork")
    reports, start = context.Queue(), context.Barrier(clients + 1)
    processes = [
        context.Process(target=client, args=(servers.uri, which, number, seconds, reports, start)) for number in range(clients)
    ]
    for process in processes:
        process.start()
    start.wait()
    server_pids = [server.pid for server in servers.all]
    trips_before = round_trips(servers)
    before, began = (cpu_seconds(*server_pids), cpu_seconds(*nodes)), time.monotonic()
    results = [reports.get() for _ in processes]
    took = time.monotonic() - began
    after = cpu_seconds(*server_pids), cpu_seconds(*nodes)
    trips_after = round_trips(servers)
    trips = {kind: trips_after[kind] - trips_before[kind] - idle[kind] * took for kind in trips_after}
    for process in processes:
        process.join()
    done = sum(result[0] for result in results)
    latencies = sorted(latency for result in results for latency in result[1])
    name, _, written, read = OPERATIONS[which]
    return {
        "operation": name,
        "clients": clients,
        "per_second": round(done / took, 1),
        "median_ms": round(statistics.median(latencies) * 1000, 2),
        "p99_ms": round(latencies[int(len(latencies) * 0.99)] * 1000, 2),
        # With more clients what the servers do of themselves is a larger share.
        "round_trips": round(trips["all"] / len(latencies), 2) if clients == 1 else None,
        "trips_by_kind": {kind: round(trips[kind] / len(latencies), 2) for kind in KINDS} if clients == 1 else None,
        "server_us": round((after[0] - before[0]) / done * 1e6, 1),
        "node_us": round((after[1] - before[1]) / done * 1e6, 1),
        "client_us": round(sum(result[2] for result in results) / done * 1e6, 1),
        "keys_written": written,
        "keys_read": read,
    }


def node_pids(cluster):
    folder = os.path.join(getattr(cluster, "folder", ""), "tikv")
    names = ["pd", *(f"store-{n}" for n in range(1, getattr(cluster, "nodes", 0) + 1))]
    pids = []
    for name in names:
        try:
            with open(os.path.join(folder, f"{name}.pid"), encoding="ascii") as pid:
                pids.append(int(pid.read()))
        except FileNotFoundError:
            pass
    return pids


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--pd")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    rows = []
    for nodes in arguments.nodes:
        with Running(arguments.pd) if arguments.pd else Cluster(nodes=nodes) as cluster:
            for count in arguments.servers:
                with Servers(arguments.server, cluster.pd, count=count) as servers:
                    servers.start()
                    with MongoClient(servers.uri) as connection:
                        for name in INDEXES:
                            connection.bench.c.create_index(name)
                            connection.bench.single.create_index(name)
                        source = random.Random(7)
                        for batch in range(10):
                            connection.bench.c.insert_many([document(source, batch * BATCH + n) for n in range(BATCH)])
                    idle = idle_trips(servers)
                    for which in range(len(OPERATIONS)):
                        for clients in arguments.clients:
                            row = {"nodes": nodes, "servers": count}
                            row |= measure(servers, node_pids(cluster), which, clients, arguments.seconds, idle)
                            rows.append(row)
                            print(json.dumps(row), flush=True)
                    servers.stop()
        if arguments.pd:
            break
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as out:
            json.dump({"rows": rows, "batch": BATCH, "cores": os.cpu_count()}, out, indent=1)


if __name__ == "__main__":
    main()
