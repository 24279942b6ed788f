"""Collations: of operations, of indexes, of collections and views, and what is refused."""

from harness.tap import equal, raises, test
from pymongo import DeleteOne, IndexModel, UpdateMany
from pymongo.collation import Collation, CollationAlternate, CollationCaseFirst, CollationStrength
from pymongo.errors import DuplicateKeyError, OperationFailure

from . import fresh

NO_CASE = Collation("en", strength=CollationStrength.SECONDARY)
SIMPLE = {"locale": "simple"}


def filled(client):
    collection = fresh(client, "collations").words
    words = ["b", "A", "a", "B", "á", "10", "9"]
    collection.insert_many([{"_id": n, "w": word, "tags": [word, "x"]} for n, word in enumerate(words)])
    return collection


def words(cursor):
    return [document["w"] for document in cursor]


@test
def reads_take_a_collation(client):
    c = filled(client)
    equal(sorted(words(c.find({"w": "A"}, collation=NO_CASE))), ["A", "a"])
    equal(sorted(words(c.find({"w": "A"}, collation=Collation("en", strength=1)))), ["A", "a", "á"])
    equal(words(c.find({"w": "A"})), ["A"])
    equal(words(c.find({"w": {"$in": ["a", "B"]}}).collation(NO_CASE).sort("_id", 1)), ["b", "A", "a", "B"])
    equal(words(c.find({"w": {"$regex": "^a"}}, collation=NO_CASE)), ["a"])
    equal(words(c.find().sort("w", 1).collation(Collation("en"))), ["10", "9", "a", "A", "á", "b", "B"])
    numbers = Collation("en", numericOrdering=True, caseFirst=CollationCaseFirst.UPPER)
    equal(words(c.find().sort("w", 1).collation(numbers)), ["9", "10", "A", "a", "á", "B", "b"])
    equal(c.count_documents({"w": "b"}, collation=NO_CASE), 2)
    equal(c.count_documents({"tags": "B"}, collation=NO_CASE), 2)
    equal(len(c.distinct("w", collation=NO_CASE)), 5)
    equal(c.database.command("count", "words", query={"w": "b"}, collation={"locale": "en", "strength": 2})["n"], 2)
    shifted = Collation("en", alternate=CollationAlternate.SHIFTED)
    c.insert_one({"_id": 99, "w": "b l"})
    equal(words(c.find({"w": "bl"}, collation=shifted)), ["b l"])


@test
def aggregations_take_a_collation(client):
    c = filled(client)
    grouped = c.aggregate([{"$group": {"_id": "$w", "n": {"$sum": 1}}}, {"$match": {"n": 2}}], collation=NO_CASE)
    equal(sorted(group["_id"].lower() for group in grouped), ["a", "b"])
    pipeline = [{"$match": {"_id": 0}}, {"$project": {"same": {"$eq": ["$w", "B"]}}}]
    equal(list(c.aggregate(pipeline, collation=NO_CASE)), [{"_id": 0, "same": True}])
    lookup = {"from": "words", "localField": "w", "foreignField": "w", "as": "found"}
    joined = c.aggregate([{"$match": {"_id": 0}}, {"$lookup": lookup}], collation=NO_CASE)
    equal(sorted(found["w"] for found in joined.next()["found"]), ["B", "b"])


@test
def writes_take_a_collation(client):
    c = filled(client)
    equal(c.update_many({"w": "A"}, {"$set": {"n": 1}}, collation=NO_CASE).modified_count, 2)
    equal(c.update_one({"_id": 0}, {"$addToSet": {"tags": "B"}}, collation=NO_CASE).modified_count, 0)
    equal(c.update_one({"_id": 0}, {"$pull": {"tags": "B"}}, collation=NO_CASE).modified_count, 1)
    elements = {"array_filters": [{"e": "X"}], "collation": NO_CASE}
    equal(c.update_one({"_id": 0}, {"$set": {"tags.$[e]": 7}}, **elements).modified_count, 1)
    equal(c.find_one({"_id": 0})["tags"], [7])
    found = c.find_one_and_update({"w": "B"}, {"$set": {"f": 1}}, sort=[("_id", 1)], collation=NO_CASE)
    equal(found["_id"], 0)
    equal(c.delete_many({"w": "A"}).deleted_count, 1)
    equal(c.delete_many({"w": "A"}, collation=NO_CASE).deleted_count, 1)
    done = c.bulk_write([
        UpdateMany({"w": "B"}, {"$set": {"m": 1}}, collation=NO_CASE),
        DeleteOne({"w": "B"}),
    ])
    equal((done.modified_count, done.deleted_count), (2, 1))
    c.replace_one({"w": "New"}, {"w": "New"}, upsert=True, collation=NO_CASE)
    c.replace_one({"w": "NEW"}, {"w": "NEW"}, upsert=True, collation=NO_CASE)
    equal(c.count_documents({"w": "new"}, collation=NO_CASE), 1)


@test
def indexes_have_a_collation(client):
    c = filled(client)
    equal(c.create_index("w", name="no_case", collation=NO_CASE), "no_case")
    equal(c.create_indexes([IndexModel("w"), IndexModel("tags", collation=Collation("fr_CA"))]), ["w_1", "tags_1"])
    listed = {index["name"]: index.get("collation") for index in c.list_indexes()}
    expected = {
        "locale": "fr_CA", "caseLevel": False, "caseFirst": "off", "strength": 3, "numericOrdering": False,
        "alternate": "non-ignorable", "maxVariable": "punct", "normalization": False, "backwards": True,
        "version": "57.1",
    }
    equal(listed["tags_1"], expected)
    equal((listed["w_1"], listed["_id_"], listed["no_case"]["strength"]), (None, None, 2))
    plan = c.find({"w": "A"}, collation=NO_CASE).explain()["queryPlanner"]
    equal(plan["collation"]["strength"], 2)
    scan = plan["winningPlan"]["inputStage"]
    equal((scan["indexName"], scan["collation"]["locale"]), ("no_case", "en"))
    plan = c.find({"w": "A"}).explain()["queryPlanner"]
    equal(plan["winningPlan"]["inputStage"]["indexName"], "w_1")
    plan = c.find({"w": "A"}, collation=Collation("de")).explain()["queryPlanner"]
    equal(plan["winningPlan"]["stage"], "COLLSCAN")
    c.drop_indexes()
    equal(raises(DuplicateKeyError, c.create_index, "w", unique=True, collation=NO_CASE).code, 11000)
    c.delete_many({"w": {"$in": ["a", "b"]}})
    c.create_index("w", unique=True, collation=NO_CASE)
    raises(DuplicateKeyError, c.insert_one, {"w": "a"})
    validated = c.database.validate_collection("words", full=True)
    equal(validated["valid"], True)


@test
def collections_and_views_have_a_collation(client):
    database = fresh(client, "collations")
    c = database.create_collection("named", collation=NO_CASE)
    options = next(database.list_collections(filter={"name": "named"}))
    equal((options["options"]["collation"]["locale"], options["options"]["collation"]["version"]), ("en", "57.1"))
    equal(options["idIndex"]["collation"]["strength"], 2)
    c.insert_many([{"_id": "a", "w": "x"}, {"_id": "b", "w": "X"}])
    raises(DuplicateKeyError, c.insert_one, {"_id": "A"})
    equal(c.find_one({"_id": "A"})["w"], "x")
    equal(c.count_documents({"w": "x"}), 2)
    equal(c.count_documents({"w": "x"}, collation=SIMPLE), 1)
    equal(len(list(c.aggregate([{"$group": {"_id": "$w"}}]))), 1)
    equal(c.update_many({"w": "X"}, {"$set": {"n": 1}}).matched_count, 2)
    c.create_index("w")
    c.create_index("w", name="bytes", collation=SIMPLE)
    listed = {index["name"]: "collation" in index for index in c.list_indexes()}
    equal(listed, {"_id_": True, "w_1": True, "bytes": False})
    equal(c.create_index("w"), "w_1")
    equal(raises(OperationFailure, c.create_index, "w", collation=Collation("de")).code, 86)
    equal(raises(OperationFailure, c.create_index, "w", name="other").code, 85)

    database.create_collection("plain").insert_many([{"w": "x"}, {"w": "X"}])
    database.create_collection("seen", viewOn="plain", pipeline=[], collation=NO_CASE)
    equal(database.seen.count_documents({"w": "X"}), 2)
    equal(len(database.seen.distinct("w")), 1)
    equal(len(list(database.seen.find({"w": "X"}))), 2)
    error = raises(OperationFailure, database.seen.count_documents, {"w": "X"}, collation=SIMPLE)
    equal(error.code, 167)


@test
def wrong_collations_are_refused(client):
    c = filled(client)

    def code(**collation):
        return raises(OperationFailure, c.find_one, {}, collation=collation).code

    equal(code(locale="xx"), 2)
    equal(code(locale="en_us"), 2)
    equal(code(strength=2), 40414)
    equal(code(locale="en", strength=9), 51024)
    equal(code(locale="en", caseFirst="first"), 2)
    equal(code(locale="en", unknown=1), 40415)
    equal(code(locale="en", version="1"), 161)
    equal(code(locale=1), 14)
    message = raises(OperationFailure, c.find_one, {}, collation={"locale": "en-US"}).details["errmsg"]
    assert "Did you mean 'en_US'?" in message, message
    equal(raises(OperationFailure, c.database.create_collection, "n", collation={"locale": "xx"}).code, 2)
    equal(raises(OperationFailure, c.create_index, "w", collation={"locale": "xx"}).code, 2)
    update = ({}, {"$set": {"a": 1}})
    equal(raises(OperationFailure, c.update_many, *update, collation={"locale": "xx"}).code, 2)
