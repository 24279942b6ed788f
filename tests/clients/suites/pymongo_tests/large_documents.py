"""Documents with very many keys, which clients see like any other."""

import os
import threading

import bson
import pymongo
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from harness import addresses
from harness.server import Server
from harness.tap import equal, raises, test
from pymongo import ReturnDocument, UpdateMany, UpdateOne, WriteConcern
from pymongo.errors import DuplicateKeyError, OperationFailure, WriteError

from . import fresh

KEYS = 20_000
MIB = 1 << 20
LIMIT = 16 * MIB


def key(n):
    return f"a_long_prefix_that_all_of_the_keys_share_{n:05}"


def counters(count=KEYS):
    return {key(n): Int64(n) for n in range(count)}


def large(number=1, **more):
    """A document of about 1 MB, with fields before and after the large one."""
    return {"_id": number, "name": f"n{number}", **more, "n": counters(), "total": Int64(0), "last": [1, 2]}


def add(document, name, by=1):
    """`$inc` of an int64."""
    document[name] = Int64(document[name] + by)


def same(got, expected, what=""):
    """Equal in values, types and order; documents this large are not printed."""
    if bson.encode(got) == bson.encode(expected):
        return
    names, wanted = list(got), list(expected)
    assert names == wanted, f"{what}: names {names} in place of {wanted}"
    for name in names:
        if isinstance(got[name], dict) and isinstance(expected[name], dict):
            for (a, x), (b, y) in zip(got[name].items(), expected[name].items()):
                assert (a, x) == (b, y), f"{what}: {name}.{a}: {x!r} in place of {name}.{b}: {y!r}"
            equal(len(got[name]), len(expected[name]), f"{what}: {name}")
        else:
            equal(got[name], expected[name], f"{what}: {name}")
    raise AssertionError(f"{what}: other types or another order")


@test
def a_document_of_20_000_keys_comes_back_as_it_was(client):
    collection = fresh(client, "large_documents").whole
    document = large()
    document["n"]["text"] = "x" * 5000
    document["n"]["list"] = [{"a": n} for n in range(500)]
    document["n"]["inner"] = {f"k{n}": float(n) for n in range(3000)}
    collection.insert_one(document)
    same(collection.find_one({"_id": 1}), document)
    same(collection.find_one({f"n.{key(77)}": 77}), document)
    same(collection.find_one({"n.inner.k2999": 2999}, {"_id": 1, "n.inner.k7": 1}), {"_id": 1, "n": {"inner": {"k7": 7.0}}})
    same(collection.find_one({}, {"n": 0}), {name: document[name] for name in document if name != "n"})
    shown = collection.find_one({}, {"n.list": {"$slice": -2}, "name": 1})
    same(shown, {"_id": 1, "name": "n1", "n": {"list": [{"a": 498}, {"a": 499}]}})
    equal(collection.count_documents({f"n.{key(3)}": {"$gt": 5}}), 0)
    equal(collection.distinct("n.inner.k5"), [5.0])
    size = len(bson.encode(document))
    stats = client.large_documents.command("collStats", "whole")
    equal((stats["count"], stats["size"], stats["avgObjSize"]), (1, size, size))
    equal(client.large_documents.command("dataSize", "large_documents.whole")["size"], size)
    equal(client.large_documents.command("validate", "whole")["valid"], True)


@test
def every_operator_changes_a_document_of_20_000_keys(client):
    collection = fresh(client, "large_documents").operators
    expected = large()
    collection.insert_one(expected)
    n = expected["n"]

    def update(change, matched=1, modified=1, more=(), **options):
        result = collection.update_one({"_id": 1, **dict(more)}, change, **options)
        equal((result.matched_count, result.modified_count), (matched, modified), change)
        same(collection.find_one({"_id": 1}), expected, str(change)[:200])

    expected["name"] = "other"
    for number in range(5):
        add(n, key(number * 4001))
    expected["total"] = Int64(5)
    increments = {f"n.{key(number * 4001)}": Int64(1) for number in range(5)}
    update({"$set": {"name": "other"}, "$inc": {**increments, "total": Int64(5)}})
    update({"$set": {"name": "other"}}, modified=0)
    update({"$inc": {f"n.{key(1)}": 0}}, modified=0)
    del n[key(2)]
    update({"$unset": {f"n.{key(2)}": ""}})
    update({"$unset": {f"n.{key(2)}": ""}}, modified=0)
    n["renamed"] = n.pop(key(3))
    update({"$rename": {f"n.{key(3)}": "n.renamed"}})
    expected["out"] = n.pop(key(4))
    update({"$rename": {f"n.{key(4)}": "out"}})
    n[key(5)] = Int64(50)
    n[key(6)] = Int64(-6)
    n[key(7)] = Int64(70)
    update({"$mul": {f"n.{key(5)}": 10}, "$min": {f"n.{key(6)}": Int64(-6)}, "$max": {f"n.{key(7)}": Int64(70)}})
    n[key(8)] = Int64(8 | 3)
    update({"$bit": {f"n.{key(8)}": {"or": 3}}})
    n["list"] = [5, 1, 4]
    update({"$push": {"n.list": {"$each": [5, 1, 4]}}})
    n["list"] = [1, 4, 5, 9]
    update({"$push": {"n.list": {"$each": [9], "$sort": 1, "$slice": 5}}})
    n["list"] = [1, 4, 5, 9, 7]
    update({"$addToSet": {"n.list": {"$each": [4, 7]}}})
    n["list"] = [1, 4, 5, 9, 6]
    update({"$set": {"n.list.$": 6}}, more={"n.list": 7}.items())
    n["list"] = [1, 4, 105, 109, 106]
    update({"$inc": {"n.list.$[high]": 100}}, array_filters=[{"high": {"$gte": 5}}])
    n["list"] = [2, 5, 106, 110, 107]
    update({"$inc": {"n.list.$[]": 1}})
    n["list"] = [2, 5]
    update({"$pull": {"n.list": {"$gt": 100}}})
    n["list"] = [2]
    update({"$pop": {"n.list": 1}})
    n["list"] = []
    update({"$pullAll": {"n.list": [2]}})
    n[key(9)], n["sum"] = Int64(10), Int64(9)
    update([{"$set": {f"n.{key(9)}": {"$add": [f"$n.{key(9)}", 1]}, "n.sum": f"$n.{key(9)}"}}])
    del n["sum"]
    update([{"$unset": "n.sum"}])
    n["sub"] = {f"k{number}": number for number in range(4000)}
    update({"$set": {"n.sub": n["sub"]}})
    n["sub"]["k7"] += 5
    n["sub"]["new"] = 1
    update({"$inc": {"n.sub.k7": 5, "n.sub.new": 1}})
    expected["moved"] = n.pop("sub")
    update({"$rename": {"n.sub": "moved"}})
    expected["n"] = n = {"small": 1}
    update({"$set": {"n": n}})
    expected = large(again=True)
    equal(collection.replace_one({"_id": 1}, expected).modified_count, 1)
    same(collection.find_one(), expected)
    equal(client.large_documents.command("validate", "operators")["valid"], True)


@test
def errors_have_mongodb_codes_and_change_nothing(client):
    collection = fresh(client, "large_documents").errors
    document = large()
    document["n"].update(text="a", list=[1], most=Int64(2**63 - 1))
    collection.insert_one(document)
    for change, code in [
        ({"$inc": {"n.text": 1, f"n.{key(1)}": 1}}, 14),
        ({"$inc": {f"n.{key(1)}": 1, "n.text": 1}}, 14),
        ({"$inc": {f"n.{key(1)}": "a"}}, 14),
        ({"$mul": {"n.list": 2}}, 14),
        ({"$inc": {"n.most": 1}}, 2),
        ({"$bit": {"n.text": {"or": 1}}}, 2),
        ({"$push": {f"n.{key(2)}": 1}}, 2),
        ({"$pull": {f"n.{key(2)}": 1}}, 2),
        ({"$set": {"_id": 2}}, 66),
        ({"$inc": {f"n.{key(1)}": 1}, "$set": {"_id": 2}}, 66),
        ({"$set": {f"n.{key(1)}": 1}, "$inc": {f"n.{key(1)}": 1}}, 40),
        ({"$set": {f"n.{key(1)}.a": 1, f"n.{key(1)}": 1}}, 40),
        ({"$set": {"n": 1}, "$inc": {f"n.{key(1)}": 1}}, 40),
        ({"$set": {f"n.{key(1)}.a": 1}}, 28),
        ({"$set": {"n.list.x": 1}}, 28),
        ({"$set": {"n.list.$": 1}}, 2),
        ({"$nosuch": {"n.a": 1}}, 9),
    ]:
        equal(raises(WriteError, collection.update_one, {"_id": 1}, change).code, code, change)
    error = raises(WriteError, collection.update_one, {"_id": 1}, {"$inc": {"n.text": 1}})
    equal(
        error.details["errmsg"],
        "Plan executor error during update :: caused by :: Cannot apply $inc to a value of non-numeric type. {_id: 1} has the field 'text' of non-numeric type string",
    )
    same(collection.find_one(), document)


@test
def growth_beyond_16_mib_is_refused(client):
    collection = fresh(client, "large_documents").limit
    document = {"_id": 1, "n": counters(), "list": []}
    for number in range(14):
        document["n"][f"piece{number}"] = "x" * MIB
    collection.insert_one(document)
    left = LIMIT - len(bson.encode(document))
    for change in [
        {"$set": {"n.fill": "y" * left}},
        {"$push": {"list": "y" * left}},
        {"$rename": {f"n.{key(1)}": "n." + "y" * (left + 100)}},
        [{"$set": {"again": "$n.piece0", "more": "$n.piece1"}}],
    ]:
        error = raises((WriteError, OperationFailure), collection.update_one, {"_id": 1}, change)
        equal(
            (error.code, error.details["errmsg"].endswith(f"Resulting document after update is larger than {LIMIT}")),
            (17419, True),
            error.details["errmsg"],
        )
    same(collection.find_one(), document)
    document["n"]["fill"] = "y" * (left - len("\x02fill\0\0\0\0\0\0"))
    equal(collection.update_one({"_id": 1}, {"$set": {"n.fill": document["n"]["fill"]}}).modified_count, 1)
    same(collection.find_one(), document)
    equal(len(bson.encode(document)), LIMIT)
    equal(raises(WriteError, collection.update_one, {"_id": 1}, {"$inc": {"n.new": 1}}).code, 17419)
    collection.update_one({"_id": 1}, {"$inc": {f"n.{key(5)}": 1}})
    add(document["n"], key(5))
    same(collection.find_one(), document)
    error = raises(OperationFailure, collection.find_one_and_update, {"_id": 1}, {"$set": {"n.x": "too much"}})
    equal(error.code, 17419)


@test
def unacknowledged_updates_are_seen_by_the_next_read(client):
    # On one connection reads come after the writes.
    with pymongo.MongoClient(addresses.first(), maxPoolSize=1) as single:
        collection = fresh(single, "large_documents").silent
        expected = large()
        collection.insert_one(expected)
        silent = collection.with_options(write_concern=WriteConcern(w=0))
        for number in range(100):
            name = key(number * 37 % 500)
            result = silent.update_one({"_id": 1}, {"$inc": {f"n.{name}": 1, "total": 1}, "$set": {"name": str(number)}})
            equal(result.acknowledged, False)
            add(expected["n"], name)
            add(expected, "total")
            expected["name"] = str(number)
            # This one fails without a reply.
            silent.update_one({"_id": 1}, {"$inc": {"name": 1, f"n.{name}": 1}})
            if number % 20 == 0:
                same(collection.find_one(), expected)
        same(collection.find_one(), expected)


@test
def find_and_modify_returns_large_documents(client):
    collection = fresh(client, "large_documents").fam
    expected = large()
    collection.insert_one(expected)
    path = f"n.{key(10)}"
    same(collection.find_one_and_update({"_id": 1}, {"$inc": {path: 1}}), expected)
    add(expected["n"], key(10), 2)
    after = collection.find_one_and_update({path: 11}, {"$inc": {path: 1}}, return_document=ReturnDocument.AFTER)
    same(after, expected)
    add(expected["n"], key(10))
    shown = collection.find_one_and_update(
        {}, {"$inc": {path: 1}}, {path: 1}, sort=[(path, -1)], return_document=ReturnDocument.AFTER
    )
    same(shown, {"_id": 1, "n": {key(10): Int64(13)}})
    same(collection.find_one_and_delete({path: 13}), expected)
    equal(collection.count_documents({}), 0)
    upserted = collection.find_one_and_update(
        {"_id": 2}, {"$set": {"n": counters()}}, upsert=True, return_document=ReturnDocument.AFTER
    )
    same(upserted, {"_id": 2, "n": counters()})


@test
def explain_of_large_documents(client):
    db = fresh(client, "large_documents")
    db.explained.insert_many(large(number) for number in range(3))
    path = f"n.{key(5)}"
    db.explained.create_index(path)
    for command, stage in [
        ({"find": "explained", "filter": {"_id": 1}, "projection": {path: 1}}, {"IDHACK", "FETCH", "PROJECTION_DEFAULT"}),
        ({"find": "explained", "filter": {path: 5}}, {"FETCH"}),
        ({"find": "explained", "filter": {f"n.{key(6)}": 6}}, {"COLLSCAN"}),
        ({"update": "explained", "updates": [{"q": {"_id": 1}, "u": {"$inc": {path: 1}}}]}, {"UPDATE"}),
        ({"delete": "explained", "deletes": [{"q": {"_id": 1}, "limit": 1}]}, {"DELETE", "BATCHED_DELETE"}),
    ]:
        told = db.command("explain", command, verbosity="executionStats")
        plan = told["queryPlanner"]["winningPlan"]
        assert plan["stage"] in stage, plan
        stats = told["executionStats"]
        equal(stats["executionSuccess"], True)
    equal(db.explained.find_one({"_id": 1}, {path: 1}), {"_id": 1, "n": {key(5): 5}})


@test
def a_cursor_reads_many_large_documents_in_batches(client):
    collection = fresh(client, "large_documents").cursor
    for number in range(40):
        collection.insert_one(large(number))
    expected = [large(number) for number in range(40)]
    for options in [{}, {"batch_size": 1}, {"batch_size": 7}]:
        for found, wanted in zip(collection.find(**options).sort("_id", 1), expected, strict=True):
            same(found, wanted)
    # A read sees one state of the document.
    cursor = collection.find(batch_size=2)
    same(next(cursor), expected[0])
    result = collection.update_many({}, {"$inc": {f"n.{key(1)}": 1}, "$unset": {f"n.{key(2)}": ""}})
    equal((result.matched_count, result.modified_count), (40, 40))
    equal(len(list(cursor)), 39)
    equal(collection.count_documents({f"n.{key(1)}": 2, f"n.{key(2)}": {"$exists": False}}), 40)
    equal(collection.delete_many({"_id": {"$lt": 39}}).deleted_count, 39)
    equal([d["_id"] for d in collection.find({}, {"_id": 1})], [39])


@test
def raw_bytes_are_dumped_and_restored(client):
    db = fresh(client, "large_documents")
    # Repeated names, every order of names, and types that a driver would not write.
    def element(name, value):
        return b"\x10" + name + b"\0" + value.to_bytes(4, "little")

    def document(elements):
        return (len(elements) + 5).to_bytes(4, "little") + elements + b"\0"

    def sub(name, inner):
        return b"\x03" + name + b"\0" + inner

    repeated = b"".join(element(f"k{n % 4000}".encode(), n) for n in range(12_000))
    odd = b"".join(element(name, 1) for name in [b"", b"0", b"a.b", b"$x", b"\xc3\xa9", b"k" * 3000])
    odd += b"\x06undefined\0" + b"\x0esymbol\0\2\0\0\0s\0" + b"\xffmin\0" + b"\x7fmax\0"
    originals = [
        bson.encode(large(1)),
        document(element(b"_id", 2) + sub(b"n", document(repeated)) + sub(b"n", document(repeated + odd))),
        document(element(b"_id", 3) + repeated + sub(b"e", document(b"")) + odd.replace(b"$x", b"xx")),
        document(element(b"_id", 4) + sub(b"n", document(odd + repeated)) + element(b"last", 1)),
    ]
    for original in originals:
        db.command("insert", "dumped", documents=[RawBSONDocument(original)])
    dumped = b"".join(db.dumped.find_raw_batches(batch_size=2))
    assert dumped == b"".join(originals), "other bytes"
    restored = [RawBSONDocument(one) for one in bson_stream(dumped)]
    db.restored.insert_many(restored)
    assert b"".join(db.restored.find_raw_batches()) == dumped, "other bytes"
    # The first of repeated names is used; the others stay where they are.
    db.dumped.update_one({"_id": 2}, {"$inc": {"n.k17": 1}})
    first = b"\x10k17\0" + (17).to_bytes(4, "little")
    assert originals[1].count(first) == 2
    wanted = originals[1].replace(first, b"\x10k17\0" + (18).to_bytes(4, "little"), 1)
    assert b"".join(db.dumped.find_raw_batches({"_id": 2})) == wanted, "other bytes"
    for original in db.dumped.aggregate([{"$sort": {"_id": 1}}, {"$project": {"size": {"$bsonSize": "$$ROOT"}}}]):
        equal(original["size"], len(originals[original["_id"] - 1]))


def bson_stream(data):
    """The documents of a dump, as bytes."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "little")
        yield data[at:at + size]
        at += size


@test
def pipelines_read_and_write_large_documents(client):
    db = fresh(client, "large_documents")
    document = large()
    db.source.insert_one(document)
    pairs = db.source.aggregate([{"$project": {"pairs": {"$objectToArray": "$n"}}}]).next()["pairs"]
    assert [(pair["k"], pair["v"]) for pair in pairs] == list(document["n"].items()), "other pairs"
    stages = [
        {"$project": {"pairs": {"$objectToArray": "$n"}}},
        {"$unwind": "$pairs"},
        {"$group": {"_id": None, "sum": {"$sum": "$pairs.v"}, "count": {"$sum": 1}}},
    ]
    equal(db.source.aggregate(stages).next(), {"_id": None, "sum": sum(range(KEYS)), "count": KEYS})
    db.source.aggregate([{"$set": {f"n.{key(1)}": "set"}}, {"$out": "out"}])
    document["n"][key(1)] = "set"
    same(db.out.find_one(), document)
    db.source.aggregate([{"$project": {"n.merged": {"$literal": 1}}}, {"$merge": {"into": "out"}}])
    document["n"] = {"merged": 1}
    same(db.out.find_one(), document)


@test
def indexes_of_keys_in_large_documents_follow_updates(client):
    collection = fresh(client, "large_documents").indexes
    for number in range(6):
        collection.insert_one(large(number))
    one, two = f"n.{key(1)}", f"n.{key(2)}"
    collection.create_index(one)
    collection.create_index([(two, -1), ("name", 1)])
    collection.create_index("n.u", unique=True, sparse=True)
    collection.create_index({"n.tags": 1})
    for number in range(6):
        collection.update_one({"_id": number}, {"$inc": {one: number, two: -number}})
    equal([d["_id"] for d in collection.find({one: {"$gte": 4}}, {"_id": 1}).hint([(one, 1)])], [3, 4, 5])
    collection.update_one({"_id": 1}, {"$set": {"n.u": 7, "n.tags": ["a", "b"]}})
    raises(DuplicateKeyError, collection.update_one, {"_id": 2}, {"$inc": {"n.u": 7}})
    error = raises(DuplicateKeyError, collection.insert_one, large(9) | {"n": counters() | {"u": 7}})
    equal(dict(error.details["keyValue"]), {"n.u": 7})
    equal(collection.find_one({"n.tags": "b"}, {"_id": 1}), {"_id": 1})
    collection.update_one({"_id": 1}, {"$pull": {"n.tags": "b"}, "$unset": {"n.u": ""}})
    equal(collection.find_one({"n.tags": "b"}), None)
    collection.update_one({"_id": 2}, {"$inc": {"n.u": 7}})
    collection.create_index({"n.$**": 1})
    equal(collection.count_documents({f"n.{key(9)}": 9}), 6)
    equal(client.large_documents.command("validate", "indexes")["valid"], True)


@test
def bulks_and_threads_increment_large_documents(client):
    collection = fresh(client, "large_documents").threads
    for number in range(2):
        collection.insert_one(large(number))
    problems = []

    def work(thread):
        try:
            for step in range(25):
                changes = []
                for place in range(4):
                    paths = {f"n.{key((step * 7 + place * thread) % 50)}": 1, f"n.{key(place)}": 1}
                    changes.append(UpdateOne({"_id": step % 2}, {"$inc": {**paths, "total": len(paths)}}))
                result = collection.bulk_write(changes)
                equal((result.matched_count, result.modified_count), (4, 4))
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        for found in collection.find():
            equal(sum(found["n"].values()) - sum(range(KEYS)), found["total"])
    for thread in threads:
        thread.join()
    equal(problems, [])
    total = 0
    for found in collection.find():
        equal(sum(found["n"].values()) - sum(range(KEYS)), found["total"])
        total += found["total"]
    assert total >= 6 * 25 * 4, total
    result = collection.bulk_write([UpdateMany({}, {"$inc": {f"n.{key(1)}": 1}}) for _ in range(3)], ordered=False)
    equal((result.matched_count, result.modified_count), (6, 6))
    equal(client.large_documents.command("validate", "threads")["valid"], True)


@test
def large_documents_outlive_the_server(client):
    server = Server(os.environ["FROND_BINARY"])
    try:
        server.start()
        expected = large()
        with pymongo.MongoClient(server.uri) as before:
            before.db.c.insert_one(expected)
            for number in range(50):
                name = key(number * 397)
                before.db.c.update_one({"_id": 1}, {"$inc": {f"n.{name}": 5}, "$set": {f"n.new{number % 7}": number}})
                add(expected["n"], name, 5)
                expected["n"][f"new{number % 7}"] = number
            same(before.db.c.find_one(), expected)
        server.stop()
        server.start()
        with pymongo.MongoClient(server.uri) as after:
            same(after.db.c.find_one(), expected)
            after.db.c.with_options(write_concern=WriteConcern(j=True)).update_one({"_id": 1}, {"$inc": {"n.new1": 1}})
            expected["n"]["new1"] += 1
        server.kill()
        server.start()
        with pymongo.MongoClient(server.uri) as after:
            same(after.db.c.find_one(), expected)
            equal(after.db.command("validate", "c")["valid"], True)
        server.stop()
    finally:
        server.close()
