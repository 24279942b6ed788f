"""PyMongo 3.6 (2018): commands travel in OP_QUERY, and unacknowledged writes in legacy opcodes."""

import os

from harness import legacy_python  # noqa: F401  (must come before the driver)
import pymongo
from harness import addresses
from harness.tap import equal, of_one_server, raises, run, test
from harness.waiting import wait_until
from pymongo import InsertOne, MongoClient, ReturnDocument, UpdateOne, WriteConcern
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure


def fresh(client, name):
    client.drop_database(name)
    return client[name]


@test
def it_is_the_driver_that_was_asked_for(client):
    equal(pymongo.version, "3.6.1")
    equal(client.admin.command("ping")["ok"], 1.0)
    assert client.server_info()["version"]


@test
def insert_query_update_delete(client):
    collection = fresh(client, "old36").c
    collection.create_index([("k", pymongo.DESCENDING)])
    collection.insert_many([{"_id": n, "k": n % 10, "s": str(n)} for n in range(100)])
    found = collection.find({"k": {"$gte": 8}}, {"s": 0}).sort([("k", -1), ("_id", 1)]).limit(12)
    equal([(d["k"], d["_id"]) for d in found], [(9, n) for n in range(9, 100, 10)] + [(8, 8), (8, 18)])
    equal(collection.update_one({"_id": 5}, {"$inc": {"k": 100}, "$set": {"x.y": 1}}).modified_count, 1)
    equal(collection.find_one({"k": 105}), {"_id": 5, "k": 105, "s": "5", "x": {"y": 1}})
    equal(collection.update_many({"k": 1}, {"$push": {"list": 1}}).modified_count, 10)
    equal(collection.update_one({"_id": 500}, {"$set": {"k": 1}}, upsert=True).upserted_id, 500)
    equal(collection.delete_many({"k": 2}).deleted_count, 10)
    equal(collection.count({"k": 1}), 11)
    equal(collection.count(), 91)
    equal(sorted(collection.distinct("k")), [0, 1, 3, 4, 5, 6, 7, 8, 9, 105])
    equal(
        collection.find_one_and_update(
            {"_id": 5}, {"$inc": {"k": 1}}, return_document=ReturnDocument.AFTER, projection=["k"]
        ),
        {"_id": 5, "k": 106},
    )
    equal(collection.find_one_and_delete({"_id": 5})["k"], 106)


@test
def aggregate(client):
    collection = fresh(client, "old36").a
    collection.insert_many([{"g": n % 3, "n": n} for n in range(30)])
    pipeline = [{"$group": {"_id": "$g", "sum": {"$sum": "$n"}}}, {"$sort": {"_id": 1}}]
    equal(list(collection.aggregate(pipeline)), [{"_id": g, "sum": 135 + 10 * g} for g in range(3)])


@test
@of_one_server
def ten_thousand_documents_page_by_page(client):
    collection = fresh(client, "old36").pages
    collection.insert_many([{"_id": n} for n in range(10_000)])
    equal([d["_id"] for d in collection.find().sort("_id", 1).batch_size(100)], list(range(10_000)))
    cursor = collection.find().batch_size(2)
    next(cursor)
    cursor_id = cursor.cursor_id
    cursor.close()
    wait_until("a killed cursor", lambda: code_of_get_more(collection, cursor_id) == 43)
    client.kill_cursors([cursor_id, 12345], ("127.0.0.1", client.address[1]))


def code_of_get_more(collection, cursor_id):
    """The code of the error that the next two documents get; `None` if they come."""
    more = {"collection": collection.name, "batchSize": 2}
    try:
        collection.database.command("getMore", pymongo_int64(cursor_id), **more)
    except OperationFailure as error:
        return error.code


def pymongo_int64(number):
    from bson.int64 import Int64

    return Int64(number)


@test
def duplicates_and_bulks(client):
    collection = fresh(client, "old36").d
    collection.create_index("u", unique=True)
    collection.insert_one({"_id": 1, "u": 1})
    equal(raises(DuplicateKeyError, collection.insert_one, {"_id": 2, "u": 1}).code, 11000)
    error = raises(
        BulkWriteError,
        collection.bulk_write,
        [InsertOne({"_id": 3, "u": 3}), InsertOne({"_id": 4, "u": 3}), UpdateOne({"_id": 1}, {"$set": {"v": 1}})],
        ordered=False,
    )
    equal([(e["index"], e["code"]) for e in error.details["writeErrors"]], [(1, 11000)])
    equal((error.details["nInserted"], error.details["nModified"]), (1, 1))
    equal(raises(OperationFailure, collection.database.command, "nosuch").code, 59)


@test
@of_one_server
def unacknowledged_writes_arrive_in_order(client):
    collection = fresh(client, "old36").silent
    silent = collection.with_options(write_concern=WriteConcern(w=0))
    for n in range(1000):
        silent.insert_one({"_id": n})
    silent.insert_many([{"_id": n} for n in range(1000, 3000)])
    silent.update_many({}, {"$set": {"x": 1}})
    silent.delete_many({"_id": {"$gte": 100}})
    wait_until("all writes", lambda: (collection.count({"x": 1}), collection.count()) == (100, 100))
    equal((collection.count({"x": 1}), collection.count()), (100, 100))


@test
def catalog(client):
    database = fresh(client, "old36cat")
    database.create_collection("a")
    database.b.insert_one({})
    equal(sorted(database.collection_names()), ["a", "b"])
    assert "old36cat" in client.database_names()
    database.b.create_index("x")
    equal(sorted(database.b.index_information()), ["_id_", "x_1"])
    database.b.rename("c")
    database.c.drop_index("x_1")
    database.drop_collection("a")
    equal(database.collection_names(), ["c"])


with_uri = MongoClient(os.environ["FROND_URI"], serverSelectionTimeoutMS=60_000)
# Unacknowledged writes are in order on one connection only, and the pool of this driver takes any of its connections.
first = MongoClient(addresses.first(), maxPoolSize=1, serverSelectionTimeoutMS=60_000)
run(with_uri, of_one_server=(first,))
