"""Malformed messages. Each may close its connection or get an error; the server continues."""

import os
import random
import socket
import struct
import time
import zlib

from harness import raw
from harness.raw import Closed, Connection, encode, message, op_insert, op_msg, op_query
from harness.tap import equal, run, test
from harness.waiting import wait_until

PORT = int(os.environ["FROND_PORT"])
SEED = int(os.environ.get("FROND_SEED", "20120823"))


def outcome(data, port=PORT):
    """Sends bytes. Returns "closed", or the document of the reply."""
    with Connection(port) as connection:
        try:
            connection.send(data)
            connection.socket.shutdown(socket.SHUT_WR)
            return connection.receive()[2]
        except (Closed, OSError) as error:
            if isinstance(error, TimeoutError):
                raise AssertionError("neither an answer nor an end") from error
            return "closed"


def refused(answer):
    return answer == "closed" or answer is None or not answer.get("ok") or "$err" in answer


def lives(port):
    equal(raw.ping(port), True, "the server answers")


def all_refused(port, cases):
    """Every case, by its name, must be refused, and the server must continue."""
    for name, data in cases.items():
        try:
            answer = outcome(data)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        assert refused(answer), f"{name}: answered {answer!r}"
    lives(port)


def msg(sections, flags=0):
    return message(raw.OP_MSG, struct.pack("<I", flags) + sections)


def sequence(name, payload, size=None):
    body = name + payload
    return b"\1" + struct.pack("<i", size if size is not None else len(body) + 4) + body


PING = encode({"ping": 1, "$db": "admin"})
DOCUMENT = encode({"_id": 1, "a": "text"})


@test
def lengths_that_lie(port):
    lengths = [0, 1, 15, 16, 17, 20, -1, -(2**31), 2**31 - 1, 48_000_001, 100_000_000]
    for opcode in (raw.OP_MSG, raw.OP_QUERY, raw.OP_INSERT, raw.OP_COMPRESSED, raw.OP_GET_MORE):
        all_refused(port, {f"{opcode} of {n}": raw.header(n, 1, opcode) + PING for n in lengths})


@test
def opcodes_that_do_not_exist(port):
    opcodes = [0, 1, 2, 1000, 2000, 2003, 2008, 2009, 2010, 2011, 2014, 99999, -1, 2**31 - 1]
    all_refused(port, {f"opcode {n}": message(n, b"\0\0\0\0\0" + PING) for n in opcodes})


@test
def op_msg_with_broken_sections(port):
    all_refused(
        port,
        {
            "nothing": message(raw.OP_MSG, b""),
            "flags only": msg(b""),
            "half of the flags": message(raw.OP_MSG, b"\0\0"),
            "two bodies": msg(b"\0" + PING + b"\0" + PING),
            "a sequence only": msg(sequence(b"documents\0", DOCUMENT)),
            "kind 2": msg(b"\2" + PING),
            "kind 255": msg(b"\xff" + PING),
            "a kind without a body": msg(b"\0" + PING + b"\0"),
            "sequence of negative size": msg(b"\0" + PING + sequence(b"x\0", DOCUMENT, -5)),
            "sequence of size 0": msg(b"\0" + PING + sequence(b"x\0", DOCUMENT, 0)),
            "sequence too long": msg(b"\0" + PING + sequence(b"x\0", DOCUMENT, 2**31 - 1)),
            "sequence too short": msg(b"\0" + PING + sequence(b"x\0", DOCUMENT, 8)),
            "sequence without a name": msg(b"\0" + PING + sequence(b"", b"abc")),
            "sequence of half a document": msg(b"\0" + PING + sequence(b"x\0", DOCUMENT[:-3])),
            "unknown required flag": msg(b"\0" + PING, flags=1 << 5),
            "all flags": msg(b"\0" + PING, flags=0xFFFF),
            "wrong checksum": msg(b"\0" + PING + b"\1\2\3\4", flags=1),
            "no room for a checksum": msg(b"\0", flags=1),
            "bytes after the body": msg(b"\0" + PING + b"\0\0\0"),
            "no $db": msg(b"\0" + encode({"ping": 1})),
            "$db of a wrong type": msg(b"\0" + encode({"ping": 1, "$db": 5})),
            "$db that cannot be": msg(b"\0" + encode({"ping": 1, "$db": "a b/\\"})),
            "empty command": msg(b"\0" + encode({})),
            "sequence and field of one name": msg(
                b"\0"
                + encode({"insert": "c", "documents": [{}], "$db": "x"})
                + sequence(b"documents\0", DOCUMENT)
            ),
        },
    )


def documents_that_are_not_bson():
    """Names and bytes of broken documents."""

    def whole(body):
        return struct.pack("<i", len(body) + 5) + body + b"\0"

    string = b"\x02a\0"
    deep = b""
    for _ in range(5000):
        deep = b"\x03a\0" + whole(deep)
    deep_array = b""
    for _ in range(300):
        deep_array = b"\x040\0" + whole(deep_array)
    cases = {
        "length 0": struct.pack("<i", 0) + DOCUMENT[4:],
        "length 4": struct.pack("<i", 4) + DOCUMENT[4:],
        "length negative": struct.pack("<i", -20) + DOCUMENT[4:],
        "length too large": struct.pack("<i", len(DOCUMENT) + 1) + DOCUMENT[4:],
        "length enormous": struct.pack("<i", 2**31 - 1) + DOCUMENT[4:],
        "length too small": struct.pack("<i", len(DOCUMENT) - 1) + DOCUMENT[4:],
        "no end": DOCUMENT[:-1] + b"\1",
        "unknown type": whole(b"\x20a\0\0"),
        "type only": whole(b"\x10"),
        "name without end": whole(b"\x10abc"),
        "half an int": whole(b"\x10a\0\1\2"),
        "half a double": whole(b"\x01a\0\1\2"),
        "string of length 0": whole(string + struct.pack("<i", 0)),
        "string of negative length": whole(string + struct.pack("<i", -1) + b"x\0"),
        "string too long": whole(string + struct.pack("<i", 1000) + b"x\0"),
        "string without end": whole(string + struct.pack("<i", 2) + b"xy"),
        "name not UTF-8": whole(b"\x0a\xff\xfe\0"),
        "binary too long": whole(b"\x05a\0" + struct.pack("<i", 100) + b"\0x"),
        "binary negative": whole(b"\x05a\0" + struct.pack("<i", -1) + b"\0x"),
        "inner length too large": whole(b"\x03a\0" + struct.pack("<i", 500) + b"\0"),
        "inner length too small": whole(b"\x03a\0" + struct.pack("<i", 4) + b"\0"),
        "regex without end": whole(b"\x0ba\0abc"),
        "bool of 2": whole(b"\x08a\0\2"),
        "code with scope, short": whole(b"\x0fa\0" + struct.pack("<i", 3)),
        "decimal cut off": whole(b"\x13a\0" + b"\0" * 8),
        "nested 5000 deep": whole(deep),
        "arrays nested 300 deep": whole(deep_array),
    }
    return cases


@test
def broken_bson_as_a_command(port):
    cases = documents_that_are_not_bson()
    all_refused(port, {f"OP_MSG, {name}": msg(b"\0" + data) for name, data in cases.items()})
    head = struct.pack("<I", 0) + b"admin.$cmd\0" + struct.pack("<ii", 0, -1)
    all_refused(port, {f"OP_QUERY, {name}": message(raw.OP_QUERY, head + data) for name, data in cases.items()})


@test
def broken_bson_as_a_document(port):
    insert = b"\0" + encode({"insert": "broken", "$db": "robust"})
    cases = documents_that_are_not_bson()
    all_refused(port, {name: msg(insert + sequence(b"documents\0", data)) for name, data in cases.items()})
    head = struct.pack("<I", 0) + b"robust.broken\0"
    for data in cases.values():
        outcome(message(raw.OP_INSERT, head + data))
        outcome(message(raw.OP_UPDATE, head[4:] + struct.pack("<iI", 0, 0) + data + data))
        outcome(message(raw.OP_DELETE, head[4:] + struct.pack("<iI", 0, 0) + data))
    lives(port)
    with Connection(port) as connection:
        equal(connection.command({"count": "broken"}, "robust")["n"], 0)


@test
def broken_legacy_messages(port):
    names = [b"", b"a", b"a.", b".a", b".$cmd", b"a..b", b"a.b\0c", b"a$.b", b"x" * 300 + b".c", b"a." + b"y" * 300, b"\xff.\xfe"]
    for name in names:
        body = struct.pack("<I", 0) + name + b"\0" + struct.pack("<ii", 0, -1) + encode({"ping": 1})
        outcome(message(raw.OP_QUERY, body))
        outcome(message(raw.OP_INSERT, struct.pack("<I", 0) + name + b"\0" + DOCUMENT))
    lives(port)
    namespace = b"robust.c\0"
    for skip, count in [(-1, 0), (2**31 - 1, 2**31 - 1), (-(2**31), -(2**31)), (0, -(2**31))]:
        outcome(op_query({}, "robust.c", skip=skip, count=count))
    for opcode, body in {
        raw.OP_INSERT: struct.pack("<I", 0) + namespace,
        raw.OP_UPDATE: struct.pack("<I", 0) + namespace + struct.pack("<I", 3) + DOCUMENT,
        raw.OP_DELETE: struct.pack("<I", 0) + namespace + struct.pack("<I", 1),
        raw.OP_GET_MORE: struct.pack("<I", 0) + namespace + struct.pack("<i", -5),
        raw.OP_KILL_CURSORS: struct.pack("<Ii", 0, 2**31 - 1) + b"\1" * 8,
    }.items():
        outcome(message(opcode, body))
    outcome(message(raw.OP_KILL_CURSORS, struct.pack("<Ii", 0, -1)))
    answer = outcome(message(raw.OP_GET_MORE, struct.pack("<I", 0) + namespace + struct.pack("<iq", 10, 424242)))
    assert refused(answer), answer
    lives(port)


@test
def broken_compression(port):
    def compressed(compressor, data, size, opcode=raw.OP_MSG):
        return message(raw.OP_COMPRESSED, struct.pack("<iiB", opcode, size, compressor) + data)

    payload = struct.pack("<I", 0) + b"\0" + PING
    packed = zlib.compress(payload)
    bomb = zlib.compress(b"\0" * 30_000_000)
    all_refused(
        port,
        {
            "unknown compressor": compressed(9, packed, len(payload)),
            "zlib cut off": compressed(2, packed[:-6], len(payload)),
            "zlib garbage": compressed(2, b"garbage", 100),
            "snappy garbage": compressed(1, b"\xff\xff\xff\xff\x0f" + b"garbage", 100),
            "zstd garbage": compressed(3, b"\x28\xb5\x2f\xfd" + b"\xff" * 20, 100),
            "size negative": compressed(2, packed, -1),
            "size 0": compressed(2, packed, 0),
            "size enormous": compressed(2, packed, 2**31 - 1),
            "size over the limit": compressed(2, packed, 48_000_001),
            "size too small": compressed(2, packed, len(payload) - 1),
            "size too large": compressed(2, packed, len(payload) + 1),
            "more than it says": compressed(2, bomb, 100),
            "compressed twice": compressed(2, packed, len(payload), raw.OP_COMPRESSED),
            "unknown opcode inside": compressed(2, packed, len(payload), 4242),
            "nothing": message(raw.OP_COMPRESSED, b""),
            "half a head": message(raw.OP_COMPRESSED, b"\1\2\3"),
        },
    )
    equal(outcome(compressed(2, packed, len(payload))), {"ok": 1.0}, "a good one")


@test
def messages_cut_off_at_every_byte(port):
    for whole in (
        op_msg({"insert": "cut", "documents": [{"_id": 1}]}, "robust"),
        op_query({"isMaster": 1}),
        op_insert("robust.cut", [{"_id": 2}]),
    ):
        for length in range(len(whole)):
            with Connection(port) as connection:
                connection.send(whole[:length])
    lives(port)
    with Connection(port) as connection:
        equal(connection.command({"count": "cut"}, "robust")["n"], 0)


def flipped(data, source):
    """A copy with a few random changes; the length stays correct, so that more is parsed."""
    data = bytearray(data)
    for _ in range(source.randint(1, 4)):
        place = source.randrange(4, len(data))
        data[place] = source.choice([0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)])
    return bytes(data)


@test
def valid_messages_with_flipped_bytes(port):
    source = random.Random(SEED)
    insert = struct.pack("<I", 0) + b"\0" + encode({"insert": "flip", "$db": "robust", "ordered": False})
    samples = [
        message(raw.OP_MSG, insert + sequence(b"documents\0", encode({"x": 1, "s": "abc", "l": [1, {"y": 2.5}]}))),
        op_msg({"find": "flip", "filter": {"x": {"$gt": 1, "$in": [1, 2]}}, "sort": {"x": 1}, "limit": 5}, "robust"),
        op_msg({"update": "flip", "updates": [{"q": {"x": 1}, "u": {"$inc": {"n": 1}}, "multi": True}]}, "robust"),
        op_msg({"aggregate": "flip", "pipeline": [{"$group": {"_id": "$x", "n": {"$sum": 1}}}], "cursor": {}}, "robust"),
        op_msg({"createIndexes": "flip", "indexes": [{"key": {"x": 1}, "name": "x_1"}]}, "robust"),
        op_msg({"findAndModify": "flip", "query": {"x": 5}, "update": {"$set": {"y": 1}}, "upsert": True}, "robust"),
        op_query({"$query": {"x": 1}, "$orderby": {"x": 1}}, "robust.flip", count=2),
        op_insert("robust.flip", [{"x": 7}]),
    ]
    connection = Connection(port)
    for number in range(3000):
        data = flipped(source.choice(samples), source)
        try:
            connection.send(data)
            # Some get no reply; the ping after them shows that the server still responds.
            connection.send(op_msg({"ping": 1}, request_id=77))
            connection.socket.settimeout(10)
            for _ in range(4):
                if connection.receive()[1] == 77:
                    break
        except TimeoutError as error:
            raise AssertionError(f"no answer to message {number} of seed {SEED}: {data!r}") from error
        except (Closed, OSError, ValueError, struct.error, UnicodeDecodeError, IndexError, KeyError):
            connection.socket.close()
            connection = Connection(port)
    connection.socket.close()
    lives(port)


@test
def random_bytes(port):
    source = random.Random(SEED + 1)
    for _ in range(300):
        with Connection(port) as connection:
            try:
                connection.send(source.randbytes(source.randrange(1, 4000)))
            except OSError:
                pass
    lives(port)


@test
def other_protocols(port):
    for greeting in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 80, b"SSH-2.0-x\r\n"):
        outcome(greeting)
    lives(port)


@test
def half_open_clients_hold_up_nobody(port):
    silent = [Connection(port) for _ in range(200)]
    half = op_msg({"insert": "half", "documents": [{"_id": 1, "pad": "x" * 5000}]}, "robust")
    for number, connection in enumerate(silent):
        connection.send(half[: 10 + number * 20])
    for _ in range(20):
        lives(port)
    # One of them continues, a byte at a time, and is served.
    whole = op_msg({"ping": 1})
    with Connection(port) as slow:
        for byte in whole:
            slow.send(bytes([byte]))
            time.sleep(0.002)
        equal(slow.receive()[2]["ok"], 1)
    for connection in silent:
        connection.socket.close()
    lives(port)


@test
def clients_that_do_not_read_their_answers(port):
    with Connection(port) as connection:
        documents = [{"_id": n, "pad": "x" * 10_000} for n in range(500)]
        connection.command({"insert": "unread", "documents": documents}, "robust")
    greedy = []
    for _ in range(40):
        connection = Connection(port)
        for _ in range(10):
            connection.send(op_msg({"find": "unread", "batchSize": 1000}, "robust"))
        greedy.append(connection)
    lives(port)
    for connection in greedy:
        connection.socket.close()
    lives(port)


@test
def commands_with_values_of_wrong_types(port):
    values = [None, True, -1, 0, 1, 2**40, 1.5, float("inf"), float("nan"), "", "x", "a\0b", {}, {"$x": 1}, [], [1], [{}], b"\0"]
    fields = {
        "find": ("filter", "sort", "projection", "limit", "skip", "batchSize", "hint", "min", "collation", "maxTimeMS"),
        "insert": ("documents", "ordered", "writeConcern"),
        "update": ("updates", "ordered"),
        "delete": ("deletes",),
        "findAndModify": ("query", "update", "sort", "remove", "fields", "new"),
        "aggregate": ("pipeline", "cursor", "explain"),
        "count": ("query", "limit", "skip", "hint"),
        "distinct": ("key", "query"),
        "createIndexes": ("indexes",),
        "dropIndexes": ("index",),
        "create": ("capped", "size", "validator"),
        "getMore": ("collection", "batchSize"),
        "killCursors": ("cursors",),
        "renameCollection": ("to", "dropTarget"),
        "listCollections": ("filter", "cursor", "nameOnly"),
        "listIndexes": ("cursor",),
        "listDatabases": ("filter", "nameOnly"),
        "collStats": ("scale",),
        "dbStats": ("scale",),
        "drop": (),
        "validate": ("full",),
        "explain": ("verbosity",),
        "endSessions": (),
        "getParameter": (),
        "getLog": (),
        "hello": ("client", "compression", "saslSupportedMechs"),
        "serverStatus": ("opcounters",),
    }
    with Connection(port) as connection:
        connection.command({"insert": "c", "documents": [{"_id": 1, "a": [1, {"b": 2}]}]}, "wrong")
        for command, names in fields.items():
            for value in values:
                connection.command({command: value}, "wrong")
                for name in names:
                    for first in ("c", 1):
                        answer = connection.command({command: first, name: value}, "wrong")
                        assert "ok" in answer, (command, name, value, answer)
        # Operators inside filters, updates and pipelines.
        for value in values:
            for name in ("$gt", "$in", "$nin", "$and", "$or", "$not", "$elemMatch", "$size", "$type", "$mod", "$regex", "$exists", "$all"):
                connection.command({"find": "c", "filter": {"a": {name: value}}}, "wrong")
                connection.command({"find": "c", "filter": {name: value}}, "wrong")
            for name in ("$set", "$unset", "$inc", "$mul", "$push", "$pull", "$pop", "$addToSet", "$rename", "$currentDate", "$min", "$bit"):
                for update in ({name: value}, {name: {"a": value}}, {name: {"": value}}, {name: {"a..b": value}}, {name: {"a.$": value}}):
                    connection.command({"update": "c", "updates": [{"q": {"_id": 9}, "u": update, "upsert": True}]}, "wrong")
            for name in ("$match", "$project", "$group", "$sort", "$limit", "$skip", "$unwind", "$count"):
                connection.command({"aggregate": "c", "pipeline": [{name: value}], "cursor": {}}, "wrong")
    lives(port)


@test
def it_ends_with_little_memory_and_few_connections(port):
    def few_connections():
        with Connection(port) as connection:
            status = connection.command({"serverStatus": 1})
        return status if status["connections"]["current"] <= 3 else None

    status = wait_until("few connections", few_connections)
    resident = status["mem"]["resident"]
    assert resident < 1500, f"{resident} MiB are resident"


run(PORT)
