"""Writers beside a change stream, in a process of their own: they report what was acknowledged.

Each write of a writer has a number, `seq`, in all documents that it changes, beside the writer's own, `by`. A writer changes its
own documents only, except for those of `shared`, for which transactions conflict.
"""

import random
import threading
from array import array
from dataclasses import dataclass, field

from harness.transactions import ABORTED, COMMITTED, TRANSIENT, abort, commit, connect
from pymongo.errors import ConnectionFailure, PyMongoError
from pymongo.write_concern import WriteConcern

DATABASE = "streamed"
INDEXED = ("URI", "name", "origin", "creation")
BATCH = 500
KEPT_MAX = 40_000
"""Documents that a bulk writer leaves in place, at most."""
BEHIND_MAX = 50_000
"""Bulk writers wait for the reader when so many of its events are to come."""
SHARED = 20
IDS = 1_000_000_000
LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


@dataclass
class Log:
    """What one writer did: how many events each `seq` must have, by what the server said."""

    acknowledged: array = field(default_factory=lambda: array("L"))
    unknown: dict = field(default_factory=dict)
    transactions: bool = False
    deleted: list = field(default_factory=list)
    maybe_deleted: set = field(default_factory=set)
    aborted: int = 0
    problems: list = field(default_factory=list)


def open_database(client):
    database = client[DATABASE]
    for name in INDEXED:
        database.w1.create_index(name)
    database.shared.insert_many([{"_id": n, "by": 0, "seq": 0, "n": 0} for n in range(SHARED)])
    for name in ("docs", "booked", "marks"):
        database.create_collection(name)


class Address:
    def __init__(self, uri):
        self.uri = uri


def work(uri, counts, seed, stop, seen, reports):
    """The body of the process; `seen` is how many events the reader has, `counts` are the writers of each kind."""
    source, stopping, produced = random.Random(seed), threading.Event(), [0]
    kinds = [Bulk] * counts[0] + [Single] * counts[1] + [Transactions] * counts[2]
    with connect(Address(uri), maxPoolSize=len(kinds)) as client:
        writers = []
        for number, kind in enumerate(kinds, 1):
            writer = kind(client, number, random.Random(source.random()), stopping)
            writer.is_ahead = lambda: sum(w.events for w in writers) - seen.value > BEHIND_MAX
            writers.append(writer)
        for writer in writers:
            writer.start()
        stop.wait()
        stopping.set()
        for writer in writers:
            writer.join(90)
            if writer.is_alive():
                writer.log.problems.append(f"writer {writer.number} did not stop")
        reports.put({writer.number: writer.log for writer in writers})


class Writer(threading.Thread):
    def __init__(self, client, number, source, stopping):
        super().__init__(daemon=True)
        self.number, self.source, self.stopping = number, source, stopping
        concern = WriteConcern(w=1, j=False) if number % 2 else WriteConcern("majority")
        self.client, self.database = client, client.get_database(DATABASE, write_concern=concern)
        self.log = Log()
        self.seq = self.events = 0
        self.next_id = number * IDS

    def run(self):
        while not self.stopping.is_set() and len(self.log.problems) < 20:
            if self.is_ahead():
                self.stopping.wait(0.01)
                continue
            try:
                self.step()
            except Exception as error:  # reported; the writer goes on
                self.log.problems.append(f"writer {self.number}, write {self.seq}: {error!r}")

    def new_id(self):
        self.next_id += 1
        return self.next_id

    def stamp(self):
        return {"by": self.number, "seq": self.seq}

    def attempt(self, expected, call, atomic=True):
        """Makes a write of `expected` events under a new number. (its result or None if there was no answer)"""
        self.seq += 1
        try:
            result = call()
        except ConnectionFailure:
            self.note(0)
            # How many events a write has that took place only in part, nobody knows; and a function cannot go to the other process.
            self.log.unknown[self.seq] = (expected if atomic else None, atomic)
            return None
        self.note(expected if not callable(expected) else expected(result))
        return result

    def note(self, count):
        """Says how many events the current number has for certain."""
        log = self.log.acknowledged
        log.extend([0] * (self.seq - len(log)))
        log.append(count)
        self.events += count


class Bulk(Writer):
    """Inserts like those of W1, changes and deletes of many of them."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.low = self.next_id + 1

    def step(self):
        w1 = self.database.w1
        # A number for each document: those of a batch must come in its order.
        first = self.seq + 1
        documents = []
        for _ in range(BATCH):
            self.seq += 1
            documents.append(self.document())
        try:
            w1.insert_many(documents)
        except ConnectionFailure:
            self.fill(first, 0)
            self.log.unknown.update((seq, (1, True)) for seq in range(first, self.seq + 1))
        else:
            self.fill(first, 1)
        if self.source.random() < 0.1:
            start = self.source.randrange(self.low, self.next_id + 1)
            some = {"_id": {"$gte": start, "$lt": start + 100}, "by": self.number}
            change = {"$inc": {"n": 1}, "$set": {"seq": self.seq + 1, "name": f"changed {self.seq}"}}
            self.attempt(lambda done: done.modified_count, lambda: w1.update_many(some, change), atomic=False)
        if self.next_id - self.low > KEPT_MAX:
            self.delete(w1, self.low, self.next_id - KEPT_MAX // 2)

    def fill(self, first, count):
        log = self.log.acknowledged
        log.extend([0] * (first - len(log)))
        log.extend([count] * (self.seq + 1 - first))
        self.events += count * (self.seq + 1 - first)

    def delete(self, w1, low, high):
        ids = range(low, high)
        self.low = high
        try:
            done = w1.delete_many({"_id": {"$gte": low, "$lt": high}})
        except ConnectionFailure:
            self.log.maybe_deleted.update(ids)
            return
        self.events += done.deleted_count
        # Some may not be there, if their insert had no answer.
        if done.deleted_count == len(ids):
            self.log.deleted.extend(ids)
        else:
            self.log.maybe_deleted.update(ids)

    def document(self):
        letters = "".join(self.source.choices(LETTERS, k=64))
        return {
            "_id": self.new_id(),
            "URI": f"https://{letters[:10]}.example/{letters[10:40]}",
            "name": letters[40:54],
            "origin": f"{letters[54:60]}.example",
            "creation": self.source.randrange(1 << 40),
            "n": 0,
            **self.stamp(),
        }


class Single(Writer):
    """Changes one document at a time; the driver repeats those that had no answer."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.mine = []

    def step(self):
        docs = self.database.docs
        kind = self.source.randrange(10)
        if kind < 3 or not self.mine:
            key = self.new_id()
            done = self.attempt(1, lambda: docs.insert_one({"_id": key, "n": 0, "list": [], "sub": {}, **self.stamp()}))
            # One without an answer is left alone.
            if done:
                self.mine.append(key)
            return
        place = self.source.randrange(len(self.mine))
        key = self.mine[place]
        if kind == 3:
            self.mine[place] = self.mine[-1]
            self.mine.pop()
            try:
                deleted = docs.delete_one({"_id": key}).deleted_count
            except ConnectionFailure:
                self.log.maybe_deleted.add(key)
                return
            self.events += 1
            assert deleted == 1, f"{key} was not there to delete"
            self.log.deleted.append(key)
        elif kind == 4:
            text = "r" * self.source.randrange(200)
            whole = lambda: {"n": 0, "list": [1], "sub": {"text": text}, **self.stamp()}  # noqa: E731
            self.changed(self.attempt(1, lambda: docs.replace_one({"_id": key}, whole())))
        elif kind == 5:
            change = lambda: {"$inc": {"n": 1}, "$set": {**self.stamp(), "sub": {"found": [self.seq]}}}  # noqa: E731
            self.attempt(1, lambda: docs.find_one_and_update({"_id": key}, change()))
        else:
            self.changed(self.attempt(1, lambda: docs.update_one({"_id": key}, self.change())))

    def changed(self, done):
        if done:
            assert done.matched_count == 1, done.raw_result

    def change(self):
        kind = self.source.randrange(4)
        change = {"$inc": {"n": 1}, "$set": self.stamp()}
        if kind == 0:
            change["$push"] = {"list": {"$each": [self.seq, {"s": self.seq}], "$slice": -5}}
        elif kind == 1:
            change["$set"][f"sub.f{self.source.randrange(4)}"] = self.seq
        elif kind == 2:
            change["$unset"] = {f"sub.f{self.source.randrange(4)}": 1}
        else:
            change["$pop"] = {"list": -1}
        return change


class Transactions(Writer):
    """Transactions of several documents in three collections."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.log.transactions = True

    def step(self):
        self.seq += 1
        inserts = 200 if self.source.random() < 0.02 else self.source.randint(1, 4)
        shared = self.source.sample(range(SHARED), 2)
        problems = []
        with self.client.start_session() as session:
            session.start_transaction(write_concern=self.database.write_concern)
            try:
                rows = [{"_id": self.new_id(), **self.stamp()} for _ in range(inserts)]
                self.database.booked.insert_many(rows, session=session)
                for key in shared:
                    change = {"$inc": {"n": 1}, "$set": self.stamp()}
                    self.database.shared.update_one({"_id": key}, change, session=session)
                row = {"_id": self.new_id(), "n": 0, **self.stamp()}
                self.database.docs.insert_one(row, session=session)
                if self.source.random() < 0.1:
                    abort(session, problems)
                    outcome = ABORTED
                else:
                    outcome = commit(session, problems)
            except PyMongoError as error:
                if not (isinstance(error, ConnectionFailure) or error.has_error_label(TRANSIENT)):
                    problems.append(f"in a transaction: {error!r}")
                abort(session, problems)
                outcome = ABORTED
        self.log.problems += problems
        self.note(inserts + 3 if outcome == COMMITTED else 0)
        if outcome == ABORTED:
            self.log.aborted += 1
        elif outcome != COMMITTED:
            self.log.unknown[self.seq] = (inserts + 3, True)
