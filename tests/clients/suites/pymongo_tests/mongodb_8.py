"""Commands that drivers send to MongoDB 8.0, and replies that users see."""

import uuid

import pymongo
from bson.int64 import Int64
from harness import addresses
from harness.tap import equal, of_one_server, raises, test
from pymongo.errors import AutoReconnect, ConfigurationError, OperationFailure, ServerSelectionTimeoutError

from . import fresh


@test
def a_bulk_write_of_the_client_over_two_collections(client):
    database = fresh(client, "eight")
    result = client.bulk_write([
        pymongo.InsertOne({"_id": 1, "a": 1}, namespace="eight.c"),
        pymongo.InsertOne({"_id": 1, "a": 1}, namespace="eight.d"),
        pymongo.UpdateOne({"_id": 1}, {"$inc": {"a": 1}}, namespace="eight.d"),
        pymongo.UpdateOne({"_id": 2}, {"$set": {"a": 5}}, upsert=True, namespace="eight.c"),
        pymongo.DeleteOne({"_id": 1}, namespace="eight.c"),
    ], verbose_results=True)
    equal((result.inserted_count, result.modified_count, result.upserted_count, result.deleted_count), (2, 1, 1, 1))
    equal(result.update_results[3].upserted_id, 2)
    equal(list(database.c.find()), [{"_id": 2, "a": 5}])
    equal(list(database.d.find()), [{"_id": 1, "a": 2}])


@test
def the_first_by_a_sort_is_updated_also_without_acknowledgement(client):
    # Below wire version 25 PyMongo refuses this itself.
    database = fresh(client, "eight")
    database.c.insert_many([{"_id": n, "a": -n} for n in range(3)])
    silent = database.c.with_options(write_concern=pymongo.WriteConcern(w=0))
    silent.update_one({}, {"$set": {"first": True}}, sort={"a": 1})
    silent.replace_one({}, {"a": 9}, sort={"a": -1})
    # A read over another connection may overtake unacknowledged writes.
    for _ in range(1000):
        if database.c.count_documents({"$or": [{"first": True}, {"a": 9}]}) == 2:
            break
    equal(list(database.c.find({"first": True})), [{"_id": 2, "a": -2, "first": True}])
    equal(list(database.c.find({"a": 9})), [{"_id": 0, "a": 9}])


@test
def text_becomes_a_uuid(client):
    database = fresh(client, "eight")
    one = uuid.uuid4()
    database.c.insert_one({"_id": 1, "text": str(one)})
    pipeline = [{"$project": {"id": {"$toUUID": "$text"}}}, {"$set": {"back": {"$toString": "$id"}}}]
    found = next(database.c.aggregate(pipeline))
    equal((found["id"].as_uuid(), found["back"]), (one, str(one)))


def longs(value, path=""):
    """Paths of 64-bit integers, which a shell shows as Long('1')."""
    if isinstance(value, dict):
        return [found for name, inner in value.items() for found in longs(inner, f"{path}.{name}")]
    if isinstance(value, list):
        return [found for inner in value for found in longs(inner, path)]
    return [path] if isinstance(value, Int64) else []


@test
def an_explanation_has_plain_integers_and_a_size_that_fits(client):
    database = fresh(client, "eight")
    database.c.insert_many([{"_id": n, "a": float(n)} for n in range(100)])
    database.c.create_index("a")
    plan = database.command("explain", {"find": "c", "filter": {"a": {"$gt": 50}}}, verbosity="executionStats")
    equal([path for path in longs(plan) if not path.startswith(".$clusterTime")], [])
    equal(plan["executionStats"]["nReturned"], 49)
    equal(plan["executionStats"]["executionStages"]["inputStage"]["seeks"], 1)
    million = {"a": {"$in": [n / 2 for n in range(1_000_000)]}}
    plan = database.command("explain", {"find": "c", "filter": million}, verbosity="executionStats")
    equal(plan["executionStats"]["nReturned"], 100)
    scan = plan["queryPlanner"]["winningPlan"]["inputStage"]
    equal((scan["stage"], scan["warning"]), ("IXSCAN", "index bounds omitted due to BSON size limit for explain"))
    error = raises(OperationFailure, database.c.aggregate, [
        {"$set": {"text": "x" * 300_000}},
        {"$group": {"_id": None, "all": {"$push": "$text"}}},
    ])
    equal((error.code, error.details["codeName"]), (10334, "BSONObjectTooLarge"))


@test
def what_was_just_inserted_has_a_size(client):
    database = fresh(client, "eight")
    database.c.insert_many([{"text": "some text " * 100} for _ in range(1200)])
    stats = database.command("collStats", "c")
    if addresses.are_of_a_cluster(client):
        # Of the data, that is; the sizes of files in a TiKV cluster are not known.
        assert stats["size"] > 1200 * 1000, stats
        return
    assert stats["storageSize"] > 0 and stats["totalIndexSize"] > 0, stats
    listed = {one["name"]: one["sizeOnDisk"] for one in client.list_databases()}
    assert listed["eight"] > 0, listed


@test
@of_one_server
def wrong_addresses_say_what_is_wrong(client):
    host, port = client.address
    plain = f"mongodb://{host}:{port}/?serverSelectionTimeoutMS=1000"
    with pymongo.MongoClient(plain, username="somebody", password="secret") as login:
        error = raises(OperationFailure, login.test.c.find_one)
        equal((error.code, error.details["errmsg"]), (18, "Authentication failed."))
    with pymongo.MongoClient(plain, tls=True) as secure:
        error = raises((AutoReconnect, ServerSelectionTimeoutError), secure.test.c.find_one)
        equal("alert" in str(error).lower(), True)
    with pymongo.MongoClient(plain, replicaSet="nosuch") as member:
        raises((ServerSelectionTimeoutError, ConfigurationError), member.test.c.find_one)
