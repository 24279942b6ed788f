"""What clients do to a server's memory, each as a load of its own: idle cursors, replies that nobody reads, large sorts, large
batches, many connections, and the main job beside them.

A load runs in a process of its own and counts what happened. `--small` sizes are for a try.
"""

import collections
import multiprocessing
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from harness import raw

DATABASE = "bounded"
BIG_BYTES = 15 << 20


def client_of(port, **options):
    """A client that waits for long, since the server is busy."""
    return MongoClient(
        "127.0.0.1", port, retryWrites=False, retryReads=False, serverSelectionTimeoutMS=60_000, maxPoolSize=None, **options)


class Load:
    """A load: `prepare` writes what it needs, `run` goes on until `ending` is set."""

    def __init__(self, port, size, counts, ending):
        self.port, self.size, self.counts, self.ending = port, size, counts, ending

    @staticmethod
    def prepare(client, size):
        """Writes what the load reads."""

    def run(self):
        """Runs it."""
        raise NotImplementedError

    def count(self, what, number=1):
        self.counts[what] = self.counts.get(what, 0) + number

    def threads(self, number, work):
        """Runs `work` in threads until the end; it counts and forgets errors."""

        def repeat(index):
            while not self.ending.is_set():
                try:
                    work(index)
                except OperationFailure as error:
                    with lock:
                        self.count(f"error {error.code} {(error.details or {}).get('codeName', '')}".strip())
                    time.sleep(0.1)
                except (PyMongoError, OSError, raw.Closed, struct.error) as error:
                    with lock:
                        self.count(type(error).__name__)
                    time.sleep(0.5)

        lock = threading.Lock()
        started = [threading.Thread(target=repeat, args=(index,), daemon=True) for index in range(number)]
        for thread in started:
            thread.start()
        self.ending.wait()
        for thread in started:
            thread.join(5)


class IdleCursors(Load):
    """Cursors that are opened over a minute on what the main job writes, and then left. At the end each is read on."""

    name, number = "idle cursors", 1000

    @staticmethod
    def prepare(client, size):
        client[DATABASE].written.insert_many([{"text": "x" * 500, "n": n} for n in range(2000)])

    def run(self):
        # The writes beside the cursors: each pins what is in memory when it is opened.
        with client_of(self.port) as client:
            written = client[DATABASE].written
            cursors = []
            each = 60 / self.size(self.number)
            serial = 0
            while not self.ending.wait(each if len(cursors) < self.size(self.number) else 1):
                try:
                    written.insert_many([{"text": "%0500x" % serial, "n": serial + n} for n in range(200)])
                    serial += 200
                    if len(cursors) < self.size(self.number):
                        cursor = written.find({}, batch_size=2, no_cursor_timeout=False)
                        next(cursor)
                        cursors.append(cursor)
                        self.count("opened")
                except PyMongoError as error:
                    self.count(f"error {getattr(error, 'code', None) or type(error).__name__}")
                    time.sleep(0.5)
            for cursor in cursors[:: max(1, len(cursors) // 100)]:
                try:
                    for _ in range(10):
                        next(cursor)
                    self.count("of a hundred read on")
                except PyMongoError as error:
                    self.count(f"of a hundred closed: error {getattr(error, 'code', None) or type(error).__name__}")


class UnreadReplies(Load):
    """Clients that ask for 15 MiB and do not read the reply."""

    name, number = "unread replies", 200

    @staticmethod
    def prepare(client, size):
        part = os.urandom(BIG_BYTES // 15)
        client[DATABASE].big.insert_many([{"part": part} for _ in range(15)])

    def run(self):
        held = []
        request = raw.op_msg({"find": "big", "batchSize": 15}, DATABASE)
        while not self.ending.wait(0.02):
            try:
                if len(held) < self.size(self.number):
                    connection = socket.socket()
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    connection.settimeout(10)
                    connection.connect(("127.0.0.1", self.port))
                    connection.sendall(request)
                    held.append(connection)
                    self.count("asked")
            except OSError as error:
                self.count(type(error).__name__)
                time.sleep(0.5)


class Sorts(Load):
    """Sorts of 800 MB by a field without an index, all at the same time."""

    name, number, megabytes = "sorts of 800 MB", 50, 800

    @staticmethod
    def prepare(client, size):
        rows = size(Sorts.megabytes) * 125
        for start in range(0, rows, 1000):
            client[DATABASE].rows.insert_many(
                [{"by": (number * 7_919) % 1_000_003, "text": f"{number} " * 700 + "." * 3000} for number in range(start, start + 1000)])

    def run(self):
        client = client_of(self.port)

        def work(_):
            previous, count = -1, 0
            for document in client[DATABASE].rows.find({}, {"by": 1}, sort=[("by", 1), ("text", 1)], batch_size=1000):
                assert document["by"] >= previous
                previous, count = document["by"], count + 1
            self.count("finished")

        self.threads(self.size(self.number), work)


class Batches(Load):
    """Writers of batches of 16 MiB, each into a collection that is dropped now and then."""

    name, number = "batches of 16 MiB", 64

    def run(self):
        client = client_of(self.port)
        # Pairs of letters, so that the files stay small: it is the memory that counts here.
        documents = [{"text": "ab" * 4096} for _ in range(1950)]
        sent = collections.Counter()

        def work(index):
            collection = client[DATABASE][f"batch{index}"]
            collection.insert_many([dict(document) for document in documents], ordered=False)
            self.count("batches")
            sent[index] += 1
            if sent[index] % 10 == 0:
                collection.drop()

        self.threads(self.size(self.number), work)


class Connections(Load):
    """Connections that say hello, and then a ping from one of them now and then."""

    name, number = "connections", 10_000

    def run(self):
        number = self.size(self.number)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        held, turn = [], 0
        while not self.ending.wait(0 if len(held) < number else 0.005):
            try:
                if len(held) < number:
                    connection = raw.Connection(self.port, 30)
                    connection.command({"hello": 1})
                    held.append(connection)
                    self.count("opened")
                else:
                    turn = (turn + 997) % number
                    connection = held[turn]
                    connection.command({"ping": 1})
                    self.count("pings")
            except (OSError, raw.Closed, struct.error) as error:
                self.count(type(error).__name__)
                time.sleep(0.2)


class LargeCommands(Load):
    """Commands of very many values: an `$in`, its `explain`, an update, a text search."""

    name, number, values = "large commands", 8, 600_000

    @staticmethod
    def prepare(client, size):
        client[DATABASE].values.insert_many([{"_id": n, "n": n, "text": f"word{n}"} for n in range(2000)])
        client[DATABASE].values.create_index("n")
        client[DATABASE].values.create_index([("text", "text")])

    def run(self):
        database = client_of(self.port)[DATABASE]
        numbers = list(range(self.size(self.values)))
        find = {"find": "values", "filter": {"n": {"$in": numbers}}, "batchSize": 1}
        fields = {f"f{number}": 1 for number in numbers}
        search = {"$text": {"$search": " ".join(map(str, numbers))}}
        commands = [
            find, {"explain": find}, {"update": "values", "updates": [{"q": {"_id": 1}, "u": {"$set": fields}}]},
            {"find": "values", "filter": search}]

        def work(index):
            database.command(commands[index % len(commands)])
            self.count("done")

        self.threads(self.number, work)


class Distincts(Load):
    """Commands `distinct` of nearly 16 MiB of values."""

    name, number = "distinct values", 30

    @staticmethod
    def prepare(client, size):
        for start in range(0, size(15_000), 1000):
            client[DATABASE].words.insert_many([{"text": f"{number} " + "x" * 1000} for number in range(start, start + 1000)])

    def run(self):
        words = client_of(self.port)[DATABASE].words

        def work(_):
            words.distinct("text")
            self.count("done")

        self.threads(self.size(self.number), work)


class OpenTransactions(Load):
    """Transactions of one small document each that stay open."""

    name, number = "open transactions", 16

    def run(self):
        client = client_of(self.port)

        def work(_):
            session = client.start_session()
            session.start_transaction()
            client[DATABASE].small.insert_one({"text": "x"}, session=session)
            # Without the end of the session the transaction would stay with the client's pool.
            held.append(session)
            self.count("opened")

        held = []
        self.threads(self.size(self.number), work)


class UnreadPipelines(Load):
    """Connections that send many small requests and read no reply."""

    name, number = "unread pipelines", 5000

    @staticmethod
    def prepare(client, size):
        client[DATABASE].lines.insert_many([{"text": "x" * 1000} for _ in range(1000)])

    def run(self):
        requests = raw.op_msg({"find": "lines", "limit": 8, "singleBatch": True}, DATABASE) * 50
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        held = []
        while not self.ending.wait(0.002):
            try:
                if len(held) < self.size(self.number):
                    connection = socket.socket()
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    connection.settimeout(0.05)
                    connection.connect(("127.0.0.1", self.port))
                    held.append(connection)
                    connection.sendall(requests)
                    self.count("asked")
            except OSError as error:
                self.count(type(error).__name__)


class MainJob(Load):
    """Insertion of documents with three random indexes by `frond bench insert`."""

    name = "W1"

    def __init__(self, port, binary, folder):
        super().__init__(port, None, {}, None)
        self.trace = os.path.join(folder, "w1")
        self.process = subprocess.Popen(
            [binary, "bench", "insert", "--uri", f"mongodb://127.0.0.1:{port}", "--documents", "1000000000", "--indexes", "3",
             "--quiet", "--out", self.trace], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        """Ends it, and returns how many documents it wrote."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for name in ("trace.csv", os.path.join("insert", "trace.csv")):
            try:
                with open(os.path.join(self.trace, name), encoding="utf-8") as trace:
                    *_, last = trace
                    return last.strip()
            except (OSError, ValueError):
                continue
        return "no trace"


ALL = (IdleCursors, UnreadReplies, Sorts, Batches, Connections)
ALONE = (LargeCommands, Distincts, OpenTransactions, UnreadPipelines)
"""Those that are not among all together."""


def _run(load, port, small, counts, ending):
    # The finds that are timed have the processor first.
    os.nice(10)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        load(port, scaled(small), counts, ending).run()
    except Exception as error:  # pylint: disable=broad-except
        counts[f"ended with {type(error).__name__}: {error}"[:200]] = 1
        print(f"{load.name}: {error!r}", file=sys.stderr)


def scaled(small):
    """Sizes for a try are a twentieth."""
    return lambda number: max(1, number // 20) if small else number


class Running:
    """A load in a process of its own."""

    def __init__(self, load, port, small):
        context = multiprocessing.get_context("fork")
        self.load, self.ending = load, context.Event()
        self.manager = context.Manager()
        self.counts = self.manager.dict()
        self.process = context.Process(target=_run, args=(load, port, small, self.counts, self.ending), daemon=True)
        self.process.start()

    def stop(self):
        """Ends it and returns what it counted."""
        self.ending.set()
        self.process.join(30)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        counts = dict(self.counts)
        self.manager.shutdown()
        return counts
