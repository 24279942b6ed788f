"""Reads on primaries and secondaries: preferences, read concerns, sessions."""

import threading

import pymongo
from harness.tap import equal
from harness.waiting import wait_until
from pymongo import WriteConcern
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import Nearest, PrimaryPreferred, Secondary, SecondaryPreferred

from .common import expect, with_set
from .concerns import paused


def port_that_answers(database):
    """The port of the member that a read preference chooses."""
    cursor = database.get_collection("read").find({})
    list(cursor)
    return cursor.address[1]


@with_set
def read_preferences_choose_the_member(replica_set):
    primary = replica_set.primary
    with replica_set.connect(localThresholdMS=10_000) as client:
        everywhere = client.shop.get_collection("read", write_concern=WriteConcern(w=3))
        everywhere.insert_many([{"_id": n} for n in range(10)])
        wait_until("all members", lambda: len(client.nodes) == 3)
        secondaries = {member.port for member in replica_set.secondaries}
        all_ports = {primary.port, *secondaries}
        for preference, ports in [
            (pymongo.ReadPreference.PRIMARY, {primary.port}), (PrimaryPreferred(), {primary.port}),
            (Secondary(), secondaries), (SecondaryPreferred(), secondaries), (Nearest(), all_ports),
            (Secondary(max_staleness=90), secondaries), (Nearest(max_staleness=120), all_ports),
        ]:
            database = client.get_database("shop", read_preference=preference)
            seen = {port_that_answers(database) for _ in range(20)}
            assert seen <= ports, f"{preference}: {seen} of {ports}"
            equal(database.read.count_documents({}), 10)
        for member in replica_set.members:
            database = client.get_database("shop", read_preference=Nearest([{"n": str(member.number)}]))
            equal(port_that_answers(database), member.port)
        # No tag fits.
        with replica_set.connect(serverSelectionTimeoutMS=500) as hasty:
            database = hasty.get_database("shop", read_preference=Secondary([{"n": "none"}]))
            try:
                port_that_answers(database)
                raise AssertionError("a member without the tag")
            except pymongo.errors.ServerSelectionTimeoutError:
                pass


@with_set
def a_secondary_reads_only_for_those_who_allow_it(replica_set):
    for member in replica_set.secondaries:
        with member.connect() as connection:
            for given in ({"find": "read"}, {"count": "read"}, {"distinct": "read", "key": "_id"}, {"listIndexes": "read"},
                          {"aggregate": "read", "pipeline": [], "cursor": {}}, {"listCollections": 1}):
                reply = connection.command({**given, "$readPreference": {"mode": "primary"}}, "shop")
                equal((reply["ok"], reply["code"], reply["codeName"]), (0, 13435, "NotPrimaryNoSecondaryOk"), str(given))
                assert "topologyVersion" in reply, reply
                for mode in ("secondary", "secondaryPreferred", "nearest", "primaryPreferred"):
                    reply = connection.command({**given, "$readPreference": {"mode": mode}}, "shop")
                    equal(reply["ok"], 1, f"{given}: {reply}")
        client = member.client(readPreference="secondary")
        for given in ({"insert": "read", "documents": [{}]}, {"delete": "read", "deletes": [{"q": {}, "limit": 1}]},
                      {"update": "read", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]}, {"findAndModify": "read", "remove": True},
                      {"create": "new"}, {"drop": "read"}, {"dropDatabase": 1}, {"collMod": "read"},
                      {"createIndexes": "read", "indexes": [{"key": {"a": 1}, "name": "a"}]}, {"createUser": "u", "pwd": "p", "roles": []}):
            error = expect(10107, lambda given=given: client.shop.command(given))
            assert error.details["topologyVersion"], given


@with_set
def causal_sessions_read_their_own_writes_on_every_member(replica_set):
    with replica_set.connect(localThresholdMS=10_000) as client:
        local = client.shop.get_collection("causal", write_concern=WriteConcern(w=1))
        local.insert_one({"_id": 0, "n": 0})
        with client.start_session(causal_consistency=True) as session:
            for n in range(1, 60):
                local.update_one({"_id": 0}, {"$set": {"n": n}}, session=session)
                concern = ReadConcern("majority") if n % 3 == 0 else None
                member = replica_set.members[n % 3]
                there = client.get_database("shop", read_preference=Nearest([{"n": str(member.number)}]), read_concern=concern)
                equal(there.causal.find_one({"_id": 0}, session=session)["n"], n, f"member {member.number}, {concern}")


@with_set
def a_read_after_a_time_waits_for_it(replica_set):
    secondary = replica_set.secondaries[0]
    there = secondary.client(readPreference="secondary")
    with replica_set.connect() as client, client.start_session() as session, there.start_session() as reading:
        secondary.pause()
        client.shop.causal.insert_one({"_id": "known"}, session=session)
        reading.advance_cluster_time(session.cluster_time)
        reading.advance_operation_time(session.operation_time)
        found = []
        reader = threading.Thread(target=lambda: found.append(there.shop.causal.find_one({"_id": "known"}, session=reading)))
        reader.start()
        secondary.resume()
        reader.join()
        equal(found, [{"_id": "known"}])
    replica_set.wait_until_steady()


@with_set
def snapshot_sessions_read_one_time_on_every_member(replica_set):
    with replica_set.connect() as client:
        counted = client.shop.get_collection("counted", write_concern=WriteConcern("majority"))
        counted.insert_many([{"_id": n, "n": 0} for n in range(20)])
        ends = threading.Event()

        def write():
            while not ends.is_set():
                counted.update_many({}, {"$inc": {"n": 1}})

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for member in replica_set.members * 3:
                reading = client.get_database("shop", read_preference=Nearest([{"n": str(member.number)}])).counted
                with client.start_session(snapshot=True) as session:
                    first = [one["n"] for one in reading.find({}, session=session).sort("_id")]
                    before = first[0]

                    def newer(before=before):
                        return counted.find_one({"_id": 0})["n"] > before

                    wait_until("a later write", newer)
                    again = [one["n"] for one in reading.find({}, session=session).sort("_id")]
                    equal(again, first, f"member {member.number}")
        finally:
            ends.set()
            writer.join()


@with_set
def linearizable_reads_need_the_primary_and_a_majority(replica_set):
    primary = replica_set.primary
    primary.client().shop.get_collection("seen", write_concern=WriteConcern(w=3)).insert_one({"_id": "all"})
    linearizable = {"find": "seen", "filter": {"_id": "all"}, "readConcern": {"level": "linearizable"}}
    equal(len(primary.client().shop.command(linearizable)["cursor"]["firstBatch"]), 1)
    for member in replica_set.secondaries:
        client = member.client(readPreference="secondary")
        expect(10107, lambda client=client: client.shop.command({**linearizable, "$readPreference": {"mode": "secondary"}}))
    with paused(*replica_set.secondaries):
        error = expect(50, lambda: primary.client().shop.command({**linearizable, "maxTimeMS": 300}))
        equal(error.details["codeName"], "MaxTimeMSExpired")
    replica_set.wait_until_steady()


@with_set
def writes_to_the_database_local_belong_to_the_primary(replica_set):
    with replica_set.connect() as client:
        client.local.get_collection("own", write_concern=WriteConcern(w=3)).insert_one({"_id": 1})
    replica_set.catch_up()
    for member in replica_set.secondaries:
        error = expect(10107, lambda member=member: member.client(retryWrites=False).local.own.insert_one({"_id": 2}))
        assert "local is replicated" in str(error), error
        equal([one["_id"] for one in member.client().local.own.find()], [1])
    with replica_set.connect() as client:
        client.local.own.drop()
