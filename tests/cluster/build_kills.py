"""An index is built while its server is killed: another server goes on with it, beside writers."""

import os
import threading
import time

from cluster import Cluster, Servers
from harness import crashing
from harness.tap import equal, run, test
from harness.waiting import wait_until
from pymongo import MongoClient
from pymongo.errors import PyMongoError

BINARY = os.environ["FROND_BINARY"]
DOCUMENTS = 12_000


def _write(client, stop, written):
    number = 0
    while not stop.is_set():
        number += 1
        client.build.c.insert_one({"_id": f"w{number}", "a": number % 97, "u": 1_000_000 + number})
        client.build.c.update_one({"_id": number * 7 % DOCUMENTS}, {"$inc": {"a": 1}})
        client.build.c.delete_one({"_id": number * 11 % DOCUMENTS})
        written.append(number)


def _is_ready(client, name):
    """Whether queries may use an index."""
    try:
        client.build.c.find_one({"a": 1, "u": 1}, hint=name)
        return True
    except PyMongoError:
        return False


@test
def another_server_goes_on_with_the_build_of_a_killed_one():
    with Cluster() as cluster, Servers(BINARY, cluster.pd) as servers:
        servers.start()
        one, two = (MongoClient(f"mongodb://127.0.0.1:{server.port}/?directConnection=true") for server in servers.all)
        for first in range(0, DOCUMENTS, 1_000):
            two.build.c.insert_many({"_id": n, "a": n % 97, "u": n} for n in range(first, first + 1_000))

        def build():
            try:
                one.build.command(
                    "createIndexes", "c",
                    indexes=[{"key": {"a": 1}, "name": "a"}, {"key": {"u": 1}, "name": "u", "unique": True}],
                )
            except PyMongoError:
                pass

        building = threading.Thread(target=build)
        building.start()
        stop, written = threading.Event(), []
        writing = threading.Thread(target=_write, args=(two, stop, written))
        writing.start()
        wait_until("a build", lambda: len(list(two.build.c.list_indexes())) == 3)
        assert not _is_ready(two, "a"), "the build has ended before its server was killed"
        servers.all[0].kill()
        building.join()
        began = time.monotonic()
        wait_until("the build by the other server", lambda: _is_ready(two, "a") and _is_ready(two, "u"))
        print(f"  # ready {time.monotonic() - began:.1f} s after the kill, {len(written)} writes beside it", flush=True)
        stop.set()
        writing.join()
        servers.all[0].start()
        for value in range(0, 97, 8):
            by_index = {doc["_id"] for doc in one.build.c.find({"a": value}, hint="a")}
            by_scan = {doc["_id"] for doc in two.build.c.find({"$expr": {"$eq": ["$a", value]}})}
            equal(by_index, by_scan, f"a: {value}")
        equal(crashing.validate(two, "build", "c"), [])
        one.close()
        two.close()
        servers.stop()


if __name__ == "__main__":
    run()
