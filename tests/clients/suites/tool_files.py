"""Files that the server and the tools write, which only their owner may use whatever the umask is, and a server whose names lead out of
the folder of a dump."""

import os
import signal
import socket
import stat
import struct
import subprocess
import tempfile
import threading

import bson
from harness.raw import OP_MSG, OP_QUERY, message
from harness.server import Server
from harness.tap import equal, run, test
from harness.waiting import PATIENCE, wait_until
from pymongo import MongoClient

BINARY = os.environ["FROND_BINARY"]
# Every user may read these: other programs look for the process.
PUBLIC = {"server.pid": 0o644}


def frond(*arguments, folder, code=0, umask=0):
    """Runs a tool in a folder. Returns what it said."""
    done = subprocess.run(
        [BINARY, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        cwd=folder,
        umask=umask,
    )
    equal(done.returncode, code, f"frond {' '.join(map(str, arguments))}: {done.stdout}")
    return done.stdout


def modes(folder):
    """Every file and folder below a folder that is not its owner's alone, and the number of all."""
    wrong, count = [], 0
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(at, name)
            found = os.lstat(path)
            is_folder = stat.S_ISDIR(found.st_mode)
            expected = PUBLIC.get(name, 0o700 if is_folder or stat.S_ISSOCK(found.st_mode) else 0o600)
            count += 1
            if stat.S_IMODE(found.st_mode) != expected:
                wrong.append((os.path.relpath(path, folder), oct(found.st_mode)))
    return wrong, count


def check(folder, at_least):
    wrong, count = modes(folder)
    equal(wrong, [])
    assert count >= at_least, f"{count} files in {folder}"


class Setting:
    """A server that was started with umask 0."""

    def __init__(self, folder):
        self.folder = folder
        self.own = os.path.join(self.folder, "server")
        os.makedirs(self.own, mode=0o700)
        options = ["--logpath", f"{self.own}/server.log", "--pidfilepath", f"{self.own}/server.pid"]
        self.server = Server(BINARY, options, folder=os.path.join(self.folder, "harness"), replica_set="files")
        os.chmod(self.server.dbpath, 0o700)
        self.uri = f"mongodb://127.0.0.1:{self.server.port}/?directConnection=true"
        self.client = MongoClient(self.uri, serverSelectionTimeoutMS=PATIENCE * 1000)

    def start(self):
        before = os.umask(0)
        self.server.start()
        os.umask(before)
        self.client.shop.c.insert_many([{"_id": n, "text": "x" * 200} for n in range(2000)])
        self.client.shop.c.create_index("text")
        self.client.admin.command("createUser", "ann", pwd="secret", roles=["root"])

    def new(self, name):
        path = os.path.join(self.folder, name)
        os.makedirs(path, mode=0o700)
        return path


@test
def files_of_the_server(setting):
    # A sort that needs temporary files.
    setting.client.admin.command("setParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=100_000)
    rows = setting.client.shop.c.aggregate([{"$sort": {"text": -1, "_id": -1}}], allowDiskUse=True, batchSize=2)
    next(rows)
    setting.client.admin.command("logRotate", 1)
    setting.client.admin.command("createBackup", 1, backupDir=os.path.join(setting.own, "copy", "one"))
    history = os.path.join(setting.server.dbpath, "diagnostic.data")
    wait_until("the history of figures", lambda: os.path.isdir(history) and os.listdir(history))
    check(setting.own, 6)
    check(setting.server.dbpath, 5)
    equal(stat.S_IMODE(os.stat(setting.server.socket_path).st_mode), 0o700)


@test
def backups_and_archives(setting):
    folder = setting.new("backups")
    source = ["--uri", setting.uri, "--quiet"]
    frond("backup", *source, "--out", "a/repository", folder=folder)
    frond("backup", *source, "--out", "a/repository", "--incremental", folder=folder)
    frond("backup", *source, "--out", "one.tar.zst", folder=folder)
    archive = subprocess.Popen([BINARY, "archive", "--uri", setting.uri, "--out", "a/repository"], cwd=folder, umask=0)
    log = os.path.join(folder, "a", "repository", "log")
    wait_until("a file of the archive", lambda: os.path.isdir(log) and any(files for _, _, files in os.walk(log)))
    archive.send_signal(signal.SIGTERM)
    archive.wait(PATIENCE)
    frond("restore", "--from", "a/repository", "--dbpath", "db/one", "--quiet", folder=folder)
    frond("restore", "--from", "one.tar.zst", "--dbpath", "db/two", "--quiet", folder=folder)
    frond("verify", "--dbpath", "db/one", folder=folder)
    frond("salvage", "--dbpath", "db/one", "--out", "db/three", folder=folder)
    frond("doctor", "--dbpath", "db/two", folder=folder)
    frond("backup", "verify", "a/repository", folder=folder)
    check(folder, 25)


@test
def exports(setting):
    folder = setting.new("exports")
    of_all = ["export", "--uri", setting.uri, "--quiet"]
    of_one = [*of_all, "--db", "shop", "--collection", "c"]
    for umask in (0, 0o022):
        at = f"umask-{umask}"
        for name in ("c.json", "c.json.gz", "c.csv", "c.tsv", "c.bson"):
            frond(*of_one, "--fields", "_id,text", "--out", f"{at}/{name}", folder=folder, umask=umask)
        frond(*of_all, "--format", "archive", "--out", f"{at}/all.archive", folder=folder, umask=umask)
        for more in ([], ["--gzip"]):
            frond(*of_all, "--format", "dump", "--out", f"{at}/dump{len(more)}", *more, folder=folder, umask=umask)
    assert os.path.exists(os.path.join(folder, "umask-0", "dump0", "admin", "system.users.bson"))
    check(folder, 32)
    # A file of a dump that is replaced becomes private, too.
    users = os.path.join(folder, "umask-0", "dump0", "admin", "system.users.bson")
    os.chmod(users, 0o644)
    frond(*of_all, "--format", "dump", "--out", "umask-0/dump0", folder=folder)
    check(folder, 32)


@test
def migrations_write_no_files(setting):
    folder = setting.new("migration")
    with Server(BINARY) as target:
        target.start()
        frond("migrate", "--from", setting.uri, "--to", target.uri, "--cutover", "--quiet", folder=folder)
    equal(os.listdir(folder), [])


class Liar(threading.Thread):
    """A server whose lists have the given names."""

    def __init__(self, database, collection):
        super().__init__(daemon=True)
        self.database, self.collection = database, collection
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"mongodb://127.0.0.1:{self.listener.getsockname()[1]}"

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=[connection], daemon=True).start()

    def serve(self, connection):
        with connection, connection.makefile("rb") as source:
            while head := source.read(16):
                length, number, _, opcode = struct.unpack("<iiii", head)
                rest = source.read(length - 16)
                at = rest.index(b"\0", 4) + 9 if opcode == OP_QUERY else 5
                (size,) = struct.unpack_from("<i", rest, at)
                reply = bson.encode(self.answer(bson.decode(rest[at : at + size])))
                if opcode == OP_QUERY:
                    answer = bytearray(message(1, struct.pack("<iqii", 8, 0, 0, 1) + reply))
                else:
                    answer = bytearray(message(OP_MSG, struct.pack("<I", 0) + b"\0" + reply))
                struct.pack_into("<i", answer, 8, number)
                connection.sendall(answer)

    def answer(self, command):
        def cursor(*documents):
            return {"cursor": {"id": bson.Int64(0), "ns": "x.c", "firstBatch": list(documents)}, "ok": 1.0}

        name = next(iter(command))
        if name in ("hello", "isMaster", "ismaster"):
            limits = {"maxBsonObjectSize": 16 << 20, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000}
            return {"ismaster": True, "isWritablePrimary": True, **limits, "minWireVersion": 0, "maxWireVersion": 25, "ok": 1.0}
        if name == "buildInfo":
            return {"version": "8.0.0", "versionArray": [8, 0, 0, 0], "ok": 1.0}
        if name == "listDatabases":
            return {"databases": [{"name": self.database}], "ok": 1.0}
        if name == "listCollections":
            return cursor({"name": self.collection, "type": "collection", "options": {}, "info": {}})
        if name == "listIndexes":
            return cursor({"v": 2, "key": {"_id": 1}, "name": "_id_"})
        if name in ("find", "aggregate"):
            return cursor({"_id": 1})
        return {"count": 1, "size": 20, "n": 1, "ok": 1.0}


@test
def names_of_a_server_stay_in_the_folder(setting):
    long = "x" * 300
    for database, collection, code, file in [
        ("good", "c", 0, "good/c.bson"),
        ("good", "../../x", 0, "good/..%2F..%2Fx.bson"),
        ("../../x", "c", 1, None),
        ("..", "c", 1, None),
        (".", "c", 1, None),
        ("", "c", 1, None),
        ("/tmp/x", "c", 1, None),
        ("a\\b", "c", 1, None),
        ("a\nb", "c", 1, None),
        ("oplog.bson", "c", 1, None),
        (long, "c", 1, None),
    ]:
        liar = Liar(database, collection)
        liar.start()
        folder = tempfile.mkdtemp(dir=setting.folder)
        said = frond("export", "--uri", liar.uri, "--no-users", "--format", "dump", "--out", "in/dump", "--quiet", folder=folder, code=code)
        found = [os.path.relpath(os.path.join(at, name), folder) for at, _, files in os.walk(folder) for name in files]
        if file is None:
            assert "name" in said, said
            equal(found, [], database)
            # An archive makes no folders here, but where it is restored.
            frond("export", "--uri", liar.uri, "--no-users", "--out", "all.archive", "--quiet", folder=folder, code=code)
            equal(os.listdir(folder), [], database)
        else:
            assert os.path.join("in", "dump", file) in found, found
            assert all(name.startswith("in/dump/good/") for name in found), found
    equal([name for name in os.listdir(setting.folder) if name == "x"], [])


@test
def links_in_a_dump_are_refused(setting):
    folder = setting.new("links")
    frond("export", "--uri", setting.uri, "--format", "dump", "--out", "dump", "--quiet", folder=folder)
    secret = os.path.join(folder, "secret")
    with open(secret, "wb") as file:
        file.write(bson.encode({"_id": "secret"}))
    os.symlink(secret, os.path.join(folder, "dump", "shop", "stolen.bson"))
    said = frond("import", "--uri", setting.uri, "--db", "links", "dump/shop", "--quiet", folder=folder, code=1)
    assert "symbolic link" in said, said
    equal(setting.client.links.list_collection_names(), [])
    os.remove(os.path.join(folder, "dump", "shop", "stolen.bson"))
    os.rename(os.path.join(folder, "dump", "shop", "c.bson"), os.path.join(folder, "moved"))
    os.symlink(secret, os.path.join(folder, "dump", "shop", "c.bson"))
    said = frond("export", "--uri", setting.uri, "--format", "dump", "--out", "dump", "--quiet", folder=folder, code=1)
    assert "symbolic link" in said, said
    with open(secret, "rb") as file:
        equal(bson.decode(file.read()), {"_id": "secret"})


@test
def the_end_of_a_terminal_is_a_clean_end(setting):
    # These tests may be started by `nohup` themselves.
    with Server(BINARY, wrap=["env", "--default-signal=HUP"]) as server:
        server.start()
        server.process.send_signal(signal.SIGHUP)
        equal(server.process.wait(PATIENCE), 0)
    # As `nohup` starts it.
    with Server(BINARY, wrap=["env", "--ignore-signal=HUP"]) as server:
        server.start()
        server.process.send_signal(signal.SIGHUP)
        with server.connect() as connection:
            equal(connection.command({"ping": 1})["ok"], 1)
        server.stop()


def main():
    with tempfile.TemporaryDirectory(prefix="frond-files-", dir=os.environ["FROND_FOLDER"]) as folder:
        setting = Setting(folder)
        with setting.server:
            setting.start()
            run(setting)


if __name__ == "__main__":
    main()
