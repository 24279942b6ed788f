"""Members that are killed, stopped for a while, or started all at once."""

import itertools
import threading

from harness.replica_set import assert_same
from harness.tap import equal
from harness.waiting import wait_until
from pymongo import WriteConcern
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from .common import with_set


class Writers:
    """Applications with retryable writes. Each insert and each increment must be done once, and none may fail."""

    def __init__(self, replica_set, count=4, name="written"):
        self.client = replica_set.connect()
        self.collection = self.client.failing.get_collection(name, write_concern=WriteConcern("majority"))
        self.collection.drop()
        self.inserted, self.increments, self.errors = [set() for _ in range(count)], [0] * count, []
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self._write, args=(number,)) for number in range(count)]

    def _write(self, number):
        for serial in itertools.count():
            if self.ends.is_set():
                return
            name = f"{number}-{serial}"
            try:
                self.collection.insert_one({"_id": name})
                self.inserted[number].add(name)
                self.collection.find_one_and_update({"_id": f"counter {number}"}, {"$inc": {"n": 1}}, upsert=True)
                self.increments[number] += 1
            except PyMongoError as error:
                self.errors.append(f"{name}: {error!r}")
                return

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        self.go_on()
        return self

    def go_on(self, by=5):
        """Waits until each has written some more."""
        goal = [len(inserted) + by for inserted in self.inserted]
        wait_until("more writes", lambda: self.errors or all(len(one) >= least for one, least in zip(self.inserted, goal)))

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()

    def check(self):
        """Compares what is there with what was acknowledged."""
        equal(self.errors[:3], [])
        there = {one["_id"]: one.get("n") for one in self.collection.find()}
        counters = [there.pop(f"counter {number}", 0) for number in range(len(self.inserted))]
        equal(counters, self.increments)
        acknowledged = set().union(*self.inserted)
        equal(sorted(acknowledged ^ there.keys())[:5], [], f"{len(acknowledged)} acknowledged, {len(there)} there")
        self.client.close()


@with_set
def a_killed_primary_is_replaced_and_no_write_is_lost_or_done_twice(replica_set):
    with Writers(replica_set) as writers:
        for _ in range(2):
            old = replica_set.primary
            old.kill()
            replica_set.wait_for_primary(replica_set.others(old))
            writers.go_on()
            old.start()
            replica_set.wait_until_steady()
            writers.go_on()
    writers.check()
    assert_same(replica_set)


@with_set
def killed_secondaries_come_back(replica_set):
    with Writers(replica_set) as writers:
        for secondary in replica_set.secondaries:
            secondary.kill()
            writers.go_on()
            secondary.start()
            writers.go_on()
        replica_set.wait_until_steady()
    writers.check()
    assert_same(replica_set)


@with_set
def a_primary_that_is_stopped_is_replaced_and_does_not_answer_with_the_past(replica_set):
    """SIGSTOP for longer than an election; when it goes on, it believes for a moment that it leads."""
    with replica_set.connect() as client:
        register = client.failing.get_collection("register", write_concern=WriteConcern("majority"))
        register.insert_one({"_id": 0, "n": 0})
        old = replica_set.primary
        # Connections that are open already, of clients that know of no other member.
        ours = old.client()
        reads = {level: ours.failing.get_collection("register", read_concern=ReadConcern(level)) for level in ("linearizable", "majority")}
        for read in reads.values():
            equal(read.find_one({"_id": 0})["n"], 0)
        old.pause()
        replica_set.wait_for_primary(replica_set.others(old))
        register.update_one({"_id": 0}, {"$set": {"n": 1}})
        found = {}

        def ask(level):
            try:
                found[level] = reads[level].find_one({"_id": 0})
            except PyMongoError as error:
                found[level] = error

        asking = [threading.Thread(target=ask, args=(level,)) for level in reads]
        for thread in asking:
            thread.start()
        wait_until("requests in its socket", lambda: all(thread.is_alive() for thread in asking))
        old.resume()
        for thread in asking:
            thread.join()
        if isinstance(found["linearizable"], dict):
            equal(found["linearizable"]["n"], 1, "a stale linearizable read")
        replica_set.wait_until_steady()
        assert replica_set.primary is not old
        equal(old.hello()["secondary"], True)
        assert_same(replica_set)


@with_set
def a_member_that_was_away_catches_up(replica_set):
    away = replica_set.secondaries[0]
    with replica_set.connect() as client:
        away.stop()
        collection = client.failing.get_collection("meanwhile", write_concern=WriteConcern("majority"))
        for batch in range(20):
            collection.insert_many([{"batch": batch, "text": "x" * 1000} for _ in range(200)])
        collection.create_index("batch")
        collection.update_many({"batch": 3}, {"$set": {"changed": True}})
        away.start()
        replica_set.wait_until_steady()
        assert_same(replica_set)
        collection.drop()


@with_set
def a_minority_acknowledges_nothing(replica_set):
    with replica_set.connect() as client:
        client.failing.get_collection("minority", write_concern=WriteConcern(w=3)).insert_one({"_id": 0})
    primary = replica_set.primary
    others = replica_set.others(primary)
    for member in others:
        member.kill()
    lonely = primary.client(retryWrites=False, serverSelectionTimeoutMS=500).failing
    acknowledged = []

    def refused():
        try:
            majority = lonely.get_collection("minority", write_concern=WriteConcern("majority", wtimeout=200))
            acknowledged.append(majority.insert_one({}).inserted_id)
        except PyMongoError:
            pass
        return not primary.hello()["isWritablePrimary"]

    # Without a majority it steps down by itself.
    wait_until("the primary steps down", refused)
    equal(acknowledged, [])
    there = primary.client(readPreference="nearest").failing.minority
    equal(there.count_documents({"_id": 0}), 1, "reads are served")
    for member in others:
        member.start()
    replica_set.wait_until_steady()
    assert_same(replica_set)


@with_set
def members_that_are_killed_all_at_once_come_back_with_everything(replica_set):
    with Writers(replica_set) as writers:
        for member in replica_set.members:
            member.kill()
        for member in reversed(replica_set.members):
            member.start()
        replica_set.wait_until_steady()
        writers.go_on()
    writers.check()
    assert_same(replica_set)


@with_set
def members_that_are_stopped_all_at_once_come_back_with_everything(replica_set):
    with replica_set.connect() as client:
        client.failing.stopped.insert_many([{"_id": n} for n in range(100)])
        for member in replica_set.members:
            member.stop()
        for member in replica_set.members:
            member.start()
        replica_set.wait_until_steady()
        equal(client.failing.stopped.count_documents({}), 100)
        assert_same(replica_set)


@with_set
def without_a_majority_no_member_names_a_primary(replica_set):
    primary = replica_set.primary
    killed, left = replica_set.others(primary)[0], replica_set.others(primary)[1]
    for member in (primary, killed):
        member.kill()
    try:
        wait_until("no primary is named", lambda: "primary" not in left.hello())
        hello = left.hello()
        assert hello["secondary"] and hello["lastWrite"]["opTime"]["t"] > 0, hello
    finally:
        replica_set.settle()
