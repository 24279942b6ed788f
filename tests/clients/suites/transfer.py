"""`frond export` and `frond import`: round trips of every format, and files as MongoDB's tools write and read them, which this
program writes and reads by itself."""

import base64
import csv
import datetime
import gzip
import hashlib
import json
import os
import re
import struct
import subprocess
import tempfile
import urllib.parse

import bson
import pymongo
from bson import json_util
from bson.raw_bson import RawBSONDocument
from harness.buckets import AT, bucket, buckets, column, deltas, later, literal
from harness.scram import SecuredServer
from harness.tap import equal, run, test
from harness.waiting import PATIENCE

BINARY = os.environ["FROND_BINARY"]
URI = os.environ["FROND_URI"]
RAW = bson.CodecOptions(document_class=RawBSONDocument)
TERMINATOR = b"\xff\xff\xff\xff"


def frond(command, *arguments, code=0, uri=URI, text=None):
    """Runs a command. Returns what it wrote and what it said."""
    done = subprocess.run(
        [BINARY, command, "--uri", uri, *map(str, arguments)], input=text, capture_output=True, text=text is None or isinstance(text, str), timeout=PATIENCE
    )
    if done.returncode != code:
        raise AssertionError(f"{command} ended with {done.returncode}: {done.stderr}")
    return done.stdout, done.stderr


def everything():
    return [
        {"_id": 1, "double": 1.5, "int": 7, "long": bson.Int64(2**40), "small": bson.Int64(3), "decimal": bson.Decimal128("1.50"), "text": 'ä"\\\n\u2028'},
        {"_id": bson.ObjectId("0123456789abcdef01234567"), "at": datetime.datetime(2026, 11, 23, 1, 2, 3, 4000), "old": datetime.datetime(1900, 1, 1)},
        {"_id": "b", "binary": bson.Binary(b"\0\1\2", 5), "uuid": bson.Binary(b"0123456789abcdef", 4), "regex": bson.Regex("^a/b", "im")},
        {"_id": {"a": 1}, "nested": {"list": [1, {"x": [None, True]}], "empty": {}}, "code": bson.Code("f()"), "scoped": bson.Code("g()", {"n": 1})},
        {"_id": bson.Int64(5), "min": bson.MinKey(), "max": bson.MaxKey(), "time": bson.Timestamp(5, 6), "nan": float("nan"), "inf": float("-inf")},
        {"_id": "ref", "ref": bson.DBRef("c", 1, "d"), "$set": 1, "a.b": 2},
    ]  # fmt: skip


def raws(collection):
    return sorted(document.raw for document in collection.with_options(RAW).find())


class Setting:
    def __init__(self):
        self.client = pymongo.MongoClient(URI)
        self.folder = tempfile.mkdtemp(prefix="frond-transfer-", dir=os.environ["FROND_FOLDER"])

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        return self.path(name)

    def shop(self):
        """A database with all that a dump can hold."""
        self.client.drop_database("shop")
        shop = self.client.shop
        shop.things.insert_many(everything())
        shop.things.create_index("text", unique=True, partialFilterExpression={"text": {"$exists": True}})
        shop.things.create_index([("int", -1), ("at", 1)], name="both")
        shop.create_collection("last", capped=True, size=8192)
        shop.last.insert_many([{"_id": n} for n in range(20)])
        shop.create_collection("checked", validator={"n": {"$type": "int"}}, validationAction="warn")
        shop.create_collection("view", viewOn="things", pipeline=[{"$match": {"int": 7}}])
        shop["odd/name %"].insert_one({"_id": 1})
        return self.state()

    def state(self):
        shop = self.client.shop
        found = {}
        for listed in shop.list_collections():
            name = listed["name"]
            if name.startswith("system."):
                continue
            indexes = {}
            if listed["type"] == "collection":
                indexes = {key: {k: v for k, v in value.items() if k != "v"} for key, value in shop[name].index_information().items()}
            documents = raws(shop[name]) if listed["type"] == "collection" else None
            found[name] = (listed["options"], indexes, documents)
        return found


@test
def json_keeps_every_type(setting):
    source, target = setting.client.transfer.source, setting.client.transfer.target
    source.drop()
    source.insert_many(everything())
    for more in ([], ["--jsonArray"], ["--gzip"]):
        target.drop()
        path = setting.path("all.json.gz" if "--gzip" in more else "all.json")
        frond("export", "-d", "transfer", "-c", "source", "-o", path, "--canonical", *more)
        frond("import", "-d", "transfer", "-c", "target", path, *[option for option in more if option != "--gzip"])
        equal(raws(target), raws(source), str(more))
    # What PyMongo writes and reads.
    written, _ = frond("export", "-d", "transfer", "-c", "source", "--canonical", "--sort", '{"_id": 1}')
    options = json_util.JSONOptions(json_mode=json_util.JSONMode.CANONICAL, document_class=dict, tz_aware=False)
    read = [json_util.loads(line, json_options=options) for line in written.split("\n")[:-1]]
    equal(len(read), len(everything()))
    target.drop()
    text = "".join(json_util.dumps(document, json_options=options) + "\n" for document in everything())
    frond("import", "-d", "transfer", "-c", "target", "--format", "json", text=text)
    equal(raws(target), raws(source))


@test
def relaxed_json_and_a_query(setting):
    source = setting.client.transfer.source
    source.drop()
    source.insert_many([{"_id": n, "a": {"b": n / 2}, "c": "x"} for n in range(10)])
    written, _ = frond("export", "-d", "transfer", "-c", "source", "-q", '{"_id": {"$gte": 5}}', "--sort", '{"_id": -1}', "--limit", 3, "-f", "a.b")
    equal([json.loads(line) for line in written.splitlines()], [{"_id": n, "a": {"b": n / 2}} for n in (9, 8, 7)])


@test
def the_first_version_of_the_format(setting):
    target = setting.client.transfer.target
    target.drop()
    text = (
        '{"_id": {"$oid": "0123456789abcdef01234567"}, "d": {"$date": 1000}, "n": {"$numberLong": "5"}, "r": {"$regex": "^a", "$options": "i"},'
        '\n"b": {"$binary": "YWJj", "$type": "00"}}\n{"_id": 2, "t": {"$timestamp": {"t": 1, "i": 2}}, "i": {"$date": "2026-01-01T00:00:00.000+0100"}}'
    )
    frond("import", "-d", "transfer", "-c", "target", "--legacy", text=text)
    first, second = target.find({}, sort=[("n", -1)])
    equal((first["d"], first["n"], first["b"]), (datetime.datetime(1970, 1, 1, 0, 0, 1), 5, b"abc"))
    equal(first["r"], bson.Regex("^a", "i"))
    equal((second["t"], second["i"]), (bson.Timestamp(1, 2), datetime.datetime(2025, 12, 31, 23)))


@test
def the_forms_of_the_shell(setting):
    target = setting.client.transfer.target
    target.drop()
    text = (
        "{ _id: ObjectId(\"0123456789abcdef01234567\"), nan: NaN, inf: -Infinity, at: ISODate('1970-01-01T00:00:01Z'), n: NumberLong(\"5\"),\n"
        "  i: NumberInt(6), d: NumberDecimal('1.50'), b: BinData(0, 'YWJj'), t: Timestamp(1, 2), ref: DBRef('c', 1), r: /}'[x]\\/{/i,\n"
        "  old: new Date(1000), min: MinKey, 'quoted': 'it\\'s', hex: 0x1F, }\n"
        "{_id: 2}"
    )
    path = setting.write("shell.json", text)
    frond("import", "-d", "transfer", "-c", "target", "--legacy", path)
    first, second = target.find({}, sort=[("nan", -1)])
    equal(second, {"_id": 2})
    nan = first.pop("nan")
    assert isinstance(nan, float) and nan != nan, nan
    equal(first, {
        "_id": bson.ObjectId("0123456789abcdef01234567"), "inf": float("-inf"), "at": datetime.datetime(1970, 1, 1, 0, 0, 1), "n": 5, "i": 6,
        "d": bson.Decimal128("1.50"), "b": b"abc", "t": bson.Timestamp(1, 2), "ref": bson.DBRef("c", 1), "r": bson.Regex("}'[x]/{", "i"),
        "old": datetime.datetime(1970, 1, 1, 0, 0, 1), "min": bson.MinKey(), "quoted": "it's", "hex": 31,
    })  # fmt: skip
    equal(type(first["n"]), bson.Int64)
    _, said = frond("import", "-d", "transfer", "-c", "target", text="{a: 1}", code=1)
    assert "line 1" in said and "--legacy reads" in said, said
    _, said = frond("import", "-d", "transfer", "-c", "target", "--legacy", text="{a: 1}\n{a: ObjectId(5)}", code=1)
    assert "line 2: ObjectId takes" in said, said


@test
def errors_name_the_line(setting):
    target = setting.client.transfer.target
    target.drop()
    for text, part in [('{"a": 1}\n{"a": 2}\n\n{"a" 3}\n', "standard input, line 4"), ('[{"a": 1}]', "--jsonArray"), ('{"a": 1', "line 1: the document has no end")]:
        _, said = frond("import", "-d", "transfer", "-c", "target", text=text, code=1)
        assert part in said, said
    path = setting.write("two.json", '{"_id": 1}\n{"_id": 2}\n{"_id": 1, "again": 1}\n{"_id": 3}\n')
    target.drop()
    _, said = frond("import", "-d", "transfer", "-c", "target", path, code=2)
    assert "two.json, line 3: " in said and "E11000" in said, said
    equal(target.count_documents({}), 3)
    target.drop()
    frond("import", "-d", "transfer", "-c", "target", path, "--stopOnError", code=2)
    equal(target.count_documents({}), 2)


@test
def the_modes(setting):
    target = setting.client.transfer.target
    target.drop()
    target.insert_many([{"_id": 1, "k": "a", "old": 1}, {"_id": 2, "k": "b", "old": 2}])
    frond("import", "-d", "transfer", "-c", "target", "--mode", "upsert", text='{"_id": 1, "new": 1} {"_id": 3, "new": 3}')
    equal(list(target.find({}, sort=[("_id", 1)])), [{"_id": 1, "new": 1}, {"_id": 2, "k": "b", "old": 2}, {"_id": 3, "new": 3}])
    frond("import", "-d", "transfer", "-c", "target", "--mode", "merge", "--upsertFields", "k", text='{"k": "b", "more": 1}')
    equal(target.find_one({"_id": 2}), {"_id": 2, "k": "b", "old": 2, "more": 1})
    frond("import", "-d", "transfer", "-c", "target", "--mode", "delete", text='{"_id": 1}{"_id": 2}')
    equal([document["_id"] for document in target.find()], [3])
    _, said = frond("import", "-d", "transfer", "-c", "target", "--mode", "upsert", text='{"a": 1}', code=1)
    assert "line 1: the document has no field _id" in said, said


@test
def tables(setting):
    source, target = setting.client.transfer.source, setting.client.transfer.target
    source.drop()
    target.drop()
    source.insert_many([{"_id": 1, "name": 'a "b", c', "at": {"x": 1.5}, "list": [1, {"y": 2}]}, {"_id": 2, "name": "line\nbreak"}])
    written, _ = frond("export", "-d", "transfer", "-c", "source", "--format", "csv", "-f", "_id,name,at.x,list", "--sort", '{"_id": 1}')
    rows = list(csv.reader(written.splitlines(keepends=True)))
    equal(rows, [["_id", "name", "at.x", "list"], ["1", 'a "b", c', "1.5", '[1,{"y":2}]'], ["2", "line\nbreak", "", ""]])
    path = setting.write("t.csv", written)
    frond("import", "-d", "transfer", "-c", "target", path, "--headerline", "--ignoreBlanks")
    equal(list(target.find({}, sort=[("_id", 1)]))[1], {"_id": 2, "name": "line\nbreak"})
    target.drop()
    text = "7\t2026-02-28\ttrue\t5\n8\tno date\tfalse\t6\n"
    heads = "_id.int64(),day.date_ms(yyyy-MM-dd),deep.yes.boolean(),text.string()"
    _, said = frond("import", "-d", "transfer", "-c", "target", "--format", "tsv", "--columnsHaveTypes", "-f", heads, text=text, code=1)
    assert "line 2: column day" in said, said
    frond("import", "-d", "transfer", "-c", "target", "--format", "tsv", "--columnsHaveTypes", "--parseGrace", "skip-field", "-f", heads, "--drop", text=text)
    equal(
        list(target.find({}, sort=[("_id", 1)])),
        [{"_id": 7, "day": datetime.datetime(2026, 2, 28), "deep": {"yes": True}, "text": "5"}, {"_id": 8, "deep": {"yes": False}, "text": "6"}],
    )


@test
def files_of_bson(setting):
    source, target = setting.client.transfer.source, setting.client.transfer.target
    source.drop()
    target.drop()
    source.insert_many([{"_id": n, "at": datetime.datetime(2026, 2, 28), "list": [1.0, None, {"y": 2}]} for n in range(3)])
    path = setting.write("t.bson", "")
    of_source = ["export", "-d", "transfer", "-c", "source", "--out", path]
    frond(*of_source, "--query", '{"_id": {"$lt": 2}}', "--sort", '{"_id": -1}')
    frond("import", "-d", "transfer", "-c", "target", path)
    equal(list(target.find(sort=[("_id", 1)])), list(source.find({"_id": {"$lt": 2}}, sort=[("_id", 1)])))
    _, said = frond(*of_source, "--canonical", code=1)
    assert "--canonical" in said, said
    _, said = frond("import", "-d", "transfer", "-c", "target", setting.write("damaged.bson", "no documents"), code=1)
    assert "damaged.bson" in said, said


@test
def a_dump_in_a_folder(setting):
    before = setting.shop()
    for more in ([], ["--gzip"]):
        folder = setting.path("dump" + "".join(more))
        frond("export", "-d", "shop", "--format", "dump", "-o", folder, *more)
        ending = ".gz" if more else ""
        assert os.path.exists(os.path.join(folder, "shop", "odd%2Fname%20%25.bson" + ending)), os.listdir(os.path.join(folder, "shop"))
        opened = gzip.open if more else open
        with opened(os.path.join(folder, "shop", "things.bson" + ending), "rb") as file:
            equal(len(bson.decode_all(file.read())), len(everything()))
        with opened(os.path.join(folder, "shop", "things.metadata.json" + ending), "rb") as file:
            metadata = json_util.loads(file.read())
        equal(metadata["collectionName"], "things")
        equal({index["name"] for index in metadata["indexes"]}, {"_id_", "text_1", "both"})
        setting.client.drop_database("shop")
        frond("import", folder)
        equal(setting.state(), before)
    frond("import", folder, "--drop", "--include", "shop.last")
    equal(setting.state(), before)
    _, said = frond("import", folder, "--include", "shop.things", code=2)
    assert "6 refused" in said, said


def crc64(data):
    """As Go's crc64 with the table of ECMA."""
    value = 0xFFFFFFFFFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ 0xC96C5795D7870F42 if value & 1 else value >> 1
    return (value ^ 0xFFFFFFFFFFFFFFFF) - (1 << 64 if value ^ 0xFFFFFFFFFFFFFFFF >= 1 << 63 else 0)


def read_archive(data):
    """What mongorestore reads: metadata and documents by namespace."""
    equal(data[:4], struct.pack("<I", 0x8199E26D))
    at = 4

    def take():
        nonlocal at
        if data[at : at + 4] == TERMINATOR:
            at += 4
            return None
        size = struct.unpack_from("<i", data, at)[0]
        raw = data[at : at + size]
        at += size
        return raw

    header = bson.decode(take())
    equal((header["version"], type(header["concurrent_collections"])), ("0.1", int))
    metadata = {}
    while raw := take():
        part = bson.decode(raw)
        metadata[f"{part['db']}.{part['collection']}"] = (json_util.loads(part["metadata"]), part["type"])
    documents, ended = {}, set()
    while at < len(data):
        head = bson.decode(take())
        name = f"{head['db']}.{head['collection']}"
        assert name in metadata and name not in ended, name
        while raw := take():
            documents.setdefault(name, []).append(raw)
        if head["EOF"]:
            ended.add(name)
            equal(head["CRC"] % (1 << 64), crc64(b"".join(documents.get(name, []))) % (1 << 64), name)
    return metadata, documents, ended


def archive(parts, hidden="\0", last=None):
    """What mongodump writes, with blocks of two collections in turn. Names that begin with `hidden` are not in the metadata; `last` is in
    one piece behind all others."""
    out = struct.pack("<I", 0x8199E26D)
    out += bson.encode({"concurrent_collections": 4, "version": "0.1", "server_version": "4.4.1", "tool_version": "100.3.1"})
    for (database, name), (metadata, _) in parts.items():
        if name.startswith(hidden):
            continue
        text = json_util.dumps(metadata, json_options=json_util.CANONICAL_JSON_OPTIONS) if metadata else ""
        out += bson.encode({"db": database, "collection": name, "metadata": text, "size": 0, "type": "collection"})
    out += TERMINATOR
    halves = {key: ([bson.encode(d) for d in documents[::2]], [bson.encode(d) for d in documents[1::2]]) for key, (_, documents) in parts.items()}
    if last:
        halves[last] = ([], [bson.encode(d) for d in parts[last][1]])
    for half in (0, 1):
        for (database, name), blocks in halves.items():
            if not blocks[half]:
                continue
            out += bson.encode({"db": database, "collection": name, "EOF": False, "CRC": bson.Int64(0)})
            out += b"".join(blocks[half]) + TERMINATOR
    for (database, name), blocks in halves.items():
        if f"system.buckets.{name}" in {other for _, other in halves}:
            continue
        crc = crc64(b"".join(blocks[0] + blocks[1]))
        out += bson.encode({"db": database, "collection": name, "EOF": True, "CRC": bson.Int64(crc)}) + TERMINATOR
    return out


@test
def an_archive(setting):
    before = setting.shop()
    path = setting.path("all.archive")
    frond("export", "-d", "shop", "-o", path)
    with open(path, "rb") as file:
        metadata, documents, ended = read_archive(file.read())
    equal(set(metadata), {f"shop.{name}" for name in before})
    equal(metadata["shop.view"][1], "view")
    equal(ended, set(metadata) - {"shop.view"})
    equal(sorted(documents["shop.things"]), before["things"][2])
    setting.client.drop_database("shop")
    frond("import", path)
    equal(setting.state(), before)
    # Through a pipe, compressed.
    written = subprocess.run([BINARY, "export", "--uri", URI, "-d", "shop", "--format", "archive", "--gzip"], capture_output=True, check=True).stdout
    setting.client.drop_database("shop")
    frond("import", "--format", "archive", text=written)
    equal(setting.state(), before)


@test
def an_archive_of_the_database_tools(setting):
    setting.client.drop_database("shop")
    options = {"capped": True, "size": 4096}
    indexes = [{"v": 2, "key": {"_id": 1}, "name": "_id_"}, {"v": 2, "key": {"n": 1.0}, "name": "n_1", "ns": "shop.a", "background": True}]
    parts = {
        ("shop", "a"): ({"options": options, "indexes": indexes, "uuid": "00", "collectionName": "a"}, [{"_id": n, "n": n} for n in range(9)]),
        ("shop", "b"): ({"indexes": [], "collectionName": "b"}, [{"_id": n, "x": "y" * n} for n in range(7)]),
    }
    path = setting.write("tools.archive", archive(parts))
    frond("import", path)
    shop = setting.client.shop
    equal(list(shop.b.find({}, sort=[("_id", 1)])), parts["shop", "b"][1])
    equal(shop.a.count_documents({}), 9)
    equal((set(shop.a.index_information()), shop.a.options()["capped"]), ({"_id_", "n_1"}, True))
    damaged = archive(parts).replace(b"yyyyyy\0", b"yyyyyz\0", 1)
    _, said = frond("import", setting.write("damaged.archive", damaged), "--drop", code=1)
    assert "shop.b: the archive is damaged" in said, said
    _, said = frond("import", setting.write("cut.archive", archive(parts)[:-40]), "--drop", code=1)
    assert "frond import: " in said, said


def file_name(collection):
    """As mongodump names the files of a collection."""
    escaped = urllib.parse.quote(collection, safe="$&+:=@~")
    if len(escaped) > 238:
        digest = base64.urlsafe_b64encode(hashlib.sha1(collection.encode()).digest()).decode().rstrip("=")
        escaped = f"{escaped[:208]}%24{digest}"
    return escaped


def write_dump(folder, parts, oplog=None):
    """What mongodump writes: `parts` are metadata, or none, and documents, or none, by database and collection."""
    for (database, name), (metadata, documents) in parts.items():
        os.makedirs(os.path.join(folder, database), exist_ok=True)
        if metadata is not None:
            plain = file_name(name.removeprefix("system.buckets."))
            with open(os.path.join(folder, database, f"{plain}.metadata.json"), "w") as file:
                file.write(json_util.dumps(metadata, json_options=json_util.CANONICAL_JSON_OPTIONS))
        if documents is not None:
            with open(os.path.join(folder, database, f"{file_name(name)}.bson"), "wb") as file:
                file.write(b"".join(bson.encode(document) for document in documents))
    if oplog is not None:
        with open(os.path.join(folder, "oplog.bson"), "wb") as file:
            file.write(b"".join(bson.encode(entry) for entry in oplog))
    return folder


SERIES = {"timeField": "at", "metaField": "where", "granularity": "minutes", "bucketMaxSpanSeconds": 86400}


def series_metadata(name):
    return {"options": {"timeseries": SERIES}, "indexes": [], "collectionName": name, "type": "timeseries"}


def dumps(setting, name, documents):
    """A folder and an archive with a time series, and a collection beside it."""
    plain = {"indexes": [], "collectionName": "a"}
    folder = {
        ("shop", "a"): (plain, [{"_id": 1}]),
        ("shop", "system.buckets.weather"): (series_metadata("weather"), documents),
    }
    parts = {
        ("shop", "a"): folder["shop", "a"],
        ("shop", "weather"): (series_metadata("weather"), []),
        ("shop", "system.buckets.weather"): (None, documents),
    }
    in_archive = setting.write(f"{name}.archive", archive(parts, hidden="system.buckets."))
    return write_dump(setting.path(name), folder), in_archive


@test
def buckets_of_mongodb_become_measurements(setting):
    documents, measurements = buckets()
    shop = setting.client.shop
    for path in dumps(setting, "buckets", documents):
        setting.client.drop_database("shop")
        _, said = frond("import", path)
        assert "8 documents imported, 0 refused" in said, said
        assert "3 buckets of MongoDB unpacked" in said, said
        equal(list(shop.weather.find({}, sort=[("_id", 1)])), measurements)
        equal(shop.weather.options()["timeseries"], SERIES)
        equal(shop.a.count_documents({}), 1)
        # Times are stored as they were, and fields that a measurement lacks stay missing.
        equal([d["_id"] for d in shop.weather.find({"at": {"$gte": later(3)}}, sort=[("_id", 1)])], [5, 6, 7])
        equal([d["_id"] for d in shop.weather.find({"t": {"$exists": False}}, sort=[("_id", 1)])], [1, 4, 6, 7])
        setting.client.drop_database("shop")
        frond("import", path, "--exclude", "shop.weather")
        equal(shop.list_collection_names(), ["a"])


@test
def measurements_are_exported_as_buckets(setting):
    documents, _ = buckets()
    shop = setting.client.shop
    for form in ("dump", "archive"):
        setting.client.drop_database("shop")
        shop.create_collection("weather", timeseries=SERIES)
        shop["system.buckets.weather"].insert_many(documents)
        shop.weather.insert_many([{"_id": n, "at": later(n * 60), "where": {"x": n % 2}, "v": n / 4} for n in range(8, 3000)])
        shop.a.insert_one({"_id": 1})
        before = list(shop.weather.find({}, sort=[("_id", 1)]))
        out = setting.path(f"as-buckets-{form}")
        frond("export", "-d", "shop", "--format", form, "--buckets", "-o", out)
        if form == "dump":
            equal(sorted(os.listdir(os.path.join(out, "shop"))), ["a.bson", "a.metadata.json", "system.buckets.weather.bson", "weather.metadata.json"])
            with open(os.path.join(out, "shop", "system.buckets.weather.bson"), "rb") as file:
                written = list(bson.decode_file_iter(file))
            for one in written:
                times = list(one["data"]["at"].values())
                equal(one["control"]["version"], 1)
                equal(one["control"]["max"]["at"], max(times))
                assert one["control"]["min"]["at"] <= min(times) and max(times) - one["control"]["min"]["at"] < datetime.timedelta(days=1), one["control"]
            # What mongorestore does with the file.
            shop.weather.delete_many({})
            shop["system.buckets.weather"].insert_many(written)
            equal(list(shop.weather.find({}, sort=[("_id", 1)])), before)
        setting.client.drop_database("shop")
        _, said = frond("import", "--format", form, out)
        assert "buckets of MongoDB unpacked" in said, said
        equal(list(shop.weather.find({}, sort=[("_id", 1)])), before)
        equal(shop.weather.options()["timeseries"], SERIES)
    _, said = frond("export", "-d", "shop", "-c", "weather", "--format", "json", "--buckets", code=1)
    assert "--buckets is for dumps and archives" in said, said


@test
def damaged_buckets_are_named(setting):
    (first, second, third), measurements = buckets()
    # The time column ends within a word; the last value of the other bucket is one too many.
    second["data"]["at"] = bson.Binary(second["data"]["at"][:-4], 7)
    third["data"]["_id"] = column(literal(6), deltas(1, 1))
    shop = setting.client.shop
    for path in dumps(setting, "damaged", [first, second, third]):
        setting.client.drop_database("shop")
        _, said = frond("import", path, code=2)
        assert f" of shop.weather: the bucket {second['_id']}: the column 'at': the bytes end too early" in said, said
        assert f" of shop.weather: the bucket {third['_id']}: '_id' has 3 values, and the bucket has 2 measurements" in said, said
        # Nothing of a damaged bucket is imported, and all of the others.
        equal(list(shop.weather.find({}, sort=[("_id", 1)])), measurements[:2])
        equal(shop.a.count_documents({}), 1)
        setting.client.drop_database("shop")
        _, said = frond("import", path, "--stopOnError", code=2)
        assert " of shop.weather: the bucket 00000000000000000000000" in said, said


@test
def buckets_are_inserted_through_the_server(setting):
    documents, measurements = buckets()
    setting.client.drop_database("shop")
    shop = setting.client.shop
    shop.create_collection("weather", timeseries=SERIES)
    alias = shop["system.buckets.weather"]
    alias.insert_many(documents)
    equal(list(shop.weather.find({}, sort=[("_id", 1)])), measurements)
    # Measurements are taken under this name, too, and a damaged bucket stores nothing.
    own = {"_id": 8, "at": AT, "where": {"x": 4}}
    damaged = bucket(2, {"at": column(literal(AT)), "_id": column(literal(9), deltas(1))})
    for ordered, expected in ((True, [8]), (False, [8, 9])):
        shop.weather.delete_many({})
        last = bucket(1, {"at": {"0": AT}, "_id": {"0": 9}})
        try:
            alias.insert_many([own, damaged, last], ordered=ordered)
            raise AssertionError("a damaged bucket is inserted")
        except pymongo.errors.BulkWriteError as error:
            (failed,) = error.details["writeErrors"]
            equal((failed["index"], failed["code"]), (1, 2))
            assert "'_id' has 2 values" in failed["errmsg"], failed
            equal(error.details["nInserted"], len(expected))
        equal(sorted(d["_id"] for d in shop.weather.find()), expected)
    # A retry of the same command stores nothing again.
    shop.weather.delete_many({})
    with setting.client.start_session() as session:
        command = {"insert": "system.buckets.weather", "documents": documents, "txnNumber": bson.Int64(1)}
        for _ in range(2):
            equal(shop.command(command, session=session)["n"], 3)
    equal(list(shop.weather.find({}, sort=[("_id", 1)])), measurements)
    # Elsewhere such a document is one like others.
    shop.plain.insert_one(documents[0])
    equal(shop.plain.find_one(), documents[0])


@test
def measurements_of_a_time_series_come_back(setting):
    shop = setting.client.shop
    measurements = [{"_id": n, "at": AT, "where": {"x": n % 2}, "t": n} for n in range(4)]

    def refill():
        setting.client.drop_database("shop")
        shop.create_collection("weather", timeseries=SERIES)
        shop.weather.insert_many(measurements)

    refill()
    # As mongodump reads it, and with a query, whose field it has renamed.
    buckets = shop["system.buckets.weather"]
    read = list(buckets.find({}, sort=[("_id", 1)]))
    equal(read, measurements)
    equal([d["_id"] for d in buckets.find({"meta.x": 1}, sort=[("_id", 1)])], [1, 3])
    equal(shop.command("count", "system.buckets.weather", query={"meta": {"x": 0}})["n"], 2)
    for command in ("find", "count"):
        field = {"find": "filter", "count": "query"}[command]
        try:
            shop.command(command, "system.buckets.weather", **{field: {"control.count": 1}})
            raise AssertionError(command)
        except pymongo.errors.OperationFailure as error:
            equal(error.code, 238)
    folder = write_dump(setting.path("series"), {("shop", "system.buckets.weather"): (series_metadata("weather"), read)})
    parts = {("shop", "weather"): (series_metadata("weather"), []), ("shop", "system.buckets.weather"): (None, read)}
    path = setting.write("series.archive", archive(parts, hidden="system.buckets."))
    for source in (folder, path):
        setting.client.drop_database("shop")
        frond("import", source)
        equal(list(shop.weather.find({}, sort=[("_id", 1)])), measurements)
        equal(shop.weather.options()["timeseries"], SERIES)
    for form in ("dump", "archive"):
        refill()
        out = setting.path(f"own-series-{form}")
        frond("export", "-d", "shop", "--format", form, "-o", out)
        setting.client.drop_database("shop")
        frond("import", "--format", form, out)
        equal(list(shop.weather.find({}, sort=[("_id", 1)])), measurements)
        equal(shop.weather.options()["timeseries"], SERIES)


@test
def collections_with_long_names(setting):
    name = "é" * 90
    assert len(file_name(name)) == 238, file_name(name)
    metadata = {"indexes": [{"v": 2, "key": {"_id": 1}, "name": "_id_"}], "collectionName": name, "type": "collection"}
    folder = write_dump(setting.path("long"), {("shop", name): (metadata, [{"_id": n} for n in range(3)])})
    setting.client.drop_database("shop")
    frond("import", folder)
    equal(setting.client.shop.list_collection_names(), [name])
    equal(setting.client.shop[name].count_documents({}), 3)
    out = setting.path("long-out")
    frond("export", "-d", "shop", "--format", "dump", "-o", out)
    equal(sorted(os.listdir(os.path.join(out, "shop"))), sorted(os.listdir(os.path.join(folder, "shop"))))
    setting.client.drop_database("shop")
    frond("import", out)
    equal(setting.client.shop[name].count_documents({}), 3)
    os.remove(os.path.join(folder, "shop", f"{file_name(name)}.metadata.json"))
    _, said = frond("import", folder, "--drop", code=1)
    assert "the name of the collection is cut" in said, said


@test
def what_is_left_out_is_named(setting):
    user = {"_id": "own.anna", "user": "anna", "db": "own", "credentials": {}, "roles": []}
    parts = {
        ("shop", "a"): ({"indexes": [], "collectionName": "a"}, [{"_id": 1}]),
        ("shop", "without"): ({"indexes": [], "collectionName": "without"}, None),
        ("shop", "system.profile"): (None, [{"op": "query"}] * 3),
        ("shop", "$admin.system.users"): (None, [user]),
        ("config", "settings"): (None, [{"_id": "chunksize"}]),
        ("admin", "system.version"): (None, [{"_id": "authSchema", "currentVersion": 5}]),
        ("admin", "system.users"): (None, [user]),
    }
    folder = write_dump(setting.path("odd"), parts)
    with open(os.path.join(folder, "shop", "b.bson.zst"), "wb"):
        pass
    setting.client.drop_database("shop")
    _, said = frond("import", folder, "--mode", "upsert", code=2)
    for part in [
        "3 documents of shop.system.profile: ", "1 documents of shop.$admin.system.users: ", "1 documents of config.settings: ",
        "1 documents of admin.system.users: users and roles are imported with --mode insert only", "b.bson.zst: the file is no part of a dump",
        "documents of shop.without: the dump has the metadata",
    ]:  # fmt: skip
        assert part in said, f"{part}: {said}"
    assert "system.version" not in said, said
    equal(setting.client.shop.a.count_documents({}), 1)
    frond("import", folder, "--drop", "--include", "shop.a")
    _, said = frond("import", folder, "-d", "nothing", code=1)
    assert "no dump is in this folder" in said, said
    # Nothing is chosen.
    whole = setting.write("one.archive", archive({("shop", "a"): parts["shop", "a"]}))
    for source in (folder, whole):
        _, said = frond("import", source, "--include", "shop.typo", code=1)
        assert "the dump has no such collection" in said, said
    # An archive that ends before its last collection.
    whole = archive({("shop", "a"): parts["shop", "a"], ("shop", "b"): ({"indexes": [], "collectionName": "b"}, [])})
    end = whole.rindex(bson.encode({"db": "shop", "collection": "b", "EOF": True, "CRC": bson.Int64(0)}))
    _, said = frond("import", "--drop", setting.write("ends.archive", whole[:end]), code=2)
    assert "documents of shop.b: the archive ends before they do" in said, said


@test
def the_oplog_of_a_dump(setting):
    def entry(n, op, ns, o, **more):
        return {"ts": bson.Timestamp(100, n), "t": bson.Int64(1), "v": bson.Int64(2), "op": op, "ns": ns, "ui": bson.Binary(bytes(16), 4), "wall": AT, "o": o, **more}

    session = {"lsid": {"id": bson.Binary(bytes(16), 4), "uid": b""}, "txnNumber": bson.Int64(3)}
    nested = {"op": "i", "ns": "shop.a", "o": {"_id": 30, "n": 30}}
    oplog = [
        entry(1, "n", "", {"msg": "periodic noop"}),
        entry(2, "i", "shop.a", {"_id": 3, "n": 3}),
        entry(3, "u", "shop.a", {"$v": 2, "diff": {"u": {"n": 11}}}, o2={"_id": 1}),
        entry(4, "u", "shop.a", {"_id": 2, "n": 22}, o2={"_id": 2}),
        entry(5, "d", "shop.a", {"_id": 4}),
        entry(6, "c", "shop.$cmd", {"create": "new", "idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}}),
        entry(7, "i", "shop.new", {"_id": 1}),
        entry(8, "c", "shop.$cmd", {"createIndexes": "new", "v": 2, "key": {"x": 1}, "name": "x_1"}),
        entry(9, "c", "shop.$cmd", {"dropIndexes": "a", "index": "old_1"}),
        entry(10, "c", "shop.$cmd", {"collMod": "a", "index": {"name": "at_1", "expireAfterSeconds": bson.Int64(500)}}),
        entry(11, "c", "shop.$cmd", {"drop": "gone"}),
        entry(12, "c", "admin.$cmd", {"applyOps": [nested], "partialTxn": True}, **session),
        entry(13, "c", "admin.$cmd", {"applyOps": [{"op": "d", "ns": "shop.a", "o": {"_id": 5}}], "count": bson.Int64(2)}, **session),
        entry(14, "c", "admin.$cmd", {"applyOps": [{**nested, "o": {"_id": 31}}], "prepare": True}, **{**session, "txnNumber": bson.Int64(4)}),
        entry(15, "c", "admin.$cmd", {"abortTransaction": 1}, **{**session, "txnNumber": bson.Int64(4)}),
        entry(16, "i", "config.transactions", {"_id": 1}),
        entry(17, "i", "shop.system.views", {"_id": "shop.view", "viewOn": "a", "pipeline": []}),
        # The index that the dump has allows this only when it is gone or built later.
        entry(18, "u", "shop.a", {"$v": 2, "diff": {"i": {"key": "k"}}}, o2={"_id": 1}),
        entry(19, "u", "shop.a", {"$v": 2, "diff": {"d": {"key": False}}}, o2={"_id": 2}),
    ]
    indexes = [
        {"v": 2, "key": {"_id": 1}, "name": "_id_"}, {"v": 2, "key": {"old": 1}, "name": "old_1"},
        {"v": 2, "key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 5},
        {"v": 2, "key": {"key": 1}, "name": "key_1", "unique": True, "sparse": True},
    ]  # fmt: skip
    parts = {
        ("shop", "a"): ({"indexes": indexes, "collectionName": "a"}, [{"_id": n, "n": n, **({"key": "k"} if n == 2 else {})} for n in (1, 2, 4, 5)]),
        ("shop", "gone"): ({"indexes": [{"v": 2, "key": {"z": 1}, "name": "z_1"}], "collectionName": "gone"}, [{"_id": 1}]),
    }
    folder = write_dump(setting.path("with-oplog"), parts, oplog)
    path = setting.write("with-oplog.archive", archive({**parts, ("", "oplog"): (None, oplog)}, last=("", "oplog")))
    shop = setting.client.shop
    for source in (folder, path):
        setting.client.drop_database("shop")
        _, said = frond("import", source, code=2)
        assert "16 documents of the oplog: changes from while the dump was made; --oplogReplay" in said, said
        equal(shop.a.count_documents({}), 4)
        setting.client.drop_database("shop")
        _, said = frond("import", source, "--oplogReplay")
        assert "19 entries of the oplog applied" in said, said
        equal(sorted(shop.list_collection_names()), ["a", "new", "system.views", "view"])
        equal(list(shop.a.find({}, sort=[("_id", 1)])), [{"_id": 1, "n": 11, "key": "k"}, {"_id": 2, "n": 22}, {"_id": 3, "n": 3}, {"_id": 30, "n": 30}])
        equal(set(shop.a.index_information()), {"_id_", "at_1", "key_1"})
        equal(shop.a.index_information()["at_1"]["expireAfterSeconds"], 500)
        equal(set(shop.new.index_information()), {"_id_", "x_1"})
        setting.client.drop_database("shop")
        _, said = frond("import", source, "--include", "shop.gone", code=2)
        assert "1 documents of the oplog: " in said, said
        setting.client.drop_database("shop")
        _, said = frond("import", source, "--include", "shop.gone", "--oplogReplay")
        equal(shop.list_collection_names(), [])
    # Only the oplog, on what is there.
    setting.client.drop_database("shop")
    shop.a.insert_many([{"_id": 1, "n": 1}])
    alone = setting.path("oplog-alone")
    os.makedirs(alone)
    write_dump(alone, {}, [entry(1, "i", "shop.a", {"_id": 2}), entry(2, "u", "shop.a", {"$v": 2, "diff": {"u": {"n": 5}}}, o2={"_id": 1})])
    frond("import", alone, "--oplogReplay")
    equal(list(shop.a.find({}, sort=[("_id", 1)])), [{"_id": 1, "n": 5}, {"_id": 2}])
    write_dump(alone, {}, [entry(1, "i", "shop.a", {"_id": 3}), entry(2, "i", "shop.none", {"_id": 1})])
    _, said = frond("import", alone, "--oplogReplay", code=2)
    assert "the oplog, entry 2 (shop.none)" in said, said
    equal(shop.a.count_documents({}), 3)
    without = {"shop.archive": archive(parts), "all.archive": archive({})}
    for name, content in without.items():
        _, said = frond("import", "--oplogReplay", setting.write(name, content), code=1)
        assert "the dump has no oplog" in said, said
    _, said = frond("import", "-d", "transfer", "-c", "target", "--oplogReplay", text="{}", code=1)
    assert "--oplogReplay is for dumps" in said, said


@test
def commands_are_described(setting):
    said = subprocess.run([BINARY, "--help"], capture_output=True, text=True, check=True).stdout
    assert "Options of" not in said, said
    for command, text in (("export", "Write documents"), ("import", "Read documents"), ("migrate", "Copy another server's data")):
        assert re.search(rf"^ +{command} +{text}", said, re.M), said


@test
def users_in_a_dump(setting):
    with SecuredServer(BINARY) as server:
        server.start()
        user, password = SecuredServer.ADMIN
        uri = f"mongodb://{user}:{password.replace(' ', '%20')}@127.0.0.1:{server.port}"
        with pymongo.MongoClient(uri) as admin:
            admin.own.c.insert_one({"_id": 1})
            admin.own.command("createUser", "anna", pwd="for anna", roles=["read"])
            for name, out in (("archive", setting.path("users.archive")), ("dump", setting.path("users"))):
                frond("export", "--format", name, "-o", out, uri=uri)
                admin.own.command("dropUser", "anna")
                admin.own.c.drop()
                frond("import", "--format", name, out, uri=uri)
                with pymongo.MongoClient("127.0.0.1", server.port, username="anna", password="for anna", authSource="own") as anna:
                    equal(anna.own.c.find_one(), {"_id": 1})


if __name__ == "__main__":
    run(Setting())
