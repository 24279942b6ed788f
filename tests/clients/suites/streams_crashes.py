"""Change streams beside bulk inserts (W1), updates, deletes and transactions, in 512 MiB; the server is killed (SIGKILL) meanwhile.

Every acknowledged write must have its events, once and in order; the copies that two readers keep must equal the collections.
From the environment: FROND_SECONDS (15), FROND_KILLS (2), FROND_SEED.
"""

import multiprocessing
import os
import random
import threading
import time

from harness import crashing
from harness.memory import MemoryGroup
from harness.server import Server
from harness.tap import equal, run, test
from harness.transactions import connect
from streams import rebuilding, writers

BINARY = os.environ["FROND_BINARY"]
SEED = int(os.environ.get("FROND_SEED", time.time_ns() % 1_000_000))
SECONDS = float(os.environ.get("FROND_SECONDS", 15))
KILLS = int(os.environ.get("FROND_KILLS", 2))
MEMORY_MIB, RESIDENT_MIB_MAX = 512, 480
RESTART_SECONDS_MAX = 120
# The oplog is trimmed meanwhile in a longer run, and always holds what readers are behind.
OPTIONS = ["--quiet", "--oplogSize", "256"]
BULK, SINGLE, TRANSACTIONS = 2, 2, 2
MARK = "the end"


class Resident(threading.Thread):
    """The largest resident memory of the server, in KiB."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.largest, self.stopping = server, 0, threading.Event()

    def run(self):
        while not self.stopping.wait(0.2):
            self.largest = max(self.largest, self.server.resident_kib() or 0)


def start_token(client):
    with client[writers.DATABASE].watch(max_await_time_ms=10) as stream:
        assert stream.try_next() is None
        return stream.resume_token


@test
def every_event_comes_once_and_in_order_over_crashes(seed):
    source = random.Random(seed)
    context = multiprocessing.get_context("spawn")
    stop, kills, seen = context.Event(), context.Value("i", 0, lock=False), context.Value("L", 0, lock=False)
    reports, caches = context.Queue(), context.Queue()
    copy, failures = rebuilding.Copy(), []
    with MemoryGroup(MEMORY_MIB) as group, Server(BINARY, OPTIONS, replica_set="rs0", wrap=group.wrap) as server:
        server.start()
        resident = Resident(server)
        resident.start()
        with connect(server) as client:
            writers.open_database(client)
            for document in client[writers.DATABASE].shared.find():
                copy.documents["shared"][document["_id"]] = document
            start = start_token(client)

        def note():
            seen.value = copy.events

        def follow():
            def is_last(event):
                return event["documentKey"]["_id"] == MARK

            try:
                opened.append(rebuilding.follow(server.uri, start, kills, is_last, copy.take, note))
            except Exception as error:  # reported below
                failures.append(f"the stream failed after {copy.events} events: {error!r}")
                seen.value = 1 << 60

        opened = []
        reader = threading.Thread(target=follow, daemon=True)
        reader.start()
        counts = (BULK, SINGLE, TRANSACTIONS)
        writing = context.Process(target=writers.work, args=(server.uri, counts, source.random(), stop, seen, reports), daemon=True)
        caching = context.Process(target=rebuilding.look_up, args=(server.uri, start, kills, MARK, caches), daemon=True)
        writing.start()
        caching.start()
        try:
            for kill in range(KILLS):
                time.sleep(SECONDS / (KILLS + 1) * source.uniform(0.7, 1.3))
                server.kill()
                took = server.start(timeout=RESTART_SECONDS_MAX)
                kills.value += 1
                print(f"  # kill {kill + 1}: up after {took:.2f} s, {copy.events} events so far", flush=True)
            time.sleep(SECONDS / (KILLS + 1))
        finally:
            stop.set()
        logs = reports.get(timeout=120)
        writing.join(120)
        with connect(server) as client:
            database = client[writers.DATABASE]
            database.marks.insert_one({"_id": MARK})
            reader.join(240)
            equal(failures, [], f"seed {seed}")
            assert not reader.is_alive(), f"the reader is still at event {copy.events}"
            cache, problems = caches.get(timeout=240)
            caching.join(120)
            problems += [problem for log in logs.values() for problem in log.problems]
            equal(problems[:5], [], f"{len(problems)} problems, seed {seed}")
            problems = copy.compare(database, logs)
            equal(problems[:5], [], f"{len(problems)} problems, seed {seed}")
            docs = {document["_id"]: document for document in database.docs.find()}
            differ = [key for key in docs.keys() | cache.keys() if docs.get(key) != cache.get(key)]
            equal([(docs.get(key), cache.get(key)) for key in differ[:3]], [], f"{len(differ)} differ in the cache, seed {seed}")
            for name in rebuilding.COLLECTIONS:
                equal(crashing.validate(client, writers.DATABASE, name), [], f"{name}, seed {seed}")
        resident.stopping.set()
        resident.join()
        summary = {
            "events": copy.events,
            "deletes": len(copy.deleted),
            "without an answer": sum(len(log.unknown) for log in logs.values()),
            "aborted transactions": sum(log.aborted for log in logs.values()),
            "streams opened": opened[0],
            "largest resident MiB": resident.largest // 1024,
        }
        print(f"  # {summary}, {'a group of 512 MiB' if group.folder else 'no memory group'}")
        equal(group.kills(), 0, "kills for memory")
        assert resident.largest < RESIDENT_MIB_MAX * 1024, f"{resident.largest} KiB resident"
        assert opened[0] == KILLS + 1, f"opened {opened[0]} times"
        for log in logs.values():
            assert sum(log.acknowledged) > 50, "a writer did hardly anything"
        server.stop()


if __name__ == "__main__":
    print(f"  # seed {SEED}")
    run(SEED)
