"""Clients that run random transactions against a server, and record what they did and read."""

import random
import threading
import time

from harness.transactions import abort, commit, connect, is_interruption
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from .checker import FAIL, INFO, OK, Transaction, check_lists, check_registers

DATABASE = "history"
COLLECTIONS = 3
KEYS = 10
# After so many writes a key is not used any more, so that lists stay short.
WRITES_OF_A_KEY = 40
OPERATIONS_MAX = 6


def collection_of(client, key):
    return client[DATABASE][f"c{key % COLLECTIONS}"]


def prepare(server):
    """Collections whose documents can be read by `_id`, by an index, and for lists by a multikey index."""
    with connect(server) as client:
        for number in range(COLLECTIONS):
            collection = client[DATABASE][f"c{number}"]
            collection.create_index("key", unique=True)
            collection.create_index("value")


class Keys:
    """Which keys are in use, and the numbers that are written; shared by all clients."""

    def __init__(self):
        self._lock = threading.Lock()
        self._writes = {key: 0 for key in range(KEYS)}
        self._next_value = 0
        self.count = KEYS

    def choose(self, source):
        with self._lock:
            return source.choice(list(self._writes))

    def next_value(self, key):
        """A new value to write to the key. A key with enough of them is replaced by a new one."""
        with self._lock:
            self._next_value += 1
            if key in self._writes:
                self._writes[key] += 1
                if self._writes[key] == WRITES_OF_A_KEY:
                    del self._writes[key]
                    self._writes[self.count] = 0
                    self.count += 1
            return self._next_value


class Lists:
    """Appends to lists, and reads of them."""

    name, op, check = "lists", "append", staticmethod(check_lists)

    @staticmethod
    def write(collection, key, value, session, source):
        change = {"$push": {"value": value}, "$set": {"key": key}}
        if source.random() < 0.3:
            collection.find_one_and_update({"_id": key}, change, upsert=True, session=session)
        else:
            collection.update_one({"_id": key}, change, upsert=True, session=session)

    @staticmethod
    def value_of(document):
        return document["value"] if document else []


class Registers:
    """Writes of registers, and reads of them."""

    name, op, check = "registers", "w", staticmethod(check_registers)

    @staticmethod
    def write(collection, key, value, session, source):
        if source.random() < 0.5:
            collection.replace_one({"_id": key}, {"key": key, "value": value}, upsert=True, session=session)
        else:
            change = {"$set": {"value": value}, "$setOnInsert": {"_id": key}}
            collection.find_one_and_update({"key": key}, change, upsert=True, session=session)

    @staticmethod
    def value_of(document):
        return document["value"] if document else None


def read(workload, collection, key, session, source):
    """Reads a key in one of several ways, so that several plans see the transaction."""
    way = source.randrange(4)
    if way == 0:
        document = next(iter(collection.find({"key": key}, session=session).hint("key_1")), None)
    elif way == 1:
        found = list(collection.aggregate([{"$match": {"key": key}}, {"$project": {"value": 1}}], session=session))
        document = found[0] if found else None
    elif way == 2:
        found = list(collection.find({"value": {"$gt": 0}}, session=session).hint("value_1"))
        document = next((d for d in found if d["_id"] == key), None)
    else:
        document = collection.find_one({"_id": key}, session=session)
    return ("r", key, workload.value_of(document))


class Client(threading.Thread):
    """Runs transactions until it is told to stop."""

    def __init__(self, server, workload, keys, history, seed, stopping):
        super().__init__(daemon=True)
        self.server, self.workload, self.keys, self.history = server, workload, keys, history
        self.random = random.Random(seed)
        self.stopping = stopping
        self.problems = []

    def run(self):
        try:
            with connect(self.server) as client:
                while not self.stopping.is_set():
                    self._transaction(client)
        except Exception as error:  # the suite reports it
            self.problems.append(repr(error))

    def _transaction(self, client):
        entry = Transaction([], INFO, began=time.monotonic())
        with client.start_session() as session:
            session.start_transaction(read_concern=ReadConcern("snapshot"), write_concern=WriteConcern("majority"))
            try:
                self._operations(client, session, entry)
            except PyMongoError as error:
                if not is_interruption(error):
                    self.problems.append(f"in a transaction: {error!r}")
                abort(session, self.problems)
                entry.status = FAIL
            else:
                if self.random.random() < 0.05:
                    abort(session, self.problems)
                    entry.status = FAIL
                else:
                    entry.status = commit(session, self.problems)
        entry.ended = time.monotonic()
        self.history.append(entry)

    def _operations(self, client, session, entry):
        for _ in range(self.random.randint(1, OPERATIONS_MAX)):
            key = self.keys.choose(self.random)
            collection = collection_of(client, key)
            update = self.random.random() < 0.25
            if update or self.random.random() < 0.5:
                entry.ops.append(read(self.workload, collection, key, session, self.random))
                if not update:
                    continue
            value = self.keys.next_value(key)
            # It is in the history even if no answer comes.
            entry.ops.append((self.workload.op, key, value))
            self.workload.write(collection, key, value, session, self.random)


def read_all(server, workload, keys):
    """One transaction that reads every key, as the last of a history."""
    entry = Transaction([], INFO, began=time.monotonic())
    source = random.Random(0)
    with connect(server) as client, client.start_session() as session:
        session.start_transaction(read_concern=ReadConcern("snapshot"))
        for key in range(keys.count):
            entry.ops.append(read(workload, collection_of(client, key), key, session, source))
        session.commit_transaction()
    entry.status, entry.ended = OK, time.monotonic()
    return entry
