"""Commands, parameters and fail points that tools and old applications send."""

import datetime
import os
import shutil
import tempfile
import threading
import time

import pymongo
from harness.server import Server
from harness.tap import equal, raises, run, test
from harness.waiting import PATIENCE, wait_until
from pymongo.errors import ExecutionTimeout, OperationFailure

BINARY = os.environ["FROND_BINARY"]


def code(function, *args, **kwargs):
    return raises(OperationFailure, function, *args, **kwargs).code


def winning(db, command):
    planner = db.command("explain", command, verbosity="queryPlanner")["queryPlanner"]
    return planner, str(planner["winningPlan"])


@test
def compact_frees_what_was_deleted(client, _):
    db = client.compacted
    db.c.create_index("a")
    for first in range(0, 40_000, 1000):
        db.c.insert_many({"_id": n, "a": n, "text": os.urandom(100)} for n in range(first, first + 1000))
    client.admin.command("fsync")
    db.c.delete_many({"_id": {"$lt": 36_000}})
    client.admin.command("fsync")
    before = db.command("collStats", "c")
    assert db.command("compact", "c", dryRun=True)["estimatedBytesFreed"] >= 0
    reply = db.command({"compact": "c", "force": True, "comment": "a tool"})
    after = db.command("collStats", "c")
    assert reply["bytesFreed"] >= 0, reply
    assert after["storageSize"] <= before["storageSize"], (before["storageSize"], after["storageSize"])
    # A tenth is left, which lies in random bytes.
    assert after["storageSize"] < 4_000 * 400, after["storageSize"]
    equal((db.c.count_documents({}), db.command("validate", "c")["valid"]), (4000, True))
    equal(code(db.command, "compact", "none"), 26)


@test
def writes_wait_for_fsync_unlock_and_the_files_can_be_copied(client, server):
    db = client.locked
    db.c.insert_many({"_id": n} for n in range(500))
    locked = client.admin.command("fsync", lock=True)
    equal((locked["lockCount"], "info" in locked, "seeAlso" in locked), (1, True, True))
    equal(client.admin.command("fsync", lock=True)["lockCount"], 2)
    equal(client.admin.command("currentOp").get("fsyncLock"), True)
    done = threading.Event()

    def write():
        with pymongo.MongoClient(server.uri) as other:
            other.locked.c.insert_one({"_id": "late"})
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    waiting = wait_until(
        "an insert that waits", lambda: client.admin.command("currentOp", op="insert", waitingForLock=True)["inprog"]
    )
    equal((waiting[0]["ns"], waiting[0]["waitingFor"]), ("locked.c", "fsyncUnlock"))
    info = client.admin.command("lockInfo")["lockInfo"][0]
    equal([one["mode"] for one in info["pending"]], ["IX"])
    equal(db.c.count_documents({}), 500, "reads go on")
    with tempfile.TemporaryDirectory(prefix="frond-test-") as folder:
        copy = os.path.join(folder, "db")
        shutil.copytree(server.dbpath, copy, ignore=shutil.ignore_patterns("mongod.lock", "_tmp"))
        equal(done.is_set(), False)
        equal(client.admin.command("fsyncUnlock")["lockCount"], 1)
        time.sleep(0.1)
        equal(done.is_set(), False, "it was locked twice")
        unlocked = client.admin.command("fsyncUnlock")
        equal((unlocked["info"], unlocked["lockCount"]), ("fsyncUnlock completed", 0))
        writer.join(PATIENCE)
        equal(done.is_set(), True)
        equal(code(client.admin.command, "fsyncUnlock"), 20)
        with Server(BINARY, folder=folder) as other:
            other.start()
            with pymongo.MongoClient(other.uri) as copied:
                equal(copied.locked.c.count_documents({}), 500)
                equal(copied.locked.command("validate", "c")["valid"], True)
            other.stop()


@test
def a_locked_server_is_stopped(client, server):
    with Server(BINARY) as other:
        other.start()
        with pymongo.MongoClient(other.uri) as locked:
            locked.test.c.insert_one({"_id": 1})
            locked.admin.command("fsync", lock=True)
        other.stop()
        other.start()
        with pymongo.MongoClient(other.uri) as again:
            again.test.c.insert_one({"_id": 2})
            equal(again.test.c.count_documents({}), 2)
        other.stop()


@test
def index_filters_choose_the_index(client, _):
    db = client.filtered
    db.c.insert_many({"_id": n, "a": n % 7, "b": n % 11} for n in range(300))
    db.c.create_index("a")
    db.c.create_index([("a", 1), ("b", 1)], name="ab")
    db.command("planCacheSetFilter", "c", query={"a": 1}, indexes=["ab"])
    planner, plan = winning(db, {"find": "c", "filter": {"a": 3}, "hint": "a_1"})
    assert planner["indexFilterSet"] and "'ab'" in plan, plan
    equal(len(list(db.c.find({"a": 3}))), 43)
    equal(db.c.count_documents({"a": 3}), 43)
    shown = db.command("planCacheListFilters", "c")["filters"]
    equal(shown, [{"query": {"a": 1}, "sort": {}, "projection": {}, "indexes": ["ab"]}])
    db.command("planCacheClearFilters", "c", query={"a": 5})
    equal(db.command("planCacheListFilters", "c")["filters"], [])
    planner, _ = winning(db, {"find": "c", "filter": {"a": 3}})
    equal(planner["indexFilterSet"], False)
    db.command("planCacheClear", "c")


@test
def query_settings_are_kept_over_a_restart(client, server):
    db = client.settled
    db.c.insert_many({"_id": n, "a": n % 7} for n in range(100))
    db.c.create_index("a")
    query = {"find": "c", "filter": {"a": 1}, "$db": "settled"}
    hints = {"indexHints": {"ns": {"db": "settled", "coll": "c"}, "allowedIndexes": [{"$natural": 1}]}}
    reply = client.admin.command("setQuerySettings", query, settings=hints)
    equal(reply["representativeQuery"], query)
    _, plan = winning(db, {"find": "c", "filter": {"a": 3}})
    assert "COLLSCAN" in plan, plan
    server.stop()
    server.start()
    [kept] = client.admin.aggregate([{"$querySettings": {}}])
    equal((kept["queryShapeHash"], kept["settings"]), (reply["queryShapeHash"], hints))
    _, plan = winning(db, {"find": "c", "filter": {"a": 3}})
    assert "COLLSCAN" in plan, plan
    client.admin.command("setQuerySettings", reply["queryShapeHash"], settings={"reject": True})
    equal(code(lambda: list(db.c.find({"a": 5}))), 438)
    list(db.c.find({"a": 5}).sort("a", 1))
    client.admin.command("removeQuerySettings", query)
    equal(len(list(db.c.find({"a": 5}))), 14)


@test
def collection_scans_are_refused(client, _):
    db = client.scanned
    db.c.insert_many({"_id": n, "a": n} for n in range(10))
    db.c.create_index("a")
    equal(client.admin.command("setParameter", 1, notablescan=True)["was"], False)
    equal(code(db.c.find_one, {"b": 1}), 291)
    equal(code(db.c.update_one, {"b": 1}, {"$set": {"b": 2}}), 291)
    equal((len(list(db.c.find())), db.c.find_one({"a": 3})["_id"]), (10, 3))
    client.admin.command("setParameter", 1, notablescan=False)
    equal(db.c.find_one({"b": 1}), None)


@test
def parameters_are_read_with_their_details(client, _):
    everything = client.admin.command("getParameter", {"showDetails": True, "allParameters": True})
    equal(everything["notablescan"], {"value": False, "settableAtRuntime": True, "settableAtStartup": True})
    one = client.admin.command("getParameter", 1, syncdelay=1)
    equal(one["syncdelay"], 0.0)
    equal(code(client.admin.command, "getParameter", 1, nonsense=1), 72)


@test
def limits_of_time_and_reads_stop_at_fail_points(client, server):
    db = client.failing
    db.c.insert_many({"_id": n} for n in range(20))

    def fail(name, mode, **data):
        return client.admin.command("configureFailPoint", name, mode=mode, data=data)

    fail("maxTimeAlwaysTimeOut", "alwaysOn")
    raises(ExecutionTimeout, list, db.c.find().max_time_ms(10_000))
    raises(ExecutionTimeout, db.command, "count", "c", maxTimeMS=10_000)
    list(db.c.find())
    fail("maxTimeAlwaysTimeOut", "off")
    cursor = db.c.find(batch_size=2).max_time_ms(10_000)
    next(cursor)
    fail("maxTimeAlwaysTimeOut", "alwaysOn")
    raises(ExecutionTimeout, list, cursor)
    fail("maxTimeAlwaysTimeOut", "off")

    fail("waitInFindBeforeMakingBatch", "alwaysOn", nss="failing.c", shouldCheckForInterrupt=True)
    found = []

    def read():
        with pymongo.MongoClient(server.uri) as other:
            found.extend(other.failing.c.find())

    reader = threading.Thread(target=read)
    reader.start()
    client.admin.command("waitForFailPoint", "waitInFindBeforeMakingBatch", timesEntered=1, maxTimeMS=20_000)
    [waiting] = client.admin.command("currentOp", msg="waitInFindBeforeMakingBatch")["inprog"]
    equal((waiting["ns"], found), ("failing.c", []))
    fail("waitInFindBeforeMakingBatch", "off")
    reader.join(PATIENCE)
    equal(len(found), 20)

    name = "conn" + str(client.admin.command("hello")["connectionId"])
    fail("failCommand", {"times": 1}, failCommands=["ping"], errorCode=91, threadName="conn0")
    client.admin.command("ping")
    fail("failCommand", {"times": 1}, failAllCommands=True, errorCode=8000, threadName=name)
    equal(code(client.admin.command, "buildInfo"), 8000)
    fail("failCommand", "off")
    equal(code(client.admin.command, "configureFailPoint", "nonsense", mode="off"), 193)


@test
def capped_collections_are_cut(client, _):
    db = client.cut
    db.create_collection("c", capped=True, size=100_000)
    db.c.insert_many({"_id": n} for n in range(10))
    db.command("captrunc", "c", n=4, inc=False)
    equal([one["_id"] for one in db.c.find()], list(range(6)))
    db.command("captrunc", "c", n=1, inc=True)
    equal([one["_id"] for one in db.c.find()], list(range(4)))
    equal(code(db.command, "captrunc", "c", n=4), 20)
    db.command("emptycapped", "c")
    equal(db.c.count_documents({}), 0)


@test
def text_indexes_have_versions(client, server):
    for version, found in ((1, [1]), (2, [1]), (3, [1, 2, 3])):
        texts = client.texts[f"v{version}"]
        texts.insert_many([{"_id": 1, "t": "a cafe"}, {"_id": 2, "t": "a café"}, {"_id": 3, "t": "CAFÉS"}])
        texts.create_index([("t", "text")], textIndexVersion=version)
        equal(texts.index_information()["t_text"]["textIndexVersion"], version)
        equal(sorted(one["_id"] for one in texts.find({"$text": {"$search": "CAFE"}})), found)
    server.stop()
    server.start()
    plan = client.texts.command("explain", {"find": "v2", "filter": {"$text": {"$search": "x"}}}, verbosity="queryPlanner")
    assert "'textIndexVersion': 2" in str(plan), plan
    equal(client.texts.v1.count_documents({"$text": {"$search": "cafes"}}), 1)
    equal(code(client.texts.c.create_index, [("t", "text")], textIndexVersion=4), 67)


@test
def record_ids_are_metadata(client, _):
    client.drop_database("meta")
    client.meta.create_collection("capped", capped=True, size=4096)
    for collection in (client.meta.plain, client.meta.capped):
        collection.insert_many([{"_id": n} for n in range(3)])
        shown = {one["_id"]: one["$recordId"] for one in collection.find(show_record_id=True)}
        found = {one["_id"]: one["r"] for one in collection.find({}, {"r": {"$meta": "recordId"}})}
        equal(found, shown)
        added = collection.aggregate([{"$set": {"r": {"$meta": "recordId"}}}, {"$match": {"r": {"$type": "long"}}}])
        equal({one["_id"]: one["r"] for one in added}, shown)


@test
def updates_of_a_time_series_change_its_metadata(client, _):
    db = client.series
    db.create_collection("s", timeseries={"timeField": "t", "metaField": "m"})
    at = datetime.datetime(2026, 1, 1)
    db.s.insert_many([{"t": at, "m": {"a": n % 2}, "v": n} for n in range(10)])
    equal(db.s.update_many({"m.a": 1}, {"$set": {"m.b": 2}}).modified_count, 5)
    equal(code(db.s.update_one, {"m.a": 1}, {"$set": {"m.b": 3}}), 72)
    equal(code(db.s.update_many, {"v": 1}, {"$set": {"m.b": 3}}), 72)
    equal(code(db.s.update_many, {"m.a": 1}, {"$set": {"v": 3}}), 72)
    equal(db.s.delete_many({"v": {"$lt": 3}}).deleted_count, 3)


@test
def each_start_is_logged(client, server):
    before = client.local.startup_log.count_documents({})
    server.stop()
    server.start()
    entries = list(client.local.startup_log.find())
    equal((len(entries), entries[-1]["pid"]), (before + 1, server.pid))
    equal(entries[-1]["cmdLine"]["setParameter"]["enableTestCommands"], True)


@test
def tools_read_what_is_there(client, _):
    stats = client.admin.command("connPoolStats")
    equal((stats["totalInUse"], stats["hosts"], stats["ok"]), (0, {}, 1.0))
    equal(client.admin.command("lockInfo")["lockInfo"], [])
    db = client.described
    db.c.create_index("a", sparse=True, name="sparse")
    version = {"version": "1", "strict": True, "deprecationErrors": True}
    reply = db.command("validateDBMetadata", 1, apiParameters=version, db="described")
    [error] = reply["apiVersionErrors"]
    equal((error["ns"], error["code"], error["codeName"]), ("described.c", 323, "APIStrictError"))


with Server(BINARY, ["--setParameter", "enableTestCommands=1"]) as started:
    started.start()
    with pymongo.MongoClient(started.uri, retryReads=True, maxPoolSize=1) as one:
        run(one, started)
    started.stop()
