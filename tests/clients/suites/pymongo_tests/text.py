"""Text search, metadata of documents, $jsonSchema as a query, and JavaScript, which is disabled."""

from harness.tap import equal, raises, test
from pymongo import TEXT
from pymongo.errors import OperationFailure

from . import fresh

SCORE = {"$meta": "textScore"}


def articles(client):
    collection = fresh(client, "text").articles
    collection.create_index([("title", TEXT), ("body", TEXT)], weights={"title": 10})
    collection.insert_many(
        [
            {"_id": 1, "title": "Coffee shopping", "body": "Where to buy beans"},
            {"_id": 2, "title": "Baking a cake", "body": "With coffee cream on it"},
            {"_id": 3, "title": "Café au lait", "body": "The French way of coffee"},
            {"_id": 4, "title": "Gardening", "body": "Roses and more roses"},
        ]
    )
    return collection


def ids(cursor):
    return sorted(doc["_id"] for doc in cursor)


@test
def texts_are_searched(client):
    collection = articles(client)

    def search(text, **options):
        return ids(collection.find({"$text": {"$search": text, **options}}))

    equal(search("coffee"), [1, 2, 3])
    equal(search("COFFEES"), [1, 2, 3])
    equal(search("cafe roses"), [3, 4])
    equal(search("coffee -cake"), [1, 3])
    equal(search('"coffee cream"'), [2])
    equal(search("the"), [])
    equal(search("Coffee", **{"$caseSensitive": True}), [1])
    equal(search("cafe", **{"$diacriticSensitive": True}), [])
    equal(collection.count_documents({"$text": {"$search": "coffee"}}), 3)
    equal(collection.distinct("title", {"$text": {"$search": "roses"}}), ["Gardening"])
    result = collection.update_many({"$text": {"$search": "roses"}}, {"$set": {"title": "Flowers"}})
    equal((result.matched_count, search("flower")), (1, [4]))
    equal(collection.delete_many({"$text": {"$search": "coffee"}}).deleted_count, 3)


@test
def results_come_by_their_score(client):
    collection = articles(client)
    query = {"$text": {"$search": "coffee cake"}}
    found = list(collection.find(query, {"score": SCORE}).sort([("score", SCORE)]))
    equal([(doc["_id"], doc["score"]) for doc in found][:2], [(2, 8.25), (1, 7.5)])
    found = list(collection.find(query, {"_id": 1, "score": SCORE}).sort([("_id", -1)]))
    equal([set(doc) for doc in found], [{"_id", "score"}] * 3)
    pipeline = [
        {"$match": query},
        {"$sort": {"score": SCORE}},
        {"$limit": 2},
        {"$project": {"title": 1, "score": SCORE}},
    ]
    found = list(collection.aggregate(pipeline))
    equal([(doc["_id"], sorted(doc)) for doc in found][0], (2, ["_id", "score", "title"]))
    error = raises(OperationFailure, list, collection.find({}, {"score": SCORE}))
    equal(error.code, 40218)
    later = [{"$skip": 1}, {"$match": query}]
    equal(raises(OperationFailure, collection.aggregate, later).code, 17313)


@test
def a_collection_has_one_text_index(client):
    collection = articles(client)
    listed = {index["name"]: index for index in collection.list_indexes()}["title_text_body_text"]
    equal(dict(listed["key"]), {"_fts": "text", "_ftsx": 1})
    equal(dict(listed["weights"]), {"body": 1, "title": 10})
    equal(listed["default_language"], "english")
    equal((listed["language_override"], listed["textIndexVersion"]), ("language", 3))
    equal(raises(OperationFailure, collection.create_index, [("x", 1), ("t", TEXT)]).code, 67)
    equal(raises(OperationFailure, collection.create_index, [("t", TEXT)]).code, 85)
    explained = collection.find({"$text": {"$search": "coffee"}}).explain()
    equal(explained["queryPlanner"]["winningPlan"]["stage"], "TEXT_MATCH")
    hinted = collection.find({"$text": {"$search": "x"}}).hint("title_text_body_text")
    equal(raises(OperationFailure, list, hinted).code, 2)
    collection.drop_index("title_text_body_text")
    error = raises(OperationFailure, list, collection.find({"$text": {"$search": "coffee"}}))
    equal(error.code, 27)
    collection.create_index([("$**", TEXT)], default_language="none")
    equal(ids(collection.find({"$text": {"$search": "the"}})), [3])
    equal(collection.database.validate_collection("articles", full=True)["valid"], True)


@test
def documents_name_their_language(client):
    collection = fresh(client, "text").languages
    collection.create_index([("t", TEXT)], language_override="lang")
    collection.insert_many(
        [
            {"_id": 1, "t": "the running dogs"},
            {"_id": 2, "t": "die Häuser", "lang": "german"},
            {"_id": 3, "t": "los caminos", "lang": "es"},
        ]
    )
    equal(ids(collection.find({"$text": {"$search": "run"}})), [1])
    equal(ids(collection.find({"$text": {"$search": "haus", "$language": "de"}})), [2])
    equal(ids(collection.find({"$text": {"$search": "camino", "$language": "spanish"}})), [3])
    wrong = {"t": "x", "lang": "klingon"}
    equal(raises(OperationFailure, collection.insert_one, wrong).code, 17262)


@test
def documents_are_found_by_a_schema(client):
    collection = fresh(client, "text").schema
    collection.insert_many(
        [{"_id": 1, "a": 5}, {"_id": 2, "a": "x"}, {"_id": 3}, {"_id": 4, "a": 50, "b": [1, "y"]}]
    )

    def passing(schema):
        return ids(collection.find({"$jsonSchema": schema}))

    equal(passing({"required": ["a"], "properties": {"a": {"bsonType": "number"}}}), [1, 4])
    equal(passing({"properties": {"a": {"minimum": 10}}}), [2, 3, 4])
    equal(passing({"properties": {"b": {"items": {"type": "number"}}}}), [1, 2, 3])
    equal(ids(collection.find({"$nor": [{"$jsonSchema": {"required": ["a"]}}]})), [3])
    error = raises(OperationFailure, list, collection.find({"$jsonSchema": {"wrong": 1}}))
    equal(error.code, 9)


@test
def chance_passes_a_part(client):
    collection = fresh(client, "text").chance
    collection.insert_many([{"_id": n} for n in range(400)])
    equal(len(list(collection.aggregate([{"$match": {"$sampleRate": 1.0}}]))), 400)
    equal(list(collection.aggregate([{"$match": {"$sampleRate": 0.0}}])), [])
    some = len(list(collection.aggregate([{"$match": {"$sampleRate": 0.5}}])))
    assert 80 < some < 320, some
    first = list(collection.find().sort([("r", {"$meta": "randVal"})]))
    equal(sorted(doc["_id"] for doc in first), list(range(400)))
