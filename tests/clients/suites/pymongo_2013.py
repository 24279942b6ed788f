"""PyMongo 2.4 (January 2013), used as in applications of that time: legacy opcodes and getLastError only."""

import hashlib
import os

from harness import legacy_python  # noqa: F401  (must come before the driver)
import gridfs
import pymongo
from harness import addresses
from harness.tap import equal, raises, run, test
from harness.waiting import wait_until
from pymongo.errors import DuplicateKeyError, OperationFailure


def fresh(client, name):
    client.drop_database(name)
    return client[name]


@test
def it_is_the_driver_that_was_asked_for(client):
    equal(pymongo.version, "2.4.2")
    assert client.server_info()["version"]


@test
def updates_without_an_answer_can_be_fast(client):
    collection = fresh(client, "old24").c
    collection.insert({"_id": 0})
    count = lambda: client.admin.command("serverStatus")["fastUpdates"]["updates"]  # noqa: E731
    before = count()
    # This client asks for the results, so its updates are not.
    for _ in range(3):
        reply = collection.update({"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
    equal((reply["n"], reply["updatedExisting"], count()), (1, True, before))
    silent = pymongo.MongoClient(os.environ["FROND_URI"], w=0)
    for _ in range(10):
        silent.old24.c.update({"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
    wait_until("all are there", lambda: collection.find_one(1)["n"] == 13)
    # Of the first one it is not known yet. Servers of a cluster send no messages.
    equal(count() - before, 0 if addresses.are_of_a_cluster(client) else 9)
    silent.close()


@test
def insert_query_update_delete(client):
    collection = fresh(client, "old24").c
    collection.ensure_index([("k", pymongo.DESCENDING)])
    collection.insert([{"_id": n, "k": n % 10, "s": str(n)} for n in range(100)])
    found = collection.find({"k": {"$gte": 8}}, {"s": 0}).sort([("k", -1), ("_id", 1)]).limit(12)
    equal([(d["k"], d["_id"]) for d in found], [(9, n) for n in range(9, 100, 10)] + [(8, 8), (8, 18)])
    equal([d["_id"] for d in collection.find(sort=[("_id", 1)]).skip(90).limit(3)], [90, 91, 92])
    reply = collection.update({"_id": 5}, {"$inc": {"k": 100}, "$set": {"x.y": 1}})
    equal((reply["n"], reply["updatedExisting"], reply["err"]), (1, True, None))
    equal(collection.find_one({"k": 105}), {"_id": 5, "k": 105, "s": "5", "x": {"y": 1}})
    equal(collection.update({"k": 1}, {"$push": {"list": 1}}, multi=True)["n"], 10)
    reply = collection.update({"_id": 500}, {"$set": {"k": 1}}, upsert=True)
    equal((reply["n"], reply["updatedExisting"]), (1, False))
    equal(collection.save({"_id": 501, "k": 3}), 501)
    collection.save({"_id": 501, "k": 4})
    equal(collection.find_one(501), {"_id": 501, "k": 4})
    equal(collection.remove({"k": 2})["n"], 10)
    equal(collection.find({"k": 1}).count(), 11)
    equal(collection.count(), 92)
    equal(sorted(collection.distinct("k")), [0, 1, 3, 4, 5, 6, 7, 8, 9, 105])
    equal(collection.find_and_modify({"_id": 5}, {"$inc": {"k": 1}}, new=True)["k"], 106)
    equal(collection.find_and_modify({"_id": 5}, remove=True)["k"], 106)


@test
def upserted_ids_are_told(client):
    collection = fresh(client, "old24").upserted
    reply = collection.update({"name": "new"}, {"$set": {"x": 1}}, upsert=True)
    equal(reply["upserted"], collection.find_one()["_id"])


@test
def duplicates_are_told_by_get_last_error(client):
    collection = fresh(client, "old24").d
    collection.ensure_index("u", unique=True)
    collection.insert({"_id": 1, "u": 1})
    # This driver knows the error by its code 11000, and keeps only its text.
    assert "E11000" in str(raises(DuplicateKeyError, collection.insert, {"_id": 2, "u": 1}))
    raises(DuplicateKeyError, collection.insert, [{"_id": n} for n in (5, 1, 6)], safe=True)
    equal(sorted(d["_id"] for d in collection.find()), [1, 5])
    collection.remove({"_id": 5})
    raises(
        DuplicateKeyError,
        collection.insert,
        [{"_id": n, "u": n} for n in (7, 1, 8)],
        continue_on_error=True,
    )
    equal(sorted(d["_id"] for d in collection.find()), [1, 7, 8])
    raises(DuplicateKeyError, collection.update, {"_id": 7}, {"$set": {"u": 1}})
    equal(raises(OperationFailure, collection.update, {"_id": 7}, {"$inc": {"s": "x"}}).code, 14)
    # A successful operation clears the error.
    equal(collection.update({"_id": 7}, {"$set": {"u": 70}})["err"], None)


@test
def silent_writes_arrive_in_order(client):
    collection = fresh(client, "old24").silent
    for n in range(3000):
        collection.insert({"_id": n, "pad": "z" * 100}, w=0)
    collection.insert({"_id": 0}, w=0)
    collection.update({}, {"$set": {"x": 1}}, multi=True, w=0)
    collection.remove({"_id": {"$gte": 100}}, w=0)
    with client.start_request():
        collection.insert({"_id": 1}, w=0)
        error = client.old24.error()
        equal(error["code"], 11000)
    wait_until("all writes", lambda: (collection.find({"x": 1}).count(), collection.count()) == (100, 100))
    equal((collection.find({"x": 1}).count(), collection.count()), (100, 100))


@test
def ten_thousand_documents_page_by_page(client):
    collection = fresh(client, "old24").pages
    for start in range(0, 10_000, 1000):
        collection.insert([{"_id": n} for n in range(start, start + 1000)])
    equal([d["_id"] for d in collection.find().sort("_id", 1).batch_size(100)], list(range(10_000)))
    equal([d["_id"] for d in collection.find({"_id": {"$gt": 9000}}).sort("_id", 1)], list(range(9001, 10_000)))
    # Killing a cursor is one message without a reply.
    cursor = collection.find().batch_size(2)
    cursor_id = next(cursor) and cursor.cursor_id
    client.kill_cursors([cursor_id])
    # Batches of two: it has not ended before the message arrives.
    wait_until("a killed cursor", lambda: is_killed(cursor))


def is_killed(cursor):
    """Whether the server refuses the next document."""
    try:
        next(cursor)
    except OperationFailure:
        return True
    return False


@test
def query_modifiers(client):
    collection = fresh(client, "old24").modifiers
    collection.ensure_index("k")
    collection.insert([{"_id": n, "k": n} for n in range(20)])
    equal([d["_id"] for d in collection.find({"k": {"$gt": 15}}).hint([("k", 1)]).sort("k", -1)], [19, 18, 17, 16])
    assert collection.find({"k": 5}).explain()
    raises(OperationFailure, list, collection.find({"k": {"$nosuch": 1}}))
    equal(len(list(collection.find(snapshot=False, timeout=False, slave_okay=True))), 20)
    equal(client.old24.command("count", "modifiers", query={"k": {"$lt": 3}})["n"], 3)


@test
def aggregate(client):
    collection = fresh(client, "old24").a
    collection.insert([{"g": n % 3, "n": n} for n in range(30)])
    pipeline = [{"$group": {"_id": "$g", "sum": {"$sum": "$n"}}}, {"$sort": {"_id": 1}}]
    expected = [{"_id": g, "sum": 135 + 10 * g} for g in range(3)]
    reply = collection.aggregate(pipeline)
    equal((reply["result"], reply["ok"]), (expected, 1.0))
    # The driver has no cursors here; an explicit request for one works.
    reply = client.old24.command("aggregate", "a", pipeline=pipeline, cursor={})
    equal(reply["cursor"]["firstBatch"], expected)
    collection.insert([{"_id": n, "s": "x" * (1 << 20)} for n in range(17)])
    assert "16MB" in str(raises(OperationFailure, collection.aggregate, []))
    equal(len(collection.aggregate([{"$limit": 12}])["result"]), 12)


@test
def files(client):
    database = fresh(client, "old24")
    # The driver lets the server compute the MD5 sum of the file.
    grid = gridfs.GridFS(database)
    content = bytes(range(256)) * 3000
    stored = grid.put(content, filename="letter", author="Ada")
    equal(grid.get(stored).md5, hashlib.md5(content).hexdigest())
    equal(grid.get_last_version("letter").read(), content)
    equal(grid.get(grid.put(b"", filename="empty")).md5, hashlib.md5(b"").hexdigest())
    grid.delete(stored)
    equal(grid.list(), ["empty"])


@test
def explain_validate_and_map(client):
    collection = fresh(client, "old24").e
    collection.insert([{"_id": n, "k": n % 5} for n in range(20)])
    collection.ensure_index("k")
    plan = collection.find({"k": 3}).hint([("k", 1)]).explain()
    equal(plan["executionStats"]["nReturned"], 4)
    equal(len(list(collection.find(snapshot=True))), 20)
    equal(client.old24.validate_collection("e")["valid"], True)
    collection.drop_index("k_1")
    equal(list(collection.index_information()), ["_id_"])
    counted = collection.map_reduce("function() { emit(this.k, 1) }", "function(k, ones) { return Array.sum(ones) }", "out")
    equal(list(counted.find(sort=[("_id", 1)])), [{"_id": float(k), "value": 4.0} for k in range(5)])
    # MongoDB removed these in 4.2.
    for call in (lambda: collection.group(["k"], {}, {"n": 0}, "function() {}"),
                 lambda: client.old24.eval("1")):
        raises(OperationFailure, call)


connection = pymongo.MongoClient("127.0.0.1", int(os.environ["FROND_PORT"]))
run(connection)
