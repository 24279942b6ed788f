"""Collections and indexes: creating, listing, using, dropping, renaming."""

from harness.tap import equal, raises, test
from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.errors import DuplicateKeyError, OperationFailure

from . import fresh


@test
def indexes_are_made_listed_and_dropped(client):
    collection = fresh(client, "indexes").things
    equal(collection.create_index([("a", ASCENDING)]), "a_1")
    equal(collection.create_index([("b", DESCENDING), ("c", ASCENDING)]), "b_-1_c_1")
    equal(collection.create_index("u", unique=True, name="only_one"), "only_one")
    equal(collection.create_indexes([IndexModel("x"), IndexModel([("y.z", -1)])]), ["x_1", "y.z_-1"])
    # Creating an existing index changes nothing.
    equal(collection.create_index([("a", ASCENDING)]), "a_1")
    listed = {index["name"]: index for index in collection.list_indexes()}
    equal(list(listed), ["_id_", "a_1", "b_-1_c_1", "only_one", "x_1", "y.z_-1"])
    equal(dict(listed["b_-1_c_1"]["key"]), {"b": -1, "c": 1})
    equal((listed["only_one"]["v"], listed["only_one"]["unique"]), (2, True))
    information = collection.index_information()
    equal(information["_id_"]["key"], [("_id", 1)])
    collection.drop_index("x_1")
    collection.drop_index([("a", 1)])
    equal(raises(OperationFailure, collection.drop_index, "x_1").code, 27)
    equal(raises(OperationFailure, collection.drop_index, "_id_").code, 72)
    collection.drop_indexes()
    equal([index["name"] for index in collection.list_indexes()], ["_id_"])


@test
def indexes_that_contradict_are_refused(client):
    collection = fresh(client, "indexes").conflicts
    collection.create_index("a", name="first")
    equal(raises(OperationFailure, collection.create_index, "a", name="second").code, 85)
    equal(raises(OperationFailure, collection.create_index, "b", name="first").code, 86)
    equal(raises(OperationFailure, collection.create_index, [("a", 0)]).code, 67)
    equal(raises(OperationFailure, collection.create_index, [("a", "nosuch")]).code, 67)


@test
def an_index_over_existing_documents_is_used_and_right(client):
    collection = fresh(client, "indexes").existing
    collection.insert_many([{"_id": n, "a": n % 100, "b": n % 7} for n in range(5000)])
    expected = sorted(d["_id"] for d in collection.find({"a": 42, "b": {"$gt": 3}}))
    before = list(collection.find({"a": {"$lt": 5}}).sort([("a", -1), ("b", 1), ("_id", 1)]))
    collection.create_index([("a", -1), ("b", 1)])
    equal(sorted(d["_id"] for d in collection.find({"a": 42, "b": {"$gt": 3}})), expected)
    after = list(collection.find({"a": {"$lt": 5}}).sort([("a", -1), ("b", 1), ("_id", 1)]))
    equal(after, before)
    plan = collection.find({"a": 42}).explain()
    assert "IXSCAN" in str(plan), plan
    assert "COLLSCAN" in str(collection.find({"b": 1}).explain())
    equal(collection.find({"a": 42}).hint("a_-1_b_1").explain()["ok"], 1)
    validated = collection.database.validate_collection("existing", full=True)
    equal((validated["valid"], validated["nrecords"]), (True, 5000))
    equal(validated["keysPerIndex"], {"_id_": 5000, "a_-1_b_1": 5000})


@test
def ids_and_indexed_values_may_be_long(client):
    collection = fresh(client, "indexes").long
    collection.create_index("a", unique=True)
    begin = "x" * 100_000
    ids = [begin + end for end in ("", "a", "aa", "b", "é")]
    # The values are in the other order.
    collection.insert_many(
        [{"_id": ids[n], "n": n, "a": ids[len(ids) - 1 - n]} for n in range(len(ids))]
    )
    collection.create_index([("a", DESCENDING), ("n", ASCENDING)])

    def numbers(filter, sort):
        return [found["n"] for found in collection.find(filter, {"n": 1}).sort(sort)]

    equal(numbers({}, "_id"), [0, 1, 2, 3, 4])
    equal(numbers({}, "a"), [4, 3, 2, 1, 0])
    equal(numbers({"a": {"$gt": ids[1], "$lte": ids[3]}}, [("a", -1)]), [1, 2])
    equal(numbers({"_id": {"$in": [ids[4], ids[2], begin[1:]]}}, "_id"), [2, 4])
    equal(collection.find_one({"_id": ids[3]})["n"], 3)
    covered = collection.find({"a": {"$lt": ids[2]}}, {"_id": 0, "a": 1}).hint([("a", -1), ("n", 1)])
    equal([found["a"] for found in covered], [ids[1], ids[0]])
    error = raises(DuplicateKeyError, collection.insert_one, {"_id": ids[2]})
    equal(error.details["keyValue"], {"_id": ids[2]})
    raises(DuplicateKeyError, collection.update_one, {"n": 0}, {"$set": {"a": ids[0]}})
    collection.update_one({"n": 4}, {"$set": {"a": begin + "c"}})
    equal(numbers({"a": begin + "c"}, "a"), [4])
    equal(collection.delete_one({"_id": ids[0]}).deleted_count, 1)
    equal(numbers({}, "_id"), [1, 2, 3, 4])
    assert collection.database.validate_collection("long", full=True)["valid"]
    # As large as a document, less what its fields take.
    large = "y" * (16 * 1024 * 1024 - 64)
    collection.insert_one({"_id": large})
    equal(collection.count_documents({"_id": large}), 1)
    raises(DuplicateKeyError, collection.insert_one, {"_id": large})
    equal(collection.delete_many({"_id": {"$gte": "y"}}).deleted_count, 1)


@test
def a_unique_index_over_duplicates_is_refused(client):
    collection = fresh(client, "indexes").duplicates
    collection.insert_many([{"a": 1}, {"a": 1}, {"a": 2}])
    equal(raises(DuplicateKeyError, collection.create_index, "a", unique=True).code, 11000)
    equal([index["name"] for index in collection.list_indexes()], ["_id_"])
    collection.insert_one({"a": 1})


@test
def a_multikey_index_finds_each_element(client):
    collection = fresh(client, "indexes").multikey
    collection.create_index("tags")
    collection.create_index([("items.sku", 1), ("items.n", 1)])
    collection.insert_many(
        [{"_id": n, "tags": [f"t{n % 10}", f"t{n % 7}", "all"], "items": [{"sku": n, "n": 1}]} for n in range(200)]
    )
    equal(collection.count_documents({"tags": "all"}), 200)
    equal(len(list(collection.find({"tags": "all"}))), 200)
    equal(sorted(d["_id"] for d in collection.find({"tags": "t9"})), list(range(9, 200, 10)))
    equal([d["_id"] for d in collection.find({"items.sku": 5})], [5])
    equal(len(list(collection.find({"tags": {"$in": ["t8", "t9", "all"]}}))), 200)
    collection.update_many({"tags": "t9"}, {"$pull": {"tags": "t9"}})
    equal(collection.count_documents({"tags": "t9"}), 0)
    equal(collection.database.validate_collection("multikey", full=True)["valid"], True)


@test
def collections_are_made_listed_renamed_and_dropped(client):
    database = fresh(client, "catalog")
    database.create_collection("empty")
    database.full.insert_many([{"_id": n} for n in range(10)])
    equal(sorted(database.list_collection_names()), ["empty", "full"])
    listed = {c["name"]: c for c in database.list_collections()}
    equal(listed["full"]["type"], "collection")
    equal(listed["full"]["idIndex"]["name"], "_id_")
    equal(listed["full"]["info"]["readOnly"], False)
    equal(database.list_collection_names(filter={"name": "full"}), ["full"])
    database.full.create_index("k")
    database.full.rename("renamed")
    equal(sorted(database.list_collection_names()), ["empty", "renamed"])
    equal(database.renamed.count_documents({}), 10)
    equal(len(list(database.renamed.list_indexes())), 2)
    database.empty.rename("renamed", dropTarget=True)
    equal((database.list_collection_names(), database.renamed.count_documents({})), (["renamed"], 0))
    database.drop_collection("renamed")
    database.drop_collection("missing")
    equal(database.list_collection_names(), [])


@test
def databases_are_listed_and_dropped(client):
    for name in ("list_a", "list_b"):
        fresh(client, name).c.insert_one({})
    names = client.list_database_names()
    assert {"list_a", "list_b"} <= set(names), names
    listed = {d["name"]: d for d in client.list_databases()}
    equal((listed["list_a"]["empty"], listed["list_a"]["sizeOnDisk"] >= 0), (False, True))
    client.drop_database("list_a")
    assert "list_a" not in client.list_database_names()
    client.drop_database("never_was")
    client.drop_database("list_b")


@test
def statistics(client):
    database = fresh(client, "stats")
    database.c.insert_many([{"_id": n, "pad": "x" * 100} for n in range(100)])
    database.c.create_index("pad")
    stats = database.command("collStats", "c")
    equal((stats["ns"], stats["count"], stats["nindexes"], stats["ok"]), ("stats.c", 100, 2, 1))
    equal(stats["size"] // 100, stats["avgObjSize"])
    equal(set(stats["indexSizes"]), {"_id_", "pad_1"})
    stats = database.command("dbStats")
    equal((stats["db"], stats["collections"], stats["objects"], stats["indexes"]), ("stats", 1, 100, 2))
