#!/usr/bin/env python3
"""What transactions cost; scripts/bench-transactions.sh runs it.

    transactions.py --server BINARY --rounds 7 --seconds-open 60 --cache-gb 0.5

One connection sends messages that are encoded before the clock starts, and reads the replies without decoding them, so that
the time is that of the server and of the loopback interface. The variants of a round take turns. The report has medians, and
the ratios within each round.
"""

import argparse
import os
import random
import socket
import statistics
import struct
import subprocess
import sys
import time
import uuid

import bson
from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "clients"))
from harness.ports import free_port  # noqa: E402
from harness.server import Server  # noqa: E402

OP_MSG = 2013
ACCOUNTS = 100_000
STATEMENTS = 10
TRANSACTIONS = 2_000
"""Transactions of one measurement."""
LARGE = 100_000
"""Documents in the large transaction."""
BATCH = 1_000


def message(command):
    body = b"\0\0\0\0\0" + bson.encode(command)
    return struct.pack("<iiii", 16 + len(body), 1, 0, OP_MSG) + body


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(1 << 20)

    def ask(self, sent):
        """Sends a message and returns the body of the reply, which is not decoded."""
        self.socket.sendall(sent)
        got = 0
        while got < 4 or got < int.from_bytes(self.buffer[:4], "little"):
            more = self.socket.recv_into(memoryview(self.buffer)[got:])
            if not more:
                raise ConnectionError("the server closed the connection")
            got += more
        return self.buffer[21:got]

    def run(self, command):
        reply = bson.decode(self.ask(message(command)))
        if reply.get("ok") != 1 or reply.get("writeErrors"):
            raise RuntimeError(f"{list(command)[0]}: {reply}")
        return reply

    def run_all(self, messages):
        """Seconds for all messages, one after the other."""
        began = time.perf_counter()
        for sent in messages:
            # `ok` comes last in a reply; errors have other fields.
            if b"errmsg" in self.ask(sent) or b"writeErrors" in self.buffer[:512]:
                raise RuntimeError(bson.decode(bytes(self.buffer[21 : int.from_bytes(self.buffer[:4], "little")])))
        return time.perf_counter() - began


class Session:
    def __init__(self):
        self.id = {"id": Binary(uuid.uuid4().bytes, 4)}
        self.number = 0

    def fields(self, first):
        fields = {"lsid": self.id, "txnNumber": Int64(self.number), "autocommit": False}
        return {**fields, "startTransaction": True} if first else fields

    def end(self, name, concern):
        return message({name: 1, "$db": "admin", **self.fields(False), "writeConcern": concern})


def update(fields):
    change = {"q": {"_id": random.randrange(ACCOUNTS)}, "u": {"$inc": {"balance": 1}}}
    return message({"update": "accounts", "updates": [change], "$db": "bench", **fields})


def alone(concern):
    """Ten updates for each transaction, and one more, with the write concern of the commit."""
    usual, last = {"writeConcern": {"w": 1}}, {"writeConcern": concern}
    return [update(usual if n < STATEMENTS else last) for _ in range(TRANSACTIONS) for n in range(STATEMENTS + 1)]


def together(session, concern):
    messages = []
    for _ in range(TRANSACTIONS):
        session.number += 1
        messages += [update(session.fields(n == 0)) for n in range(STATEMENTS)]
        messages.append(session.end("commitTransaction", concern))
    return messages


def batches(fields):
    """Inserts of LARGE documents with two indexed fields."""
    text = "x" * 200
    found = []
    for n in range(0, LARGE, BATCH):
        docs = [{"_id": ObjectId(), "a": random.random(), "b": random.randrange(1 << 40), "text": text} for _ in range(BATCH)]
        found.append(message({"insert": "large", "documents": docs, "$db": "bench", **fields(n == 0)}))
    return found


def prepare(connection):
    for start in range(0, ACCOUNTS, BATCH):
        docs = [{"_id": n, "balance": 100, "owner": f"owner {n}"} for n in range(start, start + BATCH)]
        connection.run({"insert": "accounts", "documents": docs, "$db": "bench"})
    indexes = [{"key": {name: 1}, "name": name} for name in ("a", "b")]
    connection.run({"createIndexes": "large", "indexes": indexes, "$db": "bench"})


def row(name, values, unit, digits=1):
    shown = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"| {name} | {statistics.median(values):.{digits}f} {unit} | {shown} |"


def small(connection, rounds, concern, name):
    session, times = Session(), {"alone": [], "together": []}
    connection.run_all(alone(concern)[:2000])
    for turn in range(rounds):
        variants = [("alone", alone(concern)), ("together", together(session, concern))]
        for variant, messages in variants if turn % 2 == 0 else reversed(variants):
            times[variant].append(connection.run_all(messages) / TRANSACTIONS * 1e6)
    ratios = [b / a for a, b in zip(times["alone"], times["together"])]
    return [
        row(f"{name}: eleven updates, each a commit of its own", times["alone"], "us"),
        row(f"{name}: a transaction of ten updates, with its commit", times["together"], "us"),
        row(f"{name}: ratio", ratios, "", 2),
    ]


def large(connection, rounds):
    session, times = Session(), {"alone": [], "together": [], "commit": []}
    for turn in range(rounds):
        for variant in ("alone", "together") if turn % 2 == 0 else ("together", "alone"):
            connection.run({"delete": "large", "deletes": [{"q": {}, "limit": 0}], "$db": "bench"})
            if variant == "alone":
                times["alone"].append(connection.run_all(batches(lambda first: {})))
                continue
            session.number += 1
            took = connection.run_all(batches(session.fields))
            commit = connection.run_all([session.end("commitTransaction", {"w": 1})])
            times["commit"].append(commit)
            times["together"].append(took + commit)
            count = connection.run({"count": "large", "$db": "bench"})["n"]
            if count != LARGE:
                raise RuntimeError(f"{count} documents after the commit")
    name = f"{LARGE:,} documents with two indexes, {BATCH:,} in a batch"
    return [
        row(f"{name}, without a transaction", times["alone"], "s", 2),
        row(f"{name}, in one transaction", times["together"], "s", 2),
        row("of that the commit", times["commit"], "s", 2),
    ]


def beside(connection, server, options):
    """Speed of indexed insertion without and with an open transaction beside it."""
    speeds = {"without": [], "with": []}
    session = Session()
    order = ["without", "with", "with", "without"]
    for variant in order:
        session.number += 1
        if variant == "with":
            connection.ask(update(session.fields(True)))
        began = time.perf_counter()
        folder = os.path.join(server.folder, f"report-{len(speeds['with'])}-{len(speeds['without'])}")
        subprocess.run(
            [options.server, "bench", "insert", "--uri", f"mongodb://127.0.0.1:{server.port}/", "--documents", "100000000",
             "--minutes", str(options.seconds_open / 60), "--drop", "--compaction-wait", "0", "--quiet", "--out", folder],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        took = time.perf_counter() - began
        inserted = connection.run({"count": "w1", "$db": "frond_bench"})["n"]
        speeds[variant].append(inserted / took)
        if variant == "with":
            reply = bson.decode(bytes(connection.ask(session.end("commitTransaction", {"w": 1}))))
            if reply.get("ok") != 1:
                raise RuntimeError(f"the commit after {took:.0f} s: {reply}")
    ratio = statistics.mean(speeds["with"]) / statistics.mean(speeds["without"])
    return [
        row(f"indexed insertion for {options.seconds_open:.0f} s", speeds["without"], "documents/s", 0),
        row("the same, while a transaction with one update is open", speeds["with"], "documents/s", 0),
        f"| with / without | {ratio:.2f} | |",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds-open", type=float, default=60)
    parser.add_argument("--cache-gb", type=float, default=0.5)
    options = parser.parse_args()
    random.seed(1)
    # The transaction has to live longer than the insertion beside it.
    settings = ["--quiet", "--cacheSizeGB", str(options.cache_gb), "--setParameter", "transactionLifetimeLimitSeconds=3600"]
    version = subprocess.run([options.server, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    with Server(options.server, settings, port=free_port()) as server:
        server.start()
        connection = Connection(server.port)
        prepare(connection)
        rows = small(connection, options.rounds, {"w": 1}, "w: 1") + small(connection, max(options.rounds // 2, 1), {"w": 1, "j": True}, "j: true")
        rows += large(connection, max(options.rounds // 2, 1))
        if options.seconds_open > 0:
            rows += beside(connection, server, options)
    print(f"{version}, {os.cpu_count()} cores that the client shares, cache {options.cache_gb} GiB, a stand-alone server with its journal, "
          f"{TRANSACTIONS:,} transactions in each measurement.\n")
    print("| measured | median | each round |\n| --- | --- | --- |")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
