"""Aggregation stages that applications use most."""

from harness.tap import equal, raises, test
from pymongo.errors import OperationFailure

from . import fresh

ORDERS = [
    {"_id": 1, "who": "a", "amount": 10, "items": ["x", "y"]},
    {"_id": 2, "who": "b", "amount": 20, "items": ["y"]},
    {"_id": 3, "who": "a", "amount": 30.5, "items": []},
    {"_id": 4, "who": "c", "amount": None, "items": ["x", "z", "x"]},
]


@test
def stages_do_what_they_say(client):
    orders = fresh(client, "aggregation").orders
    orders.insert_many(ORDERS)
    by_id = {"$sort": {"_id": 1}}
    for pipeline, expected in [
        ([{"$match": {"who": "a"}}, {"$project": {"amount": 1}}, by_id],
         [{"_id": 1, "amount": 10}, {"_id": 3, "amount": 30.5}]),
        ([{"$group": {"_id": "$who", "total": {"$sum": "$amount"}, "n": {"$sum": 1}}}, by_id],
         [{"_id": "a", "total": 40.5, "n": 2}, {"_id": "b", "total": 20, "n": 1}, {"_id": "c", "total": 0, "n": 1}]),
        ([by_id, {"$group": {"_id": None, "avg": {"$avg": "$amount"}, "min": {"$min": "$amount"},
                             "max": {"$max": "$amount"}, "first": {"$first": "$who"}, "last": {"$last": "$who"}}}],
         [{"_id": None, "avg": 60.5 / 3, "min": 10, "max": 30.5, "first": "a", "last": "c"}]),
        ([by_id, {"$group": {"_id": "$who", "ids": {"$push": "$_id"}}}, by_id],
         [{"_id": "a", "ids": [1, 3]}, {"_id": "b", "ids": [2]}, {"_id": "c", "ids": [4]}]),
        ([{"$unwind": "$items"}, {"$group": {"_id": "$items", "n": {"$sum": 1}}}, {"$sort": {"n": -1, "_id": 1}}],
         [{"_id": "x", "n": 3}, {"_id": "y", "n": 2}, {"_id": "z", "n": 1}]),
        ([by_id, {"$skip": 1}, {"$limit": 2}, {"$project": {"who": 1}}],
         [{"_id": 2, "who": "b"}, {"_id": 3, "who": "a"}]),
        ([{"$match": {"amount": {"$gt": 5}}}, {"$count": "many"}], [{"many": 3}]),
        ([{"$match": {"_id": 1}}, {"$project": {"_id": 0, "double": {"$multiply": ["$amount", 2]}, "renamed": "$who"}}],
         [{"double": 20, "renamed": "a"}]),
        ([{"$match": {"_id": 99}}], []),
    ]:
        equal(list(orders.aggregate(pipeline)), expected, pipeline)
    tags = list(orders.aggregate([{"$unwind": "$items"}, {"$group": {"_id": None, "all": {"$addToSet": "$items"}}}]))
    equal(sorted(tags[0]["all"]), ["x", "y", "z"])


@test
def long_results_come_in_batches(client):
    numbers = fresh(client, "aggregation").numbers
    numbers.insert_many([{"_id": n, "k": n % 1000} for n in range(10_000)])
    cursor = numbers.aggregate([{"$sort": {"_id": -1}}, {"$project": {"k": 1}}], batchSize=100)
    equal([d["_id"] for d in cursor], list(range(9_999, -1, -1)))
    groups = list(numbers.aggregate([{"$group": {"_id": "$k", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}]))
    equal(groups, [{"_id": k, "n": 10} for k in range(1000)])


@test
def missing_collections_and_bad_stages(client):
    database = fresh(client, "aggregation")
    equal(list(database.missing.aggregate([{"$match": {}}])), [])
    for pipeline, code in [
        ([{"$nosuch": 1}], 40324),
        ([{"$limit": 0}], 15958),
        ([{"$limit": "x"}], 5107201),
        ([{"$group": {"n": {"$sum": 1}}}], 15955),
        ([{"$group": {"_id": 1, "n": 5}}], 40234),
        ([{"$sort": {}}], 15976),
        ([{"$match": {}, "$limit": 1}], 40323),
        ([{"$unwind": "items"}], 28818),
    ]:
        equal(raises(OperationFailure, database.c.aggregate, pipeline).code, code, pipeline)
