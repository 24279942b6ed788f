"""Which member leads: steps down and up, priorities, freezes, maintenance, hidden members and members without votes."""

from harness.replica_set import assert_same
from harness.tap import equal
from harness.waiting import wait_until
from pymongo import WriteConcern
from pymongo.errors import PyMongoError

from .common import expect, with_set


def change_members(replica_set, **of_members):
    """Changes fields of members by their numbers: `_0={"priority": 2}`."""

    def change(config):
        for one in config["members"]:
            one.update(of_members.get(f"_{one['_id']}", {}))

    replica_set.reconfigure(change)


@with_set
def a_primary_steps_down(replica_set):
    with replica_set.connect() as client:
        client.leading.c.insert_one({})
        for given in ({}, {"force": True}, {"secondaryCatchUpPeriodSecs": 5}):
            old = replica_set.primary
            term = old.status()["term"]
            equal(old.command("replSetStepDown", 20, **given)["ok"], 1.0)
            # It has stepped down once it replies.
            equal(old.hello()["isWritablePrimary"], False)
            expect(10107, lambda old=old: old.client(retryWrites=False).leading.c.insert_one({}))
            new = replica_set.wait_for_primary()
            assert new is not old and new.status()["term"] > term
            client.leading.c.insert_one({})
            replica_set.wait_until_steady()
            old.command("replSetFreeze", 0)
        for member in replica_set.secondaries:
            expect(10107, lambda member=member: member.command("replSetStepDown", 1))
        for given in ({"replSetStepDown": -1}, {"replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 2},
                      {"replSetStepDown": 5, "secondaryCatchUpPeriodSecs": -1}):
            expect(2, lambda given=given: replica_set.primary.client().admin.command(given))
        assert_same(replica_set)


@with_set
def it_does_not_step_down_while_nobody_can_take_over(replica_set):
    primary = replica_set.primary
    for member in replica_set.others(primary):
        member.pause()
    expect(262, lambda: primary.command("replSetStepDown", 5, secondaryCatchUpPeriodSecs=1))


@with_set
def a_secondary_steps_up(replica_set):
    with replica_set.connect() as client:
        for _ in range(2):
            for member in replica_set.secondaries:
                replica_set.step_up(member)
                client.leading.c.insert_one({})
                replica_set.wait_until_steady()
        equal(replica_set.primary.command("replSetStepUp")["ok"], 1.0)


@with_set
def a_frozen_secondary_does_not_lead(replica_set):
    frozen = replica_set.secondaries[0]
    expect(95, lambda: replica_set.primary.command("replSetFreeze", 60))
    expect(14, lambda: frozen.command("replSetFreeze", "x"))
    expect(2, lambda: frozen.command("replSetFreeze", -1))
    frozen.command("replSetFreeze", 600)
    old = replica_set.primary
    old.kill()
    new = replica_set.wait_for_primary(replica_set.others(old))
    assert new is not frozen
    equal(frozen.command("replSetFreeze", 0)["info"], "unfreezing")


@with_set
def a_secondary_in_maintenance_serves_no_reads(replica_set):
    member = replica_set.secondaries[0]
    member.command("replSetMaintenance", True)
    try:
        equal((member.status()["myState"], member.hello()["secondary"]), (3, False))
        expect(13436, lambda: member.client(readPreference="secondary").leading.c.find_one())
        wait_until("the others see it", lambda: 3 in {one["state"] for one in replica_set.primary.status()["members"]})
        with replica_set.connect() as client:
            client.leading.get_collection("c", write_concern=WriteConcern(w=3)).insert_one({})
    finally:
        member.command("replSetMaintenance", False)
    equal(member.hello()["secondary"], True)
    expect(95, lambda: replica_set.primary.command("replSetMaintenance", True))


@with_set
def the_member_with_the_highest_priority_takes_over(replica_set):
    with replica_set.connect() as client:
        preferred = replica_set.secondaries[0]
        change_members(replica_set, **{f"_{preferred.number}": {"priority": 5}})
        try:
            wait_until("it leads", lambda: replica_set.find_primary() is preferred, passing=(PyMongoError,))
            client.leading.c.insert_one({})
            replica_set.wait_until_steady()
            preferred.kill()
            other = replica_set.wait_for_primary(replica_set.others(preferred))
            client.leading.c.insert_one({})
            preferred.start()
            wait_until("it leads again", lambda: replica_set.find_primary() is preferred, passing=(PyMongoError,))
            replica_set.wait_until_steady()
            equal(other.hello()["secondary"], True)
        finally:
            change_members(replica_set, **{f"_{preferred.number}": {"priority": 1}})


@with_set
def a_member_without_priority_does_not_lead(replica_set):
    passive = replica_set.secondaries[0]
    change_members(replica_set, **{f"_{passive.number}": {"priority": 0}})
    try:
        for member in replica_set.members:
            wait_until("it is passive", lambda member=member: member.hello().get("passives") == [passive.host])
            assert passive.host not in member.hello()["hosts"]
        equal(passive.hello()["passive"], True)
        expect(125, lambda: passive.command("replSetStepUp"))
        other = replica_set.others(passive, replica_set.primary)[0]
        for _ in range(2):
            replica_set.primary.command("replSetStepDown", 1)
            assert replica_set.wait_for_primary() is not passive
            replica_set.wait_until_steady()
        # It votes: with it alone another member is elected.
        primary = replica_set.primary
        primary.kill()
        assert replica_set.wait_for_primary(replica_set.others(primary)) is not passive
        assert other is not passive
        primary.start()
        replica_set.wait_until_steady()
    finally:
        change_members(replica_set, **{f"_{passive.number}": {"priority": 1}})


@with_set
def a_hidden_member_is_not_shown_and_acknowledges(replica_set):
    hidden = replica_set.secondaries[0]
    change_members(replica_set, **{f"_{hidden.number}": {"priority": 0, "hidden": True}})
    try:
        for member in replica_set.others(hidden):
            wait_until("it is hidden", lambda member=member: hidden.host not in member.hello()["hosts"] + member.hello().get("passives", []))
        wait_until("it knows that it is hidden", lambda: hidden.hello().get("hidden") is True)
        with replica_set.connect() as client:
            client.leading.get_collection("c", write_concern=WriteConcern(w=3)).insert_one({})
            nodes = {replica_set.member_at(f"{host}:{port}") for host, port in client.nodes}
            wait_until("clients forget it", lambda: hidden.port not in {port for _, port in client.nodes})
            assert nodes
    finally:
        change_members(replica_set, **{f"_{hidden.number}": {"priority": 1, "hidden": False}})


@with_set
def a_member_without_a_vote_follows_and_is_not_counted(replica_set):
    silent = replica_set.secondaries[0]
    change_members(replica_set, **{f"_{silent.number}": {"priority": 0, "votes": 0}})
    try:
        status = wait_until("two voters", lambda: (found := replica_set.primary.status())["votingMembersCount"] == 2 and found)
        equal((status["majorityVoteCount"], status["writeMajorityCount"]), (2, 2))
        with replica_set.connect() as client:
            client.leading.get_collection("c", write_concern=WriteConcern(w=3)).insert_one({"_id": "by all"})
            equal(silent.client(readPreference="secondary").leading.c.find_one({"_id": "by all"}), {"_id": "by all"})
            # Without one of the two voters there is no majority, whatever the third has.
            voter = replica_set.others(silent, replica_set.primary)[0]
            voter.pause()
            late = client.leading.get_collection("c", write_concern=WriteConcern("majority", wtimeout=200))
            expect(64, lambda: late.insert_one({}))
            voter.resume()
            replica_set.wait_until_steady()
    finally:
        change_members(replica_set, **{f"_{silent.number}": {"priority": 1, "votes": 1}})
    wait_until("three voters", lambda: replica_set.primary.status()["votingMembersCount"] == 3)
