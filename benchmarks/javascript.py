#!/usr/bin/env python3
"""What functions of JavaScript cost in queries; scripts/bench-javascript.sh runs it.

    javascript.py --server BINARY --documents 1000000 --rounds 3

A collection of documents with ten fields, all in memory. The server runs on one processor, and each request reads the whole collection:
first with a condition that needs no JavaScript, then with functions. The report has the documents a second of each request, the
nanoseconds of processor time of the server for a document, without that of the workers in which functions run, and what of that the
function costs beyond the condition without one. Last come
`find` commands of one `_id`, which no function touches. More than one server takes turns: give --server several times. With
`--only '$expr'` they may be servers without JavaScript.
"""

import random
import statistics
import time

from common import Connection, Server, arguments, cpu_seconds, message

BATCH = 2_000
KEYS = 1_000
FINDS = 20_000
COLLECTION = "docs"
# Documents of the scan without JavaScript, with which the others are compared.
PLAIN = "$expr: a > b"
SAME = "$where: this.a > this.b"
MAP_REDUCE = f"mapReduce: {KEYS:,} keys"


def document(source, number):
    return {
        "_id": number,
        "k": number % KEYS,
        "a": source.randrange(1000),
        "b": source.randrange(1000),
        "name": f"customer {number}",
        "city": "Friedrichshafen",
        "price": source.random() * 100,
        "paid": number % 3 == 0,
        "tags": ["red", "round"],
        "address": {"street": "Hauptstrasse", "number": number % 100},
    }


def function(body, *args):
    return {"$function": {"body": body, "args": list(args), "lang": "js"}}


def count(query):
    return {"count": COLLECTION, "query": query, "$db": "bench"}


def total(expression):
    group = {"$group": {"_id": None, "n": {"$sum": expression}}}
    return {"aggregate": COLLECTION, "pipeline": [group], "cursor": {}, "$db": "bench"}


def map_reduce(key, value="1"):
    return {
        "mapReduce": COLLECTION,
        "map": f"function() {{ emit({key}, {value}) }}",
        "reduce": "function(key, values) { return Array.sum(values) }",
        "out": {"inline": 1},
        "$db": "bench",
    }


REQUESTS = [
    (PLAIN, count({"$expr": {"$gt": ["$a", "$b"]}})),
    (SAME, count({"$where": "this.a > this.b"})),
    ("$where: a function, a string", count({"$where": "function() { return this.a > 500 && this.city.length > 3 }"})),
    ("$where: a field in a field", count({"$where": "this.address.number > 50"})),
    ("$function: a + b", total(function("function(a, b) { return a + b }", "$a", "$b"))),
    (MAP_REDUCE, map_reduce("this.k")),
    ("mapReduce: a key for each document", {**map_reduce("this._id", "this.a"), "out": "reduced"}),
]


def load(connection, documents):
    source = random.Random(1)
    connection.insert(COLLECTION, [document(source, number) for number in range(documents)], BATCH)


def measure(server, connection, command):
    before, began = cpu_seconds(server.pid), time.perf_counter()
    reply = connection.run(command)
    seconds = time.perf_counter() - began
    return seconds, cpu_seconds(server.pid) - before, reply


def check(replies, documents):
    """The functions must have done what they say."""
    if (same := replies.get(SAME)) and same["n"] != replies[PLAIN]["n"]:
        raise RuntimeError(f"{SAME} finds {same['n']} documents, {PLAIN} {replies[PLAIN]['n']}")
    if results := replies.get(MAP_REDUCE, {}).get("results"):
        if len(results) != min(KEYS, documents) or sum(result["value"] for result in results) != documents:
            raise RuntimeError(f"{MAP_REDUCE} has wrong results")


def main():
    cpu = ("0", "the processor of the server")
    parser = arguments(__doc__, "append", documents=1_000_000, rounds=3, cache_gb="2", cpu=cpu)
    parser.add_argument("--only", default="", help="requests whose name contains this")
    options = parser.parse_args()
    requests = [request for request in REQUESTS if options.only in request[0] or request[0] == PLAIN]
    servers, connections = [], []
    try:
        for binary in options.server:
            server = Server(binary, ["--cacheSizeGB", options.cache_gb], wrap=["taskset", "-c", options.cpu])
            server.start()
            servers.append(server)
            connections.append(Connection(server.port))
            load(connections[-1], options.documents)
        report(options, requests, servers, connections)
    finally:
        for server in servers:
            server.close()


def report(options, requests, servers, connections):
    times = {}
    finds = [[] for _ in servers]
    source = random.Random(2)
    messages = [
        message({"find": COLLECTION, "filter": {"_id": source.randrange(options.documents)}, "$db": "bench"}) for _ in range(FINDS)
    ]
    for _ in range(options.rounds):
        for place, (server, connection) in enumerate(zip(servers, connections)):
            finds[place].append(connection.run_all(messages))
            replies = {}
            for name, command in requests:
                seconds, cpu, replies[name] = measure(server, connection, command)
                times.setdefault((place, name), []).append((seconds, cpu))
            check(replies, options.documents)
    for place, server in enumerate(servers):
        print(f"{server.binary}: {options.documents:,} documents, medians of {options.rounds} rounds, one processor\n")
        print("| request | documents/s | seconds | processor ns a document | more than without JavaScript |")
        print("| --- | ---: | ---: | ---: | ---: |")
        base = None
        for name, _ in requests:
            seconds, cpu = (statistics.median(column) for column in zip(*times[place, name]))
            nanoseconds = cpu / options.documents * 1e9
            base = nanoseconds if base is None else base
            rate = options.documents / seconds
            print(f"| {name} | {rate:,.0f} | {seconds:.2f} | {nanoseconds:,.0f} | {nanoseconds - base:,.0f} |")
        each = statistics.median(finds[place]) / FINDS * 1e6
        print(f"\nA find of one `_id`: {each:.1f} µs with the way through the loopback interface.\n")


if __name__ == "__main__":
    main()
