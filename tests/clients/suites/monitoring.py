"""What an operator sees with PyMongo and MongoEngine: the profiler, slow operations in the log."""

import json
import os
import re
import threading

import mongoengine
import pymongo
from harness.tap import equal, raises, run, test
from harness.waiting import wait_until
from mongoengine.context_managers import query_counter
from pymongo.errors import OperationFailure, WriteError

URI = os.environ["FROND_URI"]


def entries(db, **conditions):
    """The entries of a database, without those of reading them."""
    return list(db.system.profile.find({"ns": {"$ne": f"{db.name}.system.profile"}, **conditions}).sort("$natural", 1))


class Person(mongoengine.Document):
    name = mongoengine.StringField(unique=True)
    age = mongoengine.IntField()
    friends = mongoengine.ListField(mongoengine.ReferenceField("self"))
    meta = {"collection": "people", "indexes": ["age"]}


@test
def mongoengine_counts_queries(client):
    mongoengine.connect("engine", host=URI, uuidRepresentation="standard")
    Person.drop_collection()
    Person.ensure_indexes()
    with query_counter() as counter:
        equal(int(counter), 0)
        ann = Person(name="Ann", age=30).save()
        equal(int(counter), 1, "an insert")
        Person.objects(name="Ann").first()
        equal(int(counter), 2, "a find")
        ann.age = 31
        ann.save()
        equal(int(counter), 3, "an update")
        Person.objects(age=31).update(inc__age=1)
        equal(int(counter), 4, "an update of several")
        equal(Person.objects(age=32).count(), 1)
        equal(int(counter), 5, "a count")
        Person.objects.insert([Person(name=f"P{n}", friends=[ann]) for n in range(300)], load_bulk=False)
        equal(int(counter), 6, "a bulk insert")
        people = list(Person.objects.no_cache().timeout(False))
        equal(len(people), 301)
        equal(int(counter), 8, "a find, and a getMore")
        equal(Person.objects.distinct("age"), [32])
        equal(int(counter), 9, "a distinct")
        Person.objects(name__startswith="P").delete()
        assert counter > 9 and counter < 14, counter
    with query_counter() as counter:
        equal(int(counter), 0, "it begins anew")
        Person.objects(name="Ann").modify(inc__age=1)
        assert counter == 1 and counter != 2
    equal(client.engine.command("profile", -1)["was"], 0)
    mongoengine.disconnect()


@test
def entries_tell_of_each_kind_of_operation(client):
    db = client.profiled
    db.c.insert_many({"_id": n, "a": n % 10, "text": "x" * 50} for n in range(500))
    db.c.create_index("a")
    equal(db.command("profile", 2)["was"], 0)
    list(db.c.find({"a": 3}, batch_size=20, comment="look for me"))
    db.c.update_one({"_id": 3}, {"$inc": {"b": 1}})
    db.c.update_many({"a": 4}, {"$set": {"a": 44}})
    db.c.delete_one({"_id": 5})
    db.c.find_one_and_update({"_id": 6}, {"$set": {"b": 1}})
    db.c.insert_one({"_id": "new"})
    list(db.c.aggregate([{"$match": {"a": 3}}, {"$group": {"_id": "$a", "n": {"$sum": 1}}}]))
    db.c.distinct("a")
    db.c.count_documents({"a": 3})
    raises(OperationFailure, db.c.find_one, {"a": {"$wrong": 1}})
    found = entries(db)
    kinds = [(entry["op"], entry.get("planSummary")) for entry in found if entry["op"] != "getmore"]
    equal(
        kinds,
        [
            ("query", "IXSCAN { a: 1 }"),
            ("update", "IDHACK"),
            ("update", "IXSCAN { a: 1 }"),
            ("remove", "IDHACK"),
            ("command", "IDHACK"),
            ("insert", None),
            ("command", "IXSCAN { a: 1 }"),
            ("command", "DISTINCT_SCAN { a: 1 }"),
            ("command", "IXSCAN { a: 1 }"),
            ("query", None),
        ],
    )
    find = found[0]
    equal((find["ns"], find["nreturned"], find["docsExamined"], find["keysExamined"]), ("profiled.c", 20, 20, 20))
    equal(find["command"]["comment"], "look for me")
    equal(find["execStats"]["inputStage"]["indexName"], "a_1")
    assert find["cursorid"] > 0 and find["responseLength"] > 1000 and find["cpuNanos"] > 0, find
    assert re.fullmatch("[0-9A-F]{8}", find["queryHash"]) and re.fullmatch("[0-9A-F]{8}", find["planCacheKey"])
    explained = db.command("explain", {"find": "c", "filter": {"a": 7}}, verbosity="queryPlanner")["queryPlanner"]
    equal((explained["queryHash"], explained["planCacheKey"]), (find["queryHash"], find["planCacheKey"]), "of another constant")
    more = next(entry for entry in found if entry["op"] == "getmore")
    equal(more["originatingCommand"]["find"], "c")
    many = found[[entry["op"] for entry in found].index("update") + 1]
    equal((many["nMatched"], many["nModified"], many["keysInserted"], many["keysDeleted"]), (50, 50, 50, 50))
    equal((found[-1]["errName"], found[-1]["errCode"]), ("BadValue", 2))
    equal(db.command("profile", 0)["was"], 2)


@test
def the_collection_is_capped_and_belongs_to_the_server(client):
    db = client.profiled
    options = db.system.profile.options()
    equal((options["capped"], options["size"]), (True, 1 << 20))
    equal(raises(WriteError, db.system.profile.insert_one, {"a": 1}).code, 73)
    equal(raises(WriteError, db.system.profile.delete_many, {}).code, 73)
    db.command("profile", 2)
    equal(raises(OperationFailure, db.drop_collection, "system.profile").code, 20)
    db.command("profile", 0)
    db.drop_collection("system.profile")
    db.create_collection("system.profile", capped=True, size=20_000)
    db.command("profile", 2)
    for n in range(200):
        db.c.find_one({"_id": n})
    db.command("profile", 0)
    kept = entries(db, op="query")
    assert 3 < len(kept) < 40, len(kept)
    equal(kept[-1]["command"]["filter"], {"_id": 199}, "the newest ones are kept")


@test
def many_clients_lose_no_entry_that_fits(client):
    db = client.crowd
    db.create_collection("system.profile", capped=True, size=32 << 20)
    db.command("profile", 2)

    def work(number):
        for n in range(150):
            db.c.update_one({"_id": f"{number}-{n % 7}"}, {"$inc": {"n": 1}}, upsert=True)
            mine = db.system.profile.count_documents({"op": "update", "command.q._id": {"$regex": f"^{number}-"}})
            equal(mine, n + 1, "the entries of one's own")

    threads = [Failing(work, number) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.end()
    db.command("profile", 0)
    equal(len(entries(db, op="update")), 600)
    client.drop_database("crowd")


class Failing(threading.Thread):
    """A thread whose error reaches the test."""

    def __init__(self, function, *arguments):
        super().__init__()
        self.work = (function, arguments)
        self.error = None

    def run(self):
        function, arguments = self.work
        try:
            function(*arguments)
        except Exception as error:  # end() raises it
            self.error = error

    def end(self):
        self.join()
        if self.error:
            raise self.error


@test
def statements_of_transactions_and_the_filter(client):
    db = client.filtered
    db.c.insert_one({"_id": 1})
    reply = db.command("profile", 1, filter={"op": "query", "nreturned": {"$gte": 1}})
    assert "slowms and sampleRate are not used" in reply["note"]
    db.c.find_one({"_id": 1})
    db.c.find_one({"_id": 2})
    db.c.insert_one({"_id": 3})
    equal([entry["command"]["filter"] for entry in entries(db)], [{"_id": 1}])
    equal(db.command("profile", -1)["filter"], {"op": "query", "nreturned": {"$gte": 1}})
    db.command("profile", 0, filter="unset")
    assert "filter" not in db.command("profile", -1)


def lines(client, number):
    found = [json.loads(line) for line in client.admin.command("getLog", "global")["log"]]
    return [line for line in found if line["id"] == number]


@test
def slow_operations_are_logged_with_their_figures(client):
    db = client.slow
    db.c.insert_many({"_id": n, "a": n} for n in range(100))
    before = client.admin.command("serverStatus")["metrics"]["operation"]
    db.command("profile", 0, slowms=-1)
    db.c.find_one({"a": {"$gt": 50}}, comment="a slow one")
    db.c.update_many({"a": {"$lt": 3}}, {"$inc": {"b": 1}})
    db.command("profile", 0, slowms=100)
    slow = [line["attr"] for line in lines(client, 51803) if line["attr"]["ns"] == "slow.c"]
    find = next(attr for attr in slow if attr["command"].get("comment") == "a slow one")
    equal((find["planSummary"], find["docsExamined"], find["nreturned"]), ("COLLSCAN", 52, 1))
    for name in ("queryHash", "planCacheKey", "reslen", "cpuNanos", "remote", "durationMillis", "workingMillis", "locks"):
        assert name in find, (name, find)
    update = next(attr for attr in slow if "update" in attr["command"])
    equal((update["nMatched"], update["nModified"], update["docsExamined"]), (3, 3, 100))
    after = client.admin.command("serverStatus")["metrics"]["operation"]
    assert after["slow"] >= before["slow"] + 2


@test
def waiting_is_told(client):
    """A write that waits for the journal says so."""
    db = client.get_database("slow", write_concern=pymongo.WriteConcern(j=True))
    db.command("profile", 2)
    for n in range(20):
        db.c.insert_one({"_id": f"j{n}"})
    db.command("profile", 0)
    waited = [entry.get("waitedFor", {}).get("journalMicros", 0) for entry in entries(db, op="insert")]
    assert max(waited) > 0, waited


@test
def the_log_can_be_redacted(client):
    client.admin.command("setParameter", 1, redactClientLogData=True)
    client.slow.command("profile", 0, slowms=-1)
    client.slow.c.find_one({"a": "a very secret value", "b": {"$in": ["another secret", 5]}})
    raises(OperationFailure, client.slow.c.find_one, {"a": {"$secretoperator": 1}})
    client.slow.command("profile", 0, slowms=100)
    client.admin.command("setParameter", 1, redactClientLogData=False)
    log = "\n".join(client.admin.command("getLog", "global")["log"])
    assert "secret value" not in log and "another secret" not in log, log
    redacted = [line["attr"]["command"] for line in lines(client, 51803) if line["attr"]["command"].get("find") == "###"]
    equal(redacted[0]["filter"], {"a": "###", "b": {"$in": ["###", "###"]}})


def figure(document, path):
    for name in path.split("/"):
        assert isinstance(document, dict) and name in document, path
        document = document[name]
    return document


# What mongostat, the exporter of Percona and Datadog's agent read of a server of today, by their sources; with slashes,
# because names have dots. The first ones are more than 0 after some work, the others may be 0.
WORKED = """
uptime uptimeMillis pid mem/bits mem/resident mem/virtual asserts/user extra_info/user_time_us extra_info/maximum_resident_set_kb
connections/current connections/available connections/totalCreated connections/active connections/threaded
globalLock/totalTime globalLock/activeClients/total network/bytesIn network/bytesOut network/physicalBytesIn
network/physicalBytesOut network/numRequests
opcounters/insert opcounters/query opcounters/update opcounters/delete opcounters/getmore opcounters/command
opLatencies/reads/latency opLatencies/reads/ops opLatencies/writes/latency opLatencies/writes/ops opLatencies/commands/latency
opLatencies/commands/ops
metrics/document/inserted metrics/document/returned metrics/document/updated metrics/document/deleted
metrics/queryExecutor/scanned metrics/queryExecutor/scannedObjects metrics/queryExecutor/collectionScans/total
metrics/queryExecutor/collectionScans/nonTailable metrics/operation/scanAndOrder metrics/cursor/totalOpened
metrics/cursor/open/total metrics/getLastError/wtime/num metrics/commands/find/total metrics/commands/find/failed
metrics/commands/insert/total metrics/commands/update/total metrics/commands/delete/total metrics/commands/count/total
metrics/commands/findAndModify/total metrics/commands/createIndexes/total metrics/commands/serverStatus/total
locks/Global/acquireCount/r locks/Global/acquireCount/w locks/Database/acquireCount/r locks/Database/acquireCount/w
locks/Collection/acquireCount/r locks/Collection/acquireCount/w
queues/execution/read/available queues/execution/read/totalTickets queues/execution/write/available
queues/execution/write/totalTickets catalogStats/collections catalogStats/internalCollections
wiredTiger/concurrentTransactions/read/available wiredTiger/concurrentTransactions/read/totalTickets
wiredTiger/concurrentTransactions/write/totalTickets wiredTiger/cache/bytes~currently~in~the~cache
wiredTiger/cache/maximum~bytes~configured wiredTiger/cache/tracked~dirty~bytes~in~the~cache
wiredTiger/log/log~bytes~written wiredTiger/transaction/transactions~committed
wiredTiger/session/open~cursor~count tcmalloc/generic/current_allocated_bytes tcmalloc/generic/heap_size
logicalSessionRecordCache/activeSessionsCount
"""
THERE = """
host version process localTime asserts/regular asserts/warning asserts/msg asserts/rollovers extra_info/page_faults
extra_info/input_blocks extra_info/system_time_us connections/rejected connections/awaitingTopologyChanges
connections/exhaustHello
globalLock/activeClients/readers globalLock/activeClients/writers globalLock/currentQueue/total
globalLock/currentQueue/readers globalLock/currentQueue/writers opLatencies/transactions/ops
opcountersRepl/insert opcountersRepl/query opcountersRepl/update opcountersRepl/delete opcountersRepl/getmore
opcountersRepl/command metrics/operation/writeConflicts metrics/getLastError/wtimeouts metrics/getLastError/wtime/totalMillis
metrics/cursor/timedOut metrics/cursor/open/noTimeout metrics/cursor/open/pinned metrics/record/moves
metrics/ttl/deletedDocuments metrics/ttl/passes metrics/query/planCache/classic/hits metrics/query/sort/spillToDisk
metrics/profiler/written metrics/queryStats/numEvicted
locks/Global/acquireWaitCount/r locks/Global/acquireWaitCount/w locks/Global/acquireWaitCount/R
locks/Global/acquireWaitCount/W locks/Global/timeAcquiringMicros/r locks/Global/timeAcquiringMicros/w
locks/Database/acquireWaitCount/W locks/Database/timeAcquiringMicros/w locks/Collection/acquireCount/R
locks/Collection/acquireWaitCount/W locks/Collection/timeAcquiringMicros/R
flowControl/isLagged flowControl/timeAcquiringMicros queues/execution/read/out queues/execution/write/out
wiredTiger/concurrentTransactions/read/out wiredTiger/concurrentTransactions/write/out wiredTiger/block-manager/bytes~read
wiredTiger/block-manager/bytes~written wiredTiger/cache/bytes~read~into~cache wiredTiger/cache/bytes~written~from~cache
wiredTiger/cache/pages~read~into~cache wiredTiger/cache/pages~requested~from~the~cache
wiredTiger/transaction/transaction~checkpoints wiredTiger/transaction/transaction~begins
wiredTiger/transaction/transactions~rolled~back transactions/currentOpen transactions/totalStarted
transactions/totalCommitted transactions/totalAborted transactions/currentActive transactions/currentInactive
storageEngine/name tcmalloc/tcmalloc/pageheap_free_bytes
"""


def work(client):
    db = client.get_database("status", write_concern=pymongo.WriteConcern(j=True))
    db.drop_collection("c")
    db.c.insert_many({"_id": n, "a": n % 10} for n in range(300))
    db.c.create_index("a")
    list(db.c.find({"a": 3}))
    list(db.c.find({"b": 1}).sort("b"))
    list(db.c.find().batch_size(50))
    db.c.update_many({"a": 1}, {"$set": {"z": 1}})
    db.c.find_one_and_update({"_id": 1}, {"$set": {"z": 2}})
    db.c.delete_one({"_id": 2})
    db.command("count", "c", query={"a": 4})
    raises(OperationFailure, db.c.find_one, {"a": {"$wrong": 1}})
    db.command("serverStatus")
    return db, db.c.find(batch_size=2)


@test
def agents_find_figures_in_the_status(client):
    db, cursor = work(client)
    with cursor, client.start_session() as session:
        next(cursor)
        # The uptime is in whole seconds.
        wait_until("an uptime", lambda: db.command("serverStatus")["uptime"] >= 1)
        status = db.command("serverStatus", opLatencies={"histograms": True}, session=session)
        for path in WORKED.replace("\n", " ").split():
            value = figure(status, path.replace("~", " "))
            assert value > 0, (path, value)
        for path in THERE.replace("\n", " ").split():
            figure(status, path.replace("~", " "))
    for kind in ("reads", "writes", "commands"):
        latency = status["opLatencies"][kind]
        equal(sum(bucket["count"] for bucket in latency["histogram"]), latency["ops"])
        assert all(bucket["micros"] >= 0 for bucket in latency["histogram"])
    equal(status["storageEngine"]["name"], "frond")


@test
def tops_and_statistics_of_collections_have_figures(client):
    db, cursor = work(client)
    cursor.close()
    top = client.admin.command("top")["totals"]["status.c"]
    for kind in ("total", "readLock", "writeLock", "queries", "getmore", "insert", "update", "remove", "commands"):
        assert top[kind]["time"] > 0 and top[kind]["count"] > 0, (kind, top)
    [stats] = db.c.aggregate([{"$collStats": {"latencyStats": {"histograms": True}, "queryExecStats": {}, "count": {}}}])
    assert stats["count"] > 0 and ":" in stats["host"], stats
    for kind in ("reads", "writes", "commands"):
        latency = stats["latencyStats"][kind]
        assert latency["ops"] > 0 and latency["latency"] > 0 and latency["histogram"], (kind, latency)
    assert stats["queryExecStats"]["collectionScans"]["total"] > 0, stats
    uses = {index["name"]: index["accesses"]["ops"] for index in db.c.aggregate([{"$indexStats": {}}])}
    assert uses["a_1"] > 0 and uses["_id_"] > 0, uses
    [own] = [op for op in client.admin.command("currentOp")["inprog"] if "currentOp" in op["command"]]
    for name in ("opid", "ns", "op", "client", "connectionId", "secs_running", "microsecs_running", "waitingForLock", "locks", "numYields"):
        assert name in own, (name, own)


@test
def queries_are_counted_by_their_shape(client):
    equal(client.admin.command("setParameter", 1, internalQueryStatsRateLimit=-1)["was"], 100)
    db = client.shapes
    db.c.insert_many({"_id": n, "a": n % 5, "b": "x"} for n in range(400))
    for n in range(5):
        list(db.c.find({"a": n, "b": {"$in": ["x", "y"]}}).sort("a", 1))
    list(db.c.aggregate([{"$match": {"a": 3}}, {"$group": {"_id": "$b", "n": {"$sum": 2}}}]))
    list(db.c.find({"_id": {"$gt": 5}}, batch_size=100))
    client.admin.command("setParameter", 1, internalQueryStatsRateLimit=100)
    found = list(client.admin.aggregate([{"$queryStats": {}}, {"$match": {"key.queryShape.cmdNs.db": "shapes"}}]))
    by_shape = {json.dumps(one["key"]["queryShape"].get("filter", one["key"]["queryShape"].get("pipeline"))): one for one in found}
    sorted_ones = by_shape['{"$and": [{"a": {"$eq": "?number"}}, {"b": {"$in": "?array<?string>"}}]}']["metrics"]
    equal(sorted_ones["execCount"], 5)
    equal((sorted_ones["docsReturned"]["sum"], sorted_ones["docsReturned"]["max"]), (400, 80))
    equal((sorted_ones["docsExamined"]["sum"], sorted_ones["hasSortStage"]), (2000, {"true": 5, "false": 0}))
    total = sorted_ones["totalExecMicros"]
    assert total["sum"] >= total["max"] >= total["min"] > 0, total
    grouped = by_shape['[{"$match": {"a": {"$eq": "?number"}}}, {"$group": {"_id": "$b", "n": {"$sum": "?number"}}}]']["metrics"]
    equal(grouped["docsReturned"]["sum"], 1)
    batches = by_shape['{"_id": {"$gt": "?number"}}']["metrics"]
    equal((batches["execCount"], batches["docsReturned"]["sum"], batches["docsReturned"]["max"]), (1, 394, 100))
    raises(OperationFailure, client.shapes.command, "aggregate", 1, pipeline=[{"$queryStats": {}}], cursor={})


@test
def levels_of_the_log_are_those_of_components(client):
    parameter = {"query": {"verbosity": 2}, "command": {"verbosity": 1}}
    client.admin.command("setParameter", 1, logComponentVerbosity=parameter)
    shown = client.admin.command("getParameter", 1, logComponentVerbosity=1)["logComponentVerbosity"]
    equal((shown["verbosity"], shown["query"]["verbosity"], shown["network"]["verbosity"]), (0, 2, -1))
    raises(OperationFailure, client.test.c.find_one, {"a": {"$wrongoperator": 1}})
    assert any(line["s"] == "D1" and line["c"] == "COMMAND" for line in lines(client, 21962))
    client.admin.command("setParameter", 1, logComponentVerbosity={"query": {"verbosity": -1}, "command": {"verbosity": -1}})
    warnings = [json.loads(line) for line in client.admin.command("getLog", "startupWarnings")["log"]]
    assert 22120 in [warning["id"] for warning in warnings], warnings


with pymongo.MongoClient(URI) as one:
    run(one)
