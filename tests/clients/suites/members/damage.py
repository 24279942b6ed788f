"""Members whose data file is damaged: they are replaced by copies, also while they lead."""

import contextlib
import os
import re
import subprocess

from harness.replica_set import assert_same
from harness.tap import equal
from harness.waiting import PATIENCE, wait_until
from pymongo import WriteConcern
from pymongo.errors import PyMongoError

from .common import with_set

DOCUMENTS = 3000


def damaged_namespaces(member):
    """The collections that `frond verify` finds damaged in the files of a member that does not run."""
    done = subprocess.run(
        [member.binary, "verify", "--dbpath", member.dbpath], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return set(re.findall(r"^problem: (\S+): data.frond is damaged", done.stdout, re.MULTILINE))


def damage(member, namespace):
    """Flips bits in a block of a collection."""
    path = os.path.join(member.dbpath, "data.frond")
    with open(path, "r+b") as file:
        size = os.path.getsize(path)
        # Each look takes a second and more. The collection has a large part of the file, so few are needed with long steps.
        for step in (256 << 10, 8192):
            for place in range(size // 2, size - 2, step):
                file.seek(place)
                whole = file.read(2)
                file.seek(place)
                file.write(bytes(byte ^ 1 for byte in whole))
                file.flush()
                if damaged_namespaces(member) == {namespace}:
                    return
                file.seek(place)
                file.write(whole)
                file.flush()
    raise AssertionError(f"no block of {namespace} in {path}")


def count(member):
    """The documents of a scan of a member, or None if it fails."""
    try:
        return sum(1 for _ in member.client(readPreference="nearest").damaged.blocks.find())
    except PyMongoError:
        return None


def is_whole(member):
    return count(member) == DOCUMENTS


def logged(member, text):
    with open(member.log_path, encoding="utf-8") as log:
        return sum(text in line for line in log)


@with_set
def members_with_damaged_blocks_replace_their_data(replica_set):
    with replica_set.connect() as client:
        blocks = client.damaged.get_collection("blocks", write_concern=WriteConcern(w=3))
        for start in range(0, DOCUMENTS, 500):
            blocks.insert_many([{"_id": n, "data": os.urandom(1000)} for n in range(start, start + 500)])
        member = replica_set.secondaries[0]
        for leads in (False, True):
            text = "This server has damaged data"
            before = logged(member, text)
            member.stop()
            damage(member, "damaged.blocks")
            member.start()
            replica_set.wait_until_steady()
            if leads:
                # A member that finds the damage while it stands for the election replaces its data at once.
                with contextlib.suppress(PyMongoError):
                    member.command("replSetStepUp")
            # Only a read finds the damage. It may have been read and replaced already.
            wait_until("damage that is found", lambda: count(member) is None or logged(member, text) > before)
            wait_until("a whole copy", lambda: logged(member, text) > before and is_whole(member))
            replica_set.wait_until_steady()
            equal([one.number for one in replica_set.members if not is_whole(one)], [])
            assert_same(replica_set)
            blocks.update_one({"_id": 0}, {"$inc": {"n": 1}})
        client.drop_database("damaged")
