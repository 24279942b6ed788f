"""What an operator sees with PyMongo and MongoEngine: the profiler, slow operations in the log."""

import json
import os
import re
import threading
import time

import mongoengine
import pymongo
from harness.tap import equal, raises, run, test
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


with pymongo.MongoClient(URI) as one:
    run(one)
