"""Views: named pipelines over collections."""

from harness import addresses
from harness.tap import equal, raises, test
from pymongo.errors import CollectionInvalid, OperationFailure, WriteError

from . import fresh


def filled(client):
    database = fresh(client, "views")
    database.people.insert_many([{"_id": n, "age": n * 10, "city": "abc"[n % 3]} for n in range(10)])
    database.create_collection("adults", viewOn="people", pipeline=[{"$match": {"age": {"$gte": 20}}}])
    return database


@test
def views_are_read_like_collections(client):
    adults = filled(client).adults
    equal(adults.count_documents({}), 8)
    equal(adults.estimated_document_count(), 8)
    equal([d["_id"] for d in adults.find({"age": {"$lt": 50}}, sort=[("age", -1)], limit=2)], [4, 3])
    equal(adults.find_one({"_id": 1}), None)
    equal(adults.find_one({"_id": 5}, {"age": 1, "_id": 0}), {"age": 50})
    equal([d["_id"] for d in adults.find(sort=[("_id", 1)], skip=6, batch_size=1)], [8, 9])
    equal(sorted(adults.distinct("city", {"age": {"$lt": 40}})), ["a", "c"])
    equal(list(adults.aggregate([{"$group": {"_id": None, "n": {"$sum": "$age"}}}])), [{"_id": None, "n": 440}])
    plan = adults.find({"age": 30}).explain()
    assert "people" in str(plan), plan
    equal(adults.database.command("explain", {"count": "adults"}, verbosity="queryPlanner")["ok"], 1.0)


@test
def views_over_views_and_in_stages(client):
    database = filled(client)
    database.create_collection("old", viewOn="adults", pipeline=[{"$match": {"age": {"$gte": 70}}}, {"$project": {"age": 1}}])
    equal([d["_id"] for d in database.old.find()], [7, 8, 9])
    database.pets.insert_many([{"_id": 1, "owner": 1}, {"_id": 2, "owner": 8}])
    joined = database.pets.aggregate([
        {"$lookup": {"from": "old", "localField": "owner", "foreignField": "_id", "as": "owners"}},
        {"$sort": {"_id": 1}},
    ])
    equal([len(d["owners"]) for d in joined], [0, 1])
    united = database.pets.aggregate([{"$unionWith": {"coll": "old", "pipeline": [{"$match": {"_id": 9}}]}}])
    equal([d["_id"] for d in united], [1, 2, 9])
    database.command("collMod", "adults", viewOn="people", pipeline=[{"$match": {"age": {"$gte": 80}}}])
    equal([d["_id"] for d in database.old.find()], [8, 9])
    database.people.drop()
    equal(list(database.old.find()), [])


@test
def views_are_not_written(client):
    database = filled(client)
    adults = database.adults
    for write in [
        lambda: adults.insert_one({"x": 1}),
        lambda: adults.update_one({}, {"$set": {"x": 1}}),
        lambda: adults.delete_many({}),
    ]:
        error = raises(WriteError, write)
        equal(error.code, 166)
        assert "Namespace views.adults is a view, not a collection" in str(error), error
    for command in [
        {"findAndModify": "adults", "remove": True},
        {"createIndexes": "adults", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
        {"listIndexes": "adults"},
        {"dropIndexes": "adults", "index": "*"},
        {"collStats": "adults"},
        {"validate": "adults"},
        {"aggregate": "people", "pipeline": [{"$out": "adults"}], "cursor": {}},
        {"aggregate": "people", "pipeline": [{"$merge": "adults"}], "cursor": {}},
        {"aggregate": "adults", "pipeline": [{"$indexStats": {}}], "cursor": {}},
    ]:
        equal(raises(OperationFailure, database.command, command).code, 166, command)
    equal(raises(OperationFailure, client.admin.command, "renameCollection", "views.adults", to="views.x").code, 166)
    equal(raises(OperationFailure, client.admin.command, "renameCollection", "views.people", to="views.adults").code, 48)
    for options in [{"returnKey": True}, {"min": {"a": 1}, "hint": "_id_"}, {"noCursorTimeout": True}, {"sort": {"$natural": 1}}]:
        equal(raises(OperationFailure, database.command, "find", "adults", **options).code, 168, options)


@test
def views_are_listed_and_dropped(client):
    database = filled(client)
    listed = {info["name"]: info for info in database.list_collections()}
    equal(sorted(listed), ["adults", "people", "system.views"])
    adults = listed["adults"]
    equal((adults["type"], adults["info"]), ("view", {"readOnly": True}))
    equal(adults["options"], {"viewOn": "people", "pipeline": [{"$match": {"age": {"$gte": 20}}}]})
    equal(list(database.list_collections(filter={"type": "view"}, nameOnly=True)), [{"name": "adults", "type": "view"}])
    equal(database["system.views"].find_one()["_id"], "views.adults")
    database.command("create", "adults", viewOn="people", pipeline=[{"$match": {"age": {"$gte": 20}}}])
    equal(raises(OperationFailure, database.command, "create", "adults", viewOn="x").code, 48)
    equal(raises(OperationFailure, database.command, "create", "people", viewOn="x").code, 48)
    raises(CollectionInvalid, database.create_collection, "adults")
    equal(database.command("dbStats")["views"], 1)
    equal(addresses.without_times(database.command("drop", "adults")), {"ns": "views.adults", "ok": 1.0})
    equal(database.list_collection_names(filter={"type": "view"}), [])
    database.adults.insert_one({"now": "a collection"})


@test
def wrong_views_are_refused(client):
    database = fresh(client, "views")
    for options, code in [
        ({"viewOn": ""}, 2),
        ({"pipeline": []}, 72),
        ({"viewOn": "x", "capped": True, "size": 100}, 72),
        ({"viewOn": "x", "pipeline": [{"$out": "y"}]}, 167),
        ({"viewOn": "x", "pipeline": [{"$nosuch": 1}]}, 40324),
        ({"viewOn": "bad", "pipeline": []}, 5),
    ]:
        equal(raises(OperationFailure, database.command, "create", "bad", **options).code, code, options)
    database.create_collection("a", viewOn="b")
    equal(raises(OperationFailure, database.create_collection, "b", viewOn="a").code, 5)
    lookup = [{"$lookup": {"from": "a", "pipeline": [], "as": "x"}}]
    equal(raises(OperationFailure, database.create_collection, "b", viewOn="c", pipeline=lookup).code, 5)
    equal(raises(OperationFailure, database.command, "collMod", "a", viewOn="a", pipeline=[]).code, 5)
    equal(raises(OperationFailure, database.command, "collMod", "a", validator={"x": 1}).code, 72)
    for n in range(20):
        database.create_collection(f"v{n}", viewOn=f"v{n - 1}" if n else "base")
    equal(raises(OperationFailure, database.create_collection, "v20", viewOn="v19").code, 165)
    database.base.insert_one({"_id": 1})
    equal(database.v19.count_documents({}), 1)
