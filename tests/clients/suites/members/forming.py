"""A set forms, and each member describes it."""

import bson
from harness.replica_set import NAME, PRIMARY, SECONDARY, assert_same
from harness.server import ServerError
from harness.tap import equal
from harness.waiting import wait_until

from .common import expect, with_set
from .shell import shell


@with_set
def each_member_says_hello(replica_set):
    primary = replica_set.primary
    hosts = [member.host for member in replica_set.members]
    version = primary.command("replSetGetConfig")["config"]["version"]
    for member in replica_set.members:
        hello = member.hello()
        is_primary = member is primary
        equal((hello["isWritablePrimary"], hello["secondary"]), (is_primary, not is_primary))
        equal(sorted(hello["hosts"]), sorted(hosts))
        equal((hello["setName"], hello["primary"], hello["me"]), ("rs0", primary.host, member.host))
        equal(hello["setVersion"], version)
        assert isinstance(hello["lastWrite"]["opTime"]["ts"], bson.Timestamp), hello
        assert isinstance(hello["lastWrite"]["majorityOpTime"]["ts"], bson.Timestamp), hello
        # Only the primary was elected.
        equal("electionId" in hello, is_primary)
        for absent in ("passives", "arbiters", "hidden", "passive", "arbiterOnly", "secondaryDelaySecs"):
            assert absent not in hello, f"{absent} in {hello}"
        legacy = member.command("isMaster")
        equal((legacy["ismaster"], legacy["secondary"]), (is_primary, not is_primary))


@with_set
def each_member_reports_the_status_of_all(replica_set):
    primary = replica_set.primary
    terms = set()
    for member in replica_set.members:

        def status(member=member):
            status = member.status()
            known = all(one["health"] == 1 and one["state"] in (PRIMARY, SECONDARY) for one in status["members"])
            return known and status

        found = wait_until(f"the states of all at member {member.number}", status)
        equal((found["set"], found["myState"]), ("rs0", PRIMARY if member is primary else SECONDARY))
        equal((found["majorityVoteCount"], found["writeMajorityCount"]), (2, 2))
        equal((found["votingMembersCount"], found["writableVotingMembersCount"]), (3, 3))
        terms.add(found["term"])
        for one in found["members"]:
            itself = one["name"] == member.host
            equal(one["stateStr"], "PRIMARY" if one["name"] == primary.host else "SECONDARY")
            equal(one.get("self", False), itself)
            assert one["optime"]["ts"].time > 0 and one["optimeDate"].year > 2000 and one["uptime"] >= 0, one
            if itself:
                continue
            for field in ("lastHeartbeat", "lastHeartbeatRecv", "pingMs", "optimeDurable", "configVersion", "configTerm"):
                assert field in one, f"no {field} in {one}"
        sources = {one["name"]: one.get("syncSourceHost", "") for one in found["members"]}
        equal(sources[member.host], "" if member is primary else primary.host)
        for name in ("lastCommittedOpTime", "readConcernMajorityOpTime", "appliedOpTime", "durableOpTime"):
            assert found["optimes"][name]["ts"].time > 0, found["optimes"]
    equal(len(terms), 1, f"terms {terms}")


@with_set
def all_have_the_configuration(replica_set):
    configs = [member.command("replSetGetConfig")["config"] for member in replica_set.members]
    equal(configs[1:], configs[:-1])
    config = configs[0]
    equal([(one["_id"], one["host"]) for one in config["members"]],
          [(member.number, member.host) for member in replica_set.members])
    for one in config["members"]:
        equal((one["priority"], one["votes"], one["hidden"], one["arbiterOnly"], one["buildIndexes"], one["tags"]),
              (1, 1, False, False, True, {"n": str(one["_id"]), "half": "east" if one["_id"] < 2 else "west"}))
    assert isinstance(config["settings"]["replicaSetId"], bson.ObjectId), config
    stored = [member.client().local["system.replset"].find_one() for member in replica_set.members]
    equal([one["version"] for one in stored], [config["version"]] * 3)


@with_set
def a_second_initiation_is_refused(replica_set):
    for member in replica_set.members:
        expect(23, lambda member=member: member.command("replSetInitiate", replica_set.config()))


@with_set
def members_that_are_not_initiated_refuse(replica_set):
    other = replica_set.add_member()
    try:
        other.start()
        expect(94, other.status)
        expect(94, lambda: other.command("replSetGetConfig"))
        expect(10107, lambda: other.client().test.c.insert_one({}))
        expect(13436, lambda: other.client(readPreference="secondaryPreferred").test.c.find_one())
        # It cannot begin a set that it is no member of.
        others = [{"_id": number, "host": f"127.0.0.1:{number + 1}"} for number in range(2)]
        expect(74, lambda: other.command("replSetInitiate", {"_id": "rs0", "members": others}))
        # Nor one with members that have a set.
        mixed = [{"_id": 9, "host": other.host}, *replica_set.config()["members"][:2]]
        expect(103, lambda: other.command("replSetInitiate", {"_id": "rs0", "members": mixed}))
    finally:
        replica_set.drop_member(other)


@with_set
def the_shell_prints_how_far_secondaries_are(replica_set):
    script = "print(rs.status().members.length, rs.conf().members.length, db.hello().hosts.length); rs.printSecondaryReplicationInfo()"
    told = shell(replica_set.primary, script)
    for member in replica_set.secondaries:
        assert f"source: {member.host}" in told, told
    assert "behind the primary" in told and told.startswith("3 3 3"), told


@with_set
def a_member_does_not_start_for_another_set(replica_set):
    for end in ("stop", "kill"):
        member = replica_set.secondaries[0]
        getattr(member, end)()
        at = member.options.index(NAME)
        member.options[at] = "other"
        try:
            member.start()
            raise AssertionError("it has started")
        except ServerError as error:
            text = str(error)
            assert "ended with 2" in text and "InvalidReplicaSetConfig" in text, text
            assert f"--replSet {NAME}" in text and "replica set other" in text, text
            assert "assert" not in text and "panic" not in text, text
        finally:
            member.options[at] = NAME
        member.start()
        replica_set.wait_until_steady()
    assert_same(replica_set)
