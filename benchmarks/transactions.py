#!/usr/bin/env python3
"""What transactions cost; scripts/bench-transactions.sh runs it.

    transactions.py --server BINARY --rounds 7 --seconds-open 60 --cache-gb 0.5

One connection sends messages that are encoded before the clock starts, and reads the replies without decoding them, so that
the time is that of the server and of the loopback interface. The variants of a round take turns. The report has medians, and
the ratios within each round.
"""

import random
import statistics
import time
import uuid

import bson
from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId
from common import Connection, Server, arguments, compared, in_turns, insertion, message, report, row

ACCOUNTS = 100_000
STATEMENTS = 10
TRANSACTIONS = 2_000
"""Transactions of one measurement."""
LARGE = 100_000
"""Documents in the large transaction."""
BATCH = 1_000


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
    connection.insert("accounts", [{"_id": n, "balance": 100, "owner": f"owner {n}"} for n in range(ACCOUNTS)])
    indexes = [{"key": {name: 1}, "name": name} for name in ("a", "b")]
    connection.run({"createIndexes": "large", "indexes": indexes, "$db": "bench"})


def small(connection, rounds, concern, name):
    session, times = Session(), {"alone": [], "together": []}
    connection.run_all(alone(concern)[:2000])
    variants = {"alone": lambda: alone(concern), "together": lambda: together(session, concern)}
    for variant in in_turns(rounds, list(variants)):
        times[variant].append(connection.run_all(variants[variant]()) / TRANSACTIONS * 1e6)
    names = ("eleven updates, each a commit of its own", "a transaction of ten updates, with its commit")
    return compared(f"{name}: ", names, (times["alone"], times["together"]), "us", 1, ratio="ratio")


def large(connection, rounds):
    session, times = Session(), {"alone": [], "together": [], "commit": []}
    for variant in in_turns(rounds, ["alone", "together"]):
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
    for variant in in_turns(2, ["without", "with"]):
        session.number += 1
        if variant == "with":
            connection.ask(update(session.fields(True)))
        began = time.perf_counter()
        limit = ["--minutes", options.seconds_open / 60, "--drop", "--compaction-wait", "0"]
        insertion(options.server, server, 100_000_000, *limit, silent=True)
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
    options = arguments(__doc__, rounds=7, seconds_open=60.0, cache_gb=0.5).parse_args()
    random.seed(1)
    # The transaction has to live longer than the insertion beside it.
    settings = ["--quiet", "--cacheSizeGB", str(options.cache_gb), "--setParameter", "transactionLifetimeLimitSeconds=3600"]
    with Server(options.server, settings) as server:
        server.start()
        connection = Connection(server.port)
        prepare(connection)
        few = max(options.rounds // 2, 1)
        rows = small(connection, options.rounds, {"w": 1}, "w: 1") + small(connection, few, {"w": 1, "j": True}, "j: true")
        rows += large(connection, few)
        if options.seconds_open > 0:
            rows += beside(connection, server, options)
    report(options, f"a stand-alone server with its journal, {TRANSACTIONS:,} transactions in each measurement.", rows)


if __name__ == "__main__":
    main()
