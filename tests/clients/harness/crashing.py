"""Writers that record their acknowledged writes, and checks that a restarted server still has them.

Used by the crash suite and by scripts/crash-w1.sh.
"""

import random
import threading

from pymongo import MongoClient, WriteConcern
from pymongo.errors import PyMongoError

JOURNALED = WriteConcern(w=1, j=True)
BUFFERED = WriteConcern(w=1, j=False)


def connect(server):
    """A client without retries and with short timeouts, for a server that will be killed."""
    return MongoClient(
        server.uri,
        retryWrites=False,
        retryReads=False,
        serverSelectionTimeoutMS=20_000,
        connectTimeoutMS=20_000,
    )


class Writer(threading.Thread):
    """Inserts, updates and deletes until the server goes away or it is told to stop, with j: true by default.

    `present` holds every _id whose insert was acknowledged and whose delete was never sent;
    `deleted` those whose delete was acknowledged. `increments` counts acknowledged increments of
    the writer's counter; one more may have been made when the server died.
    """

    def __init__(self, server, database, name, seed, record=None, concern=JOURNALED):
        super().__init__(daemon=True)
        self.server = server
        self.database = database
        self.writer_name = name
        self.random = random.Random(seed)
        self.record = record
        self.concern = concern
        self.present = set()
        self.choices = []
        self.deleted = set()
        self.increments = 0
        self.batches = 0
        self.stopping = threading.Event()
        self.next_number = 0
        self.problem = None

    def run(self):
        with connect(self.server) as client:
            collection = client[self.database].get_collection("acked", write_concern=self.concern)
            counters = client[self.database].get_collection("counters", write_concern=self.concern)
            try:
                while not self.stopping.is_set():
                    self._insert(collection)
                    self._increment(counters)
                    if self.batches % 5 == 0:
                        self._remove(collection)
            except PyMongoError as error:
                self.problem = error

    def _insert(self, collection):
        documents = []
        for _ in range(self.random.randint(1, 20)):
            self.next_number += 1
            documents.append(
                {
                    "_id": f"{self.writer_name}-{self.next_number}",
                    "k": self.random.randrange(1_000_000),
                    "s": "%030x" % self.random.getrandbits(120),
                    "tags": [f"t{self.random.randrange(50)}" for _ in range(3)],
                }
            )
        collection.insert_many(documents)
        ids = [document["_id"] for document in documents]
        self.present.update(ids)
        self.choices.extend(ids)
        self.batches += 1
        if self.record:
            self.record.write("".join(f"{i}\n" for i in ids))
            self.record.flush()

    def _increment(self, counters):
        counters.update_one({"_id": self.writer_name}, {"$inc": {"n": 1}}, upsert=True)
        self.increments += 1

    def _remove(self, collection):
        victims = []
        for _ in range(min(3, len(self.choices))):
            place = self.random.randrange(len(self.choices))
            self.choices[place], self.choices[-1] = self.choices[-1], self.choices[place]
            victims.append(self.choices.pop())
        # From here on they may be deleted, whether or not the reply arrives.
        self.present.difference_update(victims)
        if self.record:
            self.record.write("".join(f"-{i}\n" for i in victims))
            self.record.flush()
        if collection.delete_many({"_id": {"$in": victims}}).deleted_count != len(victims):
            raise AssertionError(f"some of {victims} were not there to delete")
        self.deleted.update(victims)


def missing_ids(collection, ids, chunk=1000):
    """The ids that are not in the collection."""
    ids = sorted(ids)
    missing = []
    for start in range(0, len(ids), chunk):
        part = ids[start : start + chunk]
        found = {d["_id"] for d in collection.find({"_id": {"$in": part}}, {"_id": 1})}
        missing.extend(i for i in part if i not in found)
    return missing


def problems_of(client, database, writers):
    """Acknowledged writes that are lost or differ; empty if there are none."""
    problems = []
    collection = client[database].acked
    for writer in writers:
        lost = missing_ids(collection, writer.present)
        if lost:
            problems.append(f"{writer.writer_name}: {len(lost)} of {len(writer.present)} lost, first {lost[0]}")
        back = set(writer.deleted) - set(missing_ids(collection, writer.deleted))
        if back:
            problems.append(f"{writer.writer_name}: {len(back)} deleted documents are back")
        counter = client[database].counters.find_one({"_id": writer.writer_name}) or {"n": 0}
        if counter["n"] - writer.increments not in (0, 1):
            problems.append(f"{writer.writer_name}: {writer.increments} increments, counted {counter['n']}")
    return problems


def validate(client, database, name):
    """Problems that the server finds when it compares a collection with all of its indexes."""
    reply = client[database].command("validate", name, full=True)
    problems = [str(error) for error in reply.get("errors", [])]
    if not reply["valid"] and not problems:
        problems.append(f"not valid: {reply}")
    counted = client[database][name].estimated_document_count()
    if counted != reply["nrecords"]:
        problems.append(f"count says {counted}, validate {reply['nrecords']}")
    if reply["keysPerIndex"]["_id_"] != reply["nrecords"]:
        problems.append(f"the _id index has {reply['keysPerIndex']['_id_']} keys for {reply['nrecords']} documents")
    return problems
