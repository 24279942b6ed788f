"""Change streams of PyMongo, newest, on a replica set of one that is restarted and killed meanwhile."""

import os

from harness.server import Server
from harness.tap import run
from harness.transactions import connect

# Each module adds its tests; they run in this order.
from streams import oplog, events, images, tokens, history, waiting  # noqa: F401

with Server(os.environ["FROND_BINARY"], replica_set="rs0") as server:
    server.start()
    with connect(server) as client:
        run(server, client)
