"""Writers with a model: what was acknowledged is kept, and what had no answer is resolved by reading.

A writer owns its documents. For each of them the model has the values that it may have: one after an acknowledgement, two
after an operation without an answer, because the server was killed. `None` stands for no document.
"""

import random
import threading
import time

from pymongo.errors import AutoReconnect, BulkWriteError, NetworkTimeout, PyMongoError, ServerSelectionTimeoutError

from harness import crashing

NO_ANSWER = (AutoReconnect, NetworkTimeout, ServerSelectionTimeoutError)
PAUSE_S = 0.1


class Writer(threading.Thread):
    """Inserts, updates, replaces and deletes its documents, at most `documents_max` of them."""

    collection_name = "items"

    def __init__(self, server, name, seed, documents_max):
        super().__init__(daemon=True)
        self.server, self.writer_name, self.documents_max = server, name, documents_max
        self.random = random.Random(f"{seed} {name}")
        self.possible = {}
        self.uncertain = set()
        self.next_number = 0
        self.operations = 0
        self.problems = []
        self.stopping = threading.Event()

    def document(self, number):
        """A new document."""
        return {
            "_id": f"{self.writer_name}-{number}",
            "k": self.random.randrange(100_000),
            "n": 0,
            "tags": [f"t{self.random.randrange(50)}" for _ in range(self.random.randrange(4))],
            "text": "%0200x" % self.random.getrandbits(800),
        }

    def step(self, collection):
        """One operation."""
        choice = self.random.random()
        ids = self.some_ids()
        if not ids or choice < 0.3 and len(self.possible) < self.documents_max:
            self.insert(collection)
        elif choice < 0.6:
            self.change(collection, ids[0], {"$inc": {"n": 1}, "$set": {"k": self.random.randrange(100_000)}})
        elif choice < 0.75:
            new = self.document(0)
            self.replace(collection, ids[0], {**new, "_id": ids[0]})
        elif choice < 0.85:
            self.change(collection, ids[0], {"$push": {"tags": f"t{self.random.randrange(50)}"}})
        elif len(self.possible) > self.documents_max // 2 or choice > 0.95:
            self.delete(collection, ids)
        else:
            self.read(collection, ids[0])

    def some_ids(self):
        """Some of its documents, which exist for sure."""
        if not self.possible:
            return []
        keys = self.random.sample(self.known, min(len(self.known), 5)) if self.known else []
        return [key for key in dict.fromkeys(keys) if self.possible.get(key, [None])[0] is not None]

    @property
    def known(self):
        # A list of keys, made again now and then: a sample from a dict of 20,000 keys costs more than an operation.
        if self.operations % 200 == 0 or not hasattr(self, "_known"):
            self._known = list(self.possible)
        return self._known

    def attempt(self, ids, after, operation):
        """Runs an operation that turns the value of each id into that of `after`."""
        for key, value in zip(ids, after):
            self.possible.setdefault(key, [None]).append(value)
            self.uncertain.add(key)
        operation()
        for key, value in zip(ids, after):
            self.uncertain.discard(key)
            if value is None:
                del self.possible[key]
            else:
                self.possible[key] = [value]

    def insert(self, collection):
        documents = []
        for _ in range(self.random.randint(1, 50)):
            self.next_number += 1
            documents.append(self.document(self.next_number))
        ids = [document["_id"] for document in documents]
        self.attempt(ids, documents, lambda: collection.insert_many([dict(d) for d in documents]))

    def change(self, collection, key, update):
        before = self.possible[key][0]
        after = {**before, "tags": list(before["tags"])}
        after["n"] += update.get("$inc", {}).get("n", 0)
        after.update(update.get("$set", {}))
        if "$push" in update:
            after["tags"].append(update["$push"]["tags"])
        self.attempt([key], [after], lambda: self.must(collection.update_one({"_id": key}, update).matched_count, 1, key))

    def replace(self, collection, key, new):
        self.attempt([key], [new], lambda: self.must(collection.replace_one({"_id": key}, new).matched_count, 1, key))

    def delete(self, collection, ids):
        query = {"_id": {"$in": ids}}
        self.attempt(ids, [None] * len(ids), lambda: self.must(collection.delete_many(query).deleted_count, len(ids), ids))

    def read(self, collection, key):
        self.must(collection.find_one({"_id": key}), self.possible[key][0], key)

    def must(self, found, expected, what):
        """Notes what is not as the model says."""
        if found != expected:
            self.problem(f"{what}: {found!r} in place of {expected!r}")

    def problem(self, text):
        if len(self.problems) < 20:
            self.problems.append(f"{self.writer_name}: {text}"[:600])

    def resolve(self, collection):
        """Reads the documents whose last operation had no answer."""
        pending = sorted(self.uncertain)
        found = {d["_id"]: d for d in collection.find({"_id": {"$in": pending}})} if pending else {}
        for key in pending:
            now = found.get(key)
            if now not in self.possible[key]:
                self.problem(f"{key} is {now!r}, which is none of {self.possible[key]!r}")
            if now is None:
                self.possible.pop(key)
            else:
                self.possible[key] = [now]
            self.uncertain.discard(key)

    def run(self):
        while not self.stopping.is_set():
            try:
                with crashing.connect(self.server) as client:
                    collection = client.soak[self.collection_name]
                    self.resolve(collection)
                    while not self.stopping.is_set():
                        self.step(collection)
                        self.operations += 1
            except NO_ANSWER:
                time.sleep(PAUSE_S)
            except (BulkWriteError, PyMongoError) as error:
                # Acknowledged as failed: the model cannot know how much was done.
                self.problem(f"{type(error).__name__}: {error}")
                time.sleep(PAUSE_S)

    def check(self, client):
        """Compares all of its documents with the model."""
        collection = client.soak[self.collection_name]
        self.resolve(collection)
        count = 0
        for document in collection.find({"_id": {"$regex": f"^{self.writer_name}-"}}):
            count += 1
            expected = self.possible.get(document["_id"], [None])[0]
            if document != expected:
                self.problem(f"{document['_id']} is {document!r} in place of {expected!r}")
        if count != len(self.possible):
            self.problem(f"{count} documents in place of {len(self.possible)}")
        return count


class LargeWriter(Writer):
    """The same with a few documents of up to 1 MiB, which are stored in parts and updated by path."""

    collection_name = "large"

    def document(self, number):
        parts = {f"p{part}": "x%02d" % part * self.random.randrange(10, 2000) for part in range(self.random.randrange(5, 200))}
        return {"_id": f"{self.writer_name}-{number}", "n": 0, "k": 0, "tags": [], "parts": parts}

    def insert(self, collection):
        self.next_number += 1
        new = self.document(self.next_number)
        self.attempt([new["_id"]], [new], lambda: collection.insert_one(dict(new)))
