"""Definitions change on two servers at once while both write: no index entry is missing, and none is too many."""

import os
import random
import threading
import time

from harness import crashing
from harness.tap import equal, run, test
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

ADDRESSES = os.environ["FROND_URI"].removeprefix("mongodb://").split("/")[0].split(",")
SHORT = bool(os.environ.get("FROND_SHORT"))
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
CHANGES = 20 if SHORT else 100
DOCUMENTS = 2_000 if SHORT else 20_000
# What a change meets while another one is made, or a write while its collection is dropped: the client tries again.
EXPECTED = {26, 27, 48, 85, 86, 112, 117, 211, 276, 175, 12586, 12587}


class Writers:
    """Threads that insert, update and delete through all servers until they are told to stop."""

    def __init__(self, clients, collection, seed, threads=2):
        self.stop, self.problems, self.done = threading.Event(), [], 0
        self.lock = threading.Lock()
        self.threads = [
            threading.Thread(target=self._run, args=(clients[n % len(clients)], collection, random.Random(seed + n), n))
            for n in range(threads)
        ]
        for thread in self.threads:
            thread.start()

    def _run(self, client, name, source, number):
        collection = client.schema[name]
        serial = 0
        while not self.stop.is_set():
            serial += 1
            try:
                kind = source.random()
                key = source.randrange(DOCUMENTS * 2)
                if kind < 0.4:
                    first = 1_000_000 * (number + 1) + serial * 10
                    collection.insert_many(
                        {"_id": first + n, "a": source.randrange(1000), "b": [source.randrange(50), n], "c": str(key)} for n in range(10)
                    )
                elif kind < 0.8:
                    change = {"$set": {"a": source.randrange(1000), "b": [key % 50]}, "$inc": {"n": 1}}
                    collection.update_one({"_id": key}, change)
                else:
                    collection.delete_one({"_id": key})
                with self.lock:
                    self.done += 1
            except OperationFailure as error:
                if error.code not in EXPECTED:
                    self.problems.append(repr(error))
            except PyMongoError as error:
                self.problems.append(repr(error))

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
        equal(self.problems[:3], [], f"{len(self.problems)} problems of writers")
        return self.done


def fill(client, name):
    client.schema[name].insert_many(
        {"_id": n, "a": n * 7919 % 1000, "b": [n % 50, n % 7], "c": str(n)} for n in range(DOCUMENTS)
    )


def compare(clients, name):
    """Each index has what a scan finds, on each server."""
    for client in clients:
        collection = client.schema[name]
        documents = list(collection.find().hint({"$natural": 1}))
        for index in collection.list_indexes():
            field = next(iter(index["key"]))
            if field == "_id":
                continue
            through = {document["_id"]: document for document in collection.find({field: {"$exists": True}}).hint(index["name"])}
            expected = {document["_id"]: document for document in documents if field in document}
            equal(len(through), len(expected), f"{index['name']} on {client.address}")
            equal(through == expected, True, f"{index['name']} on {client.address}")
        equal(collection.estimated_document_count(), len(documents), f"the count on {client.address}")
        equal(crashing.validate(client, "schema", name), [], f"{name} on {client.address}")


@test
def an_index_is_built_by_one_server_while_both_write(clients, seed):
    fill(clients[0], "built")
    writers = Writers(clients, "built", seed)
    try:
        for at, key in enumerate([[("a", 1)], [("b", 1), ("a", -1)], [("c", 1)]]):
            clients[at % len(clients)].schema.built.create_index(key)
            time.sleep(0.2)
    finally:
        done = writers.end()
    print(f"  # {done} writes meanwhile, seed {seed}", flush=True)
    compare(clients, "built")


@test
def definitions_change_on_both_servers_at_once(clients, seed):
    fill(clients[0], "changed")
    writers = Writers(clients, "changed", seed + 10)
    changed, problems = [0] * len(clients), []

    def change(at, source):
        database = clients[at].schema
        while changed[at] < CHANGES // len(clients):
            what = source.random()
            field = source.choice("abc")
            try:
                if what < 0.45:
                    database.changed.create_index([(field, source.choice([1, -1]))])
                elif what < 0.75:
                    names = [index["name"] for index in database.changed.list_indexes() if index["name"] != "_id_"]
                    if names:
                        database.changed.drop_index(source.choice(names))
                elif what < 0.85:
                    name = f"other{source.randrange(4)}"
                    # The command succeeds if there is a collection with the same options. The method of the client fails then.
                    database.command("create", name)
                    database[name].insert_one({"by": at})
                elif what < 0.95:
                    database.drop_collection(f"other{source.randrange(4)}")
                else:
                    level = source.choice(["off", "moderate"])
                    database.command({"collMod": "changed", "validator": {"a": {"$gte": 0}}, "validationLevel": level})
                changed[at] += 1
            except OperationFailure as error:
                if error.code not in EXPECTED:
                    problems.append(repr(error))
                    return
            except PyMongoError as error:
                problems.append(repr(error))
                return

    threads = [
        threading.Thread(target=change, args=(at, random.Random(seed + 100 + at))) for at in range(len(clients))
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(400)
    took = time.monotonic() - began
    done = writers.end()
    equal(problems, [], f"seed {seed}")
    print(f"  # {sum(changed)} changes in {took:.1f} s, {done} writes meanwhile, seed {seed}", flush=True)
    compare(clients, "changed")
    names = [sorted(client.schema.list_collection_names()) for client in clients]
    equal(names, [names[0]] * len(clients))


if __name__ == "__main__":
    run([MongoClient(f"mongodb://{address}/?directConnection=true") for address in ADDRESSES], SEED)
