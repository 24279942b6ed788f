"""Changes of the configuration: members that join and leave, tags, settings, and changes that are refused."""

import contextlib

from harness.replica_set import SECONDARY, assert_same
from harness.tap import equal
from harness.waiting import wait_until
from pymongo import WriteConcern
from pymongo.errors import PyMongoError

from .common import expect, with_set
from .shell import shell

REMOVED = 10


@contextlib.contextmanager
def more_members(replica_set, count=1):
    """Servers beside the set, which are removed from it in the end."""
    added = [replica_set.add_member() for _ in range(count)]
    for member in added:
        member.start()
    hosts = {member.host for member in added}
    try:
        yield added
    finally:
        config = replica_set.others(*added)[0].command("replSetGetConfig")["config"]
        for host in hosts & {one["host"] for one in config["members"]}:
            replica_set.reconfigure(lambda config, host=host: remove(config, host))
        for member in added:
            replica_set.drop_member(member)


def remove(config, host):
    config["members"] = [one for one in config["members"] if one["host"] != host]


def add(config, member, **more):
    number = 1 + max(one["_id"] for one in config["members"])
    config["members"].append({"_id": number, "host": member.host, **more})


@with_set
def the_shell_adds_and_removes_a_member(replica_set):
    with replica_set.connect() as client:
        client.joined.c.insert_many([{"_id": n, "text": "x" * 100} for n in range(2000)])
        client.joined.c.create_index("text")
    with more_members(replica_set) as (member,):
        equal(shell(replica_set.primary, f"print(rs.add('{member.host}').ok)"), "1")
        replica_set.wait_until_steady()
        status = replica_set.primary.status()
        equal((len(status["members"]), status["votingMembersCount"]), (4, 4))
        wait_until("four hosts", lambda: all(len(one.hello()["hosts"]) == 4 for one in replica_set.members))
        with replica_set.connect() as client:
            client.joined.get_collection("c", write_concern=WriteConcern(w=4)).insert_one({"_id": "by four"})
        assert_same(replica_set)
        equal(shell(replica_set.primary, f"print(rs.remove('{member.host}').ok)"), "1")
        equal(len(replica_set.primary.status()["members"]), 3)
        # It knows it is removed, or does not hear any more.
        wait_until("it does not lead", lambda: not member.hello().get("isWritablePrimary"))


@with_set
def a_removed_member_is_in_the_state_removed_and_may_come_back(replica_set):
    member = replica_set.secondaries[0]
    before = replica_set.primary.command("replSetGetConfig")["config"]
    mine = next(one for one in before["members"] if one["host"] == member.host)
    replica_set.reconfigure(lambda config: remove(config, member.host))
    try:
        wait_until("it is removed", lambda: is_removed(member), passing=(PyMongoError,))
        expect(10107, lambda: member.client(retryWrites=False).joined.c.insert_one({}))
        expect(13436, lambda: member.client(readPreference="nearest").joined.c.find_one())
        with replica_set.connect() as client:
            client.joined.without.insert_many([{"_id": n} for n in range(10)])
    finally:
        replica_set.reconfigure(lambda config: config["members"].append(mine))
    wait_until("it is back", lambda: member.hello().get("secondary") or member.hello().get("isWritablePrimary"))
    replica_set.wait_until_steady()
    assert_same(replica_set)


def is_removed(member):
    hello = member.hello()
    if hello.get("secondary") or hello.get("isWritablePrimary"):
        return False
    try:
        return member.status()["myState"] == REMOVED
    except PyMongoError as error:
        # As mongod: "Our replica set config is invalid or we are not a member of it".
        return getattr(error, "code", None) == 93


@with_set
def a_member_that_lost_its_data_gets_it_again(replica_set):
    member = replica_set.secondaries[0]
    with replica_set.connect() as client:
        client.joined.c.insert_many([{"text": "more"} for _ in range(100)])
    member.kill()
    member.empty()
    member.start()
    wait_until("it follows", lambda: member.status()["myState"] == SECONDARY, passing=(PyMongoError,))
    replica_set.wait_until_steady()
    assert_same(replica_set)


@with_set
def tags_and_settings_change_everywhere(replica_set):
    tagged = replica_set.members[1]

    def own(config):
        return next(one for one in config["members"] if one["host"] == tagged.host)

    def change(config):
        own(config)["tags"]["new"] = "yes"
        config["settings"]["heartbeatIntervalMillis"] = 1000
        config["settings"]["getLastErrorModes"]["fresh"] = {"new": 1}

    def change_back(config):
        del own(config)["tags"]["new"]
        del config["settings"]["getLastErrorModes"]["fresh"]
        config["settings"]["heartbeatIntervalMillis"] = 2000

    version = replica_set.primary.hello()["setVersion"]
    replica_set.reconfigure(change)
    try:
        for member in replica_set.members:
            wait_until("the version", lambda member=member: member.hello()["setVersion"] == version + 1)
            config = member.command("replSetGetConfig")["config"]
            equal(own(config)["tags"]["new"], "yes")
            equal(config["settings"]["heartbeatIntervalMillis"], 1000)
        equal(tagged.hello()["tags"]["new"], "yes")
        with replica_set.connect() as client:
            client.joined.get_collection("c", write_concern=WriteConcern(w="fresh")).insert_one({})
    finally:
        replica_set.reconfigure(change_back)


@with_set
def changes_that_make_no_sense_are_refused(replica_set):
    primary = replica_set.primary
    config = primary.command("replSetGetConfig")["config"]

    def attempt(code, change, at=primary):
        new = primary.command("replSetGetConfig")["config"]
        new["version"] += 1
        change(new)
        expect(code, lambda: at.command("replSetReconfig", new))

    attempt(10107, lambda new: None, replica_set.secondaries[0])
    for code, change in [
        (103, lambda new: new.update(version=new["version"] - 1)),
        (103, lambda new: new.update(_id="other")),
        (103, lambda new: new["members"].append(dict(new["members"][0]))),
        (103, lambda new: new["members"][1].update(host=new["members"][0]["host"])),
        (93, lambda new: new.update(members=[])),
        (103, lambda new: [one.update(priority=0) for one in new["members"]]),
        (93, lambda new: new["members"][1].update(votes=2)),
        (93, lambda new: new["members"][1].update(votes=0)),
        (93, lambda new: new["members"][1].update(hidden=True)),
        (93, lambda new: new["members"][1].update(priority=-1)),
        (4, lambda new: new["settings"].update(getLastErrorModes={"x": {"no such tag": 1}})),
        (93, lambda new: new["members"][1].update(nonsense=1)),
        # One voter at a time.
        (93, lambda new: new.update(members=new["members"][:1])),
    ]:
        attempt(code, change)
    equal(primary.command("replSetGetConfig")["config"], config)


@with_set
def arbiters_are_refused(replica_set):
    with more_members(replica_set) as (member,):
        primary = replica_set.primary
        config = primary.command("replSetGetConfig")["config"]
        config["version"] += 1
        add(config, member, arbiterOnly=True)
        try:
            primary.command("replSetReconfig", config)
            raise AssertionError("an arbiter was added")
        except PyMongoError as error:
            assert "rbiter" in str(error), error
