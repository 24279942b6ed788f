"""The servers under test. There is one, or there are several that serve the same data."""

import os

import pymongo


def first():
    """The connection string of the first server alone, which is the primary of a replica set."""
    return f"mongodb://127.0.0.1:{os.environ['FROND_PORT']}/?directConnection=true"


def are_of_a_cluster(client):
    """Whether their data is in a TiKV cluster: each looks like a mongos then."""
    return client.admin.command("hello").get("msg") == "isdbgrid"


def each(client):
    """A client of each server with parameters and counters of its own: of a cluster all of them, of a set the primary."""
    if not are_of_a_cluster(client):
        return [client]
    return [pymongo.MongoClient(*node, directConnection=True) for node in sorted(client.nodes)]


def is_alone(client):
    """Whether there is one server, which is no member of a replica set."""
    hello = client.admin.command("hello")
    return "setName" not in hello and hello.get("msg") != "isdbgrid"


def without_times(reply):
    """A reply without the times that members of a replica set and servers of a cluster add."""
    return {name: value for name, value in reply.items() if name not in ("$clusterTime", "operationTime")}
