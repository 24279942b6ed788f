"""Delayed members: they acknowledge what they have received, and show the state of an earlier time."""

from harness.replica_set import assert_same
from harness.tap import equal
from harness.waiting import wait_until
from pymongo import WriteConcern

from .common import expect, with_set
from .leading import change_members

# Longer than the tests take.
HOUR = 3600


def delay_of(member):
    return member.command("serverStatus")["frond"]["replicaSet"].get("delaySecs", 0)


def found_at(member):
    return {one["_id"] for one in member.client(readPreference="nearest").delayed.c.find()}


@with_set
def a_delayed_member_shows_an_earlier_state_until_its_delay_ends(replica_set):
    late = replica_set.secondaries[0]
    mine = f"_{late.number}"
    expect(93, lambda: change_members(replica_set, **{mine: {"secondaryDelaySecs": HOUR}}))
    with replica_set.connect() as client:
        written = client.delayed.get_collection("c", write_concern=WriteConcern(w=3))
        written.insert_one({"_id": "before"})
        replica_set.catch_up([late])
        change_members(replica_set, **{mine: {"priority": 0, "hidden": True, "secondaryDelaySecs": HOUR}})
        wait_until("the delay", lambda: delay_of(late) == HOUR)
        wait_until("its configuration", lambda: late.hello().get("secondaryDelaySecs") == HOUR)
        assert late.hello()["hidden"]
        try:
            # It acknowledges what it does not show yet.
            written.insert_one({"_id": "after"})
            client.delayed.command("createIndexes", "c", indexes=[{"key": {"n": 1}, "name": "n"}], commitQuorum="votingMembers")
            equal(found_at(late), {"before"})
            late.stop()
            late.start()
            replica_set.wait_until_steady()
            written.insert_one({"_id": "later"})
            late.kill()
            late.start()
            replica_set.wait_until_steady()
            equal(delay_of(late), HOUR)
            equal(found_at(late), {"before"})
            # It follows changes of the set at once.
            change_members(replica_set, **{mine: {"priority": 0, "hidden": True, "secondaryDelaySecs": HOUR, "tags": {"late": "yes"}}})
            wait_until("its new tags", lambda: late.hello().get("tags", {}).get("late") == "yes")
            # It counts for a majority, and never takes over.
            primary = replica_set.primary
            primary.command("replSetStepDown", 1)
            assert replica_set.wait_for_primary() is not late
            replica_set.wait_until_steady()
            other = replica_set.others(late, replica_set.primary)[0]
            other.kill()
            written.with_options(write_concern=WriteConcern("majority")).insert_one({"_id": "by two"})
            # Only the delayed member has it now, beside the primary: it brings the other one up to date.
            primary = replica_set.primary
            primary.kill()
            other.start()
            assert replica_set.wait_for_primary([other]) is other
            assert written.find_one({"_id": "by two"})
            equal(found_at(late), {"before"})
            primary.start()
            replica_set.wait_until_steady()
        finally:
            replica_set.settle()
            tags = {"n": str(late.number), "half": "east" if late.number < 2 else "west"}
            change_members(replica_set, **{mine: {"priority": 1, "hidden": False, "secondaryDelaySecs": 0, "tags": tags}})
    wait_until("it shows all", lambda: found_at(late) == {"before", "after", "later", "by two"})
    equal(delay_of(late), 0)
    replica_set.catch_up()
    assert_same(replica_set)


@with_set
def writes_reach_a_delayed_member_once_they_are_old_enough(replica_set):
    late = replica_set.secondaries[0]
    mine = f"_{late.number}"
    change_members(replica_set, **{mine: {"priority": 0, "secondaryDelaySecs": 2}})
    try:
        wait_until("the delay", lambda: delay_of(late) == 2)
        with replica_set.connect() as client:
            reply = client.delayed.command("insert", "c", documents=[{"_id": "two seconds"}], writeConcern={"w": 3})
            wait_until("it shows the write", lambda: "two seconds" in found_at(late))
            # The clock of the machine is that of both.
            now = late.hello()["localTime"].timestamp()
            assert now >= reply["operationTime"].time + 2, (now, reply["operationTime"])
    finally:
        change_members(replica_set, **{mine: {"priority": 1, "secondaryDelaySecs": 0}})
