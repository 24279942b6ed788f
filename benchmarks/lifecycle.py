#!/usr/bin/env python3
"""How long operations on a whole store take; scripts/bench-lifecycle.sh runs it.

    lifecycle.py --server BINARY --documents 10000000 --rounds 3 --cache-gb 0.25

`frond bench` loads W1's documents with four indexes. Then each round inserts a little, kills the server and starts it, counts, builds
one more index and drops it, stops the server and starts it. At last the collection is dropped. Beside each time stands what bounds it:
the processor time of the server, and the bytes that it read from the device and wrote to it.
"""

import statistics
import time

from common import Connection, Server, arguments, cpu_seconds, insertion

COLLECTION = "w1"
# Documents that are inserted right before a kill: less than a memtable of 64 MiB holds.
PENDING = 50_000


def device_bytes(server):
    with open(f"/proc/{server.pid}/io", encoding="ascii") as file:
        fields = dict(line.split(": ") for line in file)
    return int(fields["read_bytes"]), int(fields["write_bytes"])


class Times:
    """Seconds, processor time and megabytes of each operation, of all rounds."""

    def __init__(self):
        self.values = {}

    def add(self, name, seconds, cpu=None, read=None, written=None):
        for column, value in zip(self.values.setdefault(name, ([], [], [], [])), (seconds, cpu, read, written)):
            if value is not None:
                column.append(value)

    def measure(self, name, server, work):
        """Times what the server does, and notes its processor time and its use of the device."""
        cpu, (read, written), began = cpu_seconds(server.pid), device_bytes(server), time.perf_counter()
        result = work()
        seconds = time.perf_counter() - began
        after = device_bytes(server)
        cpu = cpu_seconds(server.pid) - cpu
        self.add(name, seconds, cpu, (after[0] - read) / 1e6, (after[1] - written) / 1e6)
        return result

    def start(self, name, server):
        """Times a start until the first reply."""
        seconds = server.start()
        read, written = device_bytes(server)
        self.add(name, seconds, cpu_seconds(server.pid), read / 1e6, written / 1e6)

    def rows(self):
        def median(values, digits):
            return f"{statistics.median(values):.{digits}f}" if values else ""

        for name, (seconds, cpu, read, written) in self.values.items():
            every = ", ".join(f"{value:.3f}" for value in seconds)
            yield f"| {name} | {median(seconds, 3)} | {median(cpu, 2)} | {median(read, 1)} | {median(written, 1)} | {every} |"


def load(server, options, collection, documents):
    insertion(options.server, server, documents, "--collection", collection, "--drop", "--compaction-wait", "0")


def main():
    options = arguments(__doc__, documents=10_000_000, rounds=3, cache_gb=0.25).parse_args()
    server = Server(options.server, ["--cacheSizeGB", str(options.cache_gb)])
    times = Times()
    try:
        times.start("start of an empty store", server)
        load(server, options, COLLECTION, options.documents)
        database = {"$db": "frond_bench"}

        def ask(command):
            return Connection(server.port).run({**command, **database})

        def check(reply):
            if reply["n"] != options.documents:
                raise RuntimeError(f"{reply['n']} documents instead of {options.documents}")

        for _ in range(options.rounds):
            # So that the log has something to replay.
            load(server, options, "before_kill", PENDING)
            server.kill()
            times.start("start after kill -9", server)
            check(times.measure("count without a filter", server, lambda: ask({"count": COLLECTION})))
            many = {"name": {"$gte": ""}}
            check(times.measure("count of all through an index", server, lambda: ask({"count": COLLECTION, "query": many})))
            index = {"key": {"expiration": 1}, "name": "expiration_1"}
            create = {"createIndexes": COLLECTION, "indexes": [index]}
            times.measure("createIndex on a date", server, lambda: ask(create))
            drop = {"dropIndexes": COLLECTION, "index": index["name"]}
            times.measure("dropIndexes", server, lambda: ask(drop))
            began = time.perf_counter()
            server.stop()
            times.add("shutdown", time.perf_counter() - began)
            times.start("start after a shutdown", server)
        times.measure("drop of the collection", server, lambda: ask({"drop": COLLECTION}))
    finally:
        server.close()
    print(f"# {options.documents:,} documents of W1 with four indexes, a cache of {options.cache_gb} GiB\n")
    print("| what | seconds, median | processor time | MB read | MB written | seconds, all |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for line in times.rows():
        print(line)


if __name__ == "__main__":
    main()
