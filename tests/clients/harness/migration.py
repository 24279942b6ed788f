"""`frond migrate` from one server to another: starting it, writers meanwhile, and a comparison of both sides that does not depend on
how the copy is made."""

import os
import random
import subprocess
import threading

import bson
import pymongo
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError

from .server import Server
from .tap import equal
from .waiting import PATIENCE, wait_until

BINARY = os.environ["FROND_BINARY"]
RAW = bson.CodecOptions(document_class=RawBSONDocument)
SEED = int(os.environ.get("FROND_SEED") or random.randrange(1_000_000))
print(f"# seed {SEED}", flush=True)


def migrate(source, target, *options, uri=None):
    """Starts a migration."""
    command = [BINARY, "migrate", "--from", uri or source.uri, "--to", target.uri, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process, code=0, timeout=PATIENCE):
    """Waits for its end. Returns what it said."""
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"still running after {timeout} s:\n{output}") from None
    if process.returncode != code:
        raise AssertionError(f"ended with {process.returncode}:\n{output}")
    return output


def await_following(target, process):
    """Waits until a migration follows its source. In an earlier phase SIGINT stops it."""
    wait_until("following", lambda: target.frond_migrate.state.find_one({"phase": "follow"}) or process.poll() is not None)


def moved(source, target, *options, uri=None, **more):
    return finish(migrate(source, target, *options, uri=uri), **more)


def connect(server):
    return pymongo.MongoClient(server.uri)


def contents(client):
    """All documents as bytes by collection, and all views."""
    found = {}
    for database in client.list_database_names():
        if database in ("local", "config", "admin"):
            continue
        for listed in client[database].list_collections():
            name = listed["name"]
            if name.startswith("system."):
                continue
            if listed.get("type") == "view":
                found[f"{database}.{name}"] = listed["options"]
                continue
            documents = client[database].get_collection(name, codec_options=RAW).find()
            rows = [document.raw for document in documents]
            # The order of a capped collection is a part of what it holds.
            found[f"{database}.{name}"] = rows if listed["options"].get("capped") else sorted(rows)
    return found


def indexes(client):
    found = {}
    for database in client.list_database_names():
        if database in ("local", "config", "admin"):
            continue
        for listed in client[database].list_collections(filter={"type": "collection"}):
            if not listed["name"].startswith("system."):
                index = client[database][listed["name"]].index_information()
                found[f"{database}.{listed['name']}"] = {
                    name: {key: value for key, value in options.items() if key not in ("v", "ns")} for name, options in index.items()
                }
    return found


def same(source, target, with_indexes=True):
    with connect(source) as ours, connect(target) as theirs:
        expected, got = contents(ours), contents(theirs)
        equal(sorted(got), sorted(expected), "collections")
        for name, documents in expected.items():
            if got[name] != documents:
                missing = [bson.decode(d) for d in documents if d not in set(got[name])][:3]
                more = [bson.decode(d) for d in got[name] if d not in set(documents)][:3]
                raise AssertionError(f"{name}: {len(got[name])} of {len(documents)}; missing {missing}, more {more}")
        if with_indexes:
            equal(indexes(theirs), indexes(ours), "indexes")
        assert "frond_migrate" not in theirs.list_database_names(), theirs.list_database_names()


class Writer(threading.Thread):
    """Changes documents at random until `stop`."""

    def __init__(self, server, database="shop", seed=SEED, plain=False):
        super().__init__(daemon=True)
        self.client = connect(server)
        self.collection = self.client[database].written
        self.random = random.Random(seed)
        self.plain = plain
        self.stopping = threading.Event()
        self.problem = None
        self.writes = 0

    def run(self):
        number = 0
        try:
            while not self.stopping.is_set():
                number += 10
                self.collection.insert_many([{"_id": number + n, "u": number + n, "a": 0, "l": []} for n in range(10)])
                for _ in range(4):
                    some = self.random.randrange(number) + 1
                    if self.random.random() < 0.5:
                        self.collection.update_one({"_id": some}, {"$inc": {"a": 1}, "$set": {"s": "x" * self.random.randrange(50)}})
                    elif self.plain:
                        self.collection.replace_one({"_id": some}, {"_id": some, "u": some, "r": number})
                    else:
                        self.collection.update_one({"_id": some}, {"$push": {"l": number}, "$unset": {"s": 1}})
                self.collection.delete_one({"_id": self.random.randrange(number) + 1})
                self.writes += 1
                self.stopping.wait(0.003)
        except PyMongoError as error:
            self.problem = error

    def __enter__(self):
        self.start()
        return self

    def stop(self):
        self.stopping.set()
        self.join()
        self.client.close()
        if self.problem:
            raise AssertionError(f"the writer: {self.problem!r}")

    def __exit__(self, *_):
        self.stopping.set()


class Two:
    """A source and a target, which end with the `with`."""

    def __init__(self, source, target):
        self.servers = source, target

    def __enter__(self):
        for server in self.servers:
            if isinstance(server, Server):
                server.start()
            else:
                server.__enter__()
        return self.servers

    def __exit__(self, *_):
        for server in self.servers:
            if isinstance(server, Server):
                server.close()
            else:
                server.__exit__()
