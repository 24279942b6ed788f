"""Change streams of every member, with tokens that are good at all."""

import threading

from harness.tap import equal
from harness.waiting import wait_until
from pymongo import ReadPreference, WriteConcern
from pymongo.errors import PyMongoError

from .common import with_set


def events(stream, count):
    """The next events, by what they are about."""
    found = []

    def read():
        event = stream.try_next()
        if event:
            found.append(event["documentKey"]["_id"])
        return len(found) == count

    wait_until(f"{count} events, not only {found[-3:]}", read)
    return found


@with_set
def every_member_streams_the_same(replica_set):
    clients = [member.client(readPreference="nearest") for member in replica_set.members]
    opened = [client.streamed.c.watch(max_await_time_ms=50) for client in clients]
    try:
        for stream in opened:
            equal(stream.try_next(), None)
        with replica_set.connect() as client:
            client.streamed.c.insert_many([{"_id": n} for n in range(50)])
            client.streamed.c.update_one({"_id": 0}, {"$set": {"a": 1}})
            client.streamed.c.delete_one({"_id": 1})
            with client.start_session() as session, session.start_transaction():
                client.streamed.c.insert_many([{"_id": n} for n in (100, 101)], session=session)
        found = []
        for stream in opened:
            seen = []
            wait_until("all events", lambda stream=stream, seen=seen: (event := stream.try_next()) and seen.append(event) or len(seen) == 54)
            found.append(seen)
        equal(found[1:], found[:-1])
        kinds = [event["operationType"] for event in found[0]]
        equal(kinds, ["insert"] * 50 + ["update", "delete", "insert", "insert"])
    finally:
        for stream in opened:
            stream.close()


@with_set
def a_token_of_one_member_is_good_at_another(replica_set):
    with replica_set.connect() as client:
        collection = client.streamed.get_collection("tokens", write_concern=WriteConcern(w=3))
        first = replica_set.members[0].client(readPreference="nearest")
        with first.streamed.tokens.watch(max_await_time_ms=50) as stream:
            equal(stream.try_next(), None)
            collection.insert_many([{"_id": n} for n in range(30)])
            seen = events(stream, 5)
            token = stream.resume_token
        for member in replica_set.members[1:] + replica_set.members[:1]:
            there = member.client(readPreference="nearest").streamed.tokens
            with there.watch(resume_after=token, max_await_time_ms=50) as stream:
                seen += events(stream, 5)
                token = stream.resume_token
        equal(seen, list(range(20)))


@with_set
def a_stream_of_a_secondary_shows_only_what_a_majority_has(replica_set):
    primary = replica_set.primary
    reader, other = replica_set.secondaries
    with reader.client(readPreference="nearest").streamed.uncommitted.watch(max_await_time_ms=50) as stream, \
            primary.client().streamed.uncommitted.watch(max_await_time_ms=50) as own:
        equal((stream.try_next(), own.try_next()), (None, None))
        alone = primary.client().streamed.get_collection("uncommitted", write_concern=WriteConcern(w=1))
        reader.pause()
        other.pause()
        alone.insert_one({"_id": "alone"})
        equal(own.try_next(), None, "an event that may be rolled back")
        reader.resume()
        other.resume()
        replica_set.wait_until_steady()
        equal(events(stream, 1), ["alone"])
        equal(events(own, 1), ["alone"])


class Followed:
    """A stream as applications keep one: it is opened again by its last token when the driver gives up."""

    def __init__(self, collection):
        self.collection, self.token, self.seen = collection, None, []
        self.stream = collection.watch(max_await_time_ms=50)
        equal(self.stream.try_next(), None)

    def read(self, count):
        goal = len(self.seen) + count
        wait_until(f"{goal} events, there are {len(self.seen)}", lambda: self._step() or len(self.seen) >= goal)

    def _step(self):
        try:
            event = self.stream.try_next()
        except PyMongoError:
            event = None
        if event:
            self.seen.append(event["documentKey"]["_id"])
        self.token = self.stream.resume_token
        if not self.stream.alive:
            self.stream = self.collection.watch(resume_after=self.token, max_await_time_ms=50)

    def close(self):
        self.stream.close()


@with_set
def a_stream_of_the_set_survives_failovers(replica_set):
    # The driver waits for so long for the member of a cursor.
    with replica_set.connect() as client, replica_set.connect(serverSelectionTimeoutMS=2000) as hasty:
        ends, problems, written = threading.Event(), [], []

        def write():
            while not ends.is_set():
                try:
                    client.streamed.surviving.insert_one({"_id": len(written)})
                except PyMongoError as error:
                    problems.append(repr(error))
                    return
                written.append(len(written))
                # Readers have to keep up.
                ends.wait(0.01)

        secondary = hasty.get_database("streamed", read_preference=ReadPreference.SECONDARY_PREFERRED)
        streams = [Followed(database.surviving) for database in (hasty.streamed, secondary)]
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for victim in (replica_set.primary, replica_set.secondaries[0]):
                for stream in streams:
                    stream.read(10)
                victim.kill()
                for stream in streams:
                    stream.read(10)
                victim.start()
                replica_set.wait_until_steady()
        finally:
            ends.set()
            writer.join()
        equal(problems, [])
        for stream in streams:
            stream.read(len(written) - len(stream.seen))
            equal(stream.seen, written)
            stream.close()
