"""Streams that wait: when they are woken, what they cost, and the messages that drivers send for them."""

import time

from harness import raw
from harness.tap import equal, raises, test
from harness.waiting import wait_for_operations, wait_until, wait_until_idle
from pymongo.errors import OperationFailure

from .events import fresh
from .watching import read, watch

STREAMS = 300
# Longer than a client waits for an answer.
LONG_MS = 1_000_000
READS = {"ns": "streams.c", "command.getMore": {"$exists": True}}
CURSOR_NOT_FOUND = 43


@test
def an_empty_read_waits_as_long_as_it_is_told(server, client):
    collection = fresh(client).c
    for milliseconds in (200, 700):
        with collection.watch(max_await_time_ms=milliseconds) as stream:

            def is_quick():
                began = time.monotonic()
                equal(stream.try_next(), None)
                took = (time.monotonic() - began) * 1000
                assert milliseconds * 0.9 <= took, f"{took:.0f} ms instead of {milliseconds}"
                return took < milliseconds + 1000

            # A busy machine may delay some.
            wait_until(f"a read that waits for {milliseconds} ms", is_quick)


@test
def a_write_wakes_a_waiting_read(server, client):
    collection = fresh(client).c
    with raw.Connection(server.port) as connection:
        cursor = open_stream(connection, "c")
        for n in range(5):
            connection.send(raw.op_msg({"getMore": cursor, "collection": "c", "maxTimeMS": LONG_MS}, "streams"))
            wait_for_operations(client, 1, READS)
            collection.insert_one({"_id": n})
            reply = connection.receive()[2]
            equal([e["documentKey"] for e in reply["cursor"]["nextBatch"]], [{"_id": n}])


def open_stream(connection, name, database="streams"):
    reply = connection.command({"aggregate": name, "pipeline": [{"$changeStream": {}}], "cursor": {}}, database)
    equal(reply["ok"], 1, str(reply))
    assert "postBatchResumeToken" in reply["cursor"], reply
    equal(reply["cursor"]["ns"], f"{database}.{name}")
    return reply["cursor"]["id"]


@test
def commands_and_replies_have_what_drivers_need(server, client):
    database = fresh(client)
    database.c.insert_one({"_id": 0})
    with raw.Connection(server.port) as connection:
        pipeline = [{"$changeStream": {}}]
        reply = connection.command({"aggregate": "c", "pipeline": pipeline, "cursor": {"batchSize": 0}}, "streams")
        assert "operationTime" in reply and reply["cursor"]["id"] != 0, reply
        equal((reply["cursor"]["firstBatch"], list(reply["cursor"]["postBatchResumeToken"])), ([], ["_data"]))
        cursor = reply["cursor"]["id"]
        database.c.insert_many([{"_id": n} for n in range(1, 8)])
        tokens = [reply["cursor"]["postBatchResumeToken"]["_data"]]
        seen = []
        while len(seen) < 7:
            more = {"getMore": cursor, "collection": "c", "batchSize": 3, "maxTimeMS": LONG_MS}
            reply = connection.command(more, "streams")
            batch = reply["cursor"]["nextBatch"]
            assert batch and len(batch) <= 3, reply
            seen += [event["documentKey"]["_id"] for event in batch]
            tokens.append(reply["cursor"]["postBatchResumeToken"]["_data"])
            if len(batch) == 3:
                equal(tokens[-1], batch[-1]["_id"]["_data"], "a full batch ends with its last event's token")
        equal((seen, tokens), (list(range(1, 8)), sorted(set(tokens))))
        reply = connection.command({"killCursors": "c", "cursors": [cursor]}, "streams")
        equal(reply["cursorsKilled"], [cursor])
        reply = connection.command({"getMore": cursor, "collection": "c"}, "streams")
        equal(reply["code"], CURSOR_NOT_FOUND)
        # Streams of a database and of the cluster.
        reply = connection.command({"aggregate": 1, "pipeline": pipeline, "cursor": {}}, "streams")
        equal(reply["cursor"]["ns"], "streams.$cmd.aggregate")
        cluster = [{"$changeStream": {"allChangesForCluster": True}}]
        reply = connection.command({"aggregate": 1, "pipeline": cluster, "cursor": {}}, "admin")
        equal(reply["cursor"]["ns"], "admin.$cmd.aggregate")


@test
def a_killed_cursor_of_a_waiting_stream_ends_its_read(server, client):
    fresh(client).c.insert_one({})
    with raw.Connection(server.port) as connection:
        cursor = open_stream(connection, "c")
        connection.send(raw.op_msg({"getMore": cursor, "collection": "c", "maxTimeMS": LONG_MS}, "streams"))
        wait_for_operations(client, 1, READS)
        client.streams.command({"killCursors": "c", "cursors": [cursor]})
        reply = connection.receive()[2]
        assert reply.get("code") in (CURSOR_NOT_FOUND, 237), reply


@test
def many_streams_wait_without_threads_or_processor_time(server, client):
    database = fresh(client)
    database.c.insert_one({"_id": "first"})

    def threads():
        with open(f"/proc/{server.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))

    connections = [raw.Connection(server.port) for _ in range(STREAMS)]
    try:
        cursors = [open_stream(connection, "c") for connection in connections]
        before = threads()
        more = [{"getMore": c, "collection": "c", "maxTimeMS": LONG_MS} for c in cursors]
        for connection, command in zip(connections, more):
            connection.send(raw.op_msg(command, "streams"))
        wait_for_operations(client, STREAMS, READS)
        # Threads that the messages needed end some time later. Those that all reads share may have begun since.
        wait_until(f"at most {before + 20} threads", lambda: threads() <= before + 20)
        wait_until_idle(server.pid)
        # Writes elsewhere wake nobody: all still wait for the one below.
        database.elsewhere.insert_many([{"_id": n} for n in range(1000)])
        database.c.insert_one({"_id": "second"})
        for connection in connections:
            reply = connection.receive()[2]
            equal([e["documentKey"]["_id"] for e in reply["cursor"]["nextBatch"]], ["second"])
    finally:
        for connection in connections:
            connection.socket.close()


@test
def many_streams_see_all_of_many_writes(server, client):
    database = fresh(client)
    streams = [watch(database.c) for _ in range(20)]
    try:
        for n in range(30):
            database.c.insert_many([{"_id": f"{n} {i}"} for i in range(10)])
        expected = [f"{n} {i}" for n in range(30) for i in range(10)]
        for stream in streams:
            equal([e["documentKey"]["_id"] for e in read(stream, 300)], expected)
    finally:
        for stream in streams:
            stream.close()


@test
def the_driver_resumes_when_its_cursor_is_killed(server, client):
    collection = fresh(client).c
    with watch(collection) as stream:
        collection.insert_one({"_id": 1})
        read(stream, 1)
        killed = stream._cursor.cursor_id
        client.streams.command({"killCursors": "c", "cursors": [killed]})
        collection.insert_one({"_id": 2})
        equal(read(stream, 1)[0]["documentKey"], {"_id": 2})
        assert stream._cursor.cursor_id != killed
    # A cursor that is gone says so in a way that drivers resume at.
    error = raises(OperationFailure, client.streams.command, {"getMore": killed, "collection": "c"})
    equal(error.code, CURSOR_NOT_FOUND)
