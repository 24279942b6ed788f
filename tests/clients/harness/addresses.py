"""The servers under test. There is one, or there are several that serve the same data."""

import os
import re


def first():
    """The connection string of the first server alone."""
    return re.sub(r"^(mongodb://[^,/]*),[^/]*", r"\1", os.environ["FROND_URI"])


def are_of_a_cluster(client):
    """Whether their data is in a TiKV cluster: each looks like a mongos then."""
    return client.admin.command("hello").get("msg") == "isdbgrid"


def without_times(reply):
    """A reply without the times that servers of a cluster add."""
    return {name: value for name, value in reply.items() if name not in ("$clusterTime", "operationTime")}
