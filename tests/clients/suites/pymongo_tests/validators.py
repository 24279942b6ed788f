"""Validators: filters that documents have to match."""

from harness.tap import equal, raises, test
from pymongo.errors import BulkWriteError, CollectionInvalid, OperationFailure, WriteError

from . import fresh


@test
def documents_that_fail_are_refused(client):
    database = fresh(client, "validators")
    people = database.create_collection("people", validator={"age": {"$gte": 18}})
    people.insert_one({"_id": 1, "age": 20})
    error = raises(WriteError, people.insert_one, {"_id": 2, "age": 10})
    equal(error.code, 121)
    assert "Document failed validation" in str(error), error
    equal(error.details["errInfo"]["failingDocumentId"], 2)
    equal(error.details["errInfo"]["details"]["operatorName"], "$gte")
    equal(raises(WriteError, people.update_one, {"_id": 1}, {"$set": {"age": 1}}).code, 121)
    equal(raises(WriteError, people.replace_one, {"_id": 1}, {"x": 1}).code, 121)
    error = raises(OperationFailure, people.find_one_and_update, {"_id": 1}, {"$unset": {"age": 1}})
    equal((error.code, "errInfo" in error.details), (121, True))
    assert "Plan executor error during findAndModify :: caused by :: Document failed validation" in str(error), error
    error = raises(BulkWriteError, people.insert_many, [{"_id": 3, "age": 5}, {"_id": 4, "age": 50}], ordered=False)
    equal([(failed["index"], failed["code"]) for failed in error.details["writeErrors"]], [(0, 121)])
    equal(sorted(person["_id"] for person in people.find()), [1, 4])


@test
def validation_can_be_bypassed_and_changed(client):
    database = fresh(client, "validators")
    people = database.create_collection("people", validator={"age": {"$gte": 18}}, validationLevel="moderate")
    people.insert_one({"_id": 1}, bypass_document_validation=True)
    people.update_one({"_id": 1}, {"$set": {"x": 1}})
    database.command("collMod", "people", validationLevel="strict")
    equal(raises(WriteError, people.update_one, {"_id": 1}, {"$set": {"x": 2}}).code, 121)
    equal(people.update_one({"_id": 1}, {"$set": {"x": 2}}, bypass_document_validation=True).modified_count, 1)
    equal(raises(OperationFailure, people.aggregate, [{"$set": {"y": 1}}, {"$merge": "people"}]).code, 121)
    people.aggregate([{"$set": {"y": 1}}, {"$merge": "people"}], bypassDocumentValidation=True)
    equal(people.find_one({}, {"y": 1})["y"], 1)
    database.command("collMod", "people", validator={})
    people.insert_one({"_id": 2})
    equal(people.options(), {"validationLevel": "strict", "validationAction": "error"})


@test
def validators_are_checked_themselves(client):
    database = fresh(client, "validators")
    for validator in [{"$where": "true"}, {"$text": {"$search": "x"}}, {"a": {"$near": [0, 0]}}, {"a": {"$nosuch": 1}}]:
        equal(raises(OperationFailure, database.create_collection, "bad", validator=validator).code, 2, validator)
    equal(raises(OperationFailure, database.create_collection, "bad", validationLevel="lax").code, 2)
    equal(raises(OperationFailure, client.admin.create_collection, "bad", validator={"a": 1}).code, 72)
    schema = {"required": ["name"], "properties": {"name": {"bsonType": "string"}}}
    named = database.create_collection("named", validator={"$jsonSchema": schema})
    error = raises(WriteError, named.insert_one, {"name": 1})
    equal((error.code, error.details["errInfo"]["details"]["operatorName"]), (121, "$jsonSchema"))
    named.insert_one({"name": "x"})
    database.create_collection("good", validator={"$expr": {"$lt": ["$a", "$b"]}})
    equal(raises(WriteError, database.good.insert_one, {"a": 2, "b": 1}).code, 121)
    database.good.insert_one({"a": 1, "b": 2})
    raises(CollectionInvalid, database.create_collection, "good")


@test
def validators_compare_by_the_default_collation(client):
    database = fresh(client, "validators")
    no_case = {"locale": "en", "strength": 2}
    not_a = database.create_collection("words", validator={"s": {"$ne": "a"}}, collation=no_case)
    equal(raises(WriteError, not_a.insert_one, {"s": "A"}).code, 121)
    not_a.insert_one({"s": "b"})
    database.command("collMod", "words", validator={"s": {"$in": ["active"]}})
    not_a.insert_one({"_id": 1, "s": "ACTIVE"})
    error = raises(WriteError, not_a.insert_one, {"_id": 2, "s": "b"})
    equal((error.code, error.details["errInfo"]["details"]["operatorName"]), (121, "$in"))
    not_a.insert_one({"_id": 3, "s": "old"}, bypass_document_validation=True)
    # $jsonSchema compares by bytes.
    database.command("collMod", "words", validator={"$jsonSchema": {"properties": {"s": {"enum": ["x"]}}}})
    equal(raises(WriteError, not_a.insert_one, {"s": "X"}).code, 121)
    report = database.command("validate", "words")
    equal((report["nNonCompliantDocuments"], report["valid"], len(report["errors"])), (3, False, 1))
