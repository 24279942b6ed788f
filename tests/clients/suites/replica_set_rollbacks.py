"""Writes of a primary that no other member had: they are rolled back, and saved if the primary is alive.

The other members are killed before these writes. The primary steps down without them after the election timeout, which is
long here: a slow machine has time for the writes.
"""

import os
import subprocess

import bson
from harness.replica_set import ReplicaSet, assert_same
from harness.tap import equal, run, test
from harness.waiting import PATIENCE
from pymongo import WriteConcern

BINARY = os.environ["FROND_BINARY"]
SETTINGS = {"electionTimeoutMillis": 8000}


def primary_alone(replica_set):
    """Kills all members but the primary, when they have all that it has. Returns it with a client for writes with w: 1."""
    primary = replica_set.primary
    replica_set.catch_up()
    for member in replica_set.others(primary):
        member.kill()
    return primary, primary.client().get_database("rollbacks", write_concern=WriteConcern(w=1))


def replace(replica_set, primary):
    """The others elect a primary without the one that was alone."""
    others = replica_set.others(primary)
    for member in others:
        member.start()
    return replica_set.wait_for_primary(others)


def files_of(member):
    """The files of the rollbacks of a member."""
    files = []
    for folder, _, names in os.walk(os.path.join(member.dbpath, "rollback")):
        files += [os.path.join(folder, name) for name in names if name.endswith(".bson")]
    return sorted(files)


@test
def documents_of_a_killed_primary_are_rolled_back(replica_set):
    with replica_set.connect() as client:
        kept = client.rollbacks.get_collection("alone", write_concern=WriteConcern(w=3))
        kept.insert_one({"_id": "kept"})
        kept.create_index("n")
        primary, alone = primary_alone(replica_set)
        alone.alone.insert_many([{"_id": f"lost {n}", "n": n} for n in range(100)])
        primary.kill()
        replace(replica_set, primary)
        kept.with_options(write_concern=WriteConcern("majority")).insert_one({"_id": "later", "n": -1})
        equal(kept.count_documents({}), 2)
        primary.start()
        replica_set.wait_until_steady()
        assert_same(replica_set)
        there = primary.client(readPreference="nearest").rollbacks.alone
        equal(sorted(one["_id"] for one in there.find()), ["kept", "later"])
        equal(there.count_documents({"n": {"$gte": 0}}), 0)
        # It leads again with what the others have.
        primary.command("replSetStepUp")
        replica_set.wait_until_steady()
        kept.insert_one({"_id": "by the old one"})
        assert_same(replica_set)


@test
def a_catalog_of_a_killed_primary_is_rolled_back(replica_set):
    with replica_set.connect() as client:
        there = client.rollbacks.get_collection("there", write_concern=WriteConcern(w=3))
        there.insert_many([{"_id": n, "a": n} for n in range(20)])
        primary, alone = primary_alone(replica_set)
        alone.create_collection("never")
        alone.never.insert_one({})
        alone.there.rename("elsewhere")
        alone.elsewhere.drop()
        primary.kill()
        replace(replica_set, primary)
        primary.start()
        replica_set.wait_until_steady()
        for member in replica_set.members:
            database = member.client(readPreference="nearest").rollbacks
            names = database.list_collection_names()
            equal(("never" in names, "elsewhere" in names, "there" in names), (False, False, True), f"member {member.number}")
            equal(database.there.count_documents({}), 20)
        assert_same(replica_set)


@test
def documents_of_a_primary_that_was_stopped_are_saved_for_import(replica_set):
    with replica_set.connect() as client:
        saved = client.rollbacks.get_collection("saved", write_concern=WriteConcern(w=3))
        saved.insert_many([{"_id": n, "by": "all"} for n in range(3)])
        primary, alone = primary_alone(replica_set)
        alone.saved.insert_one({"_id": 3, "by": "one"})
        alone.saved.update_one({"_id": 1}, {"$set": {"by": "one"}})
        alone.saved.delete_one({"_id": 2})
        primary.pause()
        replace(replica_set, primary)
        primary.resume()
        replica_set.wait_until_steady()
        assert_same(replica_set)
        equal(list(saved.find(sort=[("_id", 1)])), [{"_id": n, "by": "all"} for n in range(3)])
        files = files_of(primary)
        documents = []
        for file in files:
            with open(file, "rb") as content:
                documents += [one for one in bson.decode_all(content.read()) if one.get("by") == "one"]
        documents.sort(key=lambda one: one["_id"])
        equal(documents, [{"_id": 1, "by": "one"}, {"_id": 3, "by": "one"}], str(files))
        for file in files:
            done = subprocess.run(
                [BINARY, "import", "--uri", replica_set.uri, "--db", "rollbacks", "--collection", "again", file],
                capture_output=True, text=True, timeout=PATIENCE, check=False,
            )
            equal(done.returncode, 0, done.stdout + done.stderr)
        again = client.rollbacks.again
        equal(again.find_one({"_id": 3}), {"_id": 3, "by": "one"})


@test
def no_files_are_written_if_a_parameter_says_so(replica_set):
    with replica_set.connect() as client:
        client.rollbacks.get_collection("unsaved", write_concern=WriteConcern(w=3)).insert_one({"_id": "kept"})
        primary, alone = primary_alone(replica_set)
        before = files_of(primary)
        equal(primary.command("getParameter", 1, createRollbackDataFiles=1)["createRollbackDataFiles"], True)
        primary.command("setParameter", 1, createRollbackDataFiles=False)
        alone.unsaved.insert_one({"_id": "lost"})
        primary.pause()
        replace(replica_set, primary)
        primary.resume()
        replica_set.wait_until_steady()
        assert_same(replica_set)
        equal([one["_id"] for one in client.rollbacks.unsaved.find()], ["kept"])
        equal(files_of(primary), before)


if __name__ == "__main__":
    with ReplicaSet(BINARY) as replica_set:
        replica_set.start(SETTINGS)
        run(replica_set)
