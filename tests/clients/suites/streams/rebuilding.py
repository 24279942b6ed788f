"""A copy of a database that is kept by the events of its change stream, and checks of each event."""

from array import array
from collections import Counter, defaultdict

from harness.transactions import connect
from pymongo.errors import PyMongoError

from .applying import apply
from .watching import token
from .writers import DATABASE, IDS, Address

COLLECTIONS = ("w1", "docs", "booked", "shared")
PROBLEMS_MAX = 20


class Copy:
    """Documents by collection, and what was seen of each writer."""

    def __init__(self):
        self.documents = {name: {} for name in COLLECTIONS}
        self.counts = defaultdict(lambda: array("L"))
        self.last = Counter()
        self.deleted = set()
        self.problems = []
        self.events = 0
        self.before = None

    def problem(self, text):
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)

    def take(self, event):
        """Checks an event, and applies it."""
        self.events += 1
        before, self.before = self.before, event
        if before and token(event) <= token(before):
            self.problem(f"not in order: {event['_id']} after {before['_id']}")
        if before and event["clusterTime"] < before["clusterTime"]:
            self.problem(f"back in time: {event['clusterTime']} after {before['clusterTime']}")
        name, kind, key = event["ns"]["coll"], event["operationType"], event["documentKey"]["_id"]
        documents = self.documents[name]
        changed = event.get("fullDocument") if kind != "update" else event["updateDescription"]["updatedFields"]
        if kind == "update" and changed.get("n") != documents[key]["n"] + 1:
            self.problem(f"{name} {key} had n {documents[key]['n']} before {changed}")
        apply(documents, event)
        if kind == "delete":
            if key in self.deleted:
                self.problem(f"{key} is deleted again")
            self.deleted.add(key)
            return
        document = documents[key]
        if document["by"]:
            self._count(document["by"], document["seq"], event, before)

    def _count(self, by, seq, event, before):
        counts = self.counts[by]
        counts.extend([0] * (seq + 1 - len(counts)))
        counts[seq] += 1
        if seq < self.last[by]:
            self.problem(f"writer {by}: {seq} after {self.last[by]}")
        elif seq == self.last[by] and "txnNumber" in event:
            if (before.get("txnNumber"), before.get("lsid")) != (event["txnNumber"], event["lsid"]):
                self.problem(f"writer {by}: the transaction {seq} is interrupted by {before}")
            if before["clusterTime"] != event["clusterTime"]:
                self.problem(f"writer {by}: the transaction {seq} has two times")
        self.last[by] = seq

    def compare(self, database, logs):
        """What differs from the collections, and from what the writers were told."""
        problems = list(self.problems)
        for name, copy in self.documents.items():
            there = 0
            for document in database[name].find():
                there += 1
                if copy.get(document["_id"]) != document:
                    problems.append(f"{name}: {document} is {copy.get(document['_id'])} in the copy")
            if there != len(copy):
                problems.append(f"{name} has {there} documents, the copy {len(copy)}")
        for by, log in logs.items():
            problems += self._against(by, log)
        problems += [f"writer {by} is not known" for by in self.counts if by not in logs]
        return problems

    def _against(self, by, log):
        counts = self.counts[by]
        for seq in range(max(len(counts), len(log.acknowledged))):
            got = counts[seq] if seq < len(counts) else 0
            if seq in log.unknown:
                expected, atomic = log.unknown[seq]
                if atomic and got not in (0, expected):
                    yield f"writer {by}: {got} events of {seq}, which had no answer; there are none or {expected}"
                continue
            expected = log.acknowledged[seq] if seq < len(log.acknowledged) else 0
            if got != expected:
                yield f"writer {by}: {got} events of {seq}, {expected} were acknowledged"
        lost = [key for key in log.deleted if key not in self.deleted]
        if lost:
            yield f"writer {by}: {len(lost)} deletes have no event, first {lost[0]}"
        told = set(log.deleted) | log.maybe_deleted
        made = [key for key in self.deleted if key // IDS == by and key not in told]
        if made:
            yield f"writer {by}: {len(made)} deletes were not asked for, first {made[0]}"


def follow(uri, start, kills, is_last, take, note=lambda: None):
    """Reads the database's stream, over restarts, until `is_last(event)`, and returns how often it was opened.

    After each kill of the server the stream is opened anew by the last token, as a program does that was stopped itself; the
    errors between are left to the driver.
    """
    opened = 0
    with connect(Address(uri)) as client:
        seen, after = start, "resume_after"
        while True:
            opened, generation = opened + 1, kills.value
            # Both must do for tokens of events, and those of empty batches.
            after = "start_after" if after == "resume_after" else "resume_after"
            with client[DATABASE].watch(**{after: seen}, max_await_time_ms=300) as stream:
                while kills.value == generation:
                    event = stream.try_next()
                    seen = stream.resume_token
                    if event is None:
                        continue
                    if is_last(event):
                        return opened
                    take(event)
                    note()


def look_up(uri, start, kills, mark, results):
    """The body of a process that keeps a cache of one collection by looking documents up; puts it at the end."""
    cache, problems = {}, []
    try:
        with connect(Address(uri)) as client:
            collection = client[DATABASE].docs
            seen, done = start, False
            while not done:
                generation = kills.value
                pipeline = [{"$match": {"$or": [{"ns.coll": "docs"}, {"ns.coll": "marks"}]}}, {"$unset": "updateDescription"}]
                options = {"full_document": "updateLookup", "resume_after": seen, "max_await_time_ms": 300}
                with collection.database.watch(pipeline, **options) as stream:
                    while kills.value == generation and not done:
                        event = stream.try_next()
                        seen = stream.resume_token
                        if event is None:
                            continue
                        key, document = event["documentKey"]["_id"], event.get("fullDocument")
                        if event["ns"]["coll"] == "marks":
                            done = key == mark
                        elif document is None:
                            cache.pop(key, None)
                        else:
                            cache[key] = document
    except PyMongoError as error:
        problems.append(f"the cache's stream: {error!r}")
    results.put((cache, problems))
