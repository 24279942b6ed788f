"""Where a stream can go on: the token of each kind of event, post-batch tokens, times; before and after restarts."""


from bson import Timestamp
from harness.tap import equal, raises, test
from harness.waiting import wait_until
from pymongo.errors import OperationFailure

from .events import fresh
from .watching import ends, in_order, kinds, read, token, watch

INVALID_TOKEN, FATAL = 260, 280


def make_history(client):
    """Changes of every kind in one database, and the events of a stream that saw all of them."""
    database = fresh(client)
    with watch(database, show_expanded_events=True) as stream:
        start = stream.resume_token
        if start is None:
            equal(stream.try_next(), None)
            start = stream.resume_token
        many = database.create_collection("many", changeStreamPreAndPostImages={"enabled": True})
        many.create_index("n")
        database.create_collection("other")
        many.insert_many([{"_id": n, "n": n} for n in range(5)])
        many.update_many({}, {"$inc": {"n": 1}})
        many.replace_one({"_id": 0}, {"r": 1})
        with client.start_session() as session, session.start_transaction():
            many.insert_one({"_id": 100}, session=session)
            many.update_one({"_id": 1}, {"$set": {"t": 1}}, session=session)
            database.other.insert_many([{"_id": "a"}, {"_id": "b"}], session=session)
            many.delete_one({"_id": 2}, session=session)
        many.delete_many({"_id": {"$gt": 2}})
        database.command("collMod", "many", validator={"never": {"$exists": False}})
        many.drop_index("n_1")
        many.rename("renamed")
        database.renamed.insert_one({"_id": "after"})
        database.renamed.drop()
        client.drop_database("streams")
        expected = ["create", "createIndexes", "create", *["insert"] * 5, *["update"] * 5, "replace"]
        # The transaction, and what came after it.
        expected += ["insert", "update", "insert", "insert", "delete", *["delete"] * 3]
        expected += ["modify", "dropIndexes", "rename", "insert", "drop", "drop", "dropDatabase", "invalidate"]
        events = read(stream, len(expected))
        equal(kinds(events), expected)
        ends(stream)
    in_order(events)
    return database, start, events


def check_all(database, start, events):
    """Goes on after each of the events, in each way; all that follows comes."""
    rest = {"show_expanded_events": True}

    def same(expected, **options):
        with watch(database, **rest, **options) as stream:
            if expected:
                equal(read(stream, len(expected)), expected, str(options))
                ends(stream)

    same(events, resume_after=start)
    same(events, start_after=start)
    for at, event in enumerate(events):
        following = events[at + 1 :]
        if event["operationType"] == "invalidate":
            continue
        same(following, resume_after=event["_id"])
        same(following, start_after=event["_id"])
        at_time = [e for e in events if e["clusterTime"] >= event["clusterTime"]]
        same(at_time, start_at_operation_time=event["clusterTime"])
    # An invalidation can be started after only.
    last = events[-1]["_id"]
    error = raises(OperationFailure, database.watch, resume_after=last, **rest)
    equal(error.code, INVALID_TOKEN)
    with watch(database, start_after=last, **rest) as stream:
        equal(stream.try_next(), None)
        assert stream.alive


@test
def every_kind_of_token_resumes_before_and_after_restarts(server, client):
    database, start, events = make_history(client)
    check_all(database, start, events)
    server.kill()
    server.start()
    check_all(database, start, events)
    server.stop()
    server.start()
    check_all(database, start, events)
    # After the invalidation comes what happens next, once.
    database.again.insert_one({"_id": 1})
    with watch(database, start_after=events[-1]["_id"]) as stream:
        (event,) = read(stream, 1)
        equal(event["documentKey"], {"_id": 1})
    with watch(database, resume_after=event["_id"]) as stream:
        equal(stream.try_next(), None)
    client.drop_database("streams")


@test
def invalidations_of_collections_can_be_started_after(server, client):
    database = fresh(client)
    for end in ("drop", "rename"):
        database.gone.insert_one({"_id": 0})
        with watch(database.gone) as stream:
            database.gone.drop() if end == "drop" else database.gone.rename("elsewhere")
            ended, invalidated = read(stream, 2)
            equal(kinds([ended, invalidated]), [end, "invalidate"])
            ends(stream)
        database.gone.insert_one({"_id": 1})
        for crash in (False, True):
            if crash:
                server.kill()
                server.start()
            equal(raises(OperationFailure, database.gone.watch, resume_after=invalidated["_id"]).code, INVALID_TOKEN)
            with watch(database.gone, start_after=invalidated["_id"]) as stream:
                equal([e["documentKey"] for e in read(stream, 1)], [{"_id": 1}])
            # The token of the drop itself leads to the invalidation.
            with watch(database.gone, resume_after=ended["_id"]) as stream:
                equal(read(stream, 1), [invalidated])
                ends(stream)
        database.gone.drop()
        database.elsewhere.drop()


@test
def tokens_of_nothing_go_on_with_time(server, client):
    """A post-batch token moves though no event matches, and holds over a crash."""
    database = fresh(client)
    database.quiet.insert_one({"_id": 0})
    with watch(database.quiet) as stream:
        equal(stream.try_next(), None)
        first = stream.resume_token
        for n in range(20):
            database.noise.insert_one({"_id": n})

        def moves():
            equal(stream.try_next(), None)
            return stream.resume_token["_data"] > first["_data"]

        wait_until("a later token", moves)
        later = stream.resume_token
        database.quiet.insert_one({"_id": 1})
        (event,) = read(stream, 1)
        assert later["_data"] < token(event), "the token is below those of later events"
    for crash in (False, True):
        if crash:
            server.kill()
            server.start()
        for option in ("resume_after", "start_after"):
            for start in (first, later):
                with watch(database.quiet, **{option: start}) as stream:
                    equal(read(stream, 1), [event])


@test
def a_token_goes_on_with_another_pipeline_where_its_event_is_seen(server, client):
    database = fresh(client)
    with watch(database) as stream:
        database.a.insert_many([{"_id": n} for n in range(4)])
        events = read(stream, 4)
    with watch(database, [{"$match": {"documentKey._id": {"$gt": 2}}}], resume_after=events[0]["_id"]) as stream:
        equal(read(stream, 1), events[3:])
    with watch(database.a, resume_after=events[1]["_id"]) as stream:
        equal(read(stream, 2), events[2:])
    with watch(client, resume_after=events[2]["_id"]) as stream:
        equal(read(stream, 1), events[3:])
    # The stream of another collection never had the event.
    error = raises(OperationFailure, lambda: read(watch(database.b, resume_after=events[1]["_id"]), 1))
    equal(error.code, FATAL)
    assert error.has_error_label("NonResumableChangeStreamError"), error.details


@test
def streams_start_at_a_time(server, client):
    database = fresh(client)
    database.c.insert_one({"_id": 0})
    with client.start_session() as session:
        for n in range(1, 4):
            database.c.insert_one({"_id": n}, session=session)
            if n == 2:
                moment = session.operation_time
    with watch(database.c, start_at_operation_time=moment) as stream:
        equal([e["documentKey"]["_id"] for e in read(stream, 2)], [2, 3])
    after = Timestamp(moment.time, moment.inc + 1)
    with watch(database.c, start_at_operation_time=after) as stream:
        equal([e["documentKey"]["_id"] for e in read(stream, 1)], [3])
    # A time that is still to come is waited for.
    start = Timestamp(moment.time, moment.inc + 30)
    with watch(database.c, start_at_operation_time=start) as stream, client.start_session() as session:
        expected = []
        for n in range(60):
            database.c.insert_one({"_id": f"later {n}"}, session=session)
            if session.operation_time >= start:
                expected.append(f"later {n}")
        assert 20 < len(expected), f"{len(expected)} of 60 from the time on"
        equal([e["documentKey"]["_id"] for e in read(stream, len(expected))], expected)


@test
def a_stream_of_the_driver_goes_on_over_a_crash(server, client):
    """As in an application: the driver resumes, and nobody notices."""
    collection = fresh(client).c
    with watch(collection) as stream:
        seen = []
        for n in range(6):
            collection.insert_many([{"_id": f"{n} {i}"} for i in range(10)])
            if n % 2 == 0:
                server.kill() if n % 4 == 0 else server.stop()
                server.start()
            seen += [e["documentKey"]["_id"] for e in read(stream, 10)]
        equal(seen, [f"{n} {i}" for n in range(6) for i in range(10)])
