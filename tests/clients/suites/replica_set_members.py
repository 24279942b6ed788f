"""A replica set of three members, as applications and their operators use it."""

import os

from harness.replica_set import ReplicaSet
from harness.tap import run
# Tests run in the order of these imports.
from members import (  # noqa: F401
    concerns, forming, reading, copies, streams, failing, damage, leading, interrupting, reconfiguring, rolling, delaying, nonvoting,
)

# Members by their numbers, and write concerns with names.
MEMBERS = {number: {"tags": {"n": str(number), "half": "east" if number < 2 else "west"}} for number in range(3)}
SETTINGS = {"getLastErrorModes": {"everywhere": {"n": 3}, "bothHalves": {"half": 2}, "two": {"n": 2}}}

if __name__ == "__main__":
    with ReplicaSet(os.environ["FROND_BINARY"]) as replica_set:
        replica_set.start(SETTINGS, MEMBERS)
        run(replica_set)
