"""Two servers over one cluster: what one writes the other reads, and each says what it is."""

import os
import random
import signal
import threading

from harness.tap import equal, raises, run, test
from harness.waiting import wait_until
from pymongo import CursorType, MongoClient
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

ADDRESSES = os.environ["FROND_URI"].removeprefix("mongodb://").split("/")[0].split(",")
DOCUMENTS = 2_000


@test
def a_server_says_that_it_is_a_router(one, two):
    for client in (one, two):
        hello = client.admin.command("hello")
        equal((hello.get("msg"), hello.get("setName"), hello["isWritablePrimary"]), ("isdbgrid", None, True))
    shards = one.admin.command("listShards")["shards"]
    equal([shard["_id"] for shard in shards], ["tikv"])


@test
def the_other_server_reads_what_one_writes(one, two):
    written = [{"_id": n, "n": n % 7, "text": "x" * (n % 50)} for n in range(DOCUMENTS)]
    one.shop.things.insert_many(written)
    equal(list(two.shop.things.find().sort("_id", 1)), written)
    two.shop.things.create_index("n")
    equal(one.shop.things.count_documents({"n": 3}), sum(1 for n in range(DOCUMENTS) if n % 7 == 3))
    plan = one.shop.things.find({"n": 3}).explain()["queryPlanner"]["winningPlan"]
    equal(plan["inputStage"]["stage"] if "inputStage" in plan else plan["stage"], "IXSCAN")
    equal(one.shop.things.update_many({"n": 3}, {"$set": {"n": 100}}).modified_count, two.shop.things.count_documents({"n": 100}))
    equal(two.shop.things.delete_many({"n": 100}).deleted_count, DOCUMENTS - one.shop.things.estimated_document_count())
    equal(two.shop.things.estimated_document_count(), one.shop.things.count_documents({}))


@test
def a_unique_key_is_unique_on_both(one, two):
    one.shop.users.create_index("name", unique=True)
    one.shop.users.insert_one({"_id": 1, "name": "a"})
    raises(DuplicateKeyError, two.shop.users.insert_one, {"_id": 2, "name": "a"})
    raises(DuplicateKeyError, two.shop.users.insert_one, {"_id": 1, "name": "b"})
    winners, barrier = [], threading.Barrier(8)

    def insert(client, number):
        barrier.wait()
        try:
            client.shop.users.insert_one({"name": "same", "by": number})
            winners.append(number)
        except DuplicateKeyError:
            pass

    threads = [threading.Thread(target=insert, args=((one, two)[n % 2], n)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(len(winners), 1)
    equal(two.shop.users.count_documents({"name": "same"}), 1)


@test
def an_insert_of_keys_that_are_there_says_which(one, two):
    one.shop.there.create_index("name", unique=True)
    one.shop.there.insert_many([{"_id": n, "name": f"n{n}"} for n in (3, 7)])

    def insert(documents, ordered):
        try:
            two.shop.there.insert_many(documents, ordered=ordered)
        except BulkWriteError as error:
            return [(one["index"], one["code"], one["keyPattern"], one["keyValue"]) for one in error.details["writeErrors"]]
        return []

    documents = [{"_id": n, "name": f"n{n}"} for n in range(6)] + [{"_id": 20, "name": "n7"}, {"_id": 21, "name": "new"}]
    of_id, of_name = (3, 11000, {"_id": 1}, {"_id": 3}), (6, 11000, {"name": 1}, {"name": "n7"})
    equal(insert(documents, False), [of_id, of_name])
    equal([found["_id"] for found in one.shop.there.find().sort("_id", 1)], [0, 1, 2, 3, 4, 5, 7, 21])
    ordered = [{"_id": 30, "name": "n30"}, {"_id": 31, "name": "n7"}, {"_id": 32, "name": "n32"}]
    equal(insert(ordered, True), [(1, 11000, {"name": 1}, {"name": "n7"})])
    equal(one.shop.there.count_documents({"_id": {"$gte": 30}}), 1)
    # The same key twice in one insert, and a large document.
    equal(insert([{"_id": 40, "name": "n40"}, {"_id": 40, "name": "n41"}], True), [(1, 11000, {"_id": 1}, {"_id": 40})])
    large = {"_id": 3, "name": "large", "text": "x" * (9 << 20)}
    equal(insert([large], True), [(0, 11000, {"_id": 1}, {"_id": 3})])
    equal(insert([large | {"_id": 50}], True), [])
    # In a transaction the statement fails.
    with two.start_session() as session:
        session.start_transaction()
        raises(DuplicateKeyError, two.shop.there.insert_one, {"_id": 7, "name": "n8"}, session=session)


@test
def counters_of_both_add_up(one, two):
    one.shop.counters.insert_one({"_id": "n", "n": 0})
    each = 100

    def add(client):
        for _ in range(each):
            client.shop.counters.update_one({"_id": "n"}, {"$inc": {"n": 1}})

    threads = [threading.Thread(target=add, args=((one, two)[n % 2],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(two.shop.counters.find_one({"_id": "n"})["n"], 4 * each)


@test
def a_transaction_of_one_is_seen_whole_by_the_other(one, two):
    one.shop.create_collection("pairs")
    with one.start_session() as session, session.start_transaction():
        one.shop.pairs.insert_one({"_id": 1}, session=session)
        equal(two.shop.pairs.count_documents({}), 0)
        one.shop.pairs.insert_one({"_id": 2}, session=session)
    equal(two.shop.pairs.count_documents({}), 2)
    with one.start_session() as first, two.start_session() as second:
        first.start_transaction()
        second.start_transaction()
        one.shop.pairs.update_one({"_id": 1}, {"$set": {"by": 1}}, session=first)
        error = None
        try:
            two.shop.pairs.update_one({"_id": 1}, {"$set": {"by": 2}}, session=second)
            first.commit_transaction()
            second.commit_transaction()
        except OperationFailure as failure:
            error = failure
        assert error and error.has_error_label("TransientTransactionError"), error
    equal(two.shop.pairs.find_one({"_id": 1}).get("by"), 1)


@test
def a_cursor_belongs_to_one_server(one, two):
    one.shop.many.insert_many({"_id": n} for n in range(500))
    cursor = one.shop.command({"find": "many", "batchSize": 10})["cursor"]
    error = raises(OperationFailure, two.shop.command, {"getMore": cursor["id"], "collection": "many"})
    equal(error.code, 43)
    assert ADDRESSES[0].rsplit(":", 1)[1] in error.details["errmsg"], error.details["errmsg"]
    more = one.shop.command({"getMore": cursor["id"], "collection": "many", "batchSize": 1_000})
    equal(len(more["cursor"]["nextBatch"]), 490)


@test
def definitions_are_the_same_on_both(one, two):
    one.shop.create_collection("first")
    assert "first" in two.shop.list_collection_names()
    two.shop.first.rename("second")
    assert "second" in one.shop.list_collection_names() and "first" not in one.shop.list_collection_names()
    one.shop.second.insert_one({"_id": 1})
    two.shop.second.drop()
    equal(one.shop.second.count_documents({}), 0)
    assert "second" not in one.shop.list_collection_names()
    two.drop_database("shop")
    equal(one.shop.list_collection_names(), [])


@test
def a_change_stream_of_one_sees_writes_of_the_other(one, two):
    one.shop.create_collection("watched")
    with one.shop.watched.watch(max_await_time_ms=500) as stream:
        two.shop.watched.insert_one({"_id": 1})
        one.shop.watched.insert_one({"_id": 2})
        two.shop.watched.update_one({"_id": 1}, {"$set": {"a": 1}})
        seen = []

        def are_all():
            if event := stream.try_next():
                seen.append((event["operationType"], event["documentKey"]["_id"]))
            return len(seen) == 3

        wait_until("three events", are_all)
    equal(seen, [("insert", 1), ("insert", 2), ("update", 1)])


def _hears(writer, collection, cursor, read):
    """What another server writes ends the wait of a cursor, long before its own time and that of the client are over."""
    for number in range(1, 6):
        document = {"_id": number}
        writing = threading.Timer(0.4, writer.shop[collection].insert_one, (document,))
        writing.start()
        equal(read(cursor.next()), number)
        writing.join()


@test
def a_tailable_cursor_that_waits_hears_of_inserts_of_the_other_server(one, two):
    one.shop.create_collection("tailed", capped=True, size=1 << 20)
    one.shop.tailed.insert_one({"_id": 0})
    cursor = two.shop.tailed.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(600_000)
    equal(cursor.next()["_id"], 0)
    _hears(one, "tailed", cursor, lambda document: document["_id"])


@test
def tails_of_the_oplog_and_streams_that_wait_hear_of_writes_of_the_other_server(one, two):
    for name in ("streamed", "logged"):
        one.shop.create_collection(name)
    with two.shop.streamed.watch(max_await_time_ms=600_000) as stream:
        _hears(one, "streamed", stream, lambda event: event["documentKey"]["_id"])
    one.shop.logged.insert_one({"_id": 0})
    filter = {"ns": "shop.logged", "op": "i"}
    cursor = two.local["oplog.rs"].find(filter, cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(600_000)
    equal(cursor.next()["o"]["_id"], 0)
    _hears(one, "logged", cursor, lambda entry: entry["o"]["_id"])


@test
def a_snapshot_session_reads_one_moment_on_both(one, two):
    one.shop.sums.insert_many({"_id": n, "n": 100} for n in range(20))
    stop, both = threading.Event(), MongoClient(os.environ["FROND_URI"])

    def move(client, source):
        while not stop.is_set():
            first, second = source.sample(range(20), 2)
            with client.start_session() as session:
                try:
                    with session.start_transaction():
                        client.shop.sums.update_one({"_id": first}, {"$inc": {"n": -1}}, session=session)
                        client.shop.sums.update_one({"_id": second}, {"$inc": {"n": 1}}, session=session)
                except OperationFailure as failure:
                    assert failure.has_error_label("TransientTransactionError"), failure

    movers = [threading.Thread(target=move, args=(client, random.Random(number))) for number, client in enumerate((one, two))]
    for mover in movers:
        mover.start()
    try:
        for _ in range(30):
            with both.start_session(snapshot=True) as session:
                reads = [list(both.shop.sums.find(session=session)) for _ in range(4)]
            equal(sum(document["n"] for document in reads[0]), 2_000)
            for other in reads[1:]:
                equal(other, reads[0])
    finally:
        stop.set()
        for mover in movers:
            mover.join()
        both.close()


@test
def a_server_that_stalls_commits_nothing_by_old_definitions(one, two):
    late = two.shop.late
    late.insert_one({"_id": -1, "n": 0})
    status = two.admin.command("serverStatus")
    acknowledged, stop = [-1], threading.Event()

    def write():
        for n in range(1_000_000):
            if stop.is_set():
                return
            late.insert_one({"_id": n, "n": n % 10})
            acknowledged.append(n)

    writer = threading.Thread(target=write)
    writer.start()
    wait_until("writes", lambda: len(acknowledged) > 20)
    os.kill(status["pid"], signal.SIGSTOP)
    try:
        # It waits until the lease of the other server is over, and stops what that had begun to commit.
        one.shop.late.create_index("n")
    finally:
        os.kill(status["pid"], signal.SIGCONT)
    wait_until("a new lease", lambda: two.admin.command("serverStatus")["tikv"]["instance"] > status["tikv"]["instance"])
    before = len(acknowledged)
    wait_until("more writes", lambda: len(acknowledged) > before + 20 or not writer.is_alive())
    stop.set()
    writer.join()
    for client in (one, two):
        scanned = {document["_id"] for document in client.shop.late.find().hint({"$natural": 1})}
        indexed = {document["_id"] for document in client.shop.late.find({"n": {"$gte": 0}}).hint("n_1")}
        equal(scanned, indexed)
        equal(sorted(set(acknowledged) - scanned), [])


@test
def requests_to_the_cluster_are_told(one, _):
    one.shop.told.insert_one({"_id": 1})
    one.shop.told.find_one({"_id": 1})
    status = one.admin.command("serverStatus")["tikv"]
    equal(all(status["requests"][kind]["count"] > 0 for kind in ("timestamps", "gets", "commits")), True)
    equal(status["roundTrips"] > 0 and status["commits"]["unknownOutcomes"] == 0, True)


@test
def the_shell_finds_a_sharded_cluster(one, two):
    one.admin.command("enableSharding", "sharded")
    one.admin.command({"shardCollection": "sharded.c", "key": {"a": 1}})
    equal(two.config.collections.find_one({"_id": "sharded.c"})["key"], {"a": 1})
    equal(two.config.version.count_documents({"_id": 1}), 1)
    wait_until("both servers", lambda: two.config.mongos.count_documents({}) == 2)


if __name__ == "__main__":
    clients = [MongoClient(f"mongodb://{address}/?directConnection=true") for address in ADDRESSES[:2]]
    run(*clients)
