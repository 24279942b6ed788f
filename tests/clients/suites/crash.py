"""Crashes: the server is killed (SIGKILL, by its pid) under load, and restarted."""

import os
import random
import subprocess
import threading
import time

from harness import crashing
from harness.ports import free_port
from harness.server import Server
from harness.tap import equal, run, test
from harness.waiting import PATIENCE, wait_until
from pymongo.errors import PyMongoError

BINARY = os.environ["FROND_BINARY"]
SEED = int(os.environ.get("FROND_SEED", time.time_ns() % 1_000_000))
CRASHES = 5


def restart(server):
    took = server.start()
    return took


@test
def acknowledged_writes_survive_kill_9(seed):
    source = random.Random(seed)
    with Server(BINARY) as server:
        server.start()
        with crashing.connect(server) as client:
            client.crash.acked.create_index("k")
            client.crash.acked.create_index([("s", -1), ("k", 1)], unique=True)
            client.crash.acked.create_index("tags")
        writers = []
        for crash in range(CRASHES):
            # A kill loses nothing of those without j: true either.
            concerns = [crashing.JOURNALED, crashing.BUFFERED] * 2
            now = [
                crashing.Writer(server, "crash", f"c{crash}w{n}", source.random(), concern=concern)
                for n, concern in enumerate(concerns)
            ]
            for writer in now:
                writer.start()
            wait_until("acknowledged writes", lambda: any(writer.present or writer.problem for writer in now))
            time.sleep(source.uniform(0, 2))
            server.kill()
            for writer in now:
                writer.join(PATIENCE)
            writers.extend(now)
            took = restart(server)
            with crashing.connect(server) as client:
                equal(crashing.problems_of(client, "crash", writers), [], f"crash {crash}, seed {seed}")
                equal(crashing.validate(client, "crash", "acked"), [], f"crash {crash}, seed {seed}")
            done = sum(len(w.present) for w in now)
            print(f"  # crash {crash + 1}: up after {took:.2f} s, {done} more acknowledged documents there")
            assert done > 0, f"nothing was acknowledged: {now[0].problem}"
        server.stop()


@test
def everything_survives_an_orderly_end(seed):
    with Server(BINARY) as server:
        server.start()
        with crashing.connect(server) as client:
            for n in range(20):
                client.orderly.c.insert_many([{"_id": n * 500 + i, "k": i} for i in range(500)])
            client.orderly.c.create_index("k")
            client.orderly.c.update_many({"k": {"$lt": 10}}, {"$set": {"x": 1}})
            client.orderly.c.delete_many({"k": {"$gte": 400}})
        server.stop()
        server.start()
        with crashing.connect(server) as client:
            equal(client.orderly.c.count_documents({}), 8000)
            equal(client.orderly.c.count_documents({"x": 1}), 200)
            equal([i["name"] for i in client.orderly.c.list_indexes()], ["_id_", "k_1"])
            equal(crashing.validate(client, "orderly", "c"), [])
        server.stop()


@test
def a_crash_in_the_middle_of_unjournaled_work_leaves_whole_documents(seed):
    source = random.Random(seed + 1)
    with Server(BINARY) as server:
        server.start()
        with crashing.connect(server) as client:
            client.fast.c.create_index("k")
            client.fast.c.create_index("s")

        def insert():
            with crashing.connect(server) as client:
                number = 0
                try:
                    while True:
                        client.fast.c.insert_many(
                            [{"_id": number + n, "k": (number + n) * 7, "s": "x" * 200} for n in range(1000)]
                        )
                        number += 1000
                except PyMongoError:
                    return

        for _ in range(3):
            worker = threading.Thread(target=insert, daemon=True)
            worker.start()
            time.sleep(source.uniform(1, 3))
            server.kill()
            worker.join(PATIENCE)
            restart(server)
            with crashing.connect(server) as client:
                equal(crashing.validate(client, "fast", "c"), [], f"seed {seed}")
                # Batches are stored completely and in order, so the stored ids are a contiguous prefix.
                count = client.fast.c.count_documents({})
                last = client.fast.c.find_one(sort=[("_id", -1)])
                equal(last["_id"] + 1 if last else 0, count, f"seed {seed}")
                client.fast.c.delete_many({})
        server.stop()


@test
def a_crash_while_indexes_and_collections_are_made(seed):
    source = random.Random(seed + 2)
    with Server(BINARY) as server:
        server.start()
        with crashing.connect(server) as client:
            client.ddl.big.insert_many([{"_id": n, "a": n % 97, "b": str(n)} for n in range(20_000)])

        def work():
            with crashing.connect(server) as client:
                try:
                    for n in range(1000):
                        client.ddl.big.create_index([("a", 1), ("b", -1)], name=f"i{n}" if n % 2 else "fixed")
                        client.ddl[f"made{n % 5}"].insert_one({"n": n})
                        client.ddl[f"made{(n + 2) % 5}"].drop()
                        client.ddl.big.drop_indexes()
                except PyMongoError:
                    return

        for _ in range(3):
            worker = threading.Thread(target=work, daemon=True)
            worker.start()
            time.sleep(source.uniform(0.3, 2))
            server.kill()
            worker.join(PATIENCE)
            restart(server)
            with crashing.connect(server) as client:
                names = client.ddl.list_collection_names()
                assert "big" in names, names
                for name in names:
                    equal(crashing.validate(client, "ddl", name), [], f"{name}, seed {seed}")
                equal(client.ddl.big.count_documents({}), 20_000)
        server.stop()


def refusal(*arguments):
    """Starts a server that must fail to start. Returns its output."""
    done = subprocess.run(
        [BINARY, "serve", *arguments], capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
    )
    assert done.returncode not in (0, -6, 101), (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


@test
def a_folder_or_port_in_use_is_refused_clearly(seed):
    with Server(BINARY) as server, Server(BINARY) as other:
        server.start()
        text = refusal("--dbpath", server.dbpath, "--port", str(free_port()))
        assert "lock" in text.lower() or "in use" in text.lower(), text
        text = refusal("--dbpath", other.dbpath, "--port", str(server.port))
        assert "in use" in text.lower(), text
        equal(server.process.poll(), None)
        # The files of a killed server do not prevent the next start.
        server.kill()
        restart(server)
        server.stop()


print(f"  # seed {SEED}")
run(SEED)
