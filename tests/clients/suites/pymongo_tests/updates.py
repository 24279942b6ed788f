"""Update operators, upserts, find-and-modify."""

import datetime
import threading

from harness.tap import equal, raises, test
from pymongo import ReturnDocument
from pymongo.errors import WriteError

from . import fresh


@test
def update_operators_change_what_they_say(client):
    collection = fresh(client, "updates").operators
    for before, update, after in [
        ({"a": 1}, {"$set": {"a": 2, "b.c": 3}}, {"a": 2, "b": {"c": 3}}),
        ({"a": 1, "b": 2}, {"$unset": {"a": ""}}, {"b": 2}),
        ({"a": 1}, {"$inc": {"a": 2, "b": -1}}, {"a": 3, "b": -1}),
        ({"a": 3}, {"$mul": {"a": 2, "b": 5}}, {"a": 6, "b": 0}),
        ({"a": 3, "b": 3}, {"$min": {"a": 2, "b": 9}}, {"a": 2, "b": 3}),
        ({"a": 3, "b": 3}, {"$max": {"a": 2, "b": 9}}, {"a": 3, "b": 9}),
        ({"a": 1}, {"$rename": {"a": "z"}}, {"z": 1}),
        ({"a": [1]}, {"$push": {"a": 2, "b": "x"}}, {"a": [1, 2], "b": ["x"]}),
        ({"a": [1]}, {"$push": {"a": {"$each": [5, 4], "$sort": 1, "$slice": 2}}}, {"a": [1, 4]}),
        ({"a": [1]}, {"$push": {"a": {"$each": [0], "$position": 0}}}, {"a": [0, 1]}),
        ({"a": [1, 2, 3, 2]}, {"$pull": {"a": 2}}, {"a": [1, 3]}),
        ({"a": [1, 2, 3]}, {"$pull": {"a": {"$gte": 2}}}, {"a": [1]}),
        ({"a": [1]}, {"$addToSet": {"a": 1}}, {"a": [1]}),
        ({"a": [1]}, {"$addToSet": {"a": {"$each": [1, 2, 2]}}}, {"a": [1, 2]}),
        ({"a": [1, 2, 3]}, {"$pop": {"a": 1}}, {"a": [1, 2]}),
        ({"a": [1, 2, 3]}, {"$pop": {"a": -1}}, {"a": [2, 3]}),
        ({"a": 1}, {"$setOnInsert": {"b": 1}, "$inc": {"a": 1}}, {"a": 2}),
        ({"a": [{"b": 1}, {"b": 2}]}, {"$set": {"a.1.b": 5}}, {"a": [{"b": 1}, {"b": 5}]}),
    ]:
        collection.delete_many({})
        collection.insert_one({"_id": 1, **before})
        result = collection.update_one({"_id": 1}, update)
        equal(result.matched_count, 1, update)
        equal(collection.find_one(), {"_id": 1, **after}, update)
        equal(result.modified_count, int(before != after), update)


@test
def current_date_and_positional(client):
    collection = fresh(client, "updates").more
    collection.insert_one({"_id": 1, "grades": [80, 85, 90]})
    collection.update_one({"_id": 1}, {"$currentDate": {"at": True, "ts": {"$type": "timestamp"}}})
    found = collection.find_one()
    age = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) - found["at"]
    assert abs(age.total_seconds()) < 60, age
    equal(type(found["ts"]).__name__, "Timestamp")
    collection.update_one({"_id": 1, "grades": 85}, {"$set": {"grades.$": 86}})
    equal(collection.find_one()["grades"], [80, 86, 90])
    collection.update_one({"_id": 1}, {"$inc": {"grades.$[]": 1}})
    equal(collection.find_one()["grades"], [81, 87, 91])
    collection.update_one(
        {"_id": 1}, {"$set": {"grades.$[high]": 100}}, array_filters=[{"high": {"$gte": 87}}]
    )
    equal(collection.find_one()["grades"], [81, 100, 100])


@test
def update_many_and_replace(client):
    collection = fresh(client, "updates").many
    collection.insert_many([{"_id": n, "g": n % 3} for n in range(30)])
    result = collection.update_many({"g": 1}, {"$set": {"seen": True}})
    equal((result.matched_count, result.modified_count), (10, 10))
    result = collection.update_many({"g": {"$in": [0, 1]}}, {"$set": {"seen": True}})
    equal((result.matched_count, result.modified_count), (20, 10))
    equal(collection.count_documents({"seen": True}), 20)
    result = collection.replace_one({"_id": 1}, {"only": 1})
    equal((result.matched_count, result.modified_count), (1, 1))
    equal(collection.find_one({"_id": 1}), {"_id": 1, "only": 1})
    equal(collection.update_one({"_id": 99}, {"$set": {"x": 1}}).matched_count, 0)


@test
def upserts(client):
    collection = fresh(client, "updates").upserts
    result = collection.update_one({"k": 5}, {"$set": {"x": 1}, "$setOnInsert": {"new": True}}, upsert=True)
    equal((result.matched_count, result.upserted_id is not None), (0, True))
    equal(collection.find_one({}, {"_id": 0}), {"k": 5, "x": 1, "new": True})
    result = collection.update_one({"k": 5}, {"$set": {"x": 2}, "$setOnInsert": {"new": False}}, upsert=True)
    equal((result.matched_count, result.modified_count, result.upserted_id), (1, 1, None))
    equal(collection.find_one({}, {"_id": 0}), {"k": 5, "x": 2, "new": True})
    result = collection.replace_one({"_id": "r"}, {"y": 1}, upsert=True)
    equal(result.upserted_id, "r")
    result = collection.update_many({"_id": "m", "n": {"$gt": 3}}, {"$inc": {"c": 1}}, upsert=True)
    equal(collection.find_one({"_id": "m"}), {"_id": "m", "c": 1})


@test
def find_and_modify(client):
    collection = fresh(client, "updates").fam
    collection.insert_many([{"_id": n, "v": 10 - n} for n in range(5)])
    equal(collection.find_one_and_update({}, {"$inc": {"v": 100}}, sort=[("v", 1)]), {"_id": 4, "v": 6})
    equal(
        collection.find_one_and_update(
            {"_id": 0}, {"$set": {"s": 1}}, return_document=ReturnDocument.AFTER, projection={"s": 1}
        ),
        {"_id": 0, "s": 1},
    )
    equal(collection.find_one_and_replace({"_id": 1}, {"r": 1}), {"_id": 1, "v": 9})
    equal(collection.find_one_and_delete({"v": {"$gt": 0}}, sort=[("v", -1)]), {"_id": 4, "v": 106})
    equal(collection.find_one_and_delete({"_id": 4}), None)
    equal(collection.find_one_and_update({"_id": 77}, {"$set": {"a": 1}}, upsert=True), None)
    equal(
        collection.find_one_and_update(
            {"_id": 78}, {"$set": {"a": 1}}, upsert=True, return_document=ReturnDocument.AFTER
        ),
        {"_id": 78, "a": 1},
    )
    raw = collection.database.command(
        "findAndModify", "fam", query={"_id": 79}, update={"$set": {"a": 1}}, upsert=True, new=True
    )
    equal(raw["lastErrorObject"], {"n": 1, "updatedExisting": False, "upserted": 79})
    equal(raw["value"], {"_id": 79, "a": 1})


@test
def update_errors_have_mongodb_codes(client):
    collection = fresh(client, "updates").errors
    collection.insert_one({"_id": 1, "text": "a", "n": 1, "list": [1]})
    for update, code in [
        ({"$inc": {"text": 1}}, 14),
        ({"$mul": {"text": 2}}, 14),
        ({"$push": {"n": 1}}, 2),
        ({"$set": {"_id": 2}}, 66),
        ({"$set": {"a": 1}, "$inc": {"a": 1}}, 40),
        ({"$set": {"a.b": 1, "a": 1}}, 40),
        ({"$nosuch": {"a": 1}}, 9),
        ({"$set": {"text.b": 1}}, 28),
        ({"$rename": {"n": "n"}}, 2),
        ({"$set": {"list.$": 1}}, 2),
    ]:
        equal(raises(WriteError, collection.update_one, {"_id": 1}, update).code, code, update)
    equal(collection.find_one(), {"_id": 1, "text": "a", "n": 1, "list": [1]})


@test
def increments_from_many_threads_are_all_counted(client):
    collection = fresh(client, "updates").threads
    collection.insert_one({"_id": 1, "n": 0})
    problems = []

    def work():
        try:
            for _ in range(50):
                collection.update_one({"_id": 1}, {"$inc": {"n": 1}})
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(problems, [])
    equal(collection.find_one()["n"], 400)
