"""A replica set whose members trust each other by a key file, over TLS: it forms, clients log in, and others reach nothing."""

import os
import tempfile

import pymongo
from harness.certificates import Certificates
from harness.replica_set import ReplicaSet, assert_same
from harness.tap import equal, run, test
from harness.waiting import wait_until
from members.common import expect
from pymongo import WriteConcern
from pymongo.errors import OperationFailure

USER, PASSWORD = "operator", "secret of the operator"


def key_file(folder, text, name="key"):
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
        file.write(text)
    return path


@test
def it_forms_and_clients_log_in(replica_set, certificates):
    replica_set.wait_until_steady()
    with replica_set.connect(username=None, password=None) as anonymous:
        expect(13, lambda: anonymous.shop.c.find_one())
        expect(13, lambda: anonymous.admin.command("replSetGetStatus"))
        assert anonymous.admin.command("hello")["setName"] == "rs0"
    with replica_set.connect(username=USER, password="wrong") as wrong:
        expect(18, lambda: wrong.shop.c.find_one())
    with replica_set.connect() as client:
        client.shop.get_collection("c", write_concern=WriteConcern(w=3)).insert_one({"_id": 1})
    assert_same(replica_set)


@test
def a_new_primary_knows_the_users(replica_set, certificates):
    old = replica_set.primary
    old.kill()
    replica_set.wait_for_primary(replica_set.others(old))
    with replica_set.connect() as client:
        client.shop.c.insert_one({"_id": 2})
        client.shop.command("createUser", "visitor", pwd="visitor", roles=["read"])
    old.start()
    replica_set.wait_until_steady()
    replica_set.catch_up()
    for member in replica_set.members:
        visitor = member.client(username="visitor", password="visitor", authSource="shop", readPreference="nearest")
        equal(visitor.shop.c.count_documents({}), 2)
        expect(13, lambda visitor=visitor: visitor.admin.command("replSetGetStatus"))


@test
def ordinary_users_do_not_reach_what_members_send(replica_set, certificates):
    primary = replica_set.primary
    as_users = [primary.client(), primary.client(username="visitor", password="visitor", authSource="shop")]
    for client in as_users:
        expect(13, lambda client=client: client.admin.command("replSetOpenChannel", 1, set="rs0", id=1, protocol=1))
    for name in ("replSetReconfig", "replSetStepDown", "replSetFreeze", "replSetMaintenance", "replSetStepUp", "replSetGetConfig",
                 "replSetGetStatus"):
        expect(13, lambda name=name: as_users[1].admin.command(name, 1))
    expect(13, lambda: primary.client(username=None, password=None).admin.command("replSetOpenChannel", 1, set="rs0", id=1, protocol=1))
    equal(primary.hello()["isWritablePrimary"], True)


@test
def privileges_are_checked_before_the_state_of_the_member(replica_set, certificates):
    for member in replica_set.secondaries:
        login = {"username": "visitor", "password": "visitor", "authSource": "shop", "retryWrites": False}
        visitor, operator = member.client(**login), member.client(retryWrites=False)
        expect(13, lambda visitor=visitor: visitor.shop.c.insert_one({}))
        expect(13, lambda visitor=visitor: visitor.shop.command("dropDatabase"))
        expect(13, lambda visitor=visitor: visitor.elsewhere.command("find", "c"))
        expect(10107, lambda operator=operator: operator.shop.c.insert_one({}))


@test
def a_server_with_another_key_does_not_join(replica_set, certificates):
    with tempfile.TemporaryDirectory() as folder:
        other = replica_set.add_member()
        try:
            at = other.options.index("--keyFile") + 1
            other.options[at] = key_file(folder, "anotherKeyOfSomebodyElse")
            other.start()
            primary = replica_set.wait_for_primary(replica_set.others(other))
            config = primary.command("replSetGetConfig")["config"]
            config["version"] += 1
            config["members"].append({"_id": 3, "host": other.host, "votes": 0, "priority": 0})
            try:
                primary.command("replSetReconfig", config)
            except OperationFailure:
                pass
            else:

                def shown():
                    (one,) = [one for one in primary.status()["members"] if one["name"] == other.host]
                    return one["health"] == 0 and one["lastHeartbeatMessage"]

                told = wait_until("it is not reached", shown)
                assert "uthenticat" in told, told
                config["version"] += 1
                config["members"].pop()
                primary.command("replSetReconfig", config)
        finally:
            replica_set.drop_member(other)


@test
def clients_without_tls_are_refused(replica_set, certificates):
    port = replica_set.primary.port
    with pymongo.MongoClient("127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=500) as client:
        try:
            client.admin.command("ping")
            raise AssertionError("an answer without TLS")
        except pymongo.errors.ServerSelectionTimeoutError:
            pass


def main():
    with tempfile.TemporaryDirectory() as folder:
        certificates = Certificates(os.path.join(folder, "certificates"))
        # fmt: off
        options = ["--keyFile", key_file(folder, "c2VjcmV0IG9mIHRoZSBtZW1iZXJz"), "--tlsMode", "requireTLS",
                   "--tlsCertificateKeyFile", certificates.member, "--tlsCAFile", certificates.ca.certificate]
        # fmt: on
        connecting = {
            "tls": True,
            "tlsCAFile": certificates.ca.certificate,
            "tlsCertificateKeyFile": certificates.client,
        }
        with ReplicaSet(os.environ["FROND_BINARY"], options=options, tls=certificates, connect_options=connecting) as replica_set:
            for member in replica_set.members:
                member.start()
            first = replica_set.members[0]
            # Who connects from the same machine may begin the set, and make the first user.
            first.command("replSetInitiate", replica_set.config())
            wait_until("it leads", lambda: first.hello()["isWritablePrimary"])
            first.client().admin.command("createUser", USER, pwd=PASSWORD, roles=["root"])
            replica_set.log_in(USER, PASSWORD)
            run(replica_set, certificates)


if __name__ == "__main__":
    main()
