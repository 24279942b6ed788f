"""What goes on beside the writers: index builds and drops, aggregations, expiry, cursors left open, clients that die."""

import datetime
import random
import socket
import struct
import threading
import time

from pymongo.errors import OperationFailure, PyMongoError

from harness import crashing, raw
from harness.waiting import wait_until
from model import NO_ANSWER, PAUSE_S

INDEXES = (
    ([("k", 1), ("tags", -1)], {}),
    ([("tags", 1)], {"sparse": True}),
    ([("$**", 1)], {}),
    ([("k", "hashed")], {}),
    ([("n", 1)], {"partialFilterExpression": {"n": {"$gt": 0}}}),
    ([("text", "text")], {}),
)
"""Indexes that come and go. `k_1` and `tags_1_k_1` stay."""

# The index or the plan went away, the cursor did with the server, a build goes on after a restart, or the memory is used up:
# the client asks again.
EXPECTED = {27, 43, 112, 146, 175, 276, 285, 292}


class Trouble(threading.Thread):
    """Something that is done again and again, whatever happens to the server."""

    pause_s = 0.2

    def __init__(self, server, seed):
        super().__init__(daemon=True)
        self.server = server
        self.random = random.Random(f"{seed} {type(self).__name__}")
        self.stopping = threading.Event()
        self.done, self.refused, self.problems = 0, 0, []

    def run(self):
        while not self.stopping.is_set():
            try:
                with crashing.connect(self.server) as client:
                    while not self.stopping.wait(self.pause_s):
                        try:
                            self.step(client)
                            self.done += 1
                        except OperationFailure as error:
                            self.refused += 1
                            if error.code not in EXPECTED:
                                self.problem(f"{error.code}: {error}")
            except NO_ANSWER:
                time.sleep(PAUSE_S)
            except (OSError, raw.Closed):
                time.sleep(PAUSE_S)
            except PyMongoError as error:
                self.problem(f"{type(error).__name__}: {error}")
                time.sleep(PAUSE_S)

    def problem(self, text):
        if len(self.problems) < 20:
            self.problems.append(f"{type(self).__name__}: {text}"[:600])

    def step(self, client):
        """What is done."""
        raise NotImplementedError

    def check(self, client):
        """What must hold at the end."""


class Indexes(Trouble):
    """Builds an index of the items, and drops it or one of another kind."""

    def step(self, client):
        items = client.soak.items
        keys, options = self.random.choice(INDEXES)
        items.create_index(keys, **options)
        kept = {"_id_", "k_1", "tags_1_k_1"}
        others = [name for name in items.index_information() if name not in kept]
        if others and self.random.random() < 0.8:
            items.drop_index(self.random.choice(others))


class Aggregations(Trouble):
    """Groups, sorts and joins."""

    def step(self, client):
        items = client.soak.items
        pipelines = (
            [{"$group": {"_id": "$k", "n": {"$sum": "$n"}, "texts": {"$push": "$text"}}}, {"$sort": {"n": -1}}, {"$limit": 5}],
            [{"$unwind": "$tags"}, {"$sortByCount": "$tags"}],
            [{"$sort": {"text": 1}}, {"$skip": 1000}, {"$limit": 1}],
            [{"$match": {"k": {"$lt": 500}}}, {"$lookup": {"from": "items", "localField": "k", "foreignField": "k", "as": "same"}}],
            [{"$match": {"tags": "t1"}}, {"$count": "n"}],
        )
        list(items.aggregate(self.random.choice(pipelines), allowDiskUse=True))
        low = self.random.randrange(100_000)
        found = [document["k"] for document in items.find({"k": {"$gte": low, "$lt": low + 500}}).sort("k", 1)]
        if found != sorted(found) or any(not low <= k < low + 500 for k in found):
            self.problem("a find by an index is out of order or has other documents")


class Expiry(Trouble):
    """Documents that expire after a few seconds, and some that must not."""

    LIFE_S = 5

    def __init__(self, server, seed):
        super().__init__(server, seed)
        self.kept = 0

    def step(self, client):
        now = datetime.datetime.now(datetime.timezone.utc)
        expiring = client.soak.expiring
        expiring.insert_many([{"at": now, "text": "x" * 100} for _ in range(100)])
        expiring.insert_one({"_id": f"kept-{self.kept}", "at": now + datetime.timedelta(days=1)})
        self.kept += 1

    def check(self, client):
        expiring = client.soak.expiring
        if expiring.count_documents({"_id": {"$regex": "^kept-"}}) < self.kept:
            self.problem("documents expired before their time")
        try:
            wait_until("expired documents", lambda: expiring.count_documents({"_id": {"$type": "objectId"}}) == 0)
        except AssertionError as error:
            self.problem(str(error))


class Cursors(Trouble):
    """Opens cursors and leaves them; some are read on much later."""

    pause_s = 0.05
    OPEN_MAX = 100

    def step(self, client):
        if not hasattr(self, "open") or self.client is not client:
            self.open, self.client = [], client
        if len(self.open) < self.OPEN_MAX:
            cursor = client.soak.items.find({}, batch_size=5)
            next(cursor, None)
            self.open.append(cursor)
            return
        cursor = self.open.pop(self.random.randrange(len(self.open)))
        if self.random.random() < 0.5:
            for _ in range(50):
                next(cursor, None)
        cursor.close()


class DyingClients(Trouble):
    """Clients that end in the middle of a message, or while their reply is on its way."""

    pause_s = 0.05

    def step(self, client):
        if self.done % 100 == 99:
            client.soak.drop_collection("dying")
        self.die()

    def die(self):
        """Connects, sends something, and goes."""
        with socket.create_connection(("127.0.0.1", self.server.port), 5) as client:
            documents = [{"text": "y" * 1000} for _ in range(self.random.choice((1, 100, 1000)))]
            message = raw.op_msg({"insert": "dying", "documents": documents}, "soak")
            find = raw.op_msg({"find": "items", "batchSize": 100_000}, "soak")
            kind = self.random.randrange(4)
            if kind == 0:
                client.sendall(message[: self.random.randrange(len(message))])
            elif kind == 1:
                client.sendall(find)
                client.recv(self.random.choice((1, 1000, 100_000)))
            elif kind == 2:
                client.sendall(find + message)
            else:
                client.sendall(self.random.randbytes(self.random.randrange(1, 200)))
            if self.random.random() < 0.5:
                # No farewell: the connection is reset.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def check(self, client):
        client.soak.drop_collection("dying")


ALL = (Indexes, Aggregations, Expiry, Cursors, DyingClients)
