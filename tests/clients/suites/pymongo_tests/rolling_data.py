"""Primary keys and partitions."""

import datetime

from harness import addresses
from harness.tap import equal, of_one_server, raises, test
from pymongo.errors import DuplicateKeyError, OperationFailure, WriteError

from . import fresh

HOUR = datetime.timedelta(hours=1)
START = datetime.datetime(2030, 1, 1)


def indexes_used(plan):
    stages = [plan] + plan.get("inputStages", [])
    below = [stage["inputStage"] for stage in stages if "inputStage" in stage]
    return [stage["indexName"] for stage in stages if "indexName" in stage] + [name for one in below for name in indexes_used(one)]


def winning(cursor):
    return cursor.explain()["queryPlanner"]["winningPlan"]


@test
def documents_are_stored_and_moved_by_their_primary_key(client):
    database = fresh(client, "rolling")
    events = database.create_collection("events", primaryKey={"ts": 1, "_id": 1})
    events.create_index("kind")
    events.insert_many([{"_id": n, "ts": START + n % 3 * HOUR, "kind": n % 2} for n in range(6)])
    equal([event["_id"] for event in events.find()], [0, 3, 1, 4, 2, 5])
    equal(events.options(), {"primaryKey": {"ts": 1, "_id": 1}})
    equal([index["name"] for index in events.list_indexes()], ["primaryKey", "_id_", "kind_1"])
    found = events.find({"ts": {"$gte": START + HOUR}}).sort("ts")
    equal(indexes_used(winning(found)), ["primaryKey"])
    equal([event["_id"] for event in found], [1, 4, 2, 5])
    raises(DuplicateKeyError, events.insert_one, {"_id": 3, "ts": START})
    equal(events.update_one({"_id": 5}, {"$set": {"ts": START - HOUR}}).modified_count, 1)
    equal([event["_id"] for event in events.find()], [5, 0, 3, 1, 4, 2])
    equal(raises(WriteError, events.insert_one, {"ts": [1]}).code, 2)
    equal(raises(OperationFailure, events.drop_index, "primaryKey").code, 72)
    equal(database.command("validate", "events")["valid"], True)
    for wrong in ({"ts": 1}, {"_id": 1, "ts": 1}, {"ts": "text", "_id": 1}):
        equal(raises(OperationFailure, database.create_collection, "wrong", primaryKey=wrong).code, 72)
    equal(raises(OperationFailure, database.command, "create", "events", primaryKey={"x": 1, "_id": 1}).code, 48)


def are_refused(database):
    """Whether these are servers of a cluster, which refuse partitions."""
    if not addresses.are_of_a_cluster(database.client):
        return False
    for options in ({"by": "ts", "every": "1h"}, True):
        equal(raises(OperationFailure, database.create_collection, "refused", partitioned=options).code, 115)
    equal(database.list_collection_names(), [])
    return True


@test
@of_one_server
def partitions_are_read_by_their_time_and_dropped_at_once(client):
    database = fresh(client, "rolling")
    if are_refused(database):
        return
    events = database.create_collection("events", partitioned={"by": "ts", "every": "1h"})
    events.create_index("kind")
    events.insert_many([{"_id": n, "ts": START + n * HOUR / 10, "kind": n % 7} for n in range(50)])
    info = database.command("getPartitionInfo", "events")
    equal([(one["_id"], one["count"]) for one in info["partitions"]], [(START + n * HOUR, 10) for n in range(5)])
    narrow = events.find({"kind": 3, "ts": {"$gte": START + HOUR, "$lt": START + 2 * HOUR}}).hint("kind_1")
    equal(winning(narrow)["inputStage"]["partitions"], [START + HOUR])
    equal([event["_id"] for event in narrow], [10, 17])
    equal([event["_id"] for event in events.find({"kind": {"$gte": 5}}).sort("kind", -1).limit(2).hint("kind_1")], [6, 13])
    dropped = database.command("dropPartition", "events", id=START)
    equal((dropped["nPartitionsDropped"], dropped["nDocuments"]), (1, 10))
    equal((events.count_documents({}), events.estimated_document_count()), (40, 40))
    equal(events.count_documents({"kind": 3}), 6)
    dropped = database.command("dropPartition", "events", max={"ts": START + 3 * HOUR})
    equal((dropped["nPartitionsDropped"], events.count_documents({"kind": {"$gte": 0}})), (2, 20))
    equal(database.command("validate", "events")["valid"], True)
    equal(raises(WriteError, events.insert_one, {"ts": "now"}).code, 2)
    equal(raises(OperationFailure, events.create_index, "kind2", unique=True).code, 67)
    database.command("collMod", "events", expireAfterSeconds=3600)
    late = {"ts": datetime.datetime(2000, 1, 1)}
    equal(raises(WriteError, events.insert_one, late).code, 2)
    events.rename("renamed")
    equal(database.command("getPartitionInfo", "renamed")["numPartitions"], 2)


@test
@of_one_server
def partitions_are_added_at_the_end(client):
    database = fresh(client, "rolling")
    if are_refused(database):
        return
    log = database.create_collection("log", partitioned=True)
    log.create_index("a")
    log.insert_many([{"_id": n, "a": n % 3} for n in range(10)])
    equal(database.command("addPartition", "log")["id"], 1)
    log.insert_many([{"_id": n, "a": n % 3} for n in range(10, 20)])
    equal(database.command("addPartition", "log", newMax={"_id": 100})["id"], 2)
    equal(raises(OperationFailure, database.command, "addPartition", "log", newMax={"_id": 50}).code, 2)
    shown = database.command("getPartitionInfo", "log")["partitions"]
    equal([(one["_id"], one["count"]) for one in shown], [(0, 10), (1, 10), (2, 0)])
    database.command("dropPartition", "log", id=0)
    equal([entry["_id"] for entry in log.find({"a": 1})], [10, 13, 16, 19])
    equal(raises(WriteError, log.insert_one, {"_id": 5}).code, 2)
    copy = database.create_collection("copy", **log.options())
    equal(copy.options(), log.options())
    for wrong in ({"by": "ts", "every": "1 month"}, {"every": "1h"}, {"partitions": []}, {"by": "x", "every": "1h", "from": {"x": 1}}):
        equal(raises(OperationFailure, database.create_collection, "wrong", partitioned=wrong).code in (72, 40414), True)
    equal(raises(OperationFailure, database.create_collection, "wrong", partitioned=True, capped=True, size=4096).code, 72)
    equal(database.command("validate", "log")["valid"], True)
