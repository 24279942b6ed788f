"""Partitions and time series of three members."""

import datetime

from harness.tap import equal

from .common import with_set

DAYS = [datetime.datetime(2030, 1, day) for day in (1, 2, 3)]


@with_set
def partitions_are_dropped_by_all_members(replica_set):
    with replica_set.connect() as client:
        database = client.rolling
        for name, options in (
            ("events", {"partitioned": {"by": "ts", "every": "1d"}}),
            ("series", {"timeseries": {"timeField": "ts", "metaField": "m", "granularity": "minutes"}}),
        ):
            events = database.create_collection(name, **options)
            events.create_index("a")
            events.insert_many([{"ts": DAYS[n % 3], "a": n % 5, "m": 1} for n in range(30)])
        database.command("dropPartition", "events", id=DAYS[0])
        # More documents than an index is filled with at once.
        keyed = database.create_collection("keyed", primaryKey={"ts": 1, "_id": 1})
        keyed.insert_many([{"ts": DAYS[n % 3], "a": n} for n in range(3000)])
        keyed.create_index([("ts", 1), ("a", 1)], unique=True)
        database.create_collection("listed", partitioned=True)
        database.listed.insert_many([{"_id": n, "a": n % 5} for n in range(10)])
        database.command("addPartition", "listed")
        database.listed.insert_many([{"_id": n, "a": n % 5} for n in range(10, 20)])
        database.command("dropPartition", "listed", id=0)
        replica_set.catch_up()
        for member in replica_set.members:
            there = member.client(readPreference="secondaryPreferred").rolling
            for name, count in (("events", 20), ("series", 30), ("keyed", 3000), ("listed", 10)):
                equal((there[name].count_documents({}), there[name].estimated_document_count()), (count, count), name)
                equal(there[name].count_documents({"a": {"$gte": 0}}), count, name)
                equal(there.command("validate", name)["valid"], True, name)
            shown = there.command("getPartitionInfo", "listed")["partitions"]
            equal([(one["_id"], one["count"]) for one in shown], [(1, 10)])
        # The next primary knows the partitions, too.
        replica_set.primary.command("replSetStepDown", 10)
        replica_set.wait_until_steady()
        with replica_set.connect() as again:
            after = again.rolling
            equal(after.command("addPartition", "listed")["id"], 2)
            after.command("dropPartition", "events", id=DAYS[1])
            equal(after.events.count_documents({"a": {"$gte": 0}}), 10)
            again.drop_database("rolling")
