"""A member with neither vote nor priority: added to a set that works, read, left behind, and made able to lead."""

from harness.replica_set import SECONDARY, assert_same
from harness.tap import equal
from harness.waiting import wait_until
from pymongo import WriteConcern
from pymongo.errors import PyMongoError

from .common import expect, expect_write_concern, with_set
from .concerns import paused
from .copies import fill
from .reconfiguring import more_members
from .shell import shell


def add(replica_set, member):
    """Adds a server as the manual says, and waits until it follows."""
    equal(shell(replica_set.primary, f"print(rs.add({{host: '{member.host}', votes: 0, priority: 0}}).ok)"), "1")
    wait_until("it follows", lambda: member.status()["myState"] == SECONDARY, passing=(PyMongoError,))
    replica_set.wait_until_steady()


def change(replica_set, member, **fields):
    def change_one(config):
        next(one for one in config["members"] if one["host"] == member.host).update(fields)

    replica_set.reconfigure(change_one)


@with_set
def it_has_all_that_is_written_and_no_write_waits_for_it(replica_set):
    with replica_set.connect() as client, more_members(replica_set) as (member,):
        fill(client.before)
        add(replica_set, member)
        status = replica_set.primary.status()
        equal((len(status["members"]), status["votingMembersCount"], status["majorityVoteCount"]), (4, 3, 2))
        # It follows before it has the configuration with itself.
        hello = wait_until("its place in the set", lambda: (found := member.hello()).get("passive") and found)
        equal((hello["secondary"], hello["passive"], hello["passives"]), (True, True, [member.host]))
        equal((hello["me"], hello["primary"]), (member.host, replica_set.primary.host))
        assert member.host not in hello["hosts"], hello
        fill(client.after)
        assert_same(replica_set)
        there = member.client(readPreference="secondary")
        equal(there.after.plain.count_documents({"a": 3}), client.after.plain.count_documents({"a": 3}))
        expect(10107, lambda: member.client(retryWrites=False).after.plain.insert_one({}))
        with paused(member):
            client.after.get_collection("c", write_concern=WriteConcern("majority")).insert_one({"_id": "voters"})
            late = client.after.get_collection("c", write_concern=WriteConcern(4, wtimeout=100))
            expect_write_concern(64, lambda: late.insert_one({"_id": "all"}))
        # It goes on where it was, also after a crash.
        member.kill()
        client.after.c.insert_one({"_id": "meanwhile"})
        member.start()
        replica_set.wait_until_steady()
        assert_same(replica_set)
        client.drop_database("before")
        client.drop_database("after")


@with_set
def it_leads_only_once_it_has_a_vote_and_a_priority(replica_set):
    with replica_set.connect() as client, more_members(replica_set) as (member,):
        add(replica_set, member)
        expect(125, lambda: member.command("replSetStepUp"))
        old = replica_set.primary
        old.kill()
        # Nobody has asked it: a voter leads.
        assert replica_set.wait_for_primary(replica_set.others(old)) is not member
        client.leading.c.insert_one({"_id": "by a voter"})
        old.start()
        replica_set.wait_until_steady()
        change(replica_set, member, votes=1, priority=1)
        wait_until("four voters", lambda: replica_set.primary.status()["votingMembersCount"] == 4)
        replica_set.step_up(member)
        client.leading.c.insert_one({"_id": "by the new primary"})
        equal(client.leading.c.count_documents({"_id": {"$in": ["by a voter", "by the new primary"]}}), 2)
        replica_set.wait_until_steady()
        assert_same(replica_set)
        # It gives everything back.
        replica_set.step_up(old)
        replica_set.wait_until_steady()
        change(replica_set, member, votes=0, priority=0)
        wait_until("three voters", lambda: replica_set.primary.status()["votingMembersCount"] == 3)
