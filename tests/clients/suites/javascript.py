"""Server-side JavaScript with the current driver: $where, $function, $accumulator, mapReduce, stored functions, limits.

The behaviour is that of MongoDB's manual and of its tests' descriptions; each table has a case a line.
"""

import os
import socket
import threading
from datetime import datetime, timedelta

import pymongo
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.son import SON
from harness import raw
from harness.server import Server
from harness.tap import equal, raises, run, test
from harness.waiting import PATIENCE, wait_for_operations, wait_until
from pymongo.errors import ExecutionTimeout, OperationFailure

URI = os.environ["FROND_URI"]


def limits_of_engines(db):
    """The sum of the memory limits of all engines of JavaScript that there are."""
    return db.client.admin.command("serverStatus")["frond"]["javascript"]["heapLimits"]


def ids(cursor):
    return [doc["_id"] for doc in cursor]


def code_of(function, *args, **kwargs):
    return raises(OperationFailure, function, *args, **kwargs).code


def fill(coll, docs):
    coll.drop()
    coll.insert_many(docs)


def function(body, *args):
    return {"$function": {"body": body, "args": list(args), "lang": "js"}}


@test
def where_takes_strings_code_and_code_with_scope(db):
    c = db.where
    fill(c, [{"_id": n, "a": n, "b": 3} for n in range(6)])
    cases = [
        ("this.a > this.b", [4, 5]),
        ("obj.a == 2", [2]),
        ("function() { return this.a < 2; }", [0, 1]),
        ("return this.a == this.b", [3]),
        (Code("this.a >= 5"), [5]),
        (Code("this.a == x + y", {"x": 1, "y": 2}), [3]),
        ("() => false", []),
        ("isNumber(this.a) && Array.sum([this.a, this.b]) > 7", [5]),
    ]
    for where, expected in cases:
        equal(ids(c.find({"$where": where}).sort("_id", 1)), expected, where)
    equal(ids(c.find({"a": {"$gt": 1}, "$where": "this.a < 4"})), [2, 3])
    equal(ids(c.find({"$or": [{"$where": "this.a == 0"}, {"a": 5}]})), [0, 5])
    equal(ids(c.find().where("this.a == 1")), [1])
    # An index bounds the rest of the filter, and never changes the answer.
    c.create_index("a")
    equal(ids(c.find({"a": {"$gt": 1}, "$where": "this.b == 3"})), [2, 3, 4, 5])
    equal(ids(c.find({"a": {"$gt": 1}, "$where": "this.b == 3"}, {"_id": 1, "a": 1}).hint("a_1")), [2, 3, 4, 5])


@test
def where_works_in_every_command_with_a_filter(db):
    c = db.where_commands
    fill(c, [{"_id": n, "a": n % 3} for n in range(9)])
    where = {"$where": "this.a == 1"}
    equal(db.command("count", c.name, query=where)["n"], 3)
    equal(c.distinct("a", {"$where": "this.a > 0"}), [1, 2])
    equal(c.update_many(where, {"$set": {"b": 1}}).modified_count, 3)
    equal(c.find_one_and_update(where, {"$set": {"b": 2}}, sort=[("_id", 1)])["_id"], 1)
    equal(c.delete_one(where).deleted_count, 1)
    equal(c.delete_many(where).deleted_count, 2)
    equal(c.update_one({"$where": "this.a == 7"}, {"$set": {"x": 1}}, upsert=True).matched_count, 0)
    explained = db.command("explain", {"find": c.name, "filter": where})
    equal(explained["queryPlanner"]["winningPlan"]["stage"], "COLLSCAN")


@test
def where_is_refused_where_mongodb_refuses_it(db):
    c = db.where_refused
    fill(c, [{"_id": 1, "a": [1]}])
    cases = [
        (2, lambda: list(c.aggregate([{"$match": {"$where": "1"}}]))),
        (2, lambda: list(c.find({"a": {"$where": "1"}}))),
        (2, lambda: list(c.find({"a": {"$elemMatch": {"$where": "1"}}}))),
        (2, lambda: list(c.find({"$where": 5}))),
        (2, lambda: db.create_collection("validated", validator={"$where": "1"})),
        (4660800, lambda: db.create_collection("validated", validator={"$expr": function("1")})),
        (139, lambda: list(c.find({"$where": "this."}))),
        (139, lambda: list(c.find({"$where": "nothing.x"}))),
        (139, lambda: list(c.find({"$where": "throw 'mine'"}))),
    ]
    for number, (code, call) in enumerate(cases):
        equal(code_of(call), code, f"case {number}")
    raises(OperationFailure, c.create_index, "a", partialFilterExpression={"$where": "1"})


@test
def types_are_those_of_the_shell(db):
    c = db.types
    values = {
        "double": 1.5, "int": 7, "long": Int64(2**60), "decimal": Decimal128("1.50"), "text": "grün", "true": True,
        "null": None, "id": ObjectId(), "binary": Binary(b"\x00\x01", 5), "regex": Regex("^a", "i"),
        "stamp": Timestamp(5, 6), "min": MinKey(), "max": MaxKey(), "doc": {"x": 1}, "list": [1, "a"],
        "ref": DBRef("c", 5), "code": Code("f()"),
    }  # fmt: skip
    fill(c, [{"_id": 1, **values}])
    # What is read and returned is the same, but numbers that were taken out of a document are doubles.
    (whole,) = c.aggregate([{"$project": {"_id": 0, "v": function("function(d) { return d }", "$$ROOT")}}])
    equal({**whole["v"]}, {"_id": 1, **values})
    for name, value in values.items():
        (got,) = c.aggregate([{"$project": {"v": function("function(v) { return v }", f"${name}")}}])
        equal(got["v"], value, name)
    (kinds,) = c.aggregate([{"$project": {"v": {"$type": function("function(v) { return v }", "$int")}}}])
    equal(kinds["v"], "double")
    cases = [
        ("typeof this.long == 'object' && this.long instanceof NumberLong && this.long > 5", True),
        ("this.decimal instanceof NumberDecimal", True),
        ("this.id instanceof ObjectId && this.id.str.length == 24", True),
        ("this.binary.type == 5 && this.binary.hex() == '0001'", True),
        ("this.stamp.t == 5", True),
        ("this.ref.$id == 5", True),
        ("tojson(this.doc) == '{ \"x\" : 1 }'", True),
        ("ISODate('2020-01-01T00:00:00Z').getTime() == 1577836800000", True),
    ]
    for where, expected in cases:
        equal(c.count_documents({}) == 1 and bool(list(c.find({"$where": where}))), expected, where)


@test
def function_is_an_expression(db):
    c = db.functions
    fill(c, [{"_id": n, "a": n, "tags": ["x", "y"]} for n in range(3)])
    pipeline = [{"$project": {"v": function("function(a, t) { return t.join('') + a }", {"$add": ["$a", 1]}, "$tags")}}]
    equal([doc["v"] for doc in c.aggregate(pipeline)], ["xy1", "xy2", "xy3"])
    equal(ids(c.find({"$expr": function("function(a) { return a > 1 }", "$a")})), [2])
    equal(c.find_one({"_id": 1}, {"v": function("function(a) { return a * 2 }", "$a")})["v"], 2.0)
    c.update_one({"_id": 0}, [{"$set": {"b": function("function() { return {n: NumberLong(5)} }")}}])
    equal(c.find_one({"_id": 0})["b"], {"n": 5})
    joined = c.aggregate([{"$match": {"_id": 1}}, {"$lookup": {
        "from": c.name, "as": "j", "let": {"a": "$a"},
        "pipeline": [{"$match": {"$expr": function("function(x, y) { return x == y + 1 }", "$a", "$$a")}}],
    }}])  # fmt: skip
    equal([doc["_id"] for doc in next(joined)["j"]], [2])
    db.drop_collection("function_view")
    db.create_collection("function_view", viewOn=c.name, pipeline=[{"$set": {"v": function("function(a) { return -a }", "$a")}}])
    equal([doc["v"] for doc in db.function_view.find({"_id": {"$gt": 0}}).sort("_id", 1)], [-1.0, -2.0])
    refused = [
        ({"body": "f", "args": []}, 31418), ({"body": "f", "lang": "js"}, 31263), ({"args": [], "lang": "js"}, 31261),
        ({"body": 5, "args": [], "lang": "js"}, 31262), ({"body": "f", "args": [], "lang": "py"}, 31419),
        ({"body": "function() { return 1 }", "args": 5, "lang": "js"}, 31266),
    ]  # fmt: skip
    for spec, code in refused:
        equal(code_of(lambda: list(c.aggregate([{"$project": {"v": {"$function": spec}}}]))), code, spec)


AVERAGE = {
    "init": "function(start) { return {n: 0, sum: start} }",
    "initArgs": [0],
    "accumulate": "function(s, a) { return {n: s.n + 1, sum: s.sum + a} }",
    "accumulateArgs": ["$a"],
    "merge": "function(s, t) { return {n: s.n + t.n, sum: s.sum + t.sum} }",
    "finalize": "function(s) { return s.sum / s.n }",
    "lang": "js",
}


@test
def accumulators_make_one_value_of_a_group(db):
    c = db.accumulators
    fill(c, [{"_id": n, "k": n % 3, "a": n} for n in range(3000)])
    group = {"$group": {"_id": "$k", "avg": {"$accumulator": AVERAGE}, "own": {"$avg": "$a"}}}
    groups = list(c.aggregate([group, {"$sort": {"_id": 1}}]))
    equal([doc["avg"] for doc in groups], [doc["own"] for doc in groups])
    equal([doc["_id"] for doc in groups], [0, 1, 2])
    plain = {name: value for name, value in AVERAGE.items() if name != "finalize"}
    (only,) = c.aggregate([{"$group": {"_id": None, "s": {"$accumulator": plain}}}])
    equal(only["s"], {"n": 3000.0, "sum": 4498500.0})
    # Groups that do not fit into memory go through files.
    limit = db.client.admin.command("setParameter", 1, internalDocumentSourceGroupMaxMemoryBytes=200_000)["was"]
    try:
        wide = {"$group": {"_id": {"$mod": ["$a", 1500]}, "avg": {"$accumulator": AVERAGE}}}
        spilled = list(c.aggregate([wide, {"$sort": {"_id": 1}}], allowDiskUse=True))
        equal(len(spilled), 1500)
        equal(spilled[7]["avg"], (7 + 1507) / 2)
    finally:
        db.client.admin.command("setParameter", 1, internalDocumentSourceGroupMaxMemoryBytes=limit)
    refused = [("init", 4544707), ("accumulate", 4544708), ("merge", 4544709), ("accumulateArgs", 4544710)]
    for name, code in refused:
        spec = {key: value for key, value in AVERAGE.items() if key != name}
        equal(code_of(lambda: list(c.aggregate([{"$group": {"_id": 1, "v": {"$accumulator": spec}}}]))), code, name)
    for change, code in [({"lang": "x"}, 4544705), ({"more": 1}, 4544706), ({"initArgs": 5}, 4544711), ({"accumulateArgs": 5}, 4544712)]:
        spec = {**AVERAGE, **change}
        equal(code_of(lambda: list(c.aggregate([{"$group": {"_id": 1, "v": {"$accumulator": spec}}}]))), code, change)


MAP = Code("function() { for (var t of this.tags) emit(t, this.n) }")
REDUCE = Code("function(key, values) { return Array.sum(values) }")


def map_reduce(db, coll, out, **more):
    command = SON([("mapReduce", coll), ("map", MAP), ("reduce", REDUCE), ("out", out)])
    command.update(more)
    return db.command(command)


def values(coll):
    return {doc["_id"]: doc["value"] for doc in coll.find()}


def fill_orders(db):
    fill(db.orders, [{"_id": n, "n": n, "tags": ["a", "b"] if n % 2 else ["a"]} for n in range(1, 7)])


@test
def map_reduce_has_every_output(db):
    fill_orders(db)
    for name in ("reduced", "elsewhere"):
        db.drop_collection(name)
        db.client["js_other"].drop_collection(name)
    results = map_reduce(db, "orders", {"inline": 1})["results"]
    equal(results, [{"_id": "a", "value": 21.0}, {"_id": "b", "value": 9.0}])
    out = db.reduced
    equal(map_reduce(db, "orders", "reduced")["result"], "reduced")
    equal(values(out), {"a": 21.0, "b": 9.0})
    out.insert_one({"_id": "old", "value": 1.0})
    map_reduce(db, "orders", {"replace": "reduced"}, query={"_id": 1})
    equal(values(out), {"a": 1.0, "b": 1.0})
    out.insert_one({"_id": "old", "value": 5.0})
    map_reduce(db, "orders", {"merge": "reduced", "nonAtomic": True}, query={"_id": 2})
    equal(values(out), {"a": 2.0, "b": 1.0, "old": 5.0})
    map_reduce(db, "orders", {"reduce": "reduced"}, query={"_id": 3})
    equal(values(out), {"a": 5.0, "b": 4.0, "old": 5.0})
    reply = map_reduce(db, "orders", {"replace": "elsewhere", "db": "js_other"})
    equal(reply["result"], {"db": "js_other", "collection": "elsewhere"})
    equal(values(db.client["js_other"].elsewhere), {"a": 21.0, "b": 9.0})
    # Both spellings, and strings for code.
    reply = db.command(SON([("mapreduce", "orders"), ("map", str(MAP)), ("reduce", str(REDUCE)), ("out", {"inline": 1})]))
    equal(reply["results"], results)
    equal(map_reduce(db, "nothing", {"inline": 1})["results"], [])


@test
def map_reduce_has_every_option(db):
    fill_orders(db)
    finalize = Code("function(key, value) { return {key: key, value: value + plus} }")
    scope = {"plus": 100, "twice": Code("function(x) { return 2 * x }")}
    results = map_reduce(db, "orders", {"inline": 1}, finalize=finalize, scope=scope)["results"]
    equal(results[0], {"_id": "a", "value": {"key": "a", "value": 121.0}})
    map_twice = Code("function() { emit(1, twice(this.n)) }")
    results = map_reduce(db, "orders", {"inline": 1}, map=map_twice, scope=scope)["results"]
    equal(results, [{"_id": 1.0, "value": 42.0}])
    sums = [
        (dict(query={"n": {"$gt": 4}}), 11.0), (dict(sort={"n": -1}, limit=2), 11.0), (dict(limit=2), 3.0),
        (dict(query={"$where": "this.n == 4"}), 4.0), (dict(jsMode=True, verbose=True), 21.0),
        (dict(bypassDocumentValidation=True), 21.0),
    ]  # fmt: skip
    for options, expected in sums:
        results = map_reduce(db, "orders", {"inline": 1}, **options)["results"]
        equal(results[0]["value"], expected, options)
    fill(db.words, [{"_id": 1, "w": "x"}, {"_id": 2, "w": "X"}])
    by_word = Code("function() { emit(this.w, 1) }")
    collation = {"locale": "en", "strength": 2}
    equal(len(map_reduce(db, "words", {"inline": 1}, map=by_word, collation=collation)["results"]), 1)
    # One value is reduced, too, and a function may emit nothing or more.
    count = Code("function(k, v) { return v.length }")
    results = map_reduce(db, "words", {"inline": 1}, map=by_word, reduce=count)["results"]
    equal(results, [{"_id": "X", "value": 1.0}, {"_id": "x", "value": 1.0}])
    # Documents are passed to the function in batches, here by their number and by what they emit.
    fill(db.many, [{"_id": n, "tags": ["x", n % 700], "n": n} for n in range(2000)])
    results = {result["_id"]: result["value"] for result in map_reduce(db, "many", {"inline": 1})["results"]}
    equal((len(results), results["x"], results[699]), (701, 1999000.0, 699.0 + 1399.0))
    wide = Code("function() { emit(this._id % 2, {n: 1, s: 'x'.repeat(20000)}) }")
    count = Code("function(key, values) { return {n: Array.sum(values.map(value => value.n))} }")
    results = map_reduce(db, "many", {"inline": 1}, map=wide, reduce=count)["results"]
    equal([result["value"] for result in results], [{"n": 1000.0}, {"n": 1000.0}])
    explained = db.command("explain", SON([("mapReduce", "orders"), ("map", MAP), ("reduce", REDUCE), ("out", {"inline": 1})]))
    equal([next(iter(stage)) for stage in explained["stages"]][-2:], ["$group", "$sort"])


@test
def map_reduce_refuses_what_mongodb_refuses(db):
    fill_orders(db)
    db.drop_collection("orders_view")
    db.create_collection("orders_view", viewOn="orders", pipeline=[])
    cases = [
        (166, "orders_view", {"inline": 1}, {}),
        (13606, "orders", 5, {}),
        (13522, "orders", {}, {}),
        (15895, "orders", {"replace": "x", "nonAtomic": False}, {}),
        (72, "orders", {"inline": 1, "sharded": True}, {}),
        (115, "orders", {"replace": "x", "db": "admin"}, {}),
        (15958, "orders", {"inline": 1}, {"limit": -1}),
        (139, "orders", {"inline": 1}, {"map": Code("function() { nothing.x }")}),
        (139, "orders", {"inline": 1}, {"reduce": Code("function() { throw new Error('r') }")}),
        (139, "orders", {"inline": 1}, {"finalize": Code("function() { throw new Error('f') }")}),
        (17260, "orders", {"inline": 1}, {"map": Code("function() { emit(1, 'x'.repeat(2e7)) }")}),
        (40415, "orders", {"inline": 1}, {"nonsense": 1}),
    ]
    for code, coll, out, more in cases:
        equal(code_of(map_reduce, db, coll, out, **more), code, (out, more))


@test
def stored_functions_are_seen_by_where_and_map_reduce(db):
    fill_orders(db)
    db.system.js.delete_many({})
    db.system.js.insert_many([
        {"_id": "triple", "value": Code("function(x) { return 3 * x }")},
        {"_id": "limit", "value": 15},
        {"_id": "broken", "value": Code("function(")},
    ])  # fmt: skip
    equal(ids(db.orders.find({"$where": "triple(this.n) >= limit"})), [5, 6])
    tripled = Code("function() { emit(1, triple(this.n)) }")
    equal(map_reduce(db, "orders", {"inline": 1}, map=tripled)["results"], [{"_id": 1.0, "value": 63.0}])
    # Expressions do not see them, as in MongoDB.
    seen = function("function() { return typeof triple }")
    equal(next(db.orders.aggregate([{"$project": {"v": seen}}]))["v"], "undefined")
    # They are those of the database, and of now.
    equal(code_of(lambda: list(db.client["js_other"].elsewhere.find({"$where": "triple(1)"}))), 139)
    db.system.js.replace_one({"_id": "triple"}, {"_id": "triple", "value": Code("function(x) { return 0 }")})
    equal(ids(db.orders.find({"$where": "triple(this.n) >= limit"})), [])
    db.system.js.delete_many({})


@test
def requests_see_nothing_of_each_other(db):
    fill(db.isolated, [{"_id": 1}])
    c = db.isolated
    for pollution in [
        "leak = 1", "Object.prototype.polluted = 1", "Array.sum = null", "globalThis.tojson = null",
        "this.constructor.prototype.polluted = 1", "Object.getPrototypeOf(this).polluted = 1",
        "Date = null", "Promise.resolve().then(function() { leak = 2 })",
    ]:  # fmt: skip
        list(c.find({"$where": f"{pollution}; return true"}))
        seen = "typeof leak == 'undefined' && {}.polluted === undefined && Array.sum([1, 2]) == 3 && tojson(1) == '1' && typeof Date == 'function'"
        for _ in range(8):
            equal(len(list(c.find({"$where": seen}))), 1, pollution)
    # No file, no network, no process.
    for name in ["require", "process", "load", "std", "os", "fetch", "XMLHttpRequest", "cat", "runProgram", "db"]:
        equal(len(list(c.find({"$where": f"typeof {name} == 'undefined'"}))), 1, name)


@test
def loops_end_at_their_limit_and_when_they_are_killed(db):
    fill(db.loops, [{"_id": 1}])
    for loop in ["for (;;) {}", "while (1) { try { for (;;) {} } catch (e) {} }", "function f() { try { f() } finally { f() } } f()"]:
        raises(ExecutionTimeout, lambda: list(db.loops.find({"$where": f"{loop}; return true"}).max_time_ms(300)))
    raises(ExecutionTimeout, lambda: list(db.loops.aggregate([{"$project": {"v": function("function() { for (;;) {} }")}}], maxTimeMS=300)))
    equal(code_of(map_reduce, db, "loops", {"inline": 1}, map=Code("function() { for (;;) {} }"), maxTimeMS=300), 50)
    failed = []

    def endless():
        with pymongo.MongoClient(URI) as client:
            failed.append(code_of(lambda: list(client[db.name].loops.find({"$where": "for (;;) {}"}).comment("endless"))))

    thread = threading.Thread(target=endless, daemon=True)
    thread.start()
    (operation,) = wait_for_operations(db.client, 1, {"command.comment": "endless"})
    db.client.admin.command("killOp", op=operation["opid"])
    thread.join(PATIENCE)
    equal(failed, [11601])


@test
def functions_end_when_their_client_disconnects(db):
    fill(db.left, [{"_id": n} for n in range(3)])
    endless, coll = "for (;;) {}", "left"
    forever = {"$function": {"body": "function() { for (;;) {} }", "args": [], "lang": "js"}}
    statements = {
        "update": {"update": coll, "updates": [{"q": {"$where": endless}, "u": {"$set": {"x": 1}}, "multi": True}]},
        "delete": {"delete": coll, "deletes": [{"q": {"$where": endless}, "limit": 0}]},
    }
    commands = [
        {"find": coll, "filter": {"$where": endless}},
        {"aggregate": coll, "pipeline": [{"$project": {"v": forever}}], "cursor": {}},
        {"mapReduce": coll, "map": endless, "reduce": "1", "out": {"inline": 1}},
        {"findAndModify": coll, "query": {"$where": endless}, "remove": True},
        *statements.values(),
    ]

    def running():
        return db.client.admin.command(SON([("currentOp", 1), ("command.comment", "leaves")]))["inprog"]

    port = pymongo.uri_parser.parse_uri(URI)["nodelist"][0][1]
    for command in commands:
        with raw.Connection(port) as connection:
            connection.send(raw.op_msg({**command, "comment": "leaves"}, db.name))
            wait_until(f"{command} begins", running)
        wait_until(f"{command} ends", lambda: not running())
    equal(db.left.count_documents({"x": {"$exists": False}}), 3)


@test
def a_client_that_closes_only_its_half_gets_its_reply(db):
    fill(db.half, [{"_id": n} for n in range(3)])
    port = pymongo.uri_parser.parse_uri(URI)["nodelist"][0][1]
    with raw.Connection(port) as connection:
        connection.send(raw.op_msg({"find": "half", "filter": {"$where": "this._id == 1"}}, db.name))
        connection.socket.shutdown(socket.SHUT_WR)
        equal(connection.receive()[2]["cursor"]["firstBatch"], [{"_id": 1}])


# An array with 2 to the power of 60 leaves, which a function of the language's library walks without looking whether it is interrupted.
SHARED = "var g = [1]; for (var i = 0; i < 60; i++) g = [g, g];"
HOSTILE = [
    f"{SHARED} return g.flat(Infinity)",
    f"{SHARED} return JSON.stringify(g)",
    "return 'a'.repeat(2e7).split('a'.repeat(1e7) + 'b')",
    "return Array.prototype.indexOf.call({length: 2 ** 53 - 1}, 1)",
    "var a = []; a.length = 4294967295; return a.join('')",
    "return new Array(1e6).fill(new Array(1000).fill(7)).forEach(JSON.stringify)",
]


def workers(db):
    """Figures on the processes that run functions."""
    return db.client.admin.command("serverStatus")["frond"]["javascript"]["workers"]


def processes_of(pid):
    """The processes that a process has started."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="ascii") as stat:
                    name, fields = stat.read().rsplit(")", 1)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields.split()[1]) == pid and fields.split()[0] != "Z":
                found.append((int(entry), name.split("(", 1)[1]))
    return found


@test
def functions_that_work_inside_of_the_library_end_when_they_must(db):
    fill(db.hostile, [{"_id": 1}])
    for code in HOSTILE:
        raises(ExecutionTimeout, lambda: list(db.hostile.find({"$where": code}).max_time_ms(200)))
    body = f"function() {{ {HOSTILE[0]} }}"
    raises(ExecutionTimeout, lambda: list(db.hostile.aggregate([{"$project": {"v": function(body)}}], maxTimeMS=200)))
    equal(code_of(map_reduce, db, "hostile", {"inline": 1}, map=Code(body), maxTimeMS=200), 50)
    accumulator = {**AVERAGE, "accumulate": body}
    raises(ExecutionTimeout, lambda: list(db.hostile.aggregate([{"$group": {"_id": 1, "v": {"$accumulator": accumulator}}}], maxTimeMS=200)))
    before = workers(db)["killed"]
    port = pymongo.uri_parser.parse_uri(URI)["nodelist"][0][1]
    for number, code in enumerate(HOSTILE):
        comment = f"hostile {number}"
        command = {"find": "hostile", "filter": {"$where": code}, "comment": comment}
        # One is killed, and the client of the next one leaves.
        with raw.Connection(port) as connection:
            connection.send(raw.op_msg(command, db.name))
            (operation,) = wait_for_operations(db.client, 1, {"command.comment": comment})
            if number % 2 == 0:
                db.client.admin.command("killOp", op=operation["opid"])
                equal(connection.receive()[2]["code"], 11601)
        wait_for_operations(db.client, 0, {"command.comment": comment})
    equal(workers(db)["killed"] - before <= len(HOSTILE), True)
    wait_until("no engines", lambda: limits_of_engines(db) == 0)
    equal(len(list(db.hostile.find({"$where": "true"}))), 1)


@test
def hostile_functions_do_not_keep_others_waiting(db):
    fill(db.crowd, [{"_id": n} for n in range(3)])
    command = {"find": "crowd", "filter": {"$where": HOSTILE[3]}, "comment": "crowd"}
    port = pymongo.uri_parser.parse_uri(URI)["nodelist"][0][1]
    connections = []
    try:
        for _ in range(130):
            connections.append(raw.Connection(port))
            connections[-1].send(raw.op_msg(command, db.name))
        wait_until("130 functions", lambda: workers(db)["current"] >= 130)
        for n in range(100):
            equal(db.crowd.find_one({"_id": n % 3}), {"_id": n % 3})
        equal(len(list(db.crowd.find({"$where": "this._id > 0"}))), 2)
        operations = wait_for_operations(db.client, 130, {"command.comment": "crowd"})
        for operation in operations:
            db.client.admin.command("killOp", op=operation["opid"])
        for connection in connections:
            equal(connection.receive()[2]["code"], 11601)
    finally:
        for connection in connections:
            connection.__exit__()
    wait_until("few processes", lambda: workers(db)["current"] <= 5)
    equal(limits_of_engines(db), 0)


@test
def the_server_stops_while_functions_run_and_leaves_no_process(_):
    for stops in (Server.stop, Server.kill):
        with Server(os.environ["FROND_BINARY"]) as server:
            server.start()
            with pymongo.MongoClient(server.uri) as client:
                client.test.c.insert_many([{"_id": n} for n in range(3)])
                with raw.Connection(server.port) as connection:
                    connection.send(raw.op_msg({"find": "c", "filter": {"$where": HOSTILE[3]}, "comment": "runs"}, "test"))
                    wait_for_operations(client, 1, {"command.comment": "runs"})
                    wait_until("a process", lambda: workers(client.test)["current"] == 1)
                    # One that waits for a request is there, too.
                    equal(len(list(client.test.c.find({"$where": "true"}))), 3)
                    started = [pid for pid, _ in processes_of(server.pid)]
                    equal(len(started) >= 1, True)
                    stops(server)
            wait_until("no processes", lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in started))


@test
def workers_have_nothing_of_the_server(_):
    with Server(os.environ["FROND_BINARY"]) as server:
        server.start()
        with pymongo.MongoClient(server.uri) as client:
            client.test.c.insert_one({"_id": 1})
            equal(len(list(client.test.c.find({"$where": "true"}))), 1)
            ((pid, name),) = processes_of(server.pid)
            equal(name, "frond-js")
            links = {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
            equal([links["1"], links["2"]], ["/dev/null"] * 2)
            # Its standard input, and the same socket once more for each direction.
            equal({link.split(":")[0] for fd, link in links.items() if fd not in "12"}, {"socket"})
            equal(len(set(links.values())), 2, links)
            equal(os.readlink(f"/proc/{pid}/cwd"), "/")
            with open(f"/proc/{pid}/environ", "rb") as environment:
                # The settings of its allocator, and the time zone.
                names = {one.split(b"=")[0] for one in environment.read().split(b"\0") if one}
                equal(names - {b"TZ", b"TZDIR"}, {b"_RJEM_MALLOC_CONF"})
            with open(f"/proc/{pid}/limits", encoding="ascii") as limits:
                soft = {line[:25].strip(): line[26:].split()[0] for line in limits}
            equal([soft[f"Max {name}"] for name in ("core file size", "file size", "processes", "open files")], ["0", "0", "0", "16"])
            equal(int(soft["Max data size"]) < 3 << 30, True)
            with open(f"/proc/{pid}/status", encoding="ascii") as status:
                equal("NoNewPrivs:\t1\n" in status.read(), True)
            # Memory beside the engine's ends the worker, not the server.
            keep = function("function(d) { kept = typeof kept == 'undefined' ? [] : kept; kept.push(d) }", "$$ROOT")
            client.test.c.insert_many([{"_id": n, "s": "x" * 15_000_000} for n in range(2, 5)])
            client.admin.command("setParameter", 1, jsHeapLimitMB=8)
            copies = [{"$match": {"_id": {"$gt": 1}}}, {"$set": {"n": {"$range": [0, 20]}}}, {"$unwind": "$n"}]
            pipeline = [*copies, {"$project": {"v": keep}}]
            equal(code_of(lambda: list(client.test.c.aggregate(pipeline))), 139)
            equal(workers(client.test)["lost"], 1)
            equal(len(list(client.test.c.find({"$where": "true"}, {"_id": 1}))), 4)


@test
def functions_run_on_time_series(db):
    db.drop_collection("series")
    db.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    start = datetime(2024, 1, 1)
    db.series.insert_many([{"_id": n, "t": start + timedelta(minutes=n), "m": {"s": n % 2}, "v": n} for n in range(6)])
    cases = [
        ("this.v > 3", [4, 5]),
        ("this.m.s == 1 && this.v < 4", [1, 3]),
        ("this.t.getUTCMinutes() == 2", [2]),
    ]
    for where, expected in cases:
        equal(sorted(ids(db.series.find({"$where": where}))), expected, where)
    equal(db.command("count", "series", query={"$where": "this.v > 0"})["n"], 5)
    total = function("function(m, v) { return m.s * 100 + v }", "$m", "$v")
    equal([doc["x"] for doc in db.series.aggregate([{"$sort": {"_id": 1}}, {"$project": {"x": total}}])], [0, 101, 2, 103, 4, 105])
    by_sensor = Code("function() { emit(this.m.s, this.v) }")
    results = map_reduce(db, "series", {"inline": 1}, map=by_sensor)["results"]
    equal(results, [{"_id": 0.0, "value": 6.0}, {"_id": 1.0, "value": 9.0}])


@test
def memory_and_recursion_are_bounded_and_come_back(db):
    fill(db.memory, [{"_id": n} for n in range(3)])
    cases = [
        "function f() { return f() + 1 } return f()",
        "var s = 'x'; for (;;) s += s",
        "var a = []; for (;;) a.push('x'.repeat(1e6) + a.length)",
        "var a = []; for (;;) a.push({a: a.length})",
        "return new Array(1e9).fill(0).length > 0",
        "return [...'x'.repeat(5e8)].length > 0",
    ]
    limit = db.client.admin.command("setParameter", 1, jsHeapLimitMB=64)["was"]
    try:
        for code in cases:
            equal(code_of(lambda: list(db.memory.find({"$where": code}))), 139, code)
        outcomes = []

        def one(number):
            with pymongo.MongoClient(URI) as client:
                code = cases[number % len(cases)] if number % 2 else "for (;;) {}"
                find = client[db.name].memory.find({"$where": code}).max_time_ms(2500)
                outcomes.append(code_of(lambda: list(find)))

        threads = [threading.Thread(target=one, args=[number]) for number in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        equal(len(outcomes), 64)
        equal(set(outcomes) <= {50, 139}, True, set(outcomes))
    finally:
        db.client.admin.command("setParameter", 1, jsHeapLimitMB=limit)
    equal(len(list(db.memory.find({"$where": "true"}))), 3)
    # With the requests their engines end, and with these all that they had.
    wait_until("no engines", lambda: limits_of_engines(db) == 0)


@test
def results_have_the_size_of_a_document(db):
    fill(db.sizes, [{"_id": 1}])
    cases = [
        ("function() { return 'x'.repeat(17 * 1024 * 1024) }", 17260),
        ("function() { var a = []; a.push(a); return a }", 17279),
        ("function() { return {'a\\0b': 1} }", 16985),
    ]
    for body, code in cases:
        equal(code_of(lambda: list(db.sizes.aggregate([{"$project": {"v": function(body)}}]))), code, body)


@test
def javascript_can_be_turned_off(db):
    with Server(os.environ["FROND_BINARY"], options=["--noscripting"]) as server:
        server.start()
        with pymongo.MongoClient(server.uri) as client:
            c = client.test.c
            c.insert_one({"_id": 1})
            equal(code_of(lambda: list(c.find({"$where": "1"}))), 6108304)
            equal(code_of(lambda: list(c.aggregate([{"$project": {"v": function("1")}}]))), 31264)
            equal(code_of(map_reduce, client.test, "c", {"inline": 1}), 31264)
            equal(client.admin.command("buildInfo")["javascriptEngine"], "none")
    equal(db.client.admin.command("buildInfo")["javascriptEngine"], "quickjs")
    equal(code_of(db.command, "eval", "1"), 59)
    equal(code_of(db.command, "group", {"ns": "c"}), 59)


@test
def group_and_eval_can_be_turned_on(_):
    with Server(os.environ["FROND_BINARY"], options=["--setParameter", "enableGroupAndEval=true"]) as server:
        server.start()
        with pymongo.MongoClient(server.uri) as client:
            db = client.test
            db.c.insert_many([{"_id": n, "shop": "ab"[n % 2], "n": n} for n in range(6)])
            spec = {
                "ns": "c", "key": {"shop": True}, "cond": {"n": {"$gt": 0}}, "initial": {"sum": 0, "count": 0},
                "$reduce": Code("function(doc, out) { out.sum += doc.n; out.count++ }"),
                "finalize": Code("function(out) { out.mean = out.sum / out.count }"),
            }  # fmt: skip
            reply = db.command("group", spec)
            equal((reply["count"], reply["keys"]), (5, 2))
            equal(
                sorted(reply["retval"], key=lambda group: group["shop"]),
                [{"shop": "a", "sum": 6.0, "count": 2.0, "mean": 3.0}, {"shop": "b", "sum": 9.0, "count": 3.0, "mean": 3.0}],
            )
            equal(db.command("eval", Code("function(a, b) { return a + b }"), args=[2, 3])["retval"], 5.0)
            equal(code_of(db.command, "eval", Code("function() { return db.c.count() }")), 139)
            equal(client.admin.command("getParameter", 1, enableGroupAndEval=1)["enableGroupAndEval"], True)
            # A loop ends at its limit.
            equal(code_of(db.command, "eval", Code("function() { for (;;) {} }"), maxTimeMS=200), 50)


if __name__ == "__main__":
    with pymongo.MongoClient(URI) as client:
        client.drop_database("js")
        run(client["js"])
