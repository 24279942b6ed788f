"""Bulk writes, write concerns, retryable writes."""

import os

from harness import addresses
from harness.tap import equal, raises, test
from harness.waiting import wait_until
from pymongo import DeleteOne, InsertOne, MongoClient, ReplaceOne, UpdateMany, UpdateOne, WriteConcern
from pymongo.errors import BulkWriteError

from . import fresh


@test
def a_mixed_bulk_counts_everything(client):
    collection = fresh(client, "writes").bulk
    result = collection.bulk_write(
        [
            InsertOne({"_id": 1, "n": 1}),
            InsertOne({"_id": 2, "n": 2}),
            UpdateOne({"_id": 1}, {"$inc": {"n": 10}}),
            UpdateMany({"n": {"$gt": 0}}, {"$set": {"seen": True}}),
            ReplaceOne({"_id": 3}, {"n": 3}, upsert=True),
            UpdateOne({"_id": 4}, {"$set": {"n": 4}}, upsert=True),
            DeleteOne({"_id": 2}),
        ]
    )
    equal(
        (result.inserted_count, result.matched_count, result.modified_count, result.deleted_count),
        (2, 3, 3, 1),
    )
    equal(result.upserted_ids, {4: 3, 5: 4})
    equal([d["n"] for d in collection.find().sort("_id", 1)], [11, 3, 4])


@test
def an_ordered_bulk_stops_at_the_failure_and_names_it(client):
    collection = fresh(client, "writes").ordered
    documents = [{"_id": n if n != 7 else 3} for n in range(20)]
    error = raises(BulkWriteError, collection.insert_many, documents)
    equal(error.details["nInserted"], 7)
    equal([(e["index"], e["code"]) for e in error.details["writeErrors"]], [(7, 11000)])
    equal(dict(error.details["writeErrors"][0]["keyPattern"]), {"_id": 1})
    equal(collection.count_documents({}), 7)


@test
def an_unordered_bulk_goes_on_and_names_each_failure(client):
    collection = fresh(client, "writes").unordered
    collection.create_index("u", unique=True)
    documents = [{"_id": n, "u": n if n % 5 else 0} for n in range(20)]
    error = raises(BulkWriteError, collection.insert_many, documents, ordered=False)
    equal(error.details["nInserted"], 17)
    equal([e["index"] for e in error.details["writeErrors"]], [5, 10, 15])
    for write_error in error.details["writeErrors"]:
        equal((write_error["code"], dict(write_error["keyValue"])), (11000, {"u": 0}))
    error = raises(
        BulkWriteError,
        collection.bulk_write,
        [
            UpdateOne({"_id": 1}, {"$set": {"u": 2}}),
            UpdateOne({"_id": 1}, {"$set": {"ok": True}}),
            UpdateOne({"_id": 2}, {"$inc": {"u": "x"}}),
        ],
        ordered=False,
    )
    equal([(e["index"], e["code"]) for e in error.details["writeErrors"]], [(0, 11000), (2, 14)])
    equal(collection.find_one({"_id": 1})["ok"], True)


@test
def a_batch_of_fifty_thousand(client):
    collection = fresh(client, "writes").large
    result = collection.insert_many([{"_id": n, "pad": "y" * 20} for n in range(50_000)])
    equal(len(result.inserted_ids), 50_000)
    equal(collection.estimated_document_count(), 50_000)
    equal(collection.delete_many({"_id": {"$gte": 10_000}}).deleted_count, 40_000)
    equal(collection.count_documents({}), 10_000)


@test
def unacknowledged_writes_arrive(client):
    collection = fresh(client, "writes").unacknowledged
    silent = collection.with_options(write_concern=WriteConcern(w=0))
    for n in range(200):
        equal(silent.insert_one({"_id": n}).acknowledged, False)
    silent.insert_many([{"_id": n} for n in range(200, 5000)])
    silent.insert_one({"_id": 0})
    wait_until("the inserts", lambda: collection.count_documents({}) >= 5000)
    equal(collection.count_documents({}), 5000)
    silent.update_many({}, {"$set": {"x": 1}})
    silent.delete_many({"_id": {"$gte": 100}})
    wait_until("the deletes", lambda: collection.count_documents({}) <= 100)
    equal(collection.count_documents({"x": 1}), 100)


@test
def a_bulk_sends_its_options_with_each_kind_of_write(client):
    collection = fresh(client, "writes").options
    collection.insert_many([{"_id": n} for n in range(3)])
    for bypass in (False, True):
        result = collection.bulk_write(
            [InsertOne({"_id": 9}), UpdateOne({"_id": 0}, {"$inc": {"n": 1}}), DeleteOne({"_id": 9})],
            bypass_document_validation=bypass,
            comment="both",
            let={"x": 1},
        )
        equal((result.inserted_count, result.modified_count, result.deleted_count), (1, 1, 1))
    equal(collection.find_one({"_id": 0}), {"_id": 0, "n": 2})


@test
def an_unacknowledged_command_is_answered_with_ok_only(client):
    database = fresh(client, "writes")
    for command in (
        {"insert": "silent", "documents": [{"_id": 1}, {"_id": 1}]},
        {"update": "silent", "updates": [{"q": {}, "u": {"$set": {"x": 1}}}]},
        {"delete": "silent", "deletes": [{"q": {}, "limit": 1}]},
    ):
        reply = database.command({**command, "writeConcern": {"w": 0}})
        equal(addresses.without_times(reply), {"ok": 1.0})
    equal(database.silent.count_documents({}), 0)


@test
def write_concerns_that_one_server_can_meet(client):
    database = fresh(client, "writes")
    for number, concern in enumerate(
        [WriteConcern(w=1), WriteConcern(j=True), WriteConcern(w="majority", wtimeout=1000), WriteConcern(w=1, j=False)]
    ):
        collection = database.get_collection("concern", write_concern=concern)
        equal(collection.insert_one({"_id": number}).acknowledged, True)
    equal(database.concern.count_documents({}), 4)


@test
def retryable_writes_and_sessions_work_as_drivers_set_them(client):
    database = fresh(client, "writes")
    with MongoClient(os.environ["FROND_URI"], retryWrites=True, retryReads=True) as other:
        collection = other.writes.retry
        with other.start_session() as session:
            collection.insert_one({"_id": 1}, session=session)
            collection.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
            equal(collection.find_one({"_id": 1}, session=session), {"_id": 1, "n": 1})
            equal(len(list(collection.find({}, session=session))), 1)
        with other.start_session(causal_consistency=True) as session:
            collection.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}, session=session)
            collection.delete_one({"_id": 1}, session=session)
    equal(database.retry.count_documents({}), 0)
