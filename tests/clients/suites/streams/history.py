"""The oplog is of limited size: what was trimmed is told, and what is needed is not lost silently."""

import itertools
import os

from bson import Timestamp
from harness.server import Server
from harness.tap import equal, raises, test
from harness.transactions import connect
from harness.waiting import wait_until
from pymongo.errors import OperationFailure

from .watching import read, watch

HISTORY_LOST = 286


def first_time(client):
    return client.local["oplog.rs"].find_one(sort=[("$natural", 1)])["ts"]


def write_until_trimmed(client, moment, stream):
    """Writes until the oplog begins after the moment, and reads a stream that gets nothing."""
    text = os.urandom(50_000).hex()
    counts = itertools.count(0, 20)

    def is_trimmed():
        count = next(counts)
        client.history.filler.insert_many([{"text": text, "n": count + n} for n in range(20)])
        equal(stream.try_next(), None)
        client.history.filler.delete_many({"n": {"$lt": count - 20}})
        return first_time(client) > moment

    wait_until("a trimmed oplog", is_trimmed)


@test
def a_stream_whose_history_was_trimmed_is_refused(server, client):
    with Server(server.binary, ["--oplogSize", "8"], replica_set="rs0") as small:
        small.start()
        with connect(small) as other:
            check_lost(small, other)
        small.stop()


def check_lost(small, client):
    watched = client.history.watched
    with client.start_session() as session, watch(watched, max_await_time_ms=1) as stream, watch(watched) as idle:
        watched.insert_one({"_id": 1}, session=session)
        moment = session.operation_time
        old = read(stream, 1)[0]["_id"]
        read(idle, 1)
        write_until_trimmed(client, moment, stream)
        # A stream that was read meanwhile goes on, one that was not cannot.
        watched.insert_one({"_id": 2})
        (event,) = read(stream, 1)
        equal(event["documentKey"], {"_id": 2})
        recent = event["_id"]
        equal(raises(OperationFailure, read, idle, 1).code, HISTORY_LOST)

    def refused():
        for options in ({"resume_after": old}, {"start_after": old}, {"start_at_operation_time": moment}):
            for target in (watched, client.history, client):
                error = raises(OperationFailure, target.watch, **options)
                equal((error.code, error.details["codeName"]), (HISTORY_LOST, "ChangeStreamHistoryLost"))
                assert error.has_error_label("NonResumableChangeStreamError"), error.details

    refused()
    small.kill()
    small.start()
    refused()
    with watch(watched, resume_after=recent) as stream:
        watched.insert_one({"_id": 3})
        equal(read(stream, 1)[0]["documentKey"], {"_id": 3})
    # What is left is one piece up to now.
    entries = list(client.local["oplog.rs"].find({}, {"ts": 1}))
    times = [entry["ts"] for entry in entries]
    equal(times, sorted(times))
    stats = client.local.command("collStats", "oplog.rs")
    equal((stats["capped"], stats["maxSize"]), (True, 8 * 1024 * 1024))


@test
def a_new_oplog_has_all_history(server, client):
    """Its first entry says that there was nothing before."""
    with Server(server.binary, replica_set="rs0") as new:
        new.start()
        with connect(new) as other:
            first = other.local["oplog.rs"].find_one(sort=[("$natural", 1)])
            equal((first["op"], first["ns"], first["o"]), ("n", "", {"msg": "initiating set"}))
            other.a.b.insert_one({"_id": 1})
            with watch(other.a.b, start_at_operation_time=Timestamp(first["ts"].time, 1)) as stream:
                equal(read(stream, 1)[0]["documentKey"], {"_id": 1})
        new.stop()


@test
def the_oplog_is_resized(server, client):
    resize = client.admin.command
    maximum = lambda: client.local.command("collStats", "oplog.rs")["maxSize"]  # noqa: E731
    for wrong in ({"size": 100.0}, {"minRetentionHours": -1.0}, {"size": "1"}):
        error = raises(OperationFailure, resize, {"replSetResizeOplog": 1, **wrong})
        assert error.code in (2, 9, 14, 51024), error
    resize({"replSetResizeOplog": 1, "size": 2000.0})
    equal(maximum(), 2000 * 1024 * 1024)
    resize({"replSetResizeOplog": 1, "minRetentionHours": 1.5})
    server.stop()
    server.start()
    equal(maximum(), 2000 * 1024 * 1024, "after a restart")
    client.admin.command({"replSetResizeOplog": 1, "size": 990.0, "minRetentionHours": 0.0})
    equal(maximum(), 990 * 1024 * 1024)


@test
def a_server_without_an_oplog_says_so(server, client):
    with Server(server.binary) as alone:
        alone.start()
        with connect(alone) as other:
            other.a.b.insert_one({})
            for target in (other.a.b, other.a, other):
                equal(raises(OperationFailure, target.watch).code, 40573)
        alone.stop()
    with Server(server.binary, ["--oplog"]) as alone:
        alone.start()
        with connect(alone) as other, watch(other.a.b) as stream:
            other.a.b.insert_one({"_id": 1})
            equal(read(stream, 1)[0]["documentKey"], {"_id": 1})
        alone.stop()
