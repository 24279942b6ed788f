"""Capped collections and tailable cursors."""

import struct
import threading

from bson import Int64
from harness import raw
from harness.tap import equal, of_one_server, raises, test
from harness.waiting import PATIENCE, wait_for_operations
from pymongo import CursorType
from pymongo.errors import DuplicateKeyError, OperationFailure, WriteError

from . import fresh


@test
def the_order_of_insertion_and_the_oldest_go(client):
    database = fresh(client, "capped")
    log = database.create_collection("log", capped=True, size=100_000, max=5)
    log.insert_many([{"_id": n, "a": n % 3} for n in [9, 3, 7]])
    equal([d["_id"] for d in log.find()], [9, 3, 7])
    equal([d["_id"] for d in log.find().sort("$natural", -1)], [7, 3, 9])
    equal([d["_id"] for d in log.find({"_id": {"$gte": 7}}, sort=[("_id", 1)])], [7, 9])
    log.create_index("a")
    log.insert_many([{"_id": n, "a": n % 3} for n in range(100, 150)])
    equal([d["_id"] for d in log.find()], [145, 146, 147, 148, 149])
    equal([d["_id"] for d in log.find({"a": 1})], [145, 148])
    equal(log.count_documents({}), 5)
    raises(DuplicateKeyError, log.insert_one, {"_id": 149})
    log.insert_one({"_id": 100})
    equal(log.update_one({"_id": 100}, {"$set": {"grown": "x" * 100}}).modified_count, 1)
    equal(log.delete_many({"_id": {"$lt": 148}}).deleted_count, 3)
    equal([d["_id"] for d in log.find()], [148, 149])
    equal(log.find_one({"_id": 148}, {"_id": 1}, show_record_id=True)["$recordId"] > 0, True)
    equal(database.command("validate", "log")["valid"], True)


@test
def capped_collections_are_described(client):
    database = fresh(client, "capped")
    log = database.create_collection("log", capped=True, size=4096)
    equal(log.options(), {"capped": True, "size": 4096})
    stats = database.command("collStats", "log")
    equal((stats["capped"], stats["maxSize"], stats["max"], stats["nindexes"]), (True, 4096, 0, 1))
    equal(next(log.aggregate([{"$collStats": {"storageStats": {}}}]))["storageStats"]["capped"], True)
    equal([index["name"] for index in log.list_indexes()], ["_id_"])
    equal(raises(OperationFailure, log.drop_index, "_id_").code, 72)
    log.drop_indexes()
    equal(len(log.index_information()), 1)
    database.command("collMod", "log", cappedSize=8192, cappedMax=10)
    equal(log.options(), {"capped": True, "size": 8192, "max": 10})
    for options, code in [({"capped": True}, 72), ({"size": 100}, 72), ({"max": 1}, 72), ({"capped": True, "size": -1}, 51024)]:
        equal(raises(OperationFailure, database.command, "create", "bad", **options).code, code, options)
    database.plain.insert_many([{"_id": n} for n in range(5)])
    equal(raises(OperationFailure, database.command, "collMod", "plain", cappedSize=1).code, 72)
    equal(raises(WriteError, log.insert_one, {"x": "y" * 9000}).code, 2)
    database.command("convertToCapped", "plain", size=4096)
    equal(database.plain.options()["capped"], True)
    database.command("cloneCollectionAsCapped", "plain", toCollection="copy", size=4096)
    equal([d["_id"] for d in database.copy.find()], [0, 1, 2, 3, 4])
    equal(raises(OperationFailure, database.command, "convertToCapped", "none", size=100).code, 26)


@test
def tailable_cursors(client):
    database = fresh(client, "capped")
    log = database.create_collection("log", capped=True, size=100_000, max=4)
    empty = log.find(cursor_type=CursorType.TAILABLE)
    raises(StopIteration, empty.next)
    equal(empty.alive, False)
    log.insert_many([{"_id": 1}, {"_id": 2}])
    cursor = log.find(cursor_type=CursorType.TAILABLE)
    equal([next(cursor)["_id"], next(cursor)["_id"]], [1, 2])
    raises(StopIteration, cursor.next)
    equal(cursor.alive, True)
    log.insert_one({"_id": 3})
    equal(next(cursor)["_id"], 3)
    log.insert_many([{"_id": n} for n in range(4, 9)])
    # The driver hides error 136 of a cursor whose position was removed.
    raises(StopIteration, cursor.next)
    equal(cursor.alive, False)
    cursor = log.find(cursor_type=CursorType.TAILABLE)
    equal(len([next(cursor) for _ in range(4)]), 4)
    log.drop()
    raises(StopIteration, cursor.next)
    equal(cursor.alive, False)
    database.plain.insert_one({})
    error = raises(OperationFailure, next, database.plain.find(cursor_type=CursorType.TAILABLE))
    equal(error.code, 2)
    assert "tailable cursor requested on non capped collection" in str(error), error
    for options, code in [
        ({"awaitData": True}, 9),
        ({"tailable": True, "sort": {"a": 1}}, 2),
        ({"tailable": True, "singleBatch": True}, 2),
    ]:
        equal(raises(OperationFailure, database.command, "find", "log", **options).code, code, options)


def waiting(client, count):
    """Waits until currentOp shows this many getMores."""
    return wait_for_operations(client, count, {"command.getMore": {"$exists": True}})


@test
@of_one_server
def inserts_wake_cursors_that_wait(client):
    database = fresh(client, "capped")
    log = database.create_collection("log", capped=True, size=100_000)
    log.insert_one({"_id": 0})
    cursor = log.find({"_id": {"$ne": 1}}, cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(600_000)
    equal(next(cursor)["_id"], 0)
    found = []
    thread = threading.Thread(target=lambda: found.append(next(cursor)["_id"]))
    thread.start()
    waiting(client, 1)
    # The first one does not match the filter.
    log.insert_one({"_id": 1})
    log.insert_one({"_id": 2})
    thread.join(PATIENCE)
    equal(found, [2])
    # Without inserts the batch is empty, and the cursor stays open.
    short = log.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(10)
    equal([next(short)["_id"] for _ in range(3)], [0, 1, 2])
    raises(StopIteration, short.next)
    equal(short.alive, True)


@test
@of_one_server
def waiting_cursors_end(client):
    database = fresh(client, "capped")

    def wait_in_background(number):
        log = database.create_collection(f"log{number}", capped=True, size=100_000)
        log.insert_one({"_id": 0})
        reply = database.command("find", log.name, tailable=True, awaitData=True)
        cursor = reply["cursor"]["id"]
        failed = []

        def run():
            # A client of its own, so that its connection can be closed.
            try:
                database.command("getMore", Int64(cursor), collection=log.name, maxTimeMS=600_000)
            except OperationFailure as error:
                failed.append(error.code)

        thread = threading.Thread(target=run)
        thread.start()
        return log, cursor, thread, failed, waiting(client, 1)[0]

    log, cursor, thread, failed, _ = wait_in_background(1)
    equal(raises(OperationFailure, database.command, "getMore", Int64(cursor), collection=log.name).details["codeName"], "CursorInUse")
    database.command("killCursors", log.name, cursors=[Int64(cursor)])
    thread.join(PATIENCE)
    equal(failed, [237])

    log, cursor, thread, failed, operation = wait_in_background(2)
    client.admin.command("killOp", op=operation["opid"])
    thread.join(PATIENCE)
    equal(failed, [11601])
    equal(raises(OperationFailure, database.command, "getMore", Int64(cursor), collection=log.name).code, 43)

    log, cursor, thread, failed, _ = wait_in_background(3)
    log.drop()
    thread.join(PATIENCE)
    equal(failed, [175])

    # The cursor of a disconnected client is closed.
    log = database.create_collection("log4", capped=True, size=100_000)
    log.insert_one({"_id": 0})
    with raw.Connection(client.address[1]) as other:
        # Without a session, as the cursor of a raw client is.
        found = other.command({"find": "log4", "tailable": True, "awaitData": True}, "capped")
        get_more = {"getMore": found["cursor"]["id"], "collection": "log4", "maxTimeMS": 60_000}
        other.send(raw.op_msg(get_more, "capped"))
        waiting(client, 1)
    waiting(client, 0)


@test
@of_one_server
def legacy_opcodes_tail_too(client):
    database = fresh(client, "capped")
    log = database.create_collection("log", capped=True, size=100_000)
    log.insert_one({"_id": 1})
    tailable, await_data = 2, 32
    name = b"capped.log\0"
    with raw.Connection(client.address[1]) as old:
        query = struct.pack("<i", tailable | await_data) + name + struct.pack("<ii", 0, 0) + raw.encode({})
        old.send(raw.message(raw.OP_QUERY, query))
        head = old._read(36)
        length, _, _, _, flags, cursor, _, returned = struct.unpack("<iiiiiqii", head)
        equal((raw.decode(old._read(length - 36)), returned, cursor != 0), ({"_id": 1}, 1, True))
        old.send(raw.message(raw.OP_GET_MORE, struct.pack("<i", 0) + name + struct.pack("<iq", 0, cursor)))
        waiting(client, 1)
        log.insert_one({"_id": 2})
        equal(old.receive()[2], {"_id": 2})
        # After a second without inserts the batch is empty.
        old.send(raw.message(raw.OP_GET_MORE, struct.pack("<i", 0) + name + struct.pack("<iq", 0, cursor)))
        equal(old.receive()[2], None)
