"""Clients of a replica set whose members fail: each records what it was told, for a check at the end."""

import itertools
import random
import threading

from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

DATABASE = "soaked"
MAJORITY = WriteConcern("majority")
# A client does not wait for longer for a member that is gone, so that it goes on elsewhere.
HASTE_MS = 3000


def connect_hastily(member):
    """A client of one member, whatever part it has, that gives up soon."""
    return MongoClient(
        "127.0.0.1", member.port, directConnection=True, serverSelectionTimeoutMS=HASTE_MS, socketTimeoutMS=HASTE_MS,
        connectTimeoutMS=HASTE_MS, retryReads=False, retryWrites=False,
    )


class Client(threading.Thread):
    """Repeats `step` until it is told to stop. What it finds wrong is in `problems`."""

    def __init__(self, stopping):
        super().__init__(daemon=True)
        self.stopping, self.problems, self.done, self.unanswered = stopping, [], 0, 0

    def run(self):
        try:
            while not self.stopping.is_set():
                self.step()
        except Exception as error:  # the suite reports it
            self.problems.append(f"{type(self).__name__}: {error!r}")


class Inserter(Client):
    """Inserts in bulk, as W1 does. `acknowledged` are there at the end, those in `unknown` may be."""

    def __init__(self, replica_set, number, stopping):
        super().__init__(stopping)
        self.number, self.serial = number, itertools.count()
        self.acknowledged, self.unknown = set(), set()
        client = replica_set.connect()
        self.collection = client[DATABASE].get_collection("inserted", write_concern=MAJORITY)
        self.source = random.Random(number)

    def step(self):
        ids = [f"{self.number}-{next(self.serial)}" for _ in range(20)]
        documents = [{"_id": one, "a": self.source.randrange(1000), "b": self.source.random(), "c": "x" * 50} for one in ids]
        try:
            self.collection.insert_many(documents)
        except PyMongoError:
            self.unanswered += 1
            self.unknown.update(ids)
            return
        self.acknowledged.update(ids)
        self.done += 1
        # The readers of the streams have to keep up.
        self.stopping.wait(0.05)


class Register:
    """A number that only grows: the bounds of what may be read at any moment."""

    def __init__(self):
        self.lock = threading.Lock()
        self.attempted = self.acknowledged = self.read = 0


class RegisterWriter(Client):
    """Writes the register, and reads its own write on a secondary in the same causal session."""

    def __init__(self, replica_set, register, stopping):
        super().__init__(stopping)
        self.register = register
        self.client = replica_set.connect()
        secondary = ReadPreference.SECONDARY_PREFERRED
        self.collection = self.client[DATABASE].get_collection("register", write_concern=MAJORITY)
        self.reading = self.client[DATABASE].get_collection("register", read_preference=secondary, read_concern=ReadConcern("majority"))
        self.collection.update_one({"_id": 0}, {"$set": {"n": 0}}, upsert=True)

    def step(self):
        with self.register.lock:
            self.register.attempted += 1
            value = self.register.attempted
        with self.client.start_session(causal_consistency=True) as session:
            try:
                # A write of before that is late cannot take it back.
                self.collection.update_one({"_id": 0}, {"$max": {"n": value}}, session=session)
            except PyMongoError:
                self.unanswered += 1
                return
            with self.register.lock:
                self.register.acknowledged = max(self.register.acknowledged, value)
            self.done += 1
            try:
                found = self.reading.find_one({"_id": 0}, max_time_ms=HASTE_MS, session=session)["n"]
            except PyMongoError:
                return
            if found < value:
                self.problems.append(f"a causal session read {found} after it had written {value}")


class RegisterReader(Client):
    """Reads the register at one member with `linearizable`, also when the member leads no more and does not know it."""

    def __init__(self, member, register, stopping):
        super().__init__(stopping)
        self.member, self.register = member, register
        self.collection = connect_hastily(member)[DATABASE].get_collection("register", read_concern=ReadConcern("linearizable"))

    def step(self):
        register = self.register
        with register.lock:
            least = max(register.acknowledged, register.read)
        try:
            found = self.collection.find_one({"_id": 0}, max_time_ms=HASTE_MS)["n"]
        except PyMongoError:
            self.stopping.wait(0.05)
            return
        with register.lock:
            most = register.attempted
            register.read = max(register.read, found)
        self.done += 1
        if not least <= found <= most:
            self.problems.append(f"member {self.member.number} read {found}, which must be from {least} to {most}")
        self.stopping.wait(0.01)


class Follower(Client):
    """Reads the inserts by a change stream of one member, and goes on by its token after each failure."""

    def __init__(self, member, stopping):
        super().__init__(stopping)
        self.member, self.events, self.opened = member, [], 0
        self.collection = connect_hastily(member)[DATABASE].inserted
        with self.collection.watch(max_await_time_ms=50) as stream:
            assert stream.try_next() is None
            self.token = stream.resume_token

    def step(self):
        try:
            with self.collection.watch(resume_after=self.token, max_await_time_ms=200) as stream:
                self.opened += 1
                while not self.stopping.is_set():
                    event = stream.try_next()
                    # The driver opens the stream again by itself, too.
                    self.token = stream.resume_token
                    if event:
                        self.events.append(event["documentKey"]["_id"])
        except PyMongoError as error:
            if getattr(error, "code", None) in (280, 286):
                raise
            self.stopping.wait(0.1)


def check_events(followers, there):
    """Problems of the streams: each document has its event once, and all streams the same order."""
    for follower in followers:
        name = f"the stream of member {follower.member.number}"
        events = follower.events
        if len(events) != len(set(events)):
            twice = [one for one, after in zip(sorted(events), sorted(events)[1:]) if one == after]
            yield f"{name} has {len(twice)} events twice, first {twice[0]}"
        lost, more = there - set(events), set(events) - there
        if lost:
            yield f"{name} lacks {len(lost)} of {len(there)}, first {min(lost)}"
        if more:
            yield f"{name} has {len(more)} that are not there, first {min(more)}"
        if events != followers[0].events:
            yield f"{name} has another order than that of member {followers[0].member.number}"


def check_inserts(inserters, there):
    for inserter in inserters:
        lost = inserter.acknowledged - there
        if lost:
            yield f"{len(lost)} of {len(inserter.acknowledged)} acknowledged inserts of {inserter.number} are lost, first {min(lost)}"
    told = set().union(*(inserter.acknowledged | inserter.unknown for inserter in inserters))
    if more := there - told:
        yield f"{len(more)} documents are there that were not inserted, first {min(more)}"
