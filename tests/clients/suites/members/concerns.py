"""Write concerns of three members."""

import contextlib

import pymongo
from harness.tap import equal
from pymongo import WriteConcern

from .common import expect, expect_write_concern, with_set


@contextlib.contextmanager
def paused(*members):
    """Stops members meanwhile (SIGSTOP)."""
    for member in members:
        member.pause()
    try:
        yield
    finally:
        for member in members:
            member.resume()


def writing(client, **concern):
    return client.shop.get_collection("concerns", write_concern=WriteConcern(**concern))


@with_set
def writes_reach_as_many_members_as_they_name(replica_set):
    with replica_set.connect() as client:
        concerns = [{"w": 1}, {"w": 1, "j": True}, {"w": "majority"}, {"w": 2}, {"w": 3}, {"w": 3, "j": True},
                    {"w": "everywhere"}, {"w": "bothHalves"}, {"w": "two"}, {"w": 2, "wtimeout": 60_000}]
        for concern in concerns:
            result = writing(client, **concern).insert_one({"concern": str(concern)})
            equal(result.acknowledged, True)
        # An acknowledged write is in the logs of the members, which apply it later.
        replica_set.catch_up()
        for member in replica_set.secondaries:
            there = member.client(readPreference="secondary").shop.concerns
            found = there.find({"concern": {"$exists": True}})
            equal(sorted(one["concern"] for one in found), sorted(map(str, concerns)))
        writing(client, w=0).insert_one({"concern": "none"})


@with_set
def a_large_commit_reaches_all_members(replica_set):
    with replica_set.connect() as client:
        large = client.shop.get_collection("large", write_concern=WriteConcern(w="majority"))
        large.drop()
        def insert(session):
            for number in range(3):
                large.insert_one({"_id": number, "text": str(number) * (15 << 20)}, session=session)

        with client.start_session() as session:
            session.with_transaction(insert, write_concern=WriteConcern(w=3))
        # Their logs have it; they apply it later.
        replica_set.catch_up()
        for member in replica_set.secondaries:
            there = member.client(readPreference="secondary").shop.large
            equal([(one["_id"], len(one["text"])) for one in there.find(sort=[("_id", 1)])], [(n, 15 << 20) for n in range(3)])
        large.drop()


@with_set
def the_default_is_majority(replica_set):
    for member in replica_set.members:
        found = member.command("getDefaultRWConcern")
        equal(found["defaultWriteConcern"], {"w": "majority", "wtimeout": 0})
        equal((found["defaultWriteConcernSource"], found["defaultReadConcern"]), ("implicit", {"level": "local"}))
    with replica_set.connect() as client:
        client.admin.command("setDefaultRWConcern", 1, defaultWriteConcern={"w": 2, "wtimeout": 50})
        replica_set.catch_up()
        for member in replica_set.members:
            found = member.command("getDefaultRWConcern")
            equal((found["defaultWriteConcern"]["w"], found["defaultWriteConcernSource"]), (2, "global"))
        with paused(*replica_set.secondaries):
            expect_write_concern(64, lambda: client.shop.concerns.insert_one({"default": 1}))
        replica_set.wait_until_steady()
        client.admin.command("setDefaultRWConcern", 1, defaultWriteConcern={"w": "majority"}, writeConcern={"w": 3})


@with_set
def a_write_that_too_few_acknowledge_in_time_is_done_and_reported(replica_set):
    with replica_set.connect() as client:
        secondary = replica_set.secondaries[0]
        with paused(secondary):
            for concern in ({"w": 3}, {"w": "everywhere"}):
                failed = expect_write_concern(64, lambda c=concern: writing(client, **c, wtimeout=100).insert_one(dict(c)))
                equal((failed["codeName"], failed["errInfo"]["wtimeout"]), ("WriteConcernTimeout", True))
                equal((failed["errInfo"]["writeConcern"]["w"], failed["errInfo"]["writeConcern"]["wtimeout"]), (concern["w"], 100))
                # It is done all the same.
                equal(client.shop.concerns.count_documents(concern), 1)
            # Two of three are there.
            writing(client, w="majority").insert_one({"w": "majority"})
            writing(client, w=2).insert_one({"w": 2})
            many = [pymongo.InsertOne({"many": 1}), pymongo.DeleteMany({"many": 1})]
            expect_write_concern(64, lambda: writing(client, w=3, wtimeout=100).bulk_write(many))
        replica_set.wait_until_steady()
        # What was not acknowledged in time arrives.
        replica_set.catch_up()
        there = secondary.client(readPreference="secondary").shop.concerns
        equal(there.count_documents({"w": 3}), 1)


@with_set
def concerns_that_no_set_of_these_members_can_fulfil_are_refused(replica_set):
    with replica_set.connect() as client:
        for w, code in ((4, 100), (50, 100), ("nowhere", 79)):
            expect_write_concern(code, lambda w=w: writing(client, w=w).insert_one({"unsatisfiable": w}))
            equal(client.shop.concerns.count_documents({"unsatisfiable": w}), 1, "the write is done")
        for bad in (51, -1):
            expect(9, lambda bad=bad: client.shop.command("insert", "concerns", documents=[{}], writeConcern={"w": bad}))


@with_set
def a_command_without_a_change_waits_for_what_it_saw(replica_set):
    """A second client must not see something as done that a majority does not have."""
    with replica_set.connect() as client:
        with paused(*replica_set.secondaries):
            writing(client, w=1).insert_one({"_id": "seen"})
            unchanged = [
                lambda: writing(client, w="majority", wtimeout=100).delete_one({"_id": "not there"}),
                lambda: writing(client, w="majority", wtimeout=100).update_one({"_id": "seen"}, {"$set": {"_id": "seen"}}),
            ]
            for call in unchanged:
                expect_write_concern(64, call)
        replica_set.wait_until_steady()


@with_set
def commands_that_write_catalogs_have_concerns(replica_set):
    with replica_set.connect() as client:
        late = {"writeConcern": {"w": "majority", "wtimeout": 100}}
        client.shop.many.insert_one({})
        with paused(*replica_set.secondaries):
            for command in ({"create": "new"}, {"collMod": "new", "validator": {}}, {"drop": "new"},
                            {"createRole": "r", "privileges": [], "roles": []}, {"dropRole": "r"}):
                reply = client.shop.command({**command, **late}, check=False)
                failed = reply.get("writeConcernError") or {}
                equal(failed.get("code"), 64, f"{command}: {reply}")
        replica_set.wait_until_steady()


@with_set
def the_old_command_waits_as_a_write_concern(replica_set):
    with replica_set.primary.client(maxPoolSize=1, retryWrites=False) as client:
        def last_error(**concern):
            client.shop.command("insert", "concerns", documents=[{}], writeConcern={"w": 1})
            return client.shop.command("getLastError", 1, **concern)

        for concern in ({"w": 3}, {"w": "majority", "j": True}, {"w": "everywhere"}, {"w": 1}):
            reply = last_error(**concern)
            equal((reply["err"], reply["n"]), (None, 1), f"{concern}: {reply}")
        equal(last_error(w=4)["err"], "norepl")
        with paused(replica_set.secondaries[0]):
            reply = last_error(w=3, wtimeout=100)
            equal((reply["err"], reply["wtimeout"], reply["code"], reply["n"]), ("timeout", True, 64, 1))
            equal(last_error(w=2, wtimeout=60_000)["err"], None)
        replica_set.wait_until_steady()
