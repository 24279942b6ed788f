"""A replica set of one, as PyMongo and mongosh see it: initiation, addresses, sessions, a changed configuration, a crash."""

import os

import pymongo
from harness.mongosh import run_script
from harness.server import Server
from harness.tap import equal, run, test
from harness.waiting import PATIENCE, wait_until
from pymongo.errors import NotPrimaryError, OperationFailure, ServerSelectionTimeoutError

SERVER = Server(os.environ["FROND_BINARY"], options=("--replSet", "rs0"))


def connect(options="", host="127.0.0.1", **more):
    more.setdefault("serverSelectionTimeoutMS", PATIENCE * 1000)
    return pymongo.MongoClient(f"mongodb://{host}:{SERVER.port}/{options}", **more)


def shell(script):
    return run_script(SERVER.port, script)


def primary_of(client):
    client.admin.command("ping")
    description = client.topology_description
    return description.topology_type_name, description.replica_set_name


@test
def the_shell_initiates_it():
    with connect("?directConnection=true") as client:
        try:
            client.test.c.insert_one({})
            raise AssertionError("a write before the initiation")
        except NotPrimaryError as error:
            equal(error.details["code"], 10107)
    equal(shell("print(rs.initiate().ok)"), "1")
    equal(shell("print(rs.status().members[0].stateStr, rs.conf()._id, db.hello().setName)"), "PRIMARY rs0 rs0")
    refused = "try { rs.%s; print('done') } catch (error) { print(error.codeName) }"
    equal(shell(refused % "initiate()"), "AlreadyInitialized")
    equal(shell(refused % "stepDown(1)"), "ExceededTimeLimit")
    equal(shell(refused % "add('127.0.0.1:1')"), "NodeNotFound")


@test
def the_shell_tells_of_the_oplog_and_watches():
    told = "const o = db.getReplicationInfo(); print(o.logSizeMB >= 990, o.usedMB >= 0, o.timeDiff >= 0, typeof o.tLast)"
    equal(shell(told), "true true true string")
    assert "configured oplog size" in shell("rs.printReplicationInfo()")
    script = """
        const stream = db.watched.watch([], { fullDocument: 'updateLookup' });
        db.watched.insertOne({ _id: 1 });
        db.watched.updateOne({ _id: 1 }, { $set: { n: 2 } });
        for (let left = 2; left > 0;) {
          const event = stream.tryNext();
          if (event) { left -= 1; print(event.operationType, EJSON.stringify(event.fullDocument)); }
        }
        stream.close();
    """
    equal(shell(script).splitlines(), ['insert {"_id":1}', 'update {"_id":1,"n":2}'])


@test
def it_is_found_by_every_address():
    for options, kind in [
        ("?replicaSet=rs0", "ReplicaSetWithPrimary"),
        ("", "ReplicaSetWithPrimary"),
        ("?directConnection=false", "ReplicaSetWithPrimary"),
        ("?directConnection=true", "Single"),
        ("?replicaSet=rs0&directConnection=true", "Single"),
    ]:
        for host in ("127.0.0.1", "localhost"):
            with connect(options, host) as client:
                equal(primary_of(client)[0], kind, f"{host} {options}")
                equal(client.test.seen.insert_one({}).acknowledged, True)
    with connect("?replicaSet=other", serverSelectionTimeoutMS=500) as client:
        try:
            client.test.seen.find_one()
            raise AssertionError("found under another name")
        except ServerSelectionTimeoutError:
            pass


@test
def sessions_are_causally_consistent():
    with connect("?replicaSet=rs0") as client, client.start_session(causal_consistency=True) as session:
        before = None
        for n in range(20):
            client.test.causal.insert_one({"_id": n}, session=session)
            assert before is None or session.operation_time > before, "the time goes on"
            before = session.operation_time
            with client.start_session(causal_consistency=True) as other:
                other.advance_cluster_time(session.cluster_time)
                other.advance_operation_time(session.operation_time)
                equal(client.test.causal.count_documents({}, session=other), n + 1)


@test
def a_snapshot_session_reads_one_time():
    with connect("?replicaSet=rs0") as client:
        documents = client.test.snapshot
        documents.insert_many([{"_id": n, "n": 0} for n in range(100)])
        with client.start_session(snapshot=True) as session:
            total = [{"$group": {"_id": None, "n": {"$sum": "$n"}, "count": {"$sum": 1}}}]
            for _ in range(5):
                (found,) = documents.aggregate(total, session=session)
                equal((found["n"], found["count"]), (0, 100))
                documents.update_many({}, {"$inc": {"n": 1}})
                documents.insert_one({"n": 1000})
                equal(documents.find({"n": {"$gt": 0}}, session=session).to_list(), [])
                equal(documents.distinct("n", session=session), [0])


@test
def a_write_concern_beyond_one_member_is_reported():
    with connect("?replicaSet=rs0") as client:
        for w, code in ((2, 100), ("elsewhere", 79)):
            collection = client.test.get_collection("concern", write_concern=pymongo.WriteConcern(w=w))
            try:
                collection.insert_one({"w": w})
                raise AssertionError("no error")
            except OperationFailure as error:
                equal(error.code, code)
        equal(client.test.concern.count_documents({}), 2, "the writes are applied")


@test
def a_change_is_told_at_once():
    # Without a waiting hello the driver would see it after ten minutes.
    with connect("?replicaSet=rs0", heartbeatFrequencyMS=600_000) as client:
        primary_of(client)

        def waiting_hellos():
            return client.admin.command("serverStatus")["connections"]["awaitingTopologyChanges"]

        wait_until("a hello that waits", waiting_hellos)
        config = client.admin.command("replSetGetConfig")["config"]
        config["version"] += 1
        config["members"][0]["tags"] = {"dc": "east"}
        client.admin.command("replSetReconfig", config)

        def tags():
            return [one.tags for one in client.topology_description.server_descriptions().values()]

        wait_until("the change", lambda: {"dc": "east"} in tags())
        east = pymongo.read_preferences.Nearest(tag_sets=[{"dc": "east"}])
        client.test.get_collection("seen", read_preference=east).find_one()


@test
def it_is_the_primary_again_after_a_crash():
    with connect("?replicaSet=rs0") as client:
        client.test.crash.insert_one({"_id": 1})
        before = client.admin.command("hello")
        SERVER.kill()
        SERVER.start()
        after = client.admin.command("hello")
        assert after["electionId"] > before["electionId"], "a later election"
        assert after["$clusterTime"]["clusterTime"] > before["$clusterTime"]["clusterTime"], "the time goes on"
        equal(after["tags"], {"dc": "east"})
        client.test.crash.insert_one({"_id": 2})
        equal(client.test.crash.count_documents({}), 2)


if __name__ == "__main__":
    with SERVER:
        SERVER.start()
        run()
