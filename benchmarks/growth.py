#!/usr/bin/env python3
"""What operations cost as a collection grows; as root, since the server runs in a memory group.

    growth.py --server target/release/frond --sizes 1000000,10000000,100000000

`frond bench` inserts W1's documents with four indexes, up to each of the sizes in turn, and then each operation is measured. The last
table has the costs at each size, and how much the last size costs over the first. What reads single documents is measured on documents
chosen at random, once each, so that most of it is not in memory at the larger sizes.
"""

import os
import shutil
import statistics
import subprocess
import tempfile
import time

from common import Connection, Server, arguments, insertion
from harness.memory import MemoryGroup

COLLECTION = "w1"
DATABASE = {"$db": "frond_bench"}
READS = 1000
RANGES = 200
COUNTS = 50
# Documents that are inserted right before a kill.
PENDING = 50_000


class Costs:
    """The cost of each operation at each size."""

    def __init__(self):
        self.values = {}

    def add(self, name, cost):
        self.values.setdefault(name, []).append(cost)
        print(f"  {name}: {cost:,.2f}", flush=True)

    def rows(self):
        for name, costs in self.values.items():
            shown = " | ".join(f"{cost:,.2f}" for cost in costs)
            yield f"| {name} | {shown} | {costs[-1] / costs[0]:.2f} |"


def seconds(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


class Growth:
    def __init__(self, options, server):
        self.options, self.server, self.costs, self.documents = options, server, Costs(), 0

    def ask(self, command):
        return Connection(self.server.port).run({**command, **DATABASE})

    def times(self, connection, commands):
        """Milliseconds of each command."""
        return [1000 * seconds(lambda command=command: connection.run({**command, **DATABASE})) for command in commands]

    def insert(self, documents):
        """Inserts further documents. Their seed makes them and their `_id`s other ones."""
        more = ["--keep", "--seed", self.documents + 1, "--batch", 1000, "--compaction-wait", 0, "--collection", COLLECTION]
        took = seconds(lambda: insertion(self.options.server, self.server, documents, *more))
        self.documents += documents
        return took

    def grow_to(self, size):
        print(f"{size:,} documents", flush=True)
        last = min(500_000, size // 10)
        self.insert(size - last - self.documents)
        self.costs.add("insertion of the last documents, µs each", 1e6 * self.insert(last) / last)

    def measure_reads(self):
        connection = Connection(self.server.port)
        find = {"find": COLLECTION, "limit": 1}
        stages = [{"$sample": {"size": READS}}, {"$project": {"name": 1, "creation": 1}}]
        sample = {"aggregate": COLLECTION, "pipeline": stages, "cursor": {"batchSize": READS}}
        self.costs.add(f"$sample of {READS} documents, ms", self.times(connection, [sample])[0])
        some = self.ask(sample)["cursor"]["firstBatch"]
        points = self.times(connection, [{**find, "filter": {"_id": document["_id"]}} for document in some])
        self.costs.add("find by _id, median ms", statistics.median(points))
        self.costs.add("find by _id, 99% ms", percentile(points, 0.99))
        ranges = [{**find, "filter": {"name": {"$gte": document["name"]}}, "sort": {"name": 1}, "limit": 10} for document in some]
        times = self.times(connection, ranges[:RANGES])
        self.costs.add("find of 10 by a range of an index, median ms", statistics.median(times))
        counts = []
        for wanted in ranges[-COUNTS:]:
            end = self.ask({**wanted, "skip": 1000, "limit": 1, "projection": {"name": 1, "_id": 0}})["cursor"]["firstBatch"]
            if end:
                query = {"name": {**wanted["filter"]["name"], "$lt": end[0]["name"]}}
                counts.append({"count": COLLECTION, "query": query})
        self.costs.add("count of about 1,000 by an index, median ms", statistics.median(self.times(connection, counts)))
        self.costs.add("count without a filter, ms", self.times(connection, [{"count": COLLECTION}])[0])

    def measure_lives(self):
        server = self.server
        self.costs.add("clean stop, ms", 1000 * seconds(server.stop))
        self.costs.add("start after it, ms", 1000 * server.start())
        self.insert(PENDING)
        server.kill()
        self.costs.add(f"start after kill -9 behind {PENDING:,} insertions, ms", 1000 * server.start())
        if (found := self.ask({"count": COLLECTION})["n"]) != self.documents:
            raise RuntimeError(f"{found} documents instead of {self.documents}")

    def measure_maintenance(self):
        create = {"createIndexes": COLLECTION, "indexes": [{"key": {"expiration": 1}, "name": "expiration_1"}]}
        self.costs.add("createIndex, µs a document", 1e6 * seconds(lambda: self.ask(create)) / self.documents)
        drop = {"dropIndexes": COLLECTION, "index": "expiration_1"}
        self.costs.add("dropIndexes, ms", 1000 * seconds(lambda: self.ask(drop)))
        folder = os.path.join(self.server.folder, "backup")
        command = [self.options.server, "backup", "--uri", f"mongodb://127.0.0.1:{self.server.port}/", "--out", folder]
        took = seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        shutil.rmtree(folder)
        self.costs.add("backup, µs a document", 1e6 * took / self.documents)
        stats = self.ask({"collStats": COLLECTION})
        disk = stats["storageSize"] + stats["totalIndexSize"]
        self.costs.add("disk, bytes a document", disk / self.documents)


def main():
    sizes = ("1000000,10000000,100000000", "documents at which to measure")
    options = arguments(__doc__, sizes=sizes, memory_mib=512, folder=tempfile.gettempdir()).parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    with MemoryGroup(options.memory_mib) as group, tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if not group.folder:
            raise SystemExit("growth.py: no memory group can be made; run it as root")
        with Server(options.server, folder=folder, wrap=group.wrap) as server:
            server.start()
            growth = Growth(options, server)
            for size in sizes:
                growth.grow_to(size)
                growth.measure_reads()
                growth.measure_lives()
                growth.measure_maintenance()
            server.stop()
        if group.kills():
            raise SystemExit("growth.py: the kernel killed the server for its memory")
    version = subprocess.run([options.server, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    print(f"\n{version}, {os.cpu_count()} cores that the client shares, {options.memory_mib} MiB of memory\n")
    print("| cost | " + " | ".join(f"{size:,}" for size in sizes) + " | last / first |")
    print("| --- |" + " ---: |" * (len(sizes) + 1))
    for line in growth.costs.rows():
        print(line)


if __name__ == "__main__":
    main()
