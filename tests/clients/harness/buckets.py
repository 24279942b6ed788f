"""Buckets of MongoDB's time series, compressed ones included, for a time series with the fields `at` and `where`."""

import datetime
import struct

import bson

AT = datetime.datetime(2026, 1, 2, 3, 4, 5)


def literal(value):
    """A value in a compressed column: an element of BSON without a name."""
    return bson.encode({"": value})[4:-1]


def deltas(*steps, scale=0x80):
    """Differences in a compressed column, one in each word of Simple-8b. None stands for a missing value."""
    slots = [(1 << 60) - 1 if step is None else (step << 1) ^ (step >> 63) for step in steps]
    return bytes([scale | len(slots) - 1]) + b"".join(struct.pack("<Q", 14 | slot << 4) for slot in slots)


def column(*parts):
    return bson.Binary(b"".join(parts) + b"\0", 7)


def bucket(version, data, number=1, **control):
    control = {"version": version, "min": {"at": AT}, "max": {"at": AT}, **control}
    return {"_id": bson.ObjectId("%024x" % number), "control": control, "meta": {"x": number}, "data": data}


def later(seconds):
    return AT + datetime.timedelta(seconds=seconds)


def buckets():
    """A bucket of each version, and their measurements."""
    plain = {
        "_id": {"0": 1, "1": 2},
        "at": {"0": AT, "1": later(1)},
        "t": {"1": 1.5},
        "o": {"0": {"a": [1]}},
    }
    # Dates have differences of differences in milliseconds: they are 0, 1 and 3 seconds later, and the last one is not.
    times = [literal(AT), deltas(1000, 1000)]
    sorted_by_time = {
        "_id": column(literal(3), deltas(1, 1)),
        "at": column(*times),
        "t": column(literal(0.5), deltas(None, 1, scale=0xA0)),
        "s": column(deltas(None), literal("abc1"), deltas(1)),
    }
    reference = bson.encode({"a": 0, "b": {"c": "x"}})
    not_sorted = {
        "at": column(literal(later(5)), deltas(-2000)),
        "_id": column(literal(6), deltas(1)),
        "o": column(b"\xf1" + reference + deltas(7, 1) + deltas(0, None) + b"\0"),
    }
    documents = [bucket(1, plain, 1), bucket(2, sorted_by_time, 2, count=3), bucket(3, not_sorted, 3, count=2)]
    measurements = [
        {"at": AT, "where": {"x": 1}, "_id": 1, "o": {"a": [1]}},
        {"at": later(1), "where": {"x": 1}, "_id": 2, "t": 1.5},
        {"at": AT, "where": {"x": 2}, "_id": 3, "t": 0.5},
        {"at": later(1), "where": {"x": 2}, "_id": 4, "s": "abc1"},
        {"at": later(3), "where": {"x": 2}, "_id": 5, "t": 0.6, "s": "abc2"},
        {"at": later(5), "where": {"x": 3}, "_id": 6, "o": {"a": 7, "b": {"c": "x"}}},
        {"at": later(3), "where": {"x": 3}, "_id": 7, "o": {"a": 8}},
    ]
    return documents, measurements
