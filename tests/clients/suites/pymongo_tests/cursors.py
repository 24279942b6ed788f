"""Cursors: batches, exhaustion, killing."""

import gc

from bson import Int64
from harness.tap import equal, of_one_server, raises, test
from pymongo.errors import CursorNotFound, OperationFailure

from . import fresh


def numbers(client, count):
    collection = fresh(client, "cursors").numbers
    collection.insert_many([{"_id": n} for n in range(count)])
    return collection


@test
@of_one_server
def batches_have_the_size_asked_for(client):
    database = numbers(client, 1000).database
    first = database.command("find", "numbers", sort={"_id": 1}, batchSize=10)["cursor"]
    equal((len(first["firstBatch"]), first["ns"], first["id"] != 0), (10, "cursors.numbers", True))
    more = database.command("getMore", Int64(first["id"]), collection="numbers", batchSize=25)["cursor"]
    equal([d["_id"] for d in more["nextBatch"]], list(range(10, 35)))
    equal(more["id"], first["id"])
    rest = database.command("getMore", Int64(first["id"]), collection="numbers")["cursor"]
    equal((len(rest["nextBatch"]), rest["id"]), (965, 0))
    # The default first batch is 101 documents; zero opens a cursor and sends none.
    equal(len(database.command("find", "numbers")["cursor"]["firstBatch"]), 101)
    empty = database.command("find", "numbers", batchSize=0)["cursor"]
    equal((empty["firstBatch"], empty["id"] != 0), ([], True))
    whole = database.command("find", "numbers", limit=5, singleBatch=True)["cursor"]
    equal((len(whole["firstBatch"]), whole["id"]), (5, 0))
    limited = database.command("find", "numbers", limit=30, batchSize=20)["cursor"]
    rest = database.command("getMore", Int64(limited["id"]), collection="numbers")["cursor"]
    equal((len(rest["nextBatch"]), rest["id"]), (10, 0))


@test
@of_one_server
def killed_cursors_are_gone(client):
    collection = numbers(client, 1000)
    cursor = collection.find().batch_size(10)
    next(cursor)
    cursor_id = cursor.cursor_id
    reply = collection.database.command("killCursors", "numbers", cursors=[Int64(cursor_id), Int64(1)])
    equal((reply["cursorsKilled"], reply["cursorsNotFound"]), ([cursor_id], [1]))
    error = raises(CursorNotFound, list, cursor)
    equal(error.code, 43)
    # Closing a cursor kills it on the server.
    cursor = collection.find().batch_size(10)
    next(cursor)
    cursor_id = cursor.cursor_id
    cursor.close()
    error = raises(OperationFailure, collection.database.command, "getMore", Int64(cursor_id), collection="numbers")
    equal(error.code, 43)
    # A cursor cannot be used with another collection.
    cursor = collection.find().batch_size(10)
    next(cursor)
    raises(
        OperationFailure,
        collection.database.command,
        "getMore",
        Int64(cursor.cursor_id),
        collection="other",
    )
    del cursor
    gc.collect()


@test
def open_cursors_survive_writes(client):
    collection = numbers(client, 2000)
    seen = []
    for document in collection.find({"_id": {"$lt": 2000}}).sort("_id", 1).batch_size(100):
        seen.append(document["_id"])
        if len(seen) == 500:
            collection.delete_many({"_id": {"$gte": 5000}})
            collection.insert_many([{"_id": n} for n in range(5000, 6000)])
            collection.update_many({}, {"$set": {"touched": True}})
    equal(seen, list(range(2000)))


@test
def many_cursors_at_once(client):
    collection = numbers(client, 300)
    cursors = [collection.find().sort("_id", 1).batch_size(2) for _ in range(100)]
    for round_number in range(10):
        for cursor in cursors:
            equal(next(cursor)["_id"], round_number)
    for cursor in cursors:
        cursor.close()


@test
def sort_larger_than_a_reply(client):
    collection = fresh(client, "cursors").wide
    collection.insert_many([{"_id": n, "k": -n, "pad": "p" * 20_000} for n in range(2000)])
    equal([d["_id"] for d in collection.find().sort("k", 1)], list(range(1999, -1, -1)))


@test
def time_limits_and_comments_are_taken(client):
    collection = numbers(client, 10)
    equal(len(list(collection.find().max_time_ms(60_000).comment("note"))), 10)
    equal(len(list(collection.find(no_cursor_timeout=True))), 10)
    equal(len(list(collection.find(allow_partial_results=True))), 10)
    equal(len(list(collection.find(hint="_id_"))), 10)
    equal(raises(OperationFailure, list, collection.find(hint="nosuch")).code, 2)
