"""What servers tell PD to keep for them, from their first read to their end."""

import json
import os
import time
import urllib.request

from cluster import Cluster, Servers
from harness.tap import equal, run, test
from harness.waiting import wait_until
from pymongo import MongoClient

BINARY = os.environ["FROND_BINARY"]
# An entry lives for so many seconds unless it is renewed.
ENTRY_SECONDS = 120


def entries(cluster):
    """The entries of Frond's servers in PD, by their names."""
    with urllib.request.urlopen(f"http://{cluster.pd}/pd/api/v1/gc/safepoint", timeout=10) as answer:
        services = json.load(answer)["service_gc_safe_points"]
    return {service["service_id"]: service for service in services if service["service_id"].startswith("frond-")}


def prefix_of(servers):
    options = servers.all[0].options
    return "frond-" + options[options.index("--tikvKeyPrefix") + 1].encode().hex() + "-"


def of(servers, cluster):
    return {name: entry for name, entry in entries(cluster).items() if name.startswith(prefix_of(servers))}


def status(server):
    with MongoClient(f"mongodb://127.0.0.1:{server.port}/?directConnection=true") as client:
        return client.admin.command("serverStatus")["tikv"]


@test
def each_server_has_an_entry_from_its_start_to_its_end(cluster):
    with Servers(BINARY, cluster.pd) as servers, Servers(BINARY, cluster.pd, count=1) as others:
        servers.start()
        others.start()
        equal((len(of(servers, cluster)), len(of(others, cluster))), (2, 1))
        one, other = servers.all
        one.stop()
        left = of(servers, cluster)
        equal(len(left), 1)
        # What the other one and the other deployment need is kept.
        kept = status(other)["oldVersions"]
        equal((kept["refusals"], kept["failures"], kept["lostBefore"].year), (0, 0, 1970))
        equal(len(of(others, cluster)), 1)
        one.start()
        equal(len(of(servers, cluster)), 2)
        servers.stop()
        equal((len(of(servers, cluster)), len(of(others, cluster))), (0, 1))
        others.stop()
        equal(len(of(others, cluster)), 0)


@test
def an_entry_of_a_server_that_was_killed_expires_soon(cluster):
    with Servers(BINARY, cluster.pd, count=1) as servers:
        servers.start()
        servers.all[0].process.kill()
        servers.all[0].process.wait()
        found = list(of(servers, cluster).values())
        equal(len(found), 1)
        assert found[0]["expired_at"] <= time.time() + ENTRY_SECONDS + 1, found
        # Another run of the server does not wait for that.
        servers.start()
        equal(len(of(servers, cluster)), 2)


@test
def entries_are_renewed(cluster):
    with Servers(BINARY, cluster.pd, count=1) as servers:
        servers.start()
        (name, first), = of(servers, cluster).items()
        wait_until("a renewal", lambda: of(servers, cluster)[name]["expired_at"] > first["expired_at"])
        assert of(servers, cluster)[name]["safe_point"] > first["safe_point"]


if __name__ == "__main__":
    with Cluster() as started:
        run(started)
