"""Change streams of PyMongo 3.6 (2018), the first that has them: of collections only, with tokens of events only."""

import os

from harness import legacy_python  # noqa: F401  (must come before the driver)
from harness.tap import equal, raises, run, test
from pymongo import MongoClient
from pymongo.errors import OperationFailure


def take(stream, count):
    return [next(stream) for _ in range(count)]


@test
def a_collection_is_watched(client):
    client.drop_database("streams36")
    collection = client.streams36.c
    collection.insert_one({"_id": 0})
    stream = collection.watch(full_document="updateLookup")
    collection.insert_many([{"_id": 1}, {"_id": 2}])
    collection.update_one({"_id": 1}, {"$set": {"a": 1}})
    collection.replace_one({"_id": 2}, {"r": 1})
    collection.delete_one({"_id": 1})
    events = take(stream, 5)
    equal([event["operationType"] for event in events], ["insert", "insert", "update", "replace", "delete"])
    equal(events[2]["updateDescription"]["updatedFields"], {"a": 1})
    stream.close()
    again = collection.watch(resume_after=events[1]["_id"])
    equal([event["_id"] for event in take(again, 3)], [event["_id"] for event in events[2:]])
    again.close()


@test
def it_goes_on_when_its_cursor_is_killed(client):
    collection = client.streams36.c
    with collection.watch([{"$match": {"operationType": "insert"}}]) as stream:
        collection.insert_one({"_id": "a"})
        equal(next(stream)["documentKey"], {"_id": "a"})
        client.streams36.command({"killCursors": "c", "cursors": [stream._cursor.cursor_id]})
        collection.insert_one({"_id": "b"})
        equal(next(stream)["documentKey"], {"_id": "b"})


@test
def it_waits_and_ends(client):
    collection = client.streams36.dropped
    collection.insert_one({})
    stream = collection.watch(max_await_time_ms=300)
    collection.drop()
    kinds = [next(stream)["operationType"] for _ in range(2)]
    equal(kinds, ["drop", "invalidate"])
    raises(OperationFailure, collection.watch, [{"$group": {"_id": 1}}])


with_uri = MongoClient(os.environ["FROND_URI"], serverSelectionTimeoutMS=60_000)
run(with_uri)
