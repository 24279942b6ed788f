"""Stages, window functions, time zones and memory limits of aggregations."""

from datetime import datetime, timedelta

from harness import addresses
from harness.tap import equal, of_one_server, raises, test
from pymongo.errors import OperationFailure

from . import fresh

SALES = [
    {"_id": 1, "shop": "a", "day": datetime(2024, 3, 30), "sold": 3},
    {"_id": 2, "shop": "a", "day": datetime(2024, 3, 31), "sold": 5},
    {"_id": 3, "shop": "b", "day": datetime(2024, 3, 30), "sold": 2},
    {"_id": 4, "shop": "a", "day": datetime(2024, 4, 2), "sold": 4},
    {"_id": 5, "shop": "b", "day": datetime(2024, 4, 2), "sold": None},
]


@test
def windows_move_over_partitions(client):
    sales = fresh(client, "stages").sales
    sales.insert_many(SALES)
    found = list(sales.aggregate([
        {"$setWindowFields": {"partitionBy": "$shop", "sortBy": {"day": 1}, "output": {
            "total": {"$sum": "$sold", "window": {"documents": ["unbounded", "current"]}},
            "recent": {"$sum": "$sold", "window": {"range": [-1, "current"], "unit": "day"}},
            "rank": {"$rank": {}},
            "before": {"$shift": {"output": "$sold", "by": -1, "default": 0}},
        }}},
        {"$sort": {"_id": 1}},
    ]))
    equal([d["total"] for d in found], [3, 8, 2, 12, 2])
    equal([d["recent"] for d in found], [3, 8, 2, 4, 0])
    equal([d["rank"] for d in found], [1, 2, 1, 3, 2])
    equal([d["before"] for d in found], [0, 3, 0, 5, 2])


@test
def gaps_are_made_and_filled(client):
    sales = fresh(client, "stages").sales
    sales.insert_many(SALES)
    found = list(sales.aggregate([
        {"$match": {"shop": "a"}},
        {"$densify": {"field": "day", "partitionByFields": ["shop"],
                      "range": {"step": 1, "unit": "day", "bounds": "partition"}}},
        {"$fill": {"sortBy": {"day": 1}, "output": {"sold": {"method": "linear"}}}},
        {"$sort": {"day": 1}},
    ]))
    equal([d["sold"] for d in found], [3, 5, 4.5, 4])
    equal(found[2]["day"], datetime(2024, 4, 1))


@test
def graphs_buckets_and_redaction(client):
    people = fresh(client, "stages").people
    people.insert_many([
        {"_id": "ann"}, {"_id": "bob", "boss": "ann"}, {"_id": "cid", "boss": "bob"}, {"_id": "dan", "boss": "ann"},
    ])
    found = people.aggregate([
        {"$match": {"_id": "cid"}},
        {"$graphLookup": {"from": "people", "startWith": "$boss", "connectFromField": "boss", "connectToField": "_id",
                          "as": "bosses", "depthField": "level"}},
    ]).next()
    equal([(b["_id"], b["level"]) for b in found["bosses"]], [("bob", 0), ("ann", 1)])
    sales = client.stages.sales
    sales.insert_many(SALES)
    buckets = list(sales.aggregate([{"$bucketAuto": {"groupBy": "$_id", "buckets": 2}}]))
    equal(buckets, [{"_id": {"min": 1, "max": 4}, "count": 3}, {"_id": {"min": 4, "max": 5}, "count": 2}])
    kept = list(sales.aggregate([
        {"$redact": {"$cond": [{"$eq": ["$shop", "b"]}, "$$KEEP", "$$PRUNE"]}}, {"$sort": {"_id": 1}},
    ]))
    equal([d["_id"] for d in kept], [3, 5])


@test
def dates_know_their_place(client):
    sales = fresh(client, "stages").sales
    sales.insert_many(SALES)
    found = list(sales.aggregate([
        {"$match": {"_id": {"$lte": 2}}},
        {"$sort": {"_id": 1}},
        {"$project": {
            "there": {"$dateToString": {"date": "$day", "timezone": "America/New_York", "format": "%Y-%m-%dT%H%z"}},
            "start": {"$dateTrunc": {"date": "$day", "unit": "day", "timezone": "Europe/Berlin"}},
        }},
    ]))
    equal(found[0]["there"], "2024-03-29T20-0400")
    # Berlin's clocks went forward on the 31st.
    equal(found[1]["start"], datetime(2024, 3, 30, 23))
    nowhere = [{"$project": {"h": {"$hour": {"date": "$day", "timezone": "Mars/Base"}}}}]
    equal(raises(OperationFailure, lambda: list(sales.aggregate(nowhere))).code, 40485)


@test
@of_one_server
def memory_limits_and_the_disk(client):
    docs = fresh(client, "stages").docs
    docs.insert_many([{"_id": n, "k": n % 700, "text": "x" * 200} for n in range(5000)])
    admin = client.admin
    names = ["internalQueryMaxBlockingSortMemoryUsageBytes", "internalDocumentSourceGroupMaxMemoryBytes"]
    before = {name: admin.command("getParameter", 1, **{name: 1})[name] for name in names}
    try:
        for name in names:
            admin.command("setParameter", 1, **{name: 50_000})
        sort = [{"$sort": {"text": 1, "_id": -1}}, {"$project": {"_id": 1}}]
        equal([d["_id"] for d in docs.aggregate(sort)], list(range(4999, -1, -1)))
        equal([d["_id"] for d in docs.find({}, {"_id": 1}).sort([("text", 1), ("_id", -1)])], list(range(4999, -1, -1)))
        group = [{"$group": {"_id": "$k", "n": {"$sum": 1}, "first": {"$first": "$_id"}}}, {"$sort": {"_id": 1}}]
        found = list(docs.aggregate(group))
        equal(len(found), 700)
        equal(found[3], {"_id": 3, "n": 8, "first": 3})
        for run in [
            lambda: list(docs.aggregate(sort, allowDiskUse=False)),
            lambda: list(docs.aggregate(group, allowDiskUse=False)),
            lambda: list(docs.find().sort([("text", 1), ("_id", -1)]).allow_disk_use(False)),
        ]:
            equal(raises(OperationFailure, run).code, 292)
        stats = docs.find().sort([("text", 1), ("_id", -1)]).explain()["executionStats"]["executionStages"]
        equal((stats["stage"], stats["usedDisk"]), ("SORT", True))
    finally:
        for name, value in before.items():
            admin.command("setParameter", 1, **{name: value})


@test
def merging_with_variables(client):
    database = fresh(client, "stages")
    database.source.insert_many([{"_id": 1, "n": 5}, {"_id": 2, "n": 7}])
    database.target.insert_one({"_id": 1, "total": 10})
    database.source.aggregate([{"$merge": {
        "into": "target", "let": {"more": "$n"},
        "whenMatched": [{"$set": {"total": {"$add": ["$total", "$$more"]}, "new": "$$new._id"}}],
    }}])
    equal(list(database.target.find().sort("_id", 1)), [{"_id": 1, "total": 15, "new": 1}, {"_id": 2, "n": 7}])


@test
def merging_on_other_fields(client):
    database = fresh(client, "stages")
    source, target = database.source, database.target
    source.insert_many([{"_id": 1, "k": 1, "n": 1}, {"_id": 2, "k": 2, "n": 2}, {"_id": 3, "k": 3, "n": 3}])
    target.create_index("k", unique=True)
    target.insert_many([{"_id": "a", "k": 1}, {"_id": 2, "k": 2}])
    for mode in ["merge", "replace"]:
        merge = {"$merge": {"into": "target", "on": "k", "whenMatched": mode}}
        error = raises(OperationFailure, source.aggregate, [merge])
        equal((error.code, error.details["codeName"]), (66, "ImmutableField"), mode)
        # The others of the batch are written.
        equal(list(target.find({}, {"_id": 0}).sort("k", 1)), [{"k": 1}, {"k": 2, "n": 2}, {"k": 3, "n": 3}], mode)
    source.aggregate([{"$merge": {"into": "target", "on": "k", "whenMatched": "keepExisting"}}])
    source.aggregate([{"$unset": "_id"}, {"$merge": {"into": "target", "on": "k"}}])
    equal(list(target.find().sort("k", 1)), [{"_id": "a", "k": 1, "n": 1}, {"_id": 2, "k": 2, "n": 2}, {"_id": 3, "k": 3, "n": 3}])
    source.aggregate([{"$match": {"_id": 0}}, {"$merge": "none"}])
    source.aggregate([{"$match": {"_id": 0}}, {"$out": "empty"}])
    equal(sorted(database.list_collection_names()), ["empty", "source", "target"])
    for spec, code in [
        ({"into": "target", "let": 1}, 14),
        ({"into": "target", "on": []}, 51187),
        ({"into": {"coll": "target", "x": 1}}, 40415),
        ({"into": "target", "on": ["k", "k"]}, 31465),
    ]:
        equal(raises(OperationFailure, source.aggregate, [{"$merge": spec}]).code, code, spec)


@test
def results_become_a_time_series(client):
    database = fresh(client, "stages")
    start = datetime(2026, 1, 1)
    database.source.insert_many([{"_id": n, "t": start + timedelta(hours=n), "m": n % 2} for n in range(4)])
    options = {"timeField": "t", "metaField": "m"}
    for _ in range(2):
        database.source.aggregate([{"$out": {"db": database.name, "coll": "series", "timeseries": options}}])
        equal(next(database.list_collections(filter={"name": "series"}))["type"], "timeseries")
        equal(database.series.count_documents({"m": 1}), 2)
    other = {"$out": {"db": database.name, "coll": "series", "timeseries": {"timeField": "t"}}}
    equal(raises(OperationFailure, database.source.aggregate, [other]).code, 7406103)


@test
def what_a_server_alone_refuses(client):
    docs = fresh(client, "stages").docs
    docs.insert_one({})
    if addresses.is_alone(client):
        equal(raises(OperationFailure, lambda: list(docs.aggregate([{"$changeStream": {}}]))).code, 40573)
    for pipeline, code in [
        ([{"$search": {}}], 31082),
        ([{"$match": {}}, {"$currentOp": {}}], 40602),
        ([{"$group": {"_id": 1, "x": {"$accumulator": {}}}}], 4544707),
    ]:
        equal(raises(OperationFailure, lambda: list(docs.aggregate(pipeline))).code, code, pipeline)
    equal(docs.count_documents({}), 1)
