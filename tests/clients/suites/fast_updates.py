"""Fast updates: collections with `fastUpdates`, and updates with `w: 0`, as clients see them."""

import os
import threading

import pymongo
from bson.int64 import Int64
from harness.tap import equal, raises, run, test
from harness.waiting import wait_until
from pymongo import InsertOne, UpdateOne, WriteConcern
from pymongo.errors import BulkWriteError, OperationFailure


def fresh(client, name, **options):
    client.drop_database(name)
    return client[name].create_collection("c", **options)


def section(client):
    return client.admin.command("serverStatus")["fastUpdates"]


@test
def the_option_is_shown_changed_and_kept_by_a_rename(client):
    c = fresh(client, "fast", fastUpdates=True)
    db = c.database
    shown = lambda name: next(db.list_collections(filter={"name": name}))["options"]  # noqa: E731
    equal(shown("c"), {"fastUpdates": True})
    c.rename("d")
    equal(shown("d"), {"fastUpdates": True})
    db.command("collMod", "d", fastUpdates=False)
    equal(shown("d"), {})
    db.command("collMod", "d", fastUpdates=True)
    equal(shown("d"), {"fastUpdates": True})
    equal(raises(OperationFailure, lambda: db.command("create", "e", fastUpdates=True, capped=True, size=4096)).code, 72)
    equal(raises(OperationFailure, lambda: db.command("create", "e", fastUpdates="yes")).code, 14)


@test
def updates_and_upserts_change_documents_without_reading_them(client):
    c = fresh(client, "fast", fastUpdates=True)
    before = section(client)
    done = c.update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
    # Whether it was there is not known.
    equal((done.matched_count, done.modified_count, done.upserted_id), (1, 1, None))
    c.update_one({"_id": 1}, {"$inc": {"n": 2}, "$set": {"a.b": "x"}, "$setOnInsert": {"no": 1}}, upsert=True)
    equal(c.find_one(), {"_id": 1, "n": 3, "a": {"b": "x"}})
    done = c.update_one({"_id": 2}, {"$set": {"n": 1}})
    equal((done.matched_count, done.modified_count), (1, 1))
    equal(c.find_one({"_id": 2}), None)
    after = section(client)
    equal(after["updates"] - before["updates"], 3)
    equal(after["upserts"] - before["upserts"], 2)
    equal(c.count_documents({}), 1)
    equal(c.estimated_document_count(), 1)
    equal(c.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}, return_document=True)["n"], 4)


@test
def explain_shows_the_stage(client):
    c = fresh(client, "fast", fastUpdates=True)

    def stage(filter, update, **more):
        statement = {"q": filter, "u": update}
        command = {"update": "c", "updates": [statement], **more}
        plan = c.database.command("explain", command, verbosity="executionStats")
        equal(plan["executionStats"]["totalDocsExamined"], 0)
        return plan["queryPlanner"]["winningPlan"]["stage"]

    equal(stage({"_id": 1}, {"$inc": {"n": 1}}), "FAST_UPDATE")
    equal(stage({"_id": {"$eq": 1}}, {"$inc": {"n": 1}}), "FAST_UPDATE")
    equal(stage({"_id": 1, "n": 1}, {"$inc": {"n": 1}}), "UPDATE")
    equal(stage({"_id": 1}, {"$push": {"n": 1}}), "UPDATE")
    c.database.command("collMod", "c", fastUpdates=False)
    equal(stage({"_id": 1}, {"$inc": {"n": 1}}), "UPDATE")
    equal(stage({"_id": 1}, {"$inc": {"n": 1}}, writeConcern={"w": 0}), "FAST_UPDATE")


@test
def errors_of_the_update_are_reported_at_once(client):
    c = fresh(client, "fast", fastUpdates=True)
    for update, code in [
        ({"$inc": {"n": "x"}}, 14),
        ({"$inc": {"a": 1}, "$set": {"a.b": 1}}, 40),
        ({"$nonsense": {"a": 1}}, 9),
        ({"$set": {"": 1}}, 56),
    ]:
        equal(raises(OperationFailure, lambda u=update: c.update_one({"_id": 1}, u, upsert=True)).code, code)
    c.insert_one({"_id": 1})
    equal(raises(OperationFailure, lambda: c.update_one({"_id": 1}, {"$set": {"_id": 2}})).code, 66)
    equal(list(c.find()), [{"_id": 1}])


@test
def errors_of_the_document_are_counted(client):
    c = fresh(client, "fast", fastUpdates=True)
    before = section(client)["errors"]
    c.insert_one({"_id": 1, "n": "text"})
    for _ in range(5):
        equal(c.update_one({"_id": 1}, {"$inc": {"n": 1}}).modified_count, 1)
    equal(c.find_one(), {"_id": 1, "n": "text"})
    # They are applied for good when a checkpoint is written.
    client.admin.command("fsync")
    wait_until("the errors are counted", lambda: section(client)["errors"] == before + 5)


@test
def bulks_are_in_order(client):
    c = fresh(client, "fast", fastUpdates=True)
    operations = [UpdateOne({"_id": n % 100}, {"$inc": {"n": 1}, "$set": {"last": n}}, upsert=True) for n in range(5000)]
    done = c.bulk_write(operations)
    equal((done.matched_count, done.modified_count, done.upserted_count), (5000, 5000, 0))
    equal(list(c.find({}, sort=[("_id", 1)])), [{"_id": n, "n": 50, "last": 4900 + n} for n in range(100)])
    # An ordinary one, an error, and inserts in between.
    mixed = [
        UpdateOne({"_id": 1}, {"$inc": {"n": 1}}),
        UpdateOne({"_id": 1}, {"$mul": {"n": 2}}),
        UpdateOne({"_id": 1}, {"$push": {"list": 1}}),
        UpdateOne({"_id": 1}, {"$inc": {"n": 1}}),
        UpdateOne({"_id": 1}, {"$push": {"n": 1}}),
        UpdateOne({"_id": 1}, {"$inc": {"n": 1000}}),
    ]
    error = raises(BulkWriteError, lambda: c.bulk_write(mixed))
    equal(error.details["writeErrors"][0]["index"], 4)
    equal(c.find_one({"_id": 1})["n"], 103)
    error = raises(BulkWriteError, lambda: c.bulk_write(mixed, ordered=False))
    equal((error.details["writeErrors"][0]["index"], error.details["nMatched"]), (4, 5))
    equal(c.find_one({"_id": 1})["n"], 1209)
    c.bulk_write([InsertOne({"_id": "x"}), UpdateOne({"_id": "x"}, {"$set": {"n": 1}}), InsertOne({"_id": "y"})])
    equal(c.find_one({"_id": "x"}), {"_id": "x", "n": 1})


@test
def the_command_bulkWrite_sends_them_too(client):
    c = fresh(client, "fast", fastUpdates=True)
    before = section(client)["updates"]
    update = {"update": 0, "filter": {"_id": 1}, "updateMods": {"$inc": {"n": 1}}, "upsert": True}
    operations = [update, update, {"delete": 0, "filter": {"_id": 1}}, update, update]
    reply = client.admin.command({"bulkWrite": 1, "ops": operations, "nsInfo": [{"ns": "fast.c"}]})
    equal((reply["nMatched"], reply["nModified"], reply["nDeleted"]), (4, 4, 1))
    equal(c.find_one(), {"_id": 1, "n": 2})
    equal(section(client)["updates"] - before, 4)


@test
def a_retried_write_is_applied_once(client):
    c = fresh(client, "fast", fastUpdates=True)
    with client.start_session() as session:
        lsid = session.session_id
        command = {
            "update": "c",
            "updates": [{"q": {"_id": n}, "u": {"$inc": {"n": 1}}, "upsert": True} for n in range(10)],
            "lsid": lsid,
            "txnNumber": Int64(1),
        }
        for _ in range(3):
            reply = c.database.command(command)
            equal((reply["n"], reply["nModified"]), (10, 10))
    equal(sum(doc["n"] for doc in c.find()), 10)


@test
def the_profiler_has_each_statement(client):
    c = fresh(client, "fast", fastUpdates=True)
    db = c.database
    db.command("profile", 2)
    c.bulk_write([UpdateOne({"_id": n}, {"$inc": {"n": 1}}, upsert=True) for n in range(3)])
    db.command("profile", 0)
    profiled = lambda: list(db["system.profile"].find({"op": "update", "ns": "fast.c"}))  # noqa: E731
    wait_until("the entries are written", lambda: len(profiled()) == 3)
    equal([entry["planSummary"] for entry in profiled()], ["FAST_UPDATE"] * 3)
    equal(c.count_documents({}), 3)


@test
def without_a_reply_no_option_is_needed(client):
    c = fresh(client, "fast")
    silent = c.with_options(write_concern=WriteConcern(w=0))
    before = section(client)["updates"]
    for _ in range(100):
        silent.update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
    # The driver waits for the results of an ordered one.
    silent.bulk_write([UpdateOne({"_id": 2}, {"$inc": {"n": 1}}, upsert=True) for _ in range(50)], ordered=False)
    wait_until("all are there", lambda: [d.get("n") for d in c.find(sort=[("_id", 1)])] == [100, 50])
    equal(section(client)["updates"] - before, 150)
    done = c.update_one({"_id": 1}, {"$set": {"n": 100}})
    equal((done.matched_count, done.modified_count), (1, 0))
    equal(c.estimated_document_count(), 2)


@test
def reads_and_increments_at_the_same_time(client):
    c = fresh(client, "fast", fastUpdates=True)
    threads, rounds, keys = 4, 20, 50
    failures = []

    def increments():
        batch = [UpdateOne({"_id": n}, {"$inc": {"n": 1}}, upsert=True) for n in range(keys)]
        for _ in range(rounds):
            c.bulk_write(batch, ordered=False)

    def reads(stop):
        seen = {}
        while not stop.is_set():
            for doc in c.find():
                if doc["n"] < seen.get(doc["_id"], 0):
                    failures.append(doc)
                seen[doc["_id"]] = doc["n"]

    stop = threading.Event()
    reader = threading.Thread(target=reads, args=(stop,))
    reader.start()
    writers = [threading.Thread(target=increments) for _ in range(threads)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.set()
    reader.join()
    equal(failures, [])
    equal(list(c.find(sort=[("_id", 1)])), [{"_id": n, "n": threads * rounds} for n in range(keys)])
    report = c.database.command("validate", "c")
    equal((report["valid"], report["nrecords"]), (True, keys))


@test
def indexes_that_an_update_touches_are_kept_up_to_date(client):
    c = fresh(client, "fast", fastUpdates=True)
    c.insert_many([{"_id": n, "a": n, "n": 0} for n in range(20)])
    c.create_index([("a", pymongo.ASCENDING)])
    c.update_one({"_id": 3}, {"$set": {"a": 100}})
    c.update_one({"_id": 4}, {"$inc": {"n": 5}})
    c.update_one({"_id": 50}, {"$inc": {"n": 5}}, upsert=True)
    equal([d["_id"] for d in c.find({"a": {"$gte": 19}}).hint("a_1")], [19, 3])
    equal(c.find_one({"a": 4})["n"], 5)
    equal([d["_id"] for d in c.find({"a": None}).hint("a_1")], [50])
    assert c.database.command("validate", "c")["valid"]


if __name__ == "__main__":
    run(pymongo.MongoClient(os.environ["FROND_URI"], serverSelectionTimeoutMS=60_000))
