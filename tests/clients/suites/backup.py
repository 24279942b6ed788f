"""Backups: made of a running server, restored, and compared with a model. A backup that was not restored is none."""

import contextlib
import datetime
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from harness.server import Server
from harness.tap import equal, raises, run, test
from harness.waiting import PATIENCE, wait_until
from bson import ObjectId
from pymongo import MongoClient
from pymongo.errors import OperationFailure

BINARY = os.environ["FROND_BINARY"]
SEED = int(os.environ.get("FROND_SEED", time.time_ns() % 1_000_000))
# Moments that are restored for each kind of server.
POINTS = int(os.environ.get("FROND_BACKUP_POINTS", "4"))
# Two marks of an archive under writes are at most this far apart, on a machine that does much else.
MARKS_APART = 1.0
TIMEOUT = 120


def frond(*arguments, check=True, **more):
    """Runs the tool. Returns what it printed, both outputs together."""
    done = subprocess.run(
        [BINARY, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT, text=True, **more
    )
    if check and done.returncode != 0:
        raise AssertionError(f"frond {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stdout}")
    if not check and done.returncode == 0:
        raise AssertionError(f"frond {' '.join(map(str, arguments))} did not fail: {done.stdout}")
    return done.stdout


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="frond-backup-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def restored(source, *options, **more):
    """Restores, verifies, and opens a server on the result; its database."""
    with folder() as path:
        dbpath = os.path.join(path, "db")
        said = frond("restore", "--from", source, "--dbpath", dbpath, "--quiet", *options, **more)
        assert ", sound" in said, said
        with serving(path) as database:
            yield database


@contextlib.contextmanager
def serving(path):
    with Server(BINARY, folder=path) as server:
        server.start()
        with connect(server) as client:
            yield client.b
        server.stop()


def connect(server):
    return MongoClient("127.0.0.1", server.port, directConnection=True, serverSelectionTimeoutMS=PATIENCE * 1000)


def uri(server):
    return f"mongodb://127.0.0.1:{server.port}"


def content(database, name="c"):
    return {document["_id"]: document for document in database[name].find()}


def check_indexes(database, name="c"):
    """Every index must answer as the collection does, and must not be used before it is built."""

    def is_built():
        return not any(operation.get("command", {}).get("createIndexes") for operation in in_progress(database))

    wait_until("built indexes", is_built)
    collection = database[name]
    documents = content(database, name)
    for index, info in collection.index_information().items():
        (field, _), *_ = info["key"]
        values = sorted(document[field] for document in documents.values() if field in document)
        found = [one[field] for one in collection.find({field: {"$gte": 0}}).hint(index)]
        equal(sorted(found), values, f"the index {index}")
    result = database.command("validate", name, full=True)
    assert result["valid"], result


def in_progress(database):
    return database.client.admin.aggregate([{"$currentOp": {"allUsers": True}}])


def listed(repository):
    return [json.loads(line) for line in frond("backup", "list", repository, "--json").splitlines()]


class Writer(threading.Thread):
    """Writes to one collection until it is stopped, and notes each write with the times around it."""

    def __init__(self, server, seed, pause=0.0):
        super().__init__(daemon=True)
        self.server, self.random, self.pause = server, random.Random(seed), pause
        # (begin, end, function that changes the model)
        self.writes = []
        self.ending = threading.Event()
        self.problem = None

    def run(self):
        try:
            with connect(self.server) as client:
                ids = []
                while not self.ending.is_set():
                    self.write(client.b.c, ids)
                    if self.pause:
                        time.sleep(self.pause)
        except Exception as error:  # the test reports it
            self.problem = error

    def wait_for_more(self, writes):
        """Waits until there are so many more writes."""
        wanted = len(self.writes) + writes
        wait_until(f"{writes} writes", lambda: len(self.writes) >= wanted or not self.is_alive())

    def write(self, collection, ids):
        number = len(self.writes)
        kind = self.random.random()
        begin = time.time()
        if kind < 0.7 or len(ids) < 10:
            documents = [
                {"_id": number * 10 + n, "k": self.random.randrange(1000), "u": number * 10 + n, "x": "y" * 100}
                for n in range(3)
            ]
            for document in documents[: 1 if kind < 0.35 else 3]:
                begin = time.time()
                collection.insert_one(document)
                self.note(begin, lambda model, document=document: model.__setitem__(document["_id"], document))
                ids.append(document["_id"])
            return
        id = ids[self.random.randrange(len(ids))]
        if kind < 0.9:
            collection.update_one({"_id": id}, {"$set": {"k": number}})
            self.note(begin, lambda model: model.__setitem__(id, {**model[id], "k": number}))
        else:
            collection.delete_one({"_id": id})
            ids.remove(id)
            self.note(begin, lambda model: model.pop(id))

    def note(self, begin, change):
        self.writes.append((begin, time.time(), change))

    def stop(self):
        self.ending.set()
        self.join(PATIENCE)
        assert self.problem is None, self.problem

    def check(self, found, begin, end, what=""):
        """The state must be that after some write: all that had ended by `begin` are in it, none that began after `end`."""
        writes = list(self.writes)
        least = sum(1 for one in writes if one[1] < begin)
        most = sum(1 for one in writes if one[0] <= end)
        model = {}
        for number, (_, _, change) in enumerate([(0, 0, lambda model: None), *writes]):
            change(model)
            if least <= number <= most and model == found:
                return number
            if number > most:
                break
        model = {}
        for _, _, change in writes[:least]:
            change(model)
        lost = [id for id in model if id not in found][:5]
        more = [id for id in found if id not in model][:5]
        raise AssertionError(
            f"{what}: {len(found)} documents are no state between write {least} and {most} of {len(writes)}; "
            f"against {least}: lost {lost}, more {more}"
        )


@contextlib.contextmanager
def written(server, seed, writes, pause=0.0):
    writer = Writer(server, seed, pause)
    writer.start()
    try:
        writer.wait_for_more(writes)
        yield writer
    finally:
        if not writer.ending.is_set():
            writer.stop()


def fill(database, documents, name="filled", bytes=1000):
    source = random.Random(documents)
    for first in range(0, documents, 1000):
        batch = [
            {"_id": n, "k": n % 97, "x": source.randbytes(bytes)} for n in range(first, min(first + 1000, documents))
        ]
        database[name].insert_many(batch)
    database.client.admin.command("fsync")


@test
def a_full_backup_while_writes_go_on_is_restored(seed):
    with Server(BINARY) as server, folder() as path:
        server.start()
        with connect(server) as client, written(server, seed, 300) as writer:
            fill(client.b, 4000)
            repository = os.path.join(path, "r")
            begin = time.time()
            frond("backup", "--uri", uri(server), "--out", repository, "--quiet")
            end = time.time()
            writer.wait_for_more(100)
            writer.stop()
            assert ": sound" in frond("backup", "verify", repository, "--quiet")
            (backup,) = listed(repository)
            equal(backup["kind"], "full")
            with restored(repository) as database:
                writer.check(content(database), begin, end, f"seed {seed}")
                equal(content(database, "filled"), content(client.b, "filled"))
                check_indexes(database)
        server.stop()


@test
def an_incremental_backup_has_only_what_is_new(seed):
    with Server(BINARY) as server, folder() as path:
        server.start()
        with connect(server) as client:
            fill(client.b, 20_000)
            frond("backup", "--uri", uri(server), "--out", path, "--quiet")
            states = [content(client.b, "filled")]
            for n in range(2):
                client.b.filled.update_many({"_id": {"$lt": 100}}, {"$set": {"n": n}})
                client.b.filled.delete_one({"_id": 200 + n})
                frond("backup", "--uri", uri(server), "--out", path, "--quiet", "--incremental")
                states.append(content(client.b, "filled"))
            backups = listed(path)
            equal([one["kind"] for one in backups], ["full", "incremental", "incremental"])
            equal([one.get("parent") for one in backups], [None, backups[0]["id"], backups[1]["id"]])
            stored = [sum(part["bytes"] for part in one["parts"]) for one in backups]
            print(f"  # {stored[0]} bytes of a full backup, then {stored[1]} and {stored[2]}")
            assert max(stored[1:]) < stored[0] / 4, stored
            for backup, state in zip(backups, states):
                with restored(path, "--backup", backup["id"]) as database:
                    equal(content(database, "filled") == state, True, backup["id"])
            # Without its parent it cannot be restored, and says so.
            shutil.rmtree(os.path.join(path, "backups", backups[0]["id"]))
            said = frond("restore", "--from", path, "--dbpath", os.path.join(path, "db"), check=False)
            assert backups[0]["id"] in said, said
        server.stop()


@contextlib.contextmanager
def archiving(server, repository, log):
    with open(log, "ab") as output:
        process = subprocess.Popen(
            [BINARY, "archive", "--uri", uri(server), "--out", repository], stdout=output, stderr=output
        )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        equal(process.wait(PATIENCE), 0, "the archive")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def await_backups(repository, count):
    def done():
        return [name for name in glob.glob(os.path.join(repository, "backups", "*", "backup.json")) if ".partial" not in name]

    wait_until(f"{count} backups", lambda: len(done()) >= count)


def await_archived(repository, moment):
    """Waits until the log of a repository reaches a moment."""

    def is_reached():
        with folder() as path:
            return frond("restore", "--from", repository, "--dbpath", os.path.join(path, "db"), "--to", f"{moment:.3f}")

    wait_until(f"a log up to {moment:.3f}", is_reached, passing=(AssertionError,))


def points_in_time(seed, replica_set):
    source = random.Random(seed)
    with Server(BINARY, replica_set=replica_set) as server, folder() as path:
        server.start()
        repository, log = os.path.join(path, "r"), os.path.join(path, "log")
        with connect(server) as client, archiving(server, repository, log):
            fill(client.b, 3000)
            client.b.dropped.insert_one({"_id": 1})
            with written(server, seed, 50) as writer:
                await_backups(repository, 1)
                begun = time.time()
                time.sleep(1)
                indexed = [time.time()]
                client.b.filled.create_index("k")
                indexed.append(time.time())
                time.sleep(0.5)
                dropped = [time.time()]
                client.b.dropped.drop()
                dropped.append(time.time())
                time.sleep(0.3)
                unique = [time.time()]
                client.b.c.create_index("u", unique=True)
                unique.append(time.time())
                frond("backup", "--uri", uri(server), "--out", repository, "--quiet", "--incremental")
                time.sleep(1)
                ended = time.time()
                await_archived(repository, ended)
                writer.stop()
            if replica_set:
                by_timestamp(client, ended, repository, source)
        filled = None
        moments = [source.uniform(begun + 0.5, ended) for _ in range(POINTS - 1)]
        # Right after the index was built its entries are not in the log.
        moments.append(indexed[1] + 0.1)
        for moment in moments:
            text = datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).isoformat(timespec="milliseconds")
            if source.random() < 0.5:
                text = f"{moment:.3f}"
            what = f"seed {seed}, restored to {text}"
            with restored(repository, "--to", text) as database:
                writer.check(content(database), moment - MARKS_APART, moment + 0.001, what)
                names = database.list_collection_names()
                check_time("dropped" not in names, dropped, moment, what)
                check_time("k_1" in database.filled.index_information(), indexed, moment, what)
                check_time("u_1" in database.c.index_information(), unique, moment, what)
                check_indexes(database)
                check_indexes(database, "filled")
                filled = filled or content(database, "filled")
                equal(len(content(database, "filled")), 3000, what)
        # A moment that the repository does not have.
        for moment, expected in ((begun - 3600, "no backup was made before"), (time.time() + 60, "no log up to")):
            said = frond("restore", "--from", repository, "--dbpath", path + "/x", "--to", f"{moment:.3f}", check=False)
            assert expected in said, said
        server.stop()


def check_time(happened, times, moment, what):
    """Something that happened between two times is there after the second, and not before the first."""
    if moment > times[1] + MARKS_APART:
        assert happened, f"{what}: it happened at {times}"
    if moment < times[0]:
        assert not happened, f"{what}: it happened at {times}"


def by_timestamp(client, ended, repository, source):
    """With an oplog a restore is exact: to a timestamp, with all before it and nothing after it."""
    inserts = {"ns": "b.c", "op": "i", "wall": {"$lt": datetime.datetime.fromtimestamp(ended, datetime.timezone.utc)}}
    entries = list(client.local["oplog.rs"].find(inserts).sort("ts", -1).limit(2000))
    entry = entries[source.randrange(len(entries) // 4, len(entries) * 3 // 4)]
    stamp = entry["ts"]
    last = client.local["oplog.rs"].count_documents({"ns": "b.c", "op": "i", "ts": {"$lte": stamp}})
    deleted = client.local["oplog.rs"].count_documents({"ns": "b.c", "op": "d", "ts": {"$lte": stamp}})
    with restored(repository, "--to", f"Timestamp({stamp.time}, {stamp.inc})") as database:
        equal(database.c.count_documents({}), last - deleted, "the documents of a timestamp")
        assert database.c.find_one({"_id": entry["o"]["_id"]}), entry
        (newest,) = database.client.local["oplog.rs"].find({"ns": "b.c"}).sort("ts", -1).limit(1)
        equal(newest["ts"], stamp)


@test
def random_moments_of_a_standalone_server_equal_a_model(seed):
    points_in_time(seed, None)


@test
def random_moments_of_a_replica_set_equal_a_model(seed):
    points_in_time(seed + 1, "rs0")


@test
def an_interrupted_backup_is_continued(seed):
    with Server(BINARY) as server, folder() as path:
        server.start()
        with connect(server) as client:
            fill(client.b, 12_000)
            before = content(client.b, "filled")

        def interrupted(kill):
            slow = [BINARY, "backup", "--uri", uri(server), "--out", path, "--quiet", "--rate", "4"]
            process = subprocess.Popen(slow, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

            def is_begun():
                assert process.poll() is None, "it has ended"
                return sum(map(os.path.getsize, glob.glob(path + "/backups/*.partial/part*"))) > 2 << 20

            wait_until("a part of a backup", is_begun)
            kill(process)
            assert process.wait(PATIENCE) != 0

        interrupted(lambda process: process.kill())
        equal(listed(path), [])
        assert "incomplete" in frond("backup", "list", path)
        interrupted(lambda _: server.kill())
        server.start()
        with connect(server) as client:
            client.b.filled.update_many({"_id": {"$lt": 50}}, {"$set": {"n": 1}})
            before.update(content(client.b, "filled"))
        said = frond("backup", "--uri", uri(server), "--out", path, "--quiet")
        assert "continuing the interrupted backup" in said, said
        assert "incomplete" not in frond("backup", "list", path)
        assert ": sound" in frond("backup", "verify", path, "--quiet")
        with restored(path) as database:
            equal(content(database, "filled") == before, True)
        server.stop()


@test
def a_damaged_record_is_named(seed):
    with Server(BINARY) as server, folder() as path:
        server.start()
        with connect(server) as client:
            fill(client.b, 2000)
        frond("backup", "--uri", uri(server), "--out", path, "--quiet")
        (part,) = glob.glob(path + "/backups/*/part-000001.frbk")
        size = os.path.getsize(part)
        with open(part, "r+b") as file:
            file.seek(size // 2)
            byte = file.read(1)[0]
            file.seek(size // 2)
            file.write(bytes([byte ^ 1]))
        said = frond("backup", "verify", path, "--quiet", check=False)
        assert part in said and "does not match its checksum" in said and "1 problem" in said, said
        with folder() as other:
            dbpath = os.path.join(other, "db")
            said = frond("restore", "--from", path, "--dbpath", dbpath, check=False)
            assert part in said and "of the data file" in said, said
            equal(os.listdir(dbpath), [])
        server.stop()


@test
def a_backup_goes_to_a_file_or_a_pipe_and_back(seed):
    with Server(BINARY) as server, folder() as path:
        server.start()
        with connect(server) as client:
            fill(client.b, 3000)
            expected = content(client.b, "filled")
            file = os.path.join(path, "all.tar.zst")
            frond("backup", "--uri", uri(server), "--out", file, "--quiet")
            piped = os.path.join(path, "piped")
            with open(piped, "wb") as output:
                done = subprocess.run(
                    [BINARY, "backup", "--uri", uri(server), "--out", "-", "--quiet"],
                    stdout=output, stderr=subprocess.PIPE, timeout=TIMEOUT,
                )
            equal(done.returncode, 0, done.stderr)
            with restored(file) as database:
                equal(content(database, "filled") == expected, True)
            with open(piped, "rb") as source, restored("-", stdin=source) as database:
                equal(content(database, "filled") == expected, True)
            cut = os.path.join(path, "cut.tar.zst")
            for share in (0.3, 0.999):
                with open(file, "rb") as whole, open(cut, "wb") as output:
                    output.write(whole.read(int(os.path.getsize(file) * share)))
                dbpath = os.path.join(path, "db")
                frond("restore", "--from", cut, "--dbpath", dbpath, check=False)
                equal(os.listdir(dbpath), [])
            frond("backup", "--uri", uri(server), "--out", file, check=False)
        server.stop()


@test
def a_backup_is_throttled_and_shown(seed):
    with Server(BINARY) as server, folder() as path:
        server.start()
        with connect(server) as client:
            fill(client.b, 4000)
            out = os.path.join(path, "r")
            begin = time.monotonic()
            process = subprocess.Popen(
                [BINARY, "backup", "--uri", uri(server), "--out", out, "--quiet", "--rate", "2"], stderr=subprocess.DEVNULL
            )
            streams, operations = [], []
            while process.poll() is None:
                status = client.admin.command("serverStatus")
                streams += status["frond"]["backup"]["streams"]
                for operation in in_progress(client.b):
                    if "Backup" in operation.get("msg", ""):
                        operations.append(operation)
                time.sleep(0.05)
            took = time.monotonic() - begin
            equal(process.returncode, 0)
            (backup,) = listed(out)
            least = backup["copiedBytes"] / (2 << 20) * 0.8 - 0.5
            assert took > least > 0.5, f"{took:.1f} s, at least {least:.1f} s"
            assert any(0 < one["bytesDone"] < one["bytesTotal"] for one in streams), streams[-3:]
            assert operations and operations[-1]["progress"]["total"] > 0, operations[-1:]
            equal(client.admin.command("serverStatus")["frond"]["backup"]["open"], 0)
        server.stop()


@test
def the_server_copies_itself_into_a_directory(seed):
    with Server(BINARY) as server, folder() as path:
        server.start()
        with connect(server) as client, written(server, seed, 200) as writer:
            fill(client.b, 3000)
            client.b.filled.create_index("k")
            os.makedirs(os.path.join(path, "percona"))
            commands = [
                {"createBackup": 1, "backupDir": os.path.join(path, "percona", "db")},
                {"backupStart": os.path.join(path, "tokumx", "db")},
            ]
            times = []
            for command in commands:
                begin = time.time()
                client.admin.command(command)
                times.append((begin, time.time()))
            error = raises(OperationFailure, client.admin.command, commands[0])
            assert "is not empty" in str(error), error
            equal(raises(OperationFailure, client.admin.command, {"createBackup": 1, "backupDir": "x"}).code, 30)
            raises(OperationFailure, client.admin.command, {"backupStatus": 1})
            client.admin.command({"backupThrottle": "1m"})
            statuses = []
            third = threading.Thread(
                target=client.admin.command, args=[{"backupStart": os.path.join(path, "third", "db")}]
            )
            third.start()
            while third.is_alive() and not statuses:
                with contextlib.suppress(OperationFailure):
                    status = client.admin.command({"backupStatus": 1})
                    statuses += [status] if status["bytesDone"] else []
            client.admin.command({"backupThrottle": 0})
            third.join(PATIENCE)
            assert statuses and 0 < statuses[0]["percent"] <= 100, statuses
            writer.stop()
            for (begin, end), name in zip(times, ("percona", "tokumx")):
                with serving(os.path.join(path, name)) as database:
                    writer.check(content(database), begin, end, name)
                    equal(len(content(database, "filled")), 3000)
                    check_indexes(database, "filled")
        server.stop()


def await_stream(server):
    """Waits until an archive or a backup reads from a server."""
    with connect(server) as client:
        wait_until("a stream", lambda: client.admin.command("serverStatus")["frond"]["backup"]["streams"])


def await_content(repository, holds):
    """Waits until what a repository restores has something."""

    def is_there():
        with restored(repository) as database:
            return holds(database)

    wait_until("the content of a repository", is_there, passing=(AssertionError,))


@test
def an_archive_survives_kills_and_closes_a_gap_by_a_backup(seed):
    with Server(BINARY) as server, folder() as path:
        server.start()
        repository, log = os.path.join(path, "r"), os.path.join(path, "log")
        with connect(server) as client:
            fill(client.b, 500)
        writer = None
        with contextlib.suppress(AssertionError), archiving(server, repository, log) as process:
            await_backups(repository, 1)
            with written(server, seed, 200, pause=0.002) as writer:
                pass
            process.kill()
            process.wait()
        with archiving(server, repository, log):
            await_stream(server)
            server.kill()
            server.start()
            await_stream(server)
            with connect(server) as client:
                client.b.last.insert_one({"_id": 1})
            await_content(repository, lambda database: database.last.count_documents({}) == 1)
        equal(len(listed(repository)), 1)
        with restored(repository) as database:
            writer.check(content(database), writer.writes[-1][1] + 1, time.time())
            equal(database.last.count_documents({}), 1)
        # While nothing is archived, the log is written, flushed and deleted. A start begins a new file of it.
        with connect(server) as client:
            fill(client.b, 5000, "much")
        for _ in range(2):
            server.stop()
            server.start()
            with connect(server) as client:
                client.b.last.insert_one({"_id": ObjectId()})
                client.admin.command("fsync")
        with archiving(server, repository, log):
            await_backups(repository, 2)
            with connect(server) as client:
                client.b.last.insert_one({"_id": 2})
            await_content(repository, lambda database: database.last.count_documents({}) == 4)
        with open(log, encoding="utf-8") as file:
            said = file.read()
        assert "a backup closes the gap" in said, said
        with restored(repository) as database:
            equal(database.last.count_documents({}), 4)
            equal(database.much.count_documents({}), 5000)
        server.stop()


run(SEED)
