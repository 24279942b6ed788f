"""Two servers over one cluster: what one writes the other reads, and each says what it is."""

import os
import random
import signal
import threading
import uuid

from harness import raw
from harness.tap import equal, raises, run, test
from harness.waiting import wait_until
from pymongo import CursorType, MongoClient
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure
from pymongo.read_concern import ReadConcern

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
def collections_are_dropped_capped_and_replaced_in_bounded_requests(one, two):
    # The store refuses a request without a bound for its rows; TiKV reserves memory for them, and ends.
    many = [{"_id": n, "n": n % 7} for n in range(DOCUMENTS)]
    for name in ("dropped", "capped", "replaced"):
        one.bounds[name].create_index("n")
        one.bounds[name].insert_many(many)
    one.bounds.dropped.drop()
    equal(two.bounds.dropped.count_documents({}), 0)
    one.bounds.command("convertToCapped", "capped", size=1 << 20)
    equal(two.bounds.capped.options().get("capped"), True)
    equal(two.bounds.capped.count_documents({}), DOCUMENTS)
    one.bounds.capped.aggregate([{"$match": {"n": 3}}, {"$out": "replaced"}])
    kept = [doc for doc in many if doc["n"] == 3]
    equal(list(two.bounds.replaced.find().sort("_id", 1)), kept)
    # Counters of many writers are replaced by a value.
    equal(two.bounds.replaced.estimated_document_count(), len(kept))
    two.drop_database("bounds")
    equal(one.bounds.list_collection_names(), [])


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
def a_commit_that_another_server_does_not_know_is_committed_by_none(one, two):
    """A client whose commit gets no answer sends it to another server, and runs the transaction again if that does not know it."""
    accounts = one.sharing.accounts
    accounts.insert_one({"_id": "a", "n": 0})
    # The driver would put a session of its own into the commands.
    first, second = (raw.Connection(int(address.split(":")[1])) for address in ADDRESSES[:2])
    commit = {"commitTransaction": 1}

    def write():
        """Writes in a new transaction on the first server; the fields that identify it."""
        fields = {"lsid": {"id": uuid.uuid4()}, "txnNumber": raw.Long(1), "autocommit": False}
        update = {"update": "accounts", "updates": [{"q": {"_id": "a"}, "u": {"$inc": {"n": 1}}}]}
        reply = first.command({**update, **fields, "startTransaction": True}, "sharing")
        equal((reply["ok"], reply["recoveryToken"]), (1, {"recoveryShardId": "tikv"}), reply)
        return fields

    lost = write()
    for _ in range(2):
        reply = second.command({**commit, **lost, "recoveryToken": {}})
        equal((reply["code"], reply["errorLabels"]), (251, ["TransientTransactionError"]))
    equal(first.command({**commit, **lost})["code"], 112)
    equal(accounts.find_one()["n"], 0)
    known = write()
    for server in (first, second, second, first):
        equal(server.command({**commit, **known})["ok"], 1)
    equal(two.sharing.accounts.find_one()["n"], 1)


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
def a_transaction_meets_commits_of_the_other_at_its_statement(one, two):
    one.shop.met.insert_many({"_id": n, "n": n} for n in range(5))
    one.shop.met.create_index("n", unique=True)
    statements = {
        "update": lambda session: one.shop.met.update_one({"_id": 1}, {"$set": {"by": 1}}, session=session),
        "delete": lambda session: one.shop.met.delete_one({"_id": 2}, session=session),
        "insert": lambda session: one.shop.met.insert_one({"_id": 5, "n": 50}, session=session),
        "unique": lambda session: one.shop.met.insert_one({"_id": 60, "n": 6}, session=session),
    }
    with one.start_session() as session:
        for name, statement in statements.items():
            session.start_transaction()
            equal(one.shop.met.count_documents({}, session=session), two.shop.met.count_documents({}))
            two.shop.met.update_one({"_id": 1}, {"$inc": {"seen": 1}})
            two.shop.met.update_one({"_id": 2}, {"$inc": {"seen": 1}})
            two.shop.met.delete_many({"_id": {"$gte": 5}})
            if name in ("insert", "unique"):
                two.shop.met.insert_many([{"_id": 5, "n": 5}, {"_id": 6, "n": 6}])
            one.shop.met.update_one({"_id": 3}, {"$inc": {"kept": 1}}, session=session)
            error = raises(OperationFailure, statement, session)
            equal((error.code, error.has_error_label("TransientTransactionError")), (112, True))
            if session.in_transaction:
                session.abort_transaction()
            two.shop.met.delete_many({"_id": {"$gte": 5}})
    equal(two.shop.met.count_documents({"kept": {"$exists": True}}), 0)


class AtTime(ReadConcern):
    """A read concern with a time, which drivers give only to reads."""

    def __init__(self, time):
        super().__init__("snapshot")
        self.time = time

    @property
    def document(self):
        return {"level": "snapshot", "atClusterTime": self.time}


@test
def a_transaction_at_a_time_writes_what_has_not_changed_since(one, two):
    one.shop.times.insert_many({"_id": n, "n": 0} for n in range(4))
    then = one.shop.command({"find": "times", "readConcern": {"level": "snapshot"}})["cursor"]["atClusterTime"]
    two.shop.times.update_one({"_id": 0}, {"$set": {"n": 1}})
    for client, number in ((one, 1), (two, 2)):
        with client.start_session(causal_consistency=False) as session:
            session.start_transaction(read_concern=AtTime(then))
            equal(client.shop.times.find_one({"_id": 0}, session=session)["n"], 0)
            client.shop.times.update_one({"_id": number}, {"$set": {"n": number}}, session=session)
            client.shop.times.insert_one({"_id": 10 + number}, session=session)
            session.commit_transaction()
            session.start_transaction(read_concern=AtTime(then))
            error = raises(OperationFailure, client.shop.times.update_one, {"_id": 0}, {"$set": {"n": 2}}, session=session)
            equal(error.code, 112)
    equal([document.get("n") for document in two.shop.times.find().sort("_id", 1)], [1, 1, 2, 0, None, None])


@test
def sizes_are_about_those_of_the_documents(one, two):
    one.sized.c.create_index("text")
    one.sized.c.insert_many({"_id": n, "text": f"{n:05}" + "x" * 200} for n in range(DOCUMENTS))
    stats = two.sized.command("collStats", "c")
    assert stats["size"] / 4 < stats["storageSize"] < stats["size"] * 4, stats
    equal(sorted(stats["indexSizes"]), ["_id_", "text_1"])
    assert all(0 < size < stats["size"] * 4 for size in stats["indexSizes"].values()), stats
    equal(stats["totalIndexSize"], sum(stats["indexSizes"].values()))
    stats = two.sized.command("dbStats")
    assert stats["storageSize"] > 0 and stats["indexSize"] > 0 and stats["totalSize"] > 0, stats
    listed = {database["name"]: database["sizeOnDisk"] for database in two.list_databases()}
    assert listed["sized"] > DOCUMENTS * 100, listed


@test
def keys_of_any_length_are_in_order_and_unique_on_both(one, two):
    texts = ["x" * 20_000 + end for end in ("", "a", "aa", "b", "\U0010ffff")] + ["x" * 9_000, "w", "y" * 50_000]
    one.shop.long.create_index("text", unique=True)
    for number, text in enumerate(texts):
        (one, two)[number % 2].shop.long.insert_one({"_id": text[::-1], "text": text, "n": number})
    for text in texts:
        raises(DuplicateKeyError, two.shop.long.insert_one, {"text": text})
        raises(DuplicateKeyError, one.shop.long.insert_one, {"_id": text[::-1]})
        equal(two.shop.long.find_one({"text": text})["_id"], text[::-1])
    ordered = sorted(texts, key=lambda text: text.encode())
    for client, direction, expected in ((one, 1, ordered), (two, -1, ordered[::-1])):
        equal([document["text"] for document in client.shop.long.find().sort("text", direction).hint("text_1")], expected)
    equal(one.shop.long.count_documents({"text": {"$gt": texts[1], "$lte": texts[4]}}), 3)
    two.shop.long.update_one({"text": texts[2]}, {"$set": {"text": texts[2] + "c"}})
    equal(one.shop.long.find_one({"text": texts[2]}), None)
    equal(one.shop.long.delete_many({"text": {"$gte": "x" * 10_000}}).deleted_count, 6)
    equal([document["text"] for document in two.shop.long.find().sort("text", 1)], ["w", "x" * 9_000])
    equal(two.shop.command("validate", "long", full=True)["valid"], True)


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
