"""Errors: codes, names, messages and details."""

from bson import Int64
from harness import addresses
from harness.tap import equal, raises, test
from pymongo import WriteConcern
from pymongo.errors import DuplicateKeyError, OperationFailure, WriteError

from . import fresh


@test
def duplicate_key_says_which_key(client):
    collection = fresh(client, "errors").unique
    collection.create_index([("email", 1)], unique=True)
    collection.create_index([("a", 1), ("b", -1)], unique=True)
    collection.insert_one({"_id": 1, "email": "x@y", "a": 1, "b": 1})
    for document, pattern, value in [
        ({"_id": 1, "email": "z", "a": 9}, {"_id": 1}, {"_id": 1}),
        ({"_id": 2, "email": "x@y", "a": 9}, {"email": 1}, {"email": "x@y"}),
        ({"_id": 2, "email": "z", "a": 1.0, "b": 1}, {"a": 1, "b": -1}, {"a": 1.0, "b": 1}),
    ]:
        error = raises(DuplicateKeyError, collection.insert_one, document)
        equal(error.code, 11000)
        equal(dict(error.details["keyPattern"]), pattern)
        equal(dict(error.details["keyValue"]), value)
        assert "E11000 duplicate key error collection: errors.unique index:" in str(error), error
    error = raises(DuplicateKeyError, collection.update_one, {"email": "q"}, {"$set": {"_id": 1}}, True)
    equal(error.code, 11000)
    collection.insert_one({"_id": 3, "email": "w", "a": 3})
    error = raises(DuplicateKeyError, collection.update_one, {"_id": 3}, {"$set": {"email": "x@y"}})
    equal(dict(error.details["keyValue"]), {"email": "x@y"})
    equal(collection.count_documents({}), 2)


@test
def unknown_commands_and_options_are_named(client):
    database = fresh(client, "errors")
    error = raises(OperationFailure, database.command, "nosuchcommand")
    equal((error.code, error.details["codeName"]), (59, "CommandNotFound"))
    assert "no such command: 'nosuchcommand'" in str(error), error
    database.things.insert_one({"x": 1})
    for command, code, part in [
        ({"find": "things", "filter": {"x": {"$nosuch": 1}}}, 2, "unknown operator: $nosuch"),
        ({"find": "things", "filter": {"$nosuch": []}}, 2, "unknown top level operator: $nosuch"),
        ({"find": "things", "filter": {"$or": []}}, 2, "$or"),
        ({"find": "things", "filter": {"$or": 1}}, 2, "$or"),
        ({"find": "things", "filter": {"x": {"$in": 1}}}, 2, "$in"),
        ({"find": "things", "nosuchoption": 1}, 40415, "nosuchoption"),
        ({"find": "things", "limit": "x"}, 14, "limit"),
        ({"find": "things", "skip": -1}, 51024, "skip"),
        ({"find": 7}, 73, "collection name"),
        ({"insert": "things"}, 40414, "documents"),
        ({"insert": "things", "documents": []}, 16, "batch"),
        ({"aggregate": "things", "pipeline": [{"$nosuch": 1}], "cursor": {}}, 40324, "Unrecognized pipeline stage name: '$nosuch'"),
        ({"aggregate": "things", "pipeline": []}, 9, "cursor"),
        ({"getMore": Int64(12345), "collection": "things"}, 43, "cursor id 12345 not found"),
    ]:
        error = raises(OperationFailure, database.command, command)
        equal(error.code, code, command)
        assert part in str(error), (command, str(error))


@test
def namespaces_that_cannot_be(client):
    database = fresh(client, "errors")
    database.there.insert_one({})
    error = raises(OperationFailure, database.command, "create", "there", capped=True, size=4096)
    equal(error.code in (48, 72, 115), True, error)
    error = raises(OperationFailure, database.command, "create", "a$b")
    equal(error.code, 73)
    error = raises(OperationFailure, database.command, "collMod", "missing")
    equal(error.code in (26, 59), True, error)
    error = raises(OperationFailure, client.admin.command, "renameCollection", "errors.missing", to="errors.x")
    equal(error.code, 26)
    database.other.insert_one({})
    error = raises(OperationFailure, database.there.rename, "other")
    equal(error.code, 48)


@test
def write_concerns_that_cannot_be_met(client):
    # A replica set of these tests and a TiKV cluster have three copies of everything.
    concern, code = (2, 2) if addresses.is_alone(client) else (4, 100)
    collection = fresh(client, "errors").get_collection("concern", write_concern=WriteConcern(w=concern))
    error = raises(OperationFailure, collection.insert_one, {"x": 1})
    equal(error.code, code)


@test
def documents_that_cannot_be_stored(client):
    collection = fresh(client, "errors").documents
    for document, code in [
        ({"_id": [1]}, 53),
        ({"_id": {"$bad": 1}}, 52),
    ]:
        error = raises(WriteError, collection.insert_one, document)
        equal(error.code, code, document)
    nested = {}
    for _ in range(250):
        nested = {"a": nested}
    raises(OperationFailure, collection.insert_one, nested)
    equal(collection.count_documents({}), 0)
    equal(client.admin.command("ping")["ok"], 1)
