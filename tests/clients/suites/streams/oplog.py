"""The oplog as programs read it: its entries, queries of it, and tails beside many writers."""

import threading
import time

from bson import Timestamp
from bson.binary import Binary
from harness.tap import equal, raises, test
from harness.transactions import connect
from harness.waiting import PATIENCE, wait_until
from pymongo import CursorType
from pymongo.errors import OperationFailure, PyMongoError

from .events import fresh

ENTRIES_WANTED = 400
WRITERS = 6
DATABASE = "streams"


def oplog_of(client):
    return client.local["oplog.rs"]


def last_time(client):
    return oplog_of(client).find_one(sort=[("$natural", -1)])["ts"]


def entries_of(client, after):
    """Entries of the tests' database."""
    query = {"ts": {"$gt": after}, "$or": [{"ns": {"$regex": f"^{DATABASE}\\."}}, {"ns": "admin.$cmd"}]}
    return list(oplog_of(client).find(query))


def shown(entry):
    """What does not differ from run to run."""
    return {key: entry[key] for key in ("op", "ns", "o", "o2") if key in entry}


@test
def entries_have_the_fields_of_mongodb(server, client):
    collection = fresh(client).c
    collection.insert_one({"_id": 0})
    after = last_time(client)
    collection.insert_one({"_id": 1, "a": {"b": 1}, "l": [1, 2]})
    collection.update_one({"_id": 1}, {"$set": {"a.b": 2, "a.c": 3, "l.0": 9}, "$unset": {"none": 1}})
    collection.update_one({"_id": 1}, {"$unset": {"a.b": 1}, "$set": {"n": 1}})
    collection.replace_one({"_id": 1}, {"r": 1})
    collection.delete_one({"_id": 1})
    entries = entries_of(client, after)
    place = {"ns": "streams.c"}
    expected = [
        {"op": "i", **place, "o": {"_id": 1, "a": {"b": 1}, "l": [1, 2]}, "o2": {"_id": 1}},
        {
            "op": "u",
            **place,
            "o": {"$v": 2, "diff": {"sa": {"u": {"b": 2}, "i": {"c": 3}}, "sl": {"a": True, "u0": 9}}},
            "o2": {"_id": 1},
        },
        {"op": "u", **place, "o": {"$v": 2, "diff": {"i": {"n": 1}, "sa": {"d": {"b": False}}}}, "o2": {"_id": 1}},
        {"op": "u", **place, "o": {"_id": 1, "r": 1}, "o2": {"_id": 1}},
        {"op": "d", **place, "o": {"_id": 1}},
    ]
    equal([shown(entry) for entry in entries], expected)
    (uuid,) = [c["info"]["uuid"] for c in client[DATABASE].list_collections(filter={"name": "c"})]
    numbers = []
    for entry in entries:
        equal(entry["ui"], uuid)
        assert isinstance(entry["ts"], Timestamp) and entry["t"] >= 1 and entry["v"] == 2, entry
        # The driver's writes are retryable.
        assert isinstance(entry["lsid"]["id"], Binary) and entry["stmtId"] == 0, entry
        numbers.append(entry["txnNumber"])
    equal(numbers, list(range(numbers[0], numbers[0] + 5)))


@test
def catalog_changes_have_entries(server, client):
    database = fresh(client)
    after = last_time(client)
    database.create_collection("c", capped=False)
    database.c.create_index("a")
    database.command("collMod", "c", validator={"a": 1})
    database.c.drop_index("a_1")
    database.c.rename("d")
    database.d.drop()
    database.e.insert_one({"_id": 1})
    client.drop_database(DATABASE)
    entries = [shown(entry) for entry in entries_of(client, after)]
    commands = [entry for entry in entries if entry["op"] == "c"]
    names = [next(iter(entry["o"])) for entry in commands]
    equal(names, ["create", "createIndexes", "collMod", "dropIndexes", "renameCollection", "drop", "create", "drop", "dropDatabase"])
    for entry in commands:
        equal(entry["ns"], "streams.$cmd")
    create, index, mod, unindex, rename, drop, _, _, whole = (entry["o"] for entry in commands)
    equal((create["create"], create["idIndex"]), ("c", {"v": 2, "key": {"_id": 1}, "name": "_id_"}))
    equal(index, {"createIndexes": "c", "v": 2, "key": {"a": 1}, "name": "a_1"})
    equal((mod["collMod"], mod["validator"]), ("c", {"a": 1}))
    equal(unindex, {"dropIndexes": "c", "index": "a_1"})
    equal((rename["renameCollection"], rename["to"]), ("streams.c", "streams.d"))
    equal((drop, whole), ({"drop": "d"}, {"dropDatabase": 1}))


@test
def transactions_have_one_entry(server, client):
    database = fresh(client)
    database.c.insert_one({"_id": 0})
    after = last_time(client)
    with client.start_session() as session, session.start_transaction():
        name = session.session_id["id"]
        database.c.insert_one({"_id": 1}, session=session)
        database.c.update_one({"_id": 0}, {"$set": {"x": 1}}, session=session)
        database.c.delete_one({"_id": 1}, session=session)
    (entry,) = entries_of(client, after)
    equal((entry["op"], entry["ns"]), ("c", "admin.$cmd"))
    equal(entry["prevOpTime"], {"ts": Timestamp(0, 0), "t": -1})
    equal(entry["lsid"]["id"], name)
    operations = entry["o"]["applyOps"]
    equal([operation["op"] for operation in operations], ["i", "u", "d"])
    equal([operation["ns"] for operation in operations], ["streams.c"] * 3)
    equal((operations[0]["o"], operations[1]["o2"], operations[2]["o"]), ({"_id": 1}, {"_id": 0}, {"_id": 1}))
    equal(operations[1]["o"], {"$v": 2, "diff": {"i": {"x": 1}}})


@test
def internal_changes_have_no_entries(server, client):
    database = fresh(client)
    database.create_collection("mark")
    after = last_time(client)
    client.local.mine.insert_one({"_id": time.time()})
    client.local.mine.drop()
    with client.start_session() as session:
        database.c.find_one({}, session=session)
    # Nothing that is no change.
    database.c.update_one({"_id": "none"}, {"$set": {"a": 1}})
    database.c.delete_one({"_id": "none"})
    # An entry that comes after all that there are of the above.
    database.mark.insert_one({"_id": 1})
    entries = [shown(e) for e in oplog_of(client).find({"ts": {"$gt": after}, "op": {"$ne": "n"}})]
    equal([entry["ns"] for entry in entries if not entry["ns"].startswith("config.")], ["streams.mark"])


@test
def the_oplog_is_a_capped_collection_that_only_the_server_writes(server, client):
    (info,) = client.local.list_collections(filter={"name": "oplog.rs"})
    equal((info["type"], info["options"]["capped"]), ("collection", True))
    stats = client.local.command("collStats", "oplog.rs")
    equal((stats["ns"], stats["capped"]), ("local.oplog.rs", True))
    assert stats["count"] > 0 and 0 < stats["size"] and stats["maxSize"] >= 990 * 1024 * 1024, stats
    oplog = oplog_of(client)
    for call in (
        lambda: oplog.insert_one({"ts": Timestamp(1, 1)}),
        lambda: oplog.update_one({}, {"$set": {"x": 1}}),
        lambda: oplog.delete_many({}),
        lambda: oplog.drop(),
        lambda: oplog.create_index("ns"),
    ):
        raises(PyMongoError, call)


@test
def the_oplog_is_queried_like_any_collection(server, client):
    database = fresh(client)
    after = last_time(client)
    database.q.insert_many([{"_id": n} for n in range(100)])
    database.q.update_many({"_id": {"$lt": 10}}, {"$set": {"x": 1}})
    oplog = oplog_of(client)
    mine = {"ts": {"$gt": after}, "ns": "streams.q"}
    equal(oplog.count_documents(mine), 110)
    times = [entry["ts"] for entry in oplog.find(mine, {"ts": 1})]
    equal(times, sorted(set(times)))
    equal([entry["ts"] for entry in oplog.find(mine).sort("$natural", -1).limit(5)], times[:-6:-1])
    equal([entry["ts"] for entry in oplog.find(mine).sort("ts", -1).limit(5)], times[:-6:-1])
    equal([entry["ts"] for entry in oplog.find({"ts": {"$gte": times[3], "$lt": times[6]}})], times[3:6])
    equal(list(oplog.aggregate([{"$match": mine}, {"$sortByCount": "$op"}])), [{"_id": "i", "count": 100}, {"_id": "u", "count": 10}])
    equal(len(oplog.distinct("o._id", {**mine, "op": "i"})), 100)
    # A query by time does not read what is before.
    stats = client.local.command("explain", {"find": "oplog.rs", "filter": {"ts": {"$gte": times[-3]}}}, verbosity="executionStats")
    assert stats["executionStats"]["totalDocsExamined"] < 20, stats["executionStats"]


@test
def a_note_is_an_entry(server, client):
    after = last_time(client)
    client.admin.command("appendOplogNote", 1, data={"msg": "a note"})
    (entry,) = oplog_of(client).find({"ts": {"$gt": after}, "op": "n"})
    equal((entry["ns"], entry["o"]), ("", {"msg": "a note"}))


@test
def tails_miss_nothing_of_many_writers(server, client):
    """Entries become visible in the order of their times: a tail that saw one will not find an older one later."""
    database = fresh(client)
    for number in range(WRITERS):
        database.create_collection(f"w{number}")
    after = last_time(client)
    stopping, ended, tails = threading.Event(), threading.Event(), []

    def write(number):
        collection, n = client[DATABASE][f"w{number}"], 0
        while not stopping.is_set():
            n += 1
            if number % 3 == 0:
                collection.insert_many([{"_id": n * 100 + i} for i in range(20)])
            elif number % 3 == 1:
                collection.insert_one({"_id": n})
            else:
                rows = [{"_id": n * 100 + i} for i in range(3)]
                with client.start_session() as session:
                    session.with_transaction(lambda own: collection.insert_many(rows, session=own))

    def tail(seen):
        with connect(server) as own:
            query = {"ts": {"$gt": after}}
            cursor = oplog_of(own).find(query, {"ts": 1, "ns": 1}, cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(200)
            while not ended.is_set() or not seen or seen[-1] < end[0]:
                for entry in cursor:
                    seen.append(entry["ts"])
                assert cursor.alive, "the tail's cursor ended"

    end = [Timestamp(0, 0)]
    for _ in range(2):
        seen = []
        thread = threading.Thread(target=tail, args=(seen,), daemon=True)
        tails.append((thread, seen))
        thread.start()
    writers = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    wait_until("entries", lambda: oplog_of(client).count_documents({"ts": {"$gt": after}}) > ENTRIES_WANTED)
    stopping.set()
    for writer in writers:
        writer.join()
    database.w0.insert_one({"_id": "last"})
    end[0] = last_time(client)
    ended.set()
    whole = [entry["ts"] for entry in oplog_of(client).find({"ts": {"$gt": after, "$lte": end[0]}}, {"ts": 1})]
    assert len(whole) > ENTRIES_WANTED, f"only {len(whole)} entries"
    equal(whole, sorted(set(whole)))
    for thread, seen in tails:
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"{len(seen)} of {len(whole)} entries came"
        got = [moment for moment in seen if moment <= end[0]]
        missing = set(whole) - set(got)
        equal((len(got), len(missing)), (len(whole), 0), "the tail's entries, and those that it missed")
        equal(got, whole)


@test
def a_tail_of_an_oplog_that_has_nothing_stays_open(server, client):
    query = {"ts": {"$gt": last_time(client)}, "ns": "streams.nothing"}
    for kind in (CursorType.TAILABLE, CursorType.TAILABLE_AWAIT):
        cursor = oplog_of(client).find(query, cursor_type=kind)
        if kind == CursorType.TAILABLE_AWAIT:
            cursor.max_await_time_ms(100)
        equal([entry for entry in cursor], [])
        assert cursor.alive, "it ends at once"
        cursor.close()
    client[DATABASE].plain.insert_one({})
    raises(OperationFailure, lambda: list(client[DATABASE].plain.find(cursor_type=CursorType.TAILABLE)))
