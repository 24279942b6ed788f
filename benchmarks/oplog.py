#!/usr/bin/env python3
"""What the oplog and change streams cost; scripts/bench-oplog.sh runs it.

    oplog.py --server BINARY --rounds 3 --documents 2000000 --streams 1000 --events 1000000 --cache-gb 0.5

Two servers, without an oplog and with one, take turns in `frond bench` for W1 and W4. Then one server has many streams that wait:
its processor time while nobody writes, and the speed of a writer beside them. Last, many events go through one stream. The
processor time of a server is a better measure than the clock where clients share its processors.
"""

import json
import multiprocessing
import os
import select
import struct
import tempfile
import threading
import time

import bson
import bson.raw_bson
from bson.int64 import Int64
from bson.objectid import ObjectId
from common import TICKS_PER_SECOND, Connection, Server, arguments, bench, compared, cpu_seconds, in_turns, message, ratios, report, row, uri

SECONDS_WRITING = 5
BATCH = 100
DAY_MS = 86_400_000


def workload(name, figures, servers, options, size):
    """Runs a workload of `frond bench` on both servers, `rounds` times, with the order of the servers in turns."""
    values = {figure: ([], []) for figure in figures}
    times = ([], [])
    for turn in range(options.rounds):
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        before = [cpu_seconds(server.pid) for server in servers]
        with tempfile.TemporaryDirectory() as folder:
            uris = [part for place in order for part in ("--uri", uri(servers[place]))]
            bench(options.server, name, *uris, "--drop", "--compaction-wait", "2", "--quiet", "--out", folder, *size)
            with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
                summary = json.load(file)
        found = summary["workloads"][name]["figures"]
        for figure in figures:
            for place, label in zip(order, summary["servers"]):
                values[figure][place].append(found[figure][label])
        for place, server in enumerate(servers):
            times[place].append(cpu_seconds(server.pid) - before[place])
    title = {"insert": "W1", "sysbench": "W4"}[name]
    rows = []
    for figure, unit in figures.items():
        names = ("without an oplog", "with one")
        rows += compared(f"{title}, {figure}, ", names, values[figure], unit, ratio="with / without")
    if name == "insert":
        # The work is the same on both.
        rows.append(row(f"{title}, processor time of the server, with / without", ratios(times[1], times[0]), "", 2))
    return rows


def open_stream(connection, name, **stage):
    reply = connection.run({"aggregate": name, "pipeline": [{"$changeStream": stage}], "cursor": {}, "$db": "bench"})
    return reply["cursor"]["id"]


def more(cursor, name, **options):
    return message({"getMore": Int64(cursor), "collection": name, "maxTimeMS": DAY_MS, "$db": "bench", **options})


class Waiting:
    """Streams of one collection that wait, and are read again whenever they have something."""

    def __init__(self, server, count, name):
        context = multiprocessing.get_context("spawn")
        self.replies, self.stop, ready = context.Value("L", 0, lock=False), context.Event(), context.Event()
        arguments = (server.port, count, name, self.replies, ready, self.stop)
        self.process = context.Process(target=Waiting.run, args=arguments, daemon=True)
        self.process.start()
        if not ready.wait(120):
            raise RuntimeError("the streams were not opened")
        time.sleep(1)

    @staticmethod
    def run(port, count, name, replies, ready, stop):
        poll, waiting = select.epoll(), {}
        for _ in range(count):
            connection = Connection(port)
            sent = more(open_stream(connection, name), name)
            connection.socket.sendall(sent)
            waiting[connection.socket.fileno()] = (connection.socket, sent)
            poll.register(connection.socket.fileno(), select.EPOLLIN)
        left = {}
        ready.set()
        while not stop.is_set():
            for number, _ in poll.poll(0.5):
                sock, sent = waiting[number]
                data = sock.recv(1 << 20)
                if not data:
                    raise RuntimeError("a stream was closed")
                # A reply may come in parts.
                missing = left.pop(number, 0) or struct.unpack_from("<i", data)[0]
                missing -= len(data)
                if missing > 0:
                    left[number] = missing
                    continue
                replies.value += 1
                sock.sendall(sent)

    def close(self):
        self.stop.set()
        self.process.join(30)


def write(server, name, documents, seconds):
    """Documents a second of one connection, and the server's processor time for each, in microseconds."""
    connection = Connection(server.port)
    rows = [{"a": n, "text": "x" * 200} for n in range(documents)]
    before, began, count = cpu_seconds(server.pid), time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        sent = message({"insert": name, "documents": [{"_id": ObjectId(), **one} for one in rows], "$db": "bench"})
        connection.run_all([sent])
        count += documents
    took = time.perf_counter() - began
    connection.socket.close()
    return count / took, (cpu_seconds(server.pid) - before) / count * 1e6


def beside(server, options):
    """A writer beside streams of another collection and of its own, in turns with one beside none."""
    rows = []
    Connection(server.port).run({"create": "watched", "$db": "bench"})
    for count in (0, options.streams):
        waiting = Waiting(server, count, "watched") if count else None
        used = []
        for _ in range(3):
            before = cpu_seconds(server.pid)
            time.sleep(10)
            used.append((cpu_seconds(server.pid) - before) * TICKS_PER_SECOND)
        rows.append(row(f"processor ticks of 10 s with {count:,} waiting streams and no writer", used, "ticks", 0))
        if waiting:
            waiting.close()
    for documents in (1, BATCH):
        for name, what in (("elsewhere", "of another collection"), ("watched", "of the same collection")):
            speeds, costs, replies = ([], []), ([], []), []
            for place in in_turns(max(options.rounds, 2), (0, 1)):
                waiting = Waiting(server, options.streams, "watched") if place else None
                speed, cost = write(server, name, documents, SECONDS_WRITING)
                speeds[place].append(speed)
                costs[place].append(cost)
                if waiting:
                    replies.append(waiting.replies.value / SECONDS_WRITING)
                    waiting.close()
            title = f"inserts of {documents} beside {options.streams:,} streams {what}"
            rows += compared(f"{title}: ", ("without them", "with them"), speeds, "documents/s", ratio="with / without")
            rows += [
                row(f"{title}: processor time of the server for a document, with / without", ratios(costs[1], costs[0]), "", 2),
                row(f"{title}: replies to streams", replies, "replies/s", 0),
            ]
    return rows


class Resident(threading.Thread):
    """Samples the resident memory of a server, in MiB."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.samples, self.stopping = server, [], threading.Event()

    def run(self):
        while not self.samples or not self.stopping.wait(0.1):
            self.samples.append((self.server.resident_kib() or 0) / 1024)


def many_events(server, options):
    connection = Connection(server.port)
    cursor = open_stream(connection, "many")
    text = "x" * 200
    connection.insert("many", [{"_id": n, "text": text} for n in range(options.events)])
    resident, seen, began = Resident(server), 0, time.perf_counter()
    resident.start()
    reader = Connection(server.port)
    # A reply may be as large as 16 MiB and some.
    reader.buffer = bytearray(20 << 20)
    sent = more(cursor, "many")
    while seen < options.events:
        reply = bson.decode(bytes(reader.ask(sent)), codec_options=bson.CodecOptions(document_class=bson.raw_bson.RawBSONDocument))
        if reply["ok"] != 1:
            raise RuntimeError(dict(reply))
        seen += len(reply["cursor"]["nextBatch"])
    took = time.perf_counter() - began
    resident.stopping.set()
    resident.join()
    samples = resident.samples
    tenth = max(len(samples) // 10, 1)
    return [
        row(f"{options.events:,} events through one stream", [seen / took], "events/s", 0),
        row("resident memory meanwhile: first tenth, largest", [max(samples[:tenth])], "MiB", 0),
        row("resident memory meanwhile: last tenth, largest", [max(samples[-tenth:])], "MiB", 0),
        row("resident memory meanwhile: largest", [max(samples)], "MiB", 0),
    ]


def main():
    sizes = {"documents": (2_000_000, "of W1"), "seconds": (20, "of each level of W4"), "streams": 1000, "events": 1_000_000}
    parser = arguments(__doc__, rounds=3, **sizes, cache_gb=0.5)
    parser.add_argument("--only", help="w1, w4, streams, events; with commas")
    options = parser.parse_args()
    parts = (options.only or "w1,w4,streams,events").split(",")
    settings = ["--quiet", "--cacheSizeGB", str(options.cache_gb)]
    rows = []
    if "w1" in parts or "w4" in parts:
        with Server(options.server, settings) as off, Server(options.server, [*settings, "--oplog"]) as on:
            off.start()
            on.start()
            if "w1" in parts:
                size = ["--documents", str(options.documents)]
                rows += workload("insert", {"speed on average": "documents/s"}, (off, on), options, size)
            if "w4" in parts:
                size = ["--threads", "8,32", "--seconds", str(options.seconds), "--documents", "50000"]
                figures = {"8 threads": "transactions/s", "32 threads": "transactions/s"}
                rows += workload("sysbench", figures, (off, on), options, size)
    if "streams" in parts or "events" in parts:
        with Server(options.server, [*settings, "--oplog"]) as server:
            server.start()
            if "streams" in parts:
                rows += beside(server, options)
            if "events" in parts:
                rows += many_events(server, options)
    report(options, "stand-alone servers with their journals, the oplog with `--oplog`.", rows)


if __name__ == "__main__":
    main()
