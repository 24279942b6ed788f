"""PyMongo 2.4 (January 2013) tails the oplog with the flags of OP_QUERY, as connectors of that time do."""

import os
import time

from harness import legacy_python  # noqa: F401  (must come before the driver)
import pymongo
from bson.timestamp import Timestamp
from harness.tap import equal, run, test
from harness.waiting import wait_until

OPLOG_REPLAY = 8


def tail(client, after, **filters):
    """A cursor that waits at the end."""
    oplog = client.local.oplog.rs
    query = {"ts": {"$gt": after}, "ns": {"$regex": r"^old_tail\."}, **filters}
    cursor = oplog.find(query, tailable=True, await_data=True, timeout=False)
    return cursor.add_option(OPLOG_REPLAY)


def last_time(client):
    return client.local.oplog.rs.find(fields={"ts": 1}).sort([("$natural", pymongo.DESCENDING)]).limit(-1)[0]["ts"]


def read(cursor, count):
    found = []

    def are_enough():
        assert cursor.alive, f"the cursor ended after {found}"
        found.extend(cursor)
        return len(found) >= count

    wait_until(f"{count} entries", are_enough)
    return found


@test
def a_tail_sees_what_is_written(client):
    collection = client.old_tail.c
    client.old_tail.create_collection("c")
    assert isinstance(last_time(client), Timestamp)
    cursor = tail(client, last_time(client))
    collection.insert([{"_id": n} for n in range(5)])
    equal([entry["o"]["_id"] for entry in read(cursor, 5)], list(range(5)))
    collection.update({}, {"$set": {"x": 1}}, multi=True)
    collection.remove({"_id": {"$gt": 2}})
    client.other_tail.c.insert({"_id": 0})
    entries = read(cursor, 7)
    equal([entry["op"] for entry in entries], ["u"] * 5 + ["d"] * 2)
    equal(entries[0]["o"], {"$v": 2, "diff": {"i": {"x": 1}}})
    equal([entry["o2"]["_id"] for entry in entries[:5]], list(range(5)))


@test
def a_tail_waits_for_an_entry(client):
    client.old_tail.c.insert({"_id": "before"})
    cursor = tail(client, last_time(client))
    # With no entry at all its first reply leaves it open; the next one waits.
    equal(list(cursor), [])
    began = time.time()
    client.other_tail.c.insert({"_id": "of another database"})
    equal(list(cursor), [])
    assert cursor.alive
    assert time.time() - began > 0.5, "the server did not wait"
    client.old_tail.c.insert({"_id": "after"})
    equal([entry["o"] for entry in read(cursor, 1)], [{"_id": "after"}])


@test
def a_connector_goes_on_by_the_time_of_its_last_entry(client):
    start = last_time(client)
    client.old_tail.c.insert([{"_id": f"again {n}"} for n in range(200)])
    seen = []
    while len(seen) < 200:
        cursor = tail(client, start, op="i").batch_size(30)
        for entry in read(cursor, 1)[:50]:
            seen.append(entry["o"]["_id"])
            start = entry["ts"]
        cursor.close()
    equal(seen, [f"again {n}" for n in range(200)])


@test
def queries_by_time_start_at_the_time(client):
    oplog = client.local.oplog.rs
    whole = list(oplog.find({"ns": "old_tail.c"}).sort([("$natural", 1)]))
    for at in range(0, len(whole), 25):
        moment = whole[at]["ts"]
        for operator, place in (("$gte", at), ("$gt", at + 1)):
            query = {"ns": "old_tail.c", "ts": {operator: moment}}
            found = [entry["ts"] for entry in oplog.find(query).add_option(OPLOG_REPLAY)]
            equal(found, [entry["ts"] for entry in whole[place:]])
        equal(oplog.find_one({"ts": moment}), whole[at])
        equal(oplog.find({"ts": {"$lt": moment}, "ns": "old_tail.c"}).count(), at)


@test
def the_oplog_cannot_be_written(client):
    oplog = client.local.oplog.rs
    before = oplog.count()
    for call in (lambda: oplog.insert({"ts": Timestamp(1, 1)}), lambda: oplog.remove({}), lambda: oplog.update({}, {"$set": {"x": 1}})):
        try:
            call()
            raise AssertionError("the oplog was written")
        except pymongo.errors.PyMongoError:
            pass
    assert oplog.count() >= before


client = pymongo.MongoClient(host="127.0.0.1", port=int(os.environ["FROND_PORT"]), read_preference=pymongo.ReadPreference.PRIMARY)
client.drop_database("old_tail")
client.drop_database("other_tail")
run(client)
