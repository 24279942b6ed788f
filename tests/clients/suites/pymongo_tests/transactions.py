"""Transactions of several statements."""

import threading

import pymongo
from bson.int64 import Int64
from harness.tap import equal, of_one_server, raises, test
from pymongo.errors import BulkWriteError, OperationFailure
from pymongo.read_concern import ReadConcern

from . import fresh


@test
def a_transaction_over_two_databases_is_committed_or_aborted_as_a_whole(client):
    one, two = fresh(client, "txn_one"), fresh(client, "txn_two")
    one.c.insert_one({"_id": 1, "n": 0})
    with client.start_session() as session:
        with session.start_transaction():
            one.c.update_one({"_id": 1}, {"$inc": {"n": 5}}, session=session)
            two.d.insert_one({"_id": 2}, session=session)
            equal(one.c.find_one({"_id": 1}), {"_id": 1, "n": 0})
            equal(one.c.find_one({"_id": 1}, session=session), {"_id": 1, "n": 5})
            equal(two.list_collection_names(), [])
        equal((one.c.find_one(), two.d.find_one()), ({"_id": 1, "n": 5}, {"_id": 2}))
        session.start_transaction(read_concern=ReadConcern("majority"))
        one.c.delete_one({"_id": 1}, session=session)
        equal(one.c.count_documents({}, session=session), 0)
        session.abort_transaction()
        equal(one.c.count_documents({}), 1)


@test
def with_transaction_tries_again_after_conflicts(client):
    accounts = fresh(client, "txn_bank").accounts
    accounts.create_index("amount")
    accounts.insert_many([{"_id": n, "amount": 100} for n in range(4)])
    failures = []

    def move(seed):
        def body(session):
            source, target = seed % 4, (seed + 1) % 4
            accounts.update_one({"_id": source}, {"$inc": {"amount": -1}}, session=session)
            accounts.update_one({"_id": target}, {"$inc": {"amount": 1}}, session=session)

        try:
            with client.start_session() as session:
                for _ in range(25):
                    session.with_transaction(body)
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=move, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with client.start_session(snapshot=False) as session, session.start_transaction():
            equal(sum(account["amount"] for account in accounts.find({}, session=session)), 400)
    for thread in threads:
        thread.join()
    equal(failures, [])
    equal([account["amount"] for account in accounts.find()], [100] * 4)
    equal(sum(account["amount"] for account in accounts.find().hint([("amount", 1)])), 400)


@test
@of_one_server
def a_conflict_has_the_label_of_a_transient_error(client):
    database = fresh(client, "txn_conflict")
    database.c.insert_one({"_id": 1})
    with client.start_session() as first, client.start_session() as second:
        first.start_transaction()
        database.c.update_one({"_id": 1}, {"$set": {"a": 1}}, session=first)
        second.start_transaction()
        error = raises(OperationFailure, lambda: database.c.update_one({"_id": 1}, {"$set": {"a": 2}}, session=second))
        equal((error.code, error.has_error_label("TransientTransactionError")), (112, True))
        error = raises(OperationFailure, second.commit_transaction)
        equal((error.code, error.has_error_label("TransientTransactionError")), (251, True))
        first.commit_transaction()
        # A driver may commit again.
        first.commit_transaction()
    equal(database.c.find_one(), {"_id": 1, "a": 1})


@test
def a_bulk_write_that_fails_ends_its_transaction(client):
    database = fresh(client, "txn_bulk")
    database.c.create_index("u", unique=True)
    database.c.insert_one({"_id": 1, "u": 1})
    with client.start_session() as session:
        session.start_transaction()
        database.c.insert_one({"_id": 2, "u": 2}, session=session)
        documents = [{"_id": 3, "u": 3}, {"_id": 4, "u": 1}, {"_id": 5, "u": 5}]
        error = raises(BulkWriteError, lambda: database.c.insert_many(documents, ordered=False, session=session))
        equal([one["index"] for one in error.details["writeErrors"]], [1])
        error = raises(OperationFailure, lambda: database.c.find_one({}, session=session))
        equal(error.code, 251)
        session.abort_transaction()
    equal(database.c.count_documents({}), 1)


@test
def cursors_in_transactions_read_all_batches(client):
    database = fresh(client, "txn_cursors")
    database.c.insert_many([{"_id": n} for n in range(100)])
    with client.start_session() as session, session.start_transaction():
        cursor = database.c.find({}, batch_size=7, session=session)
        seen = [next(cursor)["_id"]]
        database.c.insert_one({"_id": 1000})
        database.c.delete_one({"_id": 50})
        seen += [document["_id"] for document in cursor]
        equal(seen, list(range(100)))
        pipeline = [{"$lookup": {"from": "c", "localField": "_id", "foreignField": "_id", "as": "same"}}, {"$count": "n"}]
        equal(list(database.c.aggregate(pipeline, session=session)), [{"n": 100}])


@test
def what_transactions_cannot_do_is_refused(client):
    database = fresh(client, "txn_refused")
    database.create_collection("capped", capped=True, size=4096)
    database.create_collection("c")
    with client.start_session() as session:
        for refused in (
            lambda: database.command("count", "c", session=session),
            lambda: database.command("listCollections", session=session),
            lambda: database.c.drop(session=session),
            lambda: list(database.c.aggregate([{"$out": "d"}], session=session)),
            lambda: database.capped.insert_one({}, session=session),
            lambda: client.local.c.insert_one({}, session=session),
        ):
            session.start_transaction()
            equal(raises(OperationFailure, refused).code, 263)
            session.abort_transaction()
        # Sessions are used again by the driver, so the number is above that of all writes before.
        number = Int64(1 << 40)
        error = raises(
            OperationFailure,
            lambda: database.command({
                "find": "c", "lsid": session.session_id, "txnNumber": number, "autocommit": False,
            }),
        )
        equal(error.code, 251)


@test
def collections_and_indexes_are_created_in_transactions(client):
    database = fresh(client, "txn_create")
    with client.start_session() as session:
        with session.start_transaction():
            database.create_collection("made", session=session)
            database.made.create_index([("a", pymongo.ASCENDING)], unique=True, session=session)
            database.made.insert_many([{"_id": n, "a": n} for n in range(10)], session=session)
            equal(database.made.find_one({"a": 3}, session=session), {"_id": 3, "a": 3})
            equal(database.list_collection_names(), [])
        equal(sorted(database.made.index_information()), ["_id_", "a_1"])
        raises(pymongo.errors.DuplicateKeyError, lambda: database.made.insert_one({"a": 3}))
