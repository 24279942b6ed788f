"""Secondaries have what the primary has: documents, indexes, options, users; and follow changes of these while they are read."""

import datetime
import threading
import uuid

from harness import raw
from harness.replica_set import assert_same
from harness.tap import equal
from harness.waiting import wait_until
from pymongo import DESCENDING, TEXT, WriteConcern
from pymongo.errors import OperationFailure, PyMongoError

from .common import with_set


def fill(database):
    """Collections of every kind."""
    database.plain.insert_many([{"_id": n, "a": n % 7, "b": [n, -n], "text": f"word{n} more"} for n in range(500)])
    database.plain.create_index("a")
    database.plain.create_index([("b", DESCENDING), ("a", 1)], name="both", sparse=True)
    database.plain.create_index([("text", TEXT)])
    database.plain.create_index("unique", unique=True, partialFilterExpression={"unique": {"$exists": True}})
    database.plain.create_index("hidden", hidden=True)
    database.plain.create_index([("wild.$**", 1)])
    database.create_collection("capped", capped=True, size=100_000, max=50)
    database.capped.insert_many([{"n": n} for n in range(80)])
    database.create_collection("checked", validator={"n": {"$type": "int"}}, validationAction="error")
    database.checked.insert_one({"n": 1})
    database.create_collection("collated", collation={"locale": "de", "strength": 2})
    database.collated.insert_many([{"_id": "a"}, {"_id": "B"}, {"_id": "c"}])
    database.create_collection("images", changeStreamPreAndPostImages={"enabled": True})
    database.images.insert_one({"_id": 1, "n": 1})
    database.images.update_one({"_id": 1}, {"$inc": {"n": 1}})
    database.create_collection("measured", timeseries={"timeField": "at", "metaField": "of"})
    now = datetime.datetime(2025, 1, 1)
    database.measured.insert_many([{"at": now + datetime.timedelta(seconds=n), "of": n % 3, "v": n} for n in range(100)])
    database.create_collection("seen", viewOn="plain", pipeline=[{"$match": {"a": 3}}])
    database.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    database.clustered.insert_many([{"_id": n} for n in range(20)])


@with_set
def collections_of_every_kind_are_equal(replica_set):
    with replica_set.connect() as client:
        database = client.kinds
        fill(database)
        assert_same(replica_set)
        database.plain.update_many({"a": 3}, {"$set": {"a": 100}, "$push": {"b": 5}})
        database.plain.delete_many({"_id": {"$gte": 400}})
        database.plain.drop_index("both")
        database.command("collMod", "plain", index={"name": "hidden_1", "hidden": False})
        database.command("collMod", "checked", validator={"n": {"$gt": 0}})
        database.checked.rename("renamed")
        database.collated.drop()
        database.command("collMod", "seen", viewOn="plain", pipeline=[{"$match": {"a": 100}}])
        database.command("convertToCapped", "renamed", size=100_000)
        client.gone.c.insert_one({})
        client.drop_database("gone")
        assert_same(replica_set)
        for member in replica_set.members:
            there = member.client(readPreference="nearest").kinds
            equal(there.seen.count_documents({}), there.plain.count_documents({"a": 100}), f"the view at {member.number}")
            equal(there.plain.count_documents({"$text": {"$search": "word7"}}), 1)
            equal(there.capped.count_documents({}), 50)
            explained = there.plain.find({"a": 100}).hint("a_1").explain()["queryPlanner"]["winningPlan"]
            assert "IXSCAN" in str(explained), explained
            equal("gone" in member.client(readPreference="nearest").list_database_names(), False)


@with_set
def large_documents_arrive(replica_set):
    with replica_set.connect() as client:
        large = client.kinds.large
        large.insert_many([{"_id": n, "data": bytes([n]) * size} for n, size in enumerate((1 << 20, 15 << 20))])
        large.insert_one({"_id": "many", "list": [{"n": n, "s": "x" * 50} for n in range(10_000)]})
        large.update_one({"_id": "many"}, {"$set": {"list.5000.n": -1}})
        large.delete_one({"_id": 0})
        replica_set.catch_up()
        for member in replica_set.secondaries:
            there = member.client(readPreference="secondary").kinds.large
            equal(len(there.find_one({"_id": 1})["data"]), 15 << 20)
            equal(there.find_one({"_id": "many"})["list"][5_000]["n"], -1)
            equal(there.find_one({"_id": 0}), None)
        assert_same(replica_set)
        large.drop()


@with_set
def transactions_arrive_whole(replica_set):
    with replica_set.connect() as client:
        database = client.get_database("kinds", write_concern=WriteConcern("majority"))
        database.left.insert_one({"_id": 0, "n": 0})
        database.right.insert_one({"_id": 0, "n": 0})
        ends, problems = threading.Event(), []

        def move():
            while not ends.is_set():
                with client.start_session() as session, session.start_transaction():
                    database.left.update_one({"_id": 0}, {"$inc": {"n": -1}}, session=session)
                    database.right.update_one({"_id": 0}, {"$inc": {"n": 1}}, session=session)

        def read(member, reads):
            there = member.client(readPreference="nearest")
            union = [{"$unionWith": "right"}, {"$group": {"_id": None, "sum": {"$sum": "$n"}}}]
            while not ends.is_set():
                with there.start_session(snapshot=True) as session:
                    (found,) = there.kinds.left.aggregate(union, session=session)
                    if found["sum"]:
                        problems.append(f"member {member.number}: {found}")
                reads[member.number] = reads.get(member.number, 0) + 1

        reads = {}
        threads = [threading.Thread(target=move)]
        threads += [threading.Thread(target=read, args=(member, reads)) for member in replica_set.members]
        for thread in threads:
            thread.start()
        try:
            wait_until("some reads of each", lambda: len(reads) == 3 and min(reads.values()) >= 10)
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        equal(problems[:3], [])
        with client.start_session() as session:
            session.start_transaction()
            database.left.insert_one({"_id": "aborted"}, session=session)
            session.abort_transaction()
        assert_same(replica_set)


@with_set
def documents_expire_on_the_primary_alone(replica_set):
    with replica_set.connect() as client:
        for member in replica_set.members:
            member.command("setParameter", ttlMonitorSleepSecs=1)
        expired_before = {member.number: expired(member) for member in replica_set.members}
        client.kinds.expiring.create_index("at", expireAfterSeconds=1)
        client.kinds.expiring.insert_many([{"at": datetime.datetime(2020, 1, 1)} for _ in range(5)])
        for member in replica_set.members:
            there = member.client(readPreference="nearest").kinds.expiring
            wait_until(f"they expire at {member.number}", lambda there=there: there.count_documents({}) == 0)
            by = expired(member) - expired_before[member.number]
            equal(by, 5 if member is replica_set.primary else 0, f"member {member.number}")
        assert_same(replica_set)


def expired(member):
    return member.command("serverStatus")["metrics"]["ttl"]["deletedDocuments"]


@with_set
def users_and_roles_are_those_of_the_primary(replica_set):
    with replica_set.connect() as client:
        client.kinds.command("createRole", "reader", privileges=[
            {"resource": {"db": "kinds", "collection": "plain"}, "actions": ["find"]}], roles=[])
        client.kinds.command("createUser", "visitor", pwd="secret", roles=["reader"])
        replica_set.catch_up()
        for member in replica_set.members:
            there = member.client(readPreference="nearest")
            (user,) = there.kinds.command("usersInfo", "visitor")["users"]
            equal([role["role"] for role in user["roles"]], ["reader"])
            (role,) = there.kinds.command("rolesInfo", "reader", showPrivileges=True)["roles"]
            equal(role["privileges"][0]["actions"], ["find"])
            with replica_set.connect() as logged_in:
                logged_in.close()
        client.kinds.command("dropUser", "visitor")
        client.kinds.command("dropRole", "reader")
        replica_set.catch_up()
        for member in replica_set.members:
            equal(member.client(readPreference="nearest").kinds.command("usersInfo", "visitor")["users"], [])


@with_set
def collections_change_while_secondaries_read_them(replica_set):
    """Creation, indexes, renames and drops beside readers: a reader sees a whole state or none."""
    ends, problems, reads = threading.Event(), [], {}

    def read(member, way):
        there = member.client(readPreference="secondary").kinds
        while not ends.is_set():
            try:
                if way == 0:
                    found = {one["g"] for one in there.moving.find({}, {"g": 1})}
                    # Documents of a collection that is dropped and made again are those of one time, unless the cursor fails.
                    if len(found) > 1:
                        problems.append(f"generations {found}")
                elif way == 1:
                    list(there.moving.find({"a": {"$gte": 0}}).hint("a_1"))
                elif way == 2:
                    names = {info["name"] for info in there.list_collections()}
                    if {"moving", "moved"} <= names:
                        problems.append(f"{names}")
                else:
                    list(there.moving.list_indexes())
            except OperationFailure as error:
                # The index or the collection is not there, or was dropped meanwhile.
                if error.code not in (2, 26, 27, 43, 175):
                    problems.append(repr(error))
            except PyMongoError as error:
                problems.append(repr(error))
            reads[member.number, way] = reads.get((member.number, way), 0) + 1

    threads = [threading.Thread(target=read, args=(member, way)) for member in replica_set.secondaries for way in range(4)]
    for thread in threads:
        thread.start()
    try:
        with replica_set.connect() as client:
            database = client.get_database("kinds", write_concern=WriteConcern(w=1))
            for generation in range(12):
                database.moving.insert_many([{"g": generation, "a": n} for n in range(200)])
                database.moving.create_index("a")
                database.moving.create_index("g")
                database.moving.drop_index("g_1")
                if generation % 3 == 0:
                    database.moving.rename("moved")
                    database.moved.drop()
                else:
                    database.moving.drop()
        wait_until("reads of each kind", lambda: len(reads) == 8 and min(reads.values()) >= 5)
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    equal(problems[:3], [])
    assert_same(replica_set)


@with_set
def a_retried_write_is_done_once_whoever_is_the_primary(replica_set):
    def send(given):
        # A driver would send its own session.
        with replica_set.primary.connect() as connection:
            return connection.command({**given, "lsid": {"id": session}, "writeConcern": {"w": "majority"}}, "kinds")

    session = uuid.uuid4()
    update = {"update": "retried", "updates": [{"q": {"_id": 0}, "u": {"$inc": {"n": 1}}, "upsert": True}], "txnNumber": raw.Long(1)}
    modify = {"findAndModify": "retried", "query": {"_id": 1}, "update": {"$inc": {"n": 1}}, "upsert": True, "new": True,
              "txnNumber": raw.Long(2)}
    equal(send(update)["n"], 1)
    for given in (update, modify):
        old = replica_set.primary
        first = send(given)
        old.command("replSetStepDown", 5)
        replica_set.wait_until_steady()
        assert replica_set.primary is not old
        again = send(given)
        equal((again["ok"], again.get("value"), again.get("n")), (1, first.get("value"), first.get("n")))
    # What the session did before cannot be sent again.
    equal(send(update)["code"], 225)
    documents = replica_set.primary.client().kinds.retried
    equal(list(documents.find().sort("_id")), [{"_id": 0, "n": 1}, {"_id": 1, "n": 1}])
    assert_same(replica_set)
