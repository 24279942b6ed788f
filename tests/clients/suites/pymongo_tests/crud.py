"""Insert, find, delete: values, filters, order, pages."""

import datetime
import re
import uuid

import bson
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from harness.tap import equal, test

from . import fresh

PEOPLE = [
    {"_id": 1, "name": "Ada", "age": 36, "tags": ["math", "code"], "home": {"city": "London"}},
    {"_id": 2, "name": "Grace", "age": 85, "tags": ["code", "navy"], "home": {"city": "New York"}},
    {"_id": 3, "name": "Linus", "age": 54, "tags": [], "home": {"city": "Portland"}},
    {"_id": 4, "name": "Barbara", "age": None, "tags": ["code"]},
    {"_id": 5, "name": "Edsger", "age": 72.5, "tags": "proofs", "home": {"city": "Nuenen"}},
]


def people(client):
    collection = fresh(client, "crud").people
    collection.insert_many(PEOPLE)
    return collection


def ids(cursor):
    return [document["_id"] for document in cursor]


@test
def insert_one_returns_its_id_and_the_document_is_found(client):
    collection = fresh(client, "crud").one
    inserted = collection.insert_one({"x": 1})
    assert inserted.acknowledged
    assert isinstance(inserted.inserted_id, ObjectId)
    equal(collection.find_one({"_id": inserted.inserted_id}), {"_id": inserted.inserted_id, "x": 1})
    equal(collection.find_one({"x": 2}), None)


@test
def every_bson_type_comes_back_as_it_went(client):
    collection = fresh(client, "crud").types
    document = {
        "_id": "types",
        "double": 1.5,
        "infinity": float("inf"),
        "string": "héllo \u0000 wörld \U0001f333",
        "document": {"a": {"b": {}}},
        "array": [1, [2, [3]], {}],
        "binary": Binary(b"\x00\xff", 0),
        "user_binary": Binary(b"abc", 128),
        "uuid": Binary.from_uuid(uuid.UUID(int=7)),
        "object_id": ObjectId("0123456789abcdef01234567"),
        "true": True,
        "false": False,
        "date": datetime.datetime(2012, 8, 23, 12, 30, 0, 123000),
        "old_date": datetime.datetime(1905, 1, 1),
        "null": None,
        "regex": Regex("^a.*b$", "im"),
        "code": Code("function () {}"),
        "code_with_scope": Code("x", {"x": 1}),
        "int": -7,
        "timestamp": Timestamp(1000, 7),
        "long": Int64(2**53 + 1),
        "decimal": Decimal128("-12.340E-5"),
        "min": MinKey(),
        "max": MaxKey(),
        "dbref": DBRef("others", 5),
    }
    collection.insert_one(document)
    raw = client.get_database(
        "crud", codec_options=bson.CodecOptions(document_class=bson.raw_bson.RawBSONDocument)
    )
    equal(raw.types.find_one().raw, bson.encode(document))


@test
def filters_find_what_they_should(client):
    collection = people(client)
    for query, expected in [
        ({}, [1, 2, 3, 4, 5]),
        ({"name": "Ada"}, [1]),
        ({"age": {"$gt": 54}}, [2, 5]),
        ({"age": {"$gte": 54, "$lt": 80}}, [3, 5]),
        ({"age": {"$ne": 36}}, [2, 3, 4, 5]),
        ({"age": None}, [4]),
        ({"age": 36.0}, [1]),
        ({"home": None}, [4]),
        ({"home": {"$exists": False}}, [4]),
        ({"home.city": "Portland"}, [3]),
        ({"home": {"city": "London"}}, [1]),
        ({"tags": "code"}, [1, 2, 4]),
        ({"tags": ["code"]}, [4]),
        ({"tags": []}, [3]),
        ({"tags.0": "code"}, [2, 4]),
        ({"tags": {"$all": ["code", "navy"]}}, [2]),
        ({"tags": {"$size": 2}}, [1, 2]),
        ({"tags": {"$in": ["navy", "proofs"]}}, [2, 5]),
        ({"tags": {"$nin": ["code"]}}, [3, 5]),
        ({"tags": {"$elemMatch": {"$gt": "m", "$lt": "n"}}}, [1]),
        ({"name": re.compile("^[AB]")}, [1, 4]),
        ({"name": {"$regex": "A$", "$options": "i"}}, [1, 4]),
        ({"name": {"$in": [re.compile("ce$"), "Linus"]}}, [2, 3]),
        ({"age": {"$type": "double"}}, [5]),
        ({"age": {"$type": "number"}}, [1, 2, 3, 5]),
        ({"age": {"$mod": [9, 0]}}, [1, 3, 5]),
        ({"$or": [{"age": 36}, {"name": "Linus"}]}, [1, 3]),
        ({"$and": [{"tags": "code"}, {"age": {"$gt": 40}}]}, [2]),
        ({"$nor": [{"tags": "code"}, {"age": 54}]}, [5]),
        ({"age": {"$not": {"$gt": 50}}}, [1, 4]),
        ({"_id": {"$in": [5, 1, 99]}}, [1, 5]),
    ]:
        equal(ids(collection.find(query).sort("_id", 1)), expected, query)
        equal(collection.count_documents(query), len(expected), query)


@test
def sort_skip_limit_and_projection(client):
    collection = people(client)
    equal(ids(collection.find().sort("name", 1)), [1, 4, 5, 2, 3])
    equal(ids(collection.find().sort("name", -1).skip(1).limit(2)), [2, 5])
    # Nulls come before numbers, and numbers are compared by value.
    equal(ids(collection.find().sort("age", 1)), [4, 1, 3, 5, 2])
    equal(ids(collection.find().sort([("home.city", -1), ("_id", 1)])), [3, 5, 2, 1, 4])
    equal(ids(collection.find().sort("_id", 1).limit(-2)), [1, 2])
    for projection, expected in [
        ({"name": 1}, {"_id": 1, "name": "Ada"}),
        ({"name": 1, "_id": 0}, {"name": "Ada"}),
        ({"tags": 0, "home": 0}, {"_id": 1, "name": "Ada", "age": 36}),
        ({"home.city": 1, "_id": 0}, {"home": {"city": "London"}}),
        ({"tags": {"$slice": 1}, "_id": 0, "home": 0}, {"name": "Ada", "age": 36, "tags": ["math"]}),
        ({"tags": {"$elemMatch": {"$eq": "code"}}, "age": 1, "_id": 0}, {"age": 36, "tags": ["code"]}),
    ]:
        equal(collection.find_one({"_id": 1}, projection), expected, projection)
    equal(collection.find_one({"_id": 1, "tags": "code"}, {"tags.$": 1, "_id": 0}), {"tags": ["code"]})


@test
def ten_thousand_documents_page_by_page(client):
    collection = fresh(client, "crud").pages
    collection.create_index([("k", 1)])
    collection.insert_many([{"_id": n, "k": (n * 7919) % 10_000, "pad": "x" * 50} for n in range(10_000)])
    seen = []
    cursor = collection.find().sort("k", 1).batch_size(250)
    for document in cursor:
        seen.append(document["k"])
    equal(seen, list(range(10_000)))
    equal(cursor.alive, False)
    # By skip and limit, without an index to help.
    pages = []
    for page in range(10):
        found = collection.find({}, {"_id": 1}).sort([("pad", 1), ("_id", -1)])
        pages.extend(ids(found.skip(page * 1000).limit(1000)))
    equal(pages, list(range(9_999, -1, -1)))
    # By range over the index.
    last, count = -1, 0
    while page := list(collection.find({"k": {"$gt": last}}).sort("k", 1).limit(500)):
        last, count = page[-1]["k"], count + len(page)
    equal((last, count), (9_999, 10_000))


@test
def counts_and_distinct(client):
    collection = people(client)
    equal(collection.count_documents({}), 5)
    equal(collection.estimated_document_count(), 5)
    equal(collection.count_documents({"tags": "code"}, skip=1, limit=1), 1)
    equal(sorted(collection.distinct("tags")), ["code", "math", "navy", "proofs"])
    equal(collection.distinct("home.city", {"age": {"$lt": 50}}), ["London"])
    equal(collection.database.missing.estimated_document_count(), 0)
    equal(collection.database.missing.distinct("x"), [])


@test
def delete_one_and_many(client):
    collection = people(client)
    equal(collection.delete_one({"tags": "code"}).deleted_count, 1)
    equal(collection.delete_many({"tags": "code"}).deleted_count, 2)
    equal(collection.delete_one({"tags": "code"}).deleted_count, 0)
    equal(collection.delete_many({}).deleted_count, 2)
    equal(collection.count_documents({}), 0)


@test
def a_document_of_fifteen_megabytes(client):
    collection = fresh(client, "crud").large
    blob = bytes(range(256)) * (15 * 4096)
    collection.insert_one({"_id": 1, "blob": blob})
    equal(collection.find_one({"_id": 1})["blob"] == blob, True)
    collection.update_one({"_id": 1}, {"$set": {"small": 1}})
    equal(collection.find_one({"_id": 1}, {"blob": 0}), {"_id": 1, "small": 1})
    # Two of them do not fit into one reply.
    collection.insert_one({"_id": 2, "blob": blob})
    equal([len(d["blob"]) for d in collection.find().sort("_id", 1)], [len(blob)] * 2)


@test
def ids_of_any_type_and_their_order(client):
    collection = fresh(client, "crud").ids
    values = [MinKey(), None, -1, 2.5, Int64(7), "a", {"x": 1}, Binary(b"z", 5), ObjectId(), True,
              datetime.datetime(2020, 1, 1), Timestamp(1, 1), MaxKey()]
    for value in reversed(values):
        collection.insert_one({"_id": value})
    equal(ids(collection.find().sort("_id", 1)), values)
    for value in values:
        equal(collection.count_documents({"_id": value}), 1, value)
