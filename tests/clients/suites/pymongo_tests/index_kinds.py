"""Kinds and options of indexes: hashed, wildcard, clustering, TTL, hidden, and collMod."""

import datetime

from harness import addresses
from harness.tap import equal, of_one_server, raises, test
from harness.waiting import wait_until
from pymongo import HASHED, IndexModel
from pymongo.errors import DuplicateKeyError, OperationFailure

from . import fresh


def index_of(plan):
    """The name of the index that a plan reads, None for a scan of the collection."""
    stage = plan["queryPlanner"]["winningPlan"]
    while "inputStage" in stage:
        stage = stage["inputStage"]
    return stage.get("indexName")


@test
def hashed_indexes_find_single_values(client):
    collection = fresh(client, "kinds").hashed
    collection.insert_many([{"_id": n, "h": n, "a": n % 3} for n in range(300)])
    equal(collection.create_index([("h", HASHED)]), "h_hashed")
    equal(collection.create_index([("a", 1), ("h", "hashed")]), "a_1_h_hashed")
    equal([d["_id"] for d in collection.find({"h": 42}).hint("h_hashed")], [42])
    equal(sorted(d["_id"] for d in collection.find({"h": {"$in": [1, 2.0, 7.5]}})), [1, 2])
    equal(index_of(collection.find({"h": 42}).hint("h_hashed").explain()), "h_hashed")
    equal(index_of(collection.find({"h": {"$gt": 290}}).explain()), None)
    equal(collection.count_documents({"h": {"$gt": 290}}), 9)
    equal(raises(OperationFailure, collection.insert_one, {"h": [1]}).code, 16766)
    unique = IndexModel([("x", HASHED)], unique=True)
    equal(raises(OperationFailure, collection.create_indexes, [unique]).code, 16764)
    two = [("x", HASHED), ("y", HASHED)]
    equal(raises(OperationFailure, collection.create_index, two).code, 31303)
    hashes = collection.aggregate([{"$limit": 1}, {"$project": {"x": {"$toHashedIndexKey": 42}}}])
    equal(next(hashes)["x"], -944302157085130861)


@test
def wildcard_indexes_find_any_path(client):
    collection = fresh(client, "kinds").wildcard
    collection.insert_many(
        [{"_id": n, "attributes": {"size": n, "tags": [n, n + 1], f"only{n % 9}": True}} for n in range(300)]
    )
    equal(collection.create_index("attributes.$**"), "attributes.$**_1")
    for query, found in [
        ({"attributes.size": 7}, 1),
        ({"attributes.size": {"$gte": 290, "$lt": 295}}, 5),
        ({"attributes.tags": 7}, 2),
        ({"attributes.only4": {"$exists": True}}, 33),
    ]:
        cursor = collection.find(query)
        equal(len(list(cursor)), found)
        equal(index_of(cursor.explain()), "attributes.$**_1")
    for query, found in [({"attributes.only4": None}, 267), ({"attributes.size": {"$ne": 7}}, 299), ({}, 300)]:
        cursor = collection.find(query)
        equal(len(list(cursor)), found)
        equal(index_of(cursor.explain()), None)
    everything = IndexModel([("$**", 1)], wildcardProjection={"a": 1, "b.c": 1})
    equal(collection.create_indexes([everything]), ["$**_1"])
    listed = {index["name"]: index for index in collection.list_indexes()}
    equal(listed["$**_1"]["wildcardProjection"], {"a": 1, "b.c": 1})
    collection.create_index([("x", 1), ("y.$**", 1)])
    collection.insert_one({"_id": "c", "x": 1, "y": {"z": 5}})
    equal([d["_id"] for d in collection.find({"x": 1, "y.z": 5}).hint("x_1_y.$**_1")], ["c"])
    validated = collection.database.validate_collection("wildcard", full=True)
    equal(validated["valid"], True)


@test
def a_clustering_index_reads_no_documents(client):
    collection = fresh(client, "kinds").clustering
    collection.create_index("a", clustering=True)
    collection.insert_many([{"_id": n, "a": n % 50, "text": "x" * 100} for n in range(500)])
    collection.update_many({"a": 7}, {"$set": {"text": "changed"}})
    found = list(collection.find({"a": {"$gte": 7, "$lt": 9}}))
    equal([d["text"][:1] for d in found], ["c"] * 10 + ["x"] * 10)
    stats = collection.find({"a": {"$gte": 7, "$lt": 9}}).explain()["executionStats"]
    equal((stats["totalKeysExamined"], stats["totalDocsExamined"]), (20, 0))


@test
@of_one_server
def documents_expire(client):
    collection = fresh(client, "kinds").sessions
    now = datetime.datetime.now(datetime.timezone.utc)
    hour = datetime.timedelta(hours=1)
    collection.insert_many(
        [
            {"_id": "old", "at": now - 2 * hour},
            {"_id": "new", "at": now},
            {"_id": "list", "at": [now, now - 3 * hour]},
            {"_id": "no date", "at": "2001-01-01"},
            {"_id": "nothing"},
        ]
    )
    admin = client.admin
    was = admin.command("setParameter", 1, ttlMonitorSleepSecs=1)["was"]
    equal(was, 60)
    collection.create_index("at", expireAfterSeconds=3600)
    wait_until("expired documents", lambda: collection.count_documents({}) <= 3)
    equal(sorted(d["_id"] for d in collection.find()), ["new", "no date", "nothing"])
    assert admin.command("serverStatus")["metrics"]["ttl"]["deletedDocuments"] >= 2
    admin.command("setParameter", 1, ttlMonitorSleepSecs=60)
    reply = collection.database.command("collMod", "sessions", index={"name": "at_1", "expireAfterSeconds": 60})
    equal((reply["expireAfterSeconds_old"], reply["expireAfterSeconds_new"]), (3600, 60))
    equal(collection.index_information()["at_1"]["expireAfterSeconds"], 60)
    compound = [("at", 1), ("b", 1)]
    equal(raises(OperationFailure, collection.create_index, compound, expireAfterSeconds=1).code, 67)
    equal(raises(OperationFailure, collection.create_index, "at", expireAfterSeconds=5).code, 85)


@test
def serverStatus_shows_the_backlog_of_ttl_indexes(client):
    """With the monitor off the backlog grows; on, batches of any size delete all of it, and a moved date keeps its document."""
    collection = fresh(client, "kinds").rolling
    # Of several servers over the same data one deletes.
    servers = addresses.each(client)
    statuses = lambda: [server.admin.command("serverStatus")["metrics"]["ttl"] for server in servers]
    ttl = lambda: max(statuses(), key=lambda status: status["backlog"]["documents"])
    total = lambda name: sum(status[name] for status in statuses())

    def change(**parameters):
        """Sets parameters on each server; the values before."""
        changed = lambda server, name, value: server.admin.command("setParameter", 1, **{name: value})["was"]
        return [{name: changed(server, name, value) for name, value in parameters.items()} for server in servers][0]

    start = datetime.datetime(2020, 1, 1)
    minutes = lambda n: start + datetime.timedelta(minutes=n)
    collection.create_index([("at", -1)], expireAfterSeconds=60)
    collection.create_index("n")
    parameters = {"ttlMonitorSleepSecs": 1, "ttlIndexDeleteTargetDocs": 700, "ttlIndexDeleteTargetTimeMS": 50}
    was = change(**parameters)
    equal(was, {"ttlMonitorSleepSecs": 60, "ttlIndexDeleteTargetDocs": 50000, "ttlIndexDeleteTargetTimeMS": 1000})
    equal(raises(OperationFailure, client.admin.command, "setParameter", 1, ttlMonitorSharePercent=0).code, 2)
    change(ttlMonitorEnabled=False, ttlMonitorSharePercent=90)
    try:
        collection.insert_many([{"_id": n, "n": n, "at": minutes(n)} for n in range(5000)])
        collection.insert_one({"_id": "never"})
        wait_until("the backlog", lambda: ttl()["backlog"]["documents"] == 5000)
        backlog = ttl()["backlog"]
        equal((backlog["namespace"], backlog["index"]), ("kinds.rolling", "at_-1"))
        age = (datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) - start).total_seconds() - 60
        assert abs(backlog["oldestExpiredSecs"] - age) < 3600, (backlog, age)
        collection.update_one({"_id": 17}, {"$set": {"at": datetime.datetime(2120, 1, 1)}})
        before = {name: total(name) for name in ("passes", "subPasses", "deletedDocuments")}
        change(ttlMonitorEnabled=True)
        wait_until("the end of the backlog", lambda: ttl()["backlog"]["documents"] == 0 and collection.count_documents({}) == 2)
        wait_until("the end of the pass", lambda: total("passes") > before["passes"])
        equal(total("deletedDocuments") - before["deletedDocuments"], 4999)
        assert total("subPasses") > before["subPasses"]
        equal(ttl()["backlog"], {"documents": 0, "oldestExpiredSecs": 0})
        equal(sorted(str(d["_id"]) for d in collection.find()), ["17", "never"])
        assert collection.database.command("validate", "rolling")["valid"]
    finally:
        change(ttlMonitorEnabled=True, ttlMonitorSharePercent=100, **was)


@test
def hidden_indexes_are_not_used(client):
    collection = fresh(client, "kinds").hidden
    collection.insert_many([{"a": n} for n in range(100)])
    collection.create_index("a", hidden=True)
    equal(index_of(collection.find({"a": 5}).explain()), None)
    equal(raises(OperationFailure, list, collection.find({"a": 5}).hint("a_1")).code, 2)
    reply = collection.database.command("collMod", "hidden", index={"keyPattern": {"a": 1}, "hidden": False})
    equal((reply["hidden_old"], reply["hidden_new"]), (True, False))
    equal(index_of(collection.find({"a": 5}).explain()), "a_1")


@test
def an_index_becomes_unique(client):
    collection = fresh(client, "kinds").unique
    collection.insert_many([{"_id": n, "a": n // 2} for n in range(4)])
    collection.create_index("a")
    change = lambda **index: collection.database.command("collMod", "unique", index={"name": "a_1", **index})
    equal(raises(OperationFailure, change, unique=True).code, 72)
    change(prepareUnique=True)
    raises(DuplicateKeyError, collection.insert_one, {"a": 0})
    error = raises(OperationFailure, change, unique=True)
    equal((error.code, error.details["violations"]), (359, [{"ids": [0, 1]}, {"ids": [2, 3]}]))
    collection.delete_many({"_id": {"$in": [1, 3]}})
    equal(change(unique=True)["unique_new"], True)
    raises(DuplicateKeyError, collection.insert_one, {"a": 0})
    equal(collection.index_information()["a_1"]["unique"], True)


@test
def indexes_are_built_anew(client):
    collection = fresh(client, "kinds").again
    collection.insert_many([{"a": n} for n in range(3000)])
    collection.create_index("a", unique=True)
    collection.create_index([("a", HASHED)])
    reply = collection.database.command("reIndex", "again")
    equal((reply["nIndexesWas"], reply["nIndexes"]), (3, 3))
    validated = collection.database.validate_collection("again", full=True)
    equal((validated["valid"], validated["keysPerIndex"]["a_hashed"]), (True, 3000))


@test
@of_one_server
def the_use_of_indexes_is_counted(client):
    collection = fresh(client, "kinds").used
    collection.insert_many([{"a": n} for n in range(10)])
    collection.create_index("a")
    equal(len(list(collection.find({"a": {"$gt": 3}}))), 6)
    stats = {index["name"]: index for index in collection.aggregate([{"$indexStats": {}}])}
    equal(list(stats["a_1"]), ["name", "key", "host", "accesses", "spec"])
    assert stats["a_1"]["accesses"]["ops"] >= 1, stats
    assert ":" in stats["a_1"]["host"], stats
