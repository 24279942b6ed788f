"""What clients see of operations that a step-down interrupts: cursors, transactions, waits."""

import threading
import uuid

from harness.raw import Long
from harness.tap import equal
from harness.waiting import wait_until
from pymongo import WriteConcern
from pymongo.errors import PyMongoError

from .common import code_of, expect, with_set

TRANSIENT, UNKNOWN, RETRYABLE = "TransientTransactionError", "UnknownTransactionCommitResult", "RetryableWriteError"


@with_set
def open_cursors_go_on_after_a_step_down(replica_set):
    primary = replica_set.primary
    with replica_set.connect() as client:
        client.interrupted.get_collection("c", write_concern=WriteConcern(w=3)).insert_many([{"_id": n} for n in range(300)])
    reading = primary.client(readPreference="primaryPreferred").interrupted.c
    cursor = reading.find({}, batch_size=100).sort("_id")
    found = [next(cursor)["_id"] for _ in range(50)]
    primary.command("replSetStepDown", 10)
    found += [one["_id"] for one in cursor]
    equal(found, list(range(300)))
    replica_set.wait_until_steady()


@with_set
def open_transactions_are_aborted(replica_set):
    primary = replica_set.primary
    with replica_set.connect() as client:
        client.interrupted.create_collection("t")
        session = client.start_session()
        session.start_transaction()
        client.interrupted.t.insert_one({"_id": "open"}, session=session)
        with_read = client.start_session()
        with_read.start_transaction()
        client.interrupted.t.find_one({}, session=with_read)
        primary.command("replSetStepDown", 10)
        replica_set.wait_until_steady()
        for one, step in ((session, lambda: client.interrupted.t.insert_one({"_id": "more"}, session=session)),
                          (with_read, lambda: client.interrupted.t.find_one({}, session=with_read))):
            try:
                step()
                raise AssertionError("the transaction goes on")
            except PyMongoError as error:
                assert error.has_error_label(TRANSIENT), repr(error)
            one.abort_transaction()
            one.end_session()
        equal(client.interrupted.t.count_documents({}), 0)
        # A commit of one that was aborted.
        primary = replica_set.primary
        with client.start_session() as session:
            session.start_transaction()
            client.interrupted.t.insert_one({"_id": "open"}, session=session)
            primary.command("replSetStepDown", 10)
            replica_set.wait_until_steady()
            try:
                session.commit_transaction()
                raise AssertionError("it was committed")
            except PyMongoError as error:
                assert error.has_error_label(TRANSIENT) and not error.has_error_label(UNKNOWN), repr(error)
        equal(client.interrupted.t.count_documents({}), 0)


@with_set
def convenient_transactions_go_on(replica_set):
    with replica_set.connect() as client:
        client.interrupted.counts.insert_one({"_id": 0, "n": 0})
        runs, ends, problems, done = [0], threading.Event(), [], [0]

        def work(session):
            runs[0] += 1
            client.interrupted.counts.update_one({"_id": 0}, {"$inc": {"n": 1}}, session=session)

        def repeat():
            while not ends.is_set():
                try:
                    with client.start_session() as session:
                        session.with_transaction(work)
                        done[0] += 1
                except PyMongoError as error:
                    problems.append(repr(error))
                    return

        worker = threading.Thread(target=repeat)
        worker.start()
        try:
            for _ in range(3):
                goal = done[0] + 5
                wait_until("transactions", lambda goal=goal: problems or done[0] >= goal)
                replica_set.primary.command("replSetStepDown", 10)
                replica_set.wait_until_steady()
        finally:
            ends.set()
            worker.join()
        equal(problems, [])
        equal(client.interrupted.counts.find_one({"_id": 0})["n"], done[0])


@with_set
def a_write_that_waits_for_others_is_reported_when_its_primary_steps_down(replica_set):
    """It is done, and may be rolled back: the client gets an error with which drivers send it again."""
    primary = replica_set.primary
    others = replica_set.others(primary)
    with replica_set.connect() as client:
        client.interrupted.get_collection("waiting", write_concern=WriteConcern(w=3)).insert_one({})
    outcome = []

    def write():
        waiting = primary.client(retryWrites=False).interrupted.get_collection("waiting", write_concern=WriteConcern("majority"))
        try:
            outcome.append(waiting.insert_one({"_id": "waits"}))
        except PyMongoError as error:
            outcome.append(error)

    for member in others:
        member.pause()
    writer = threading.Thread(target=write)
    writer.start()
    # Without a majority it steps down by itself, and the write ends.
    writer.join()
    for member in others:
        member.resume()
    (error,) = outcome
    assert isinstance(error, PyMongoError), error
    assert code_of(error) in (64, 91, 189, 10107, 11602), repr(error)
    replica_set.wait_until_steady()


@with_set
def an_awaited_hello_is_answered_at_once(replica_set):
    """Clients hear of a new primary without asking again: their driver waits in hello for ten minutes."""
    with replica_set.connect(heartbeatFrequencyMS=600_000) as client:
        client.admin.command("ping")
        old = client.primary
        replica_set.primary.command("replSetStepDown", 10)
        wait_until("the new primary", lambda: client.primary not in (None, old))


@with_set
def a_failed_write_is_sent_again_by_the_driver(replica_set):
    primary = replica_set.primary
    primary.command("replSetStepDown", 10)
    error = expect(10107, lambda: primary.client(retryWrites=False).interrupted.c.insert_one({}))
    assert "topologyVersion" in error.details, error.details
    with primary.connect() as connection:
        reply = connection.command({"insert": "c", "documents": [{}], "lsid": {"id": uuid.uuid4()}, "txnNumber": Long(1)}, "interrupted")
    equal((reply["code"], reply.get("errorLabels")), (10107, [RETRYABLE]))
