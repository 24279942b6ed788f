"""Listing databases and collections, and small commands about them."""

import datetime
import uuid

from bson.binary import Binary, UuidRepresentation
from bson.codec_options import CodecOptions
from harness.tap import equal, raises, test
from pymongo.errors import DuplicateKeyError, OperationFailure, WriteError

from . import fresh

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
UUIDS = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)


@test
def time_series_are_taken(client):
    database = fresh(client, "catalog")
    weather = database.create_collection(
        "weather", timeseries={"timeField": "at", "metaField": "where", "granularity": "minutes"}, expireAfterSeconds=3600)
    info = next(database.list_collections(filter={"$expr": {"$eq": ["$name", "weather"]}}))
    equal((info["type"], "idIndex" in info), ("timeseries", False))
    equal(info["options"], {
        "expireAfterSeconds": 3600,
        "timeseries": {"timeField": "at", "metaField": "where", "granularity": "minutes", "bucketMaxSpanSeconds": 86400},
    })
    # There is no unique index on _id.
    weather.insert_many([{"_id": 1, "at": NOW, "where": "x", "t": 1}, {"_id": 1, "at": NOW, "where": "y", "t": 2}])
    equal(sorted(d["t"] for d in weather.find({"_id": 1})), [1, 2])
    equal([dict(index) for index in weather.list_indexes()], [{"v": 2, "key": {"where": 1, "at": 1}, "name": "where_1_at_1"}])
    for document in [{"t": 1}, {"at": 5}]:
        error = raises(WriteError, weather.insert_one, document)
        equal(error.code, 2)
        assert "'at' must be present and contain a valid BSON UTC datetime value" in str(error), error
    weather.create_index([("where", 1), ("at", -1)])
    equal([d["t"] for d in weather.find({"where": "y"})], [2])
    equal(list(weather.aggregate([{"$group": {"_id": "$where", "t": {"$sum": "$t"}}}, {"$sort": {"_id": 1}}])),
          [{"_id": "x", "t": 1}, {"_id": "y", "t": 2}])
    equal(weather.delete_many({"where": "x"}).deleted_count, 1)
    # As mongodump and mongorestore do.
    equal([d["t"] for d in database["system.buckets.weather"].find(batch_size=1)], [2])
    database.command("collMod", "weather", timeseries={"granularity": "hours"}, expireAfterSeconds="off")
    equal(weather.options()["timeseries"]["granularity"], "hours")
    for options, code in [({"metaField": "m"}, 40414), ({"timeField": "t", "granularity": "days"}, 2), ({"timeField": "_id"}, 72)]:
        equal(raises(OperationFailure, database.command, "create", "bad", timeseries=options).code, code, options)


@test
def clustered_indexes_are_shown(client):
    database = fresh(client, "catalog")
    stocks = database.create_collection(
        "stocks", clusteredIndex={"key": {"_id": 1}, "unique": True, "name": "by id"}, expireAfterSeconds=100)
    equal([dict(index) for index in stocks.list_indexes()],
          [{"v": 2, "key": {"_id": 1}, "name": "by id", "unique": True, "clustered": True}])
    info = next(database.list_collections())
    equal(info["options"], {
        "expireAfterSeconds": 100, "clusteredIndex": {"v": 2, "key": {"_id": 1}, "name": "by id", "unique": True}})
    equal("idIndex" in info, False)
    stocks.insert_one({"_id": 1})
    raises(DuplicateKeyError, stocks.insert_one, {"_id": 1})
    equal(len(list(stocks.find({}).hint("by id"))), 1)
    raises(OperationFailure, stocks.drop_index, "by id")
    raises(OperationFailure, database.create_collection, "bad", clusteredIndex={"key": {"a": 1}, "unique": True})


@test
def collections_are_known_by_their_uuid(client):
    database = client.get_database("catalog", codec_options=UUIDS)
    client.drop_database("catalog")
    database.a.insert_one({"_id": 1})
    database.b.insert_one({"_id": 2})
    ids = {info["name"]: info["info"]["uuid"] for info in database.list_collections()}
    equal(database.command("count", "a", collectionUUID=ids["a"])["n"], 1)
    for command in [
        {"count": "a"},
        {"find": "a"},
        {"distinct": "a", "key": "_id"},
        {"aggregate": "a", "pipeline": [], "cursor": {}},
        {"insert": "a", "documents": [{}]},
        {"update": "a", "updates": [{"q": {}, "u": {"$set": {"x": 1}}}]},
        {"delete": "a", "deletes": [{"q": {}, "limit": 0}]},
        {"findAndModify": "a", "remove": True},
        {"createIndexes": "a", "indexes": [{"key": {"x": 1}, "name": "x_1"}]},
        {"dropIndexes": "a", "index": "*"},
        {"drop": "a"},
    ]:
        error = raises(OperationFailure, database.command, {**command, "collectionUUID": ids["b"]})
        equal((error.code, error.details["actualCollection"], error.details["expectedCollection"]), (361, "b", "a"), command)
        error = raises(OperationFailure, database.command, {**command, "collectionUUID": Binary.from_uuid(uuid.uuid4())})
        equal((error.code, error.details["actualCollection"]), (361, None), command)
    admin = client.get_database("admin", codec_options=UUIDS)
    bulk = {"bulkWrite": 1, "ops": [{"insert": 0, "document": {}}], "nsInfo": [{"ns": "catalog.a", "collectionUUID": ids["b"]}]}
    equal(raises(OperationFailure, admin.command, bulk).code, 361)
    rename = {"renameCollection": "catalog.a", "to": "catalog.c", "collectionUUID": ids["b"]}
    equal(raises(OperationFailure, admin.command, rename).code, 361)
    admin.command({**rename, "collectionUUID": ids["a"]})
    equal(database.command({"find": ids["a"]})["cursor"]["ns"], "catalog.c")


@test
def databases_and_sizes(client):
    database = fresh(client, "catalog")
    names = client.list_database_names()
    equal([name for name in ("admin", "config", "local") if name not in names], [])
    equal(len(list(client.list_databases(filter={"name": "admin"}))), 1)
    equal(len(list(client.list_databases(filter={"$expr": {"$eq": ["$name", "admin"]}}))), 1)
    database.a.insert_many([{"_id": n} for n in range(10)])
    sizes = database.command("dataSize", "catalog.a")
    equal((sizes["size"], sizes["numObjects"]), (140, 10))
    equal(database.command("dataSize", "catalog.a", keyPattern={"_id": 1}, min={"_id": 3}, max={"_id": 5})["numObjects"], 2)
    hashes = database.command("dbHash")
    equal((list(hashes["collections"]), len(hashes["md5"])), (["a"], 32))
    valid = database.command("validate", "a")
    equal((valid["valid"], valid["nrecords"], valid["missingIndexEntries"]), (True, 10, []))
    equal(database.command("planCacheClear", "a")["ok"], 1.0)
    equal(database.command("planCacheListFilters", "a")["filters"], [])
    equal(raises(OperationFailure, database.command, "planCacheSetFilter", "a", query={}, indexes=[]).code, 2)
    equal(client.admin.command("applyOps", [])["applied"], 0)


@test
def create_says_what_is_wrong(client):
    database = fresh(client, "catalog")
    database.command("create", "a", validator={"x": 1})
    database.command("create", "a", validator={"x": 1})
    equal(raises(OperationFailure, database.command, "create", "a").code, 48)
    for options, code in [
        ({"capped": "yes"}, 14),
        ({"nonsense": 1}, 40415),
        ({"storageEngine": {"nosuch": {}}}, 72),
        ({"encryptedFields": {"fields": []}}, 6346402),
        ({"idIndex": {"key": {"a": 1}, "name": "_id_"}}, 2),
        ({"expireAfterSeconds": 5}, 72),
        ({"autoIndexId": False}, 72),
    ]:
        equal(raises(OperationFailure, database.command, "create", "bad", **options).code, code, options)
    for name in ["", "a$b", ".a", "system.nosuch"]:
        equal(raises(OperationFailure, database.command, "create", name).code, 73, name)
    database.command("create", "good", storageEngine={"wiredTiger": {}}, changeStreamPreAndPostImages={"enabled": True},
                     idIndex={"v": 2, "key": {"_id": 1}, "name": "_id_"})
    equal(database.good.options(), {"changeStreamPreAndPostImages": {"enabled": True}, "storageEngine": {"wiredTiger": {}}})
