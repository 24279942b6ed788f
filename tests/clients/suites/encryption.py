"""Encryption at rest: what is in the files of a server, its keys, and the tools."""

import base64
import contextlib
import functools
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time

from harness.replica_set import ReplicaSet, assert_same
from harness.server import Server, ServerError
from harness.tap import equal, raises, run, test
from harness.waiting import PATIENCE, wait_until
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

BINARY = os.environ["FROND_BINARY"]
SEED = int(os.environ.get("FROND_SEED", time.time_ns() % 1_000_000))
TIMEOUT = 120
DOCUMENTS = 3000
# Short, so that no compression divides it.
SECRET = b"Qx7secretZ9"


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="frond-encryption-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def in_folder(function):
    """Calls a test with a folder of its own."""

    @functools.wraps(function)
    def call(seed):
        with folder() as path:
            function(path, seed)

    return call


def new_key(path, mode=0o600):
    """Writes a file with a new master key."""
    with open(path, "wb") as file:
        file.write(base64.b64encode(os.urandom(32)) + b"\n")
    os.chmod(path, mode)
    return path


def frond(*arguments, check=True):
    done = subprocess.run(
        [BINARY, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT, text=True
    )
    assert check is None or (done.returncode == 0) == check, f"frond {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stdout}"
    return done.stdout


def encrypted(path, key, **more):
    return Server(BINARY, folder=path, options=["--enableEncryption", "--encryptionKeyFile", key, *more.pop("options", [])], **more)


def connect(server, patience=PATIENCE):
    return MongoClient("127.0.0.1", server.port, directConnection=True, serverSelectionTimeoutMS=patience * 1000)


def fill(client, documents=DOCUMENTS):
    # Values that differ, so that nothing of the secret is left out by compression.
    source = random.Random(SEED)
    text = SECRET.decode()
    batch = [{"_id": n, "t": f"{source.random()} {text} {source.random()}", "k": source.randrange(10**9)} for n in range(documents)]
    client.b.c.insert_many(batch)
    client.b.c.create_index("t")
    client.b[f"name-{text}"].insert_one({"_id": text})


def leaks(path):
    """The files below a folder that have the secret."""
    found = []
    for parent, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError), open(os.path.join(parent, name), "rb") as file:
                if SECRET in file.read():
                    found.append(os.path.relpath(os.path.join(parent, name), path))
    return sorted(found)


def temporary_files(pid):
    """The contents of the temporary files of a process, which have no names any more."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{number}"
        with contextlib.suppress(OSError):
            if "extsort-" in os.readlink(path):
                with open(path, "rb") as file:
                    found.append(file.read())
    return found


def spill(client):
    """A sort in temporary files; its cursor, which is still open."""
    client.admin.command({"setParameter": 1, "internalQueryMaxBlockingSortMemoryUsageBytes": 100_000})
    cursor = client.b.c.find({}, allow_disk_use=True, batch_size=10).sort([("k", 1), ("t", -1)])
    next(cursor)
    return cursor


@test
def known_plaintext_is_in_no_file(_):
    for has_key in (False, True):
        with folder() as path:
            look_for_plaintext(path, has_key)


def look_for_plaintext(path, has_key):
    key = new_key(os.path.join(path, "key"))
    server = encrypted(path, key) if has_key else Server(BINARY, folder=path)
    backups = os.path.join(path, "backups")
    with server:
        server.start()
        with connect(server) as client:
            fill(client)
            client.admin.command("fsync")
            cursor = spill(client)
            spilled = temporary_files(server.pid)
            assert spilled and any(spilled), "nothing was spilled"
            in_temporary = any(SECRET in content for content in spilled)
            cursor.close()
            frond("backup", "--uri", server.uri, "--out", backups)
            client.b.c.insert_one({"_id": "last", "t": SECRET.decode()})
        server.kill()
        found = [*leaks(server.dbpath), *leaks(backups)]
        if not has_key:
            # So the test can fail.
            assert in_temporary and "data.frond" in found and "log-buffer.frond" in found, found
            return
        equal((in_temporary, found), (False, []))
        server.start()
        with connect(server) as client:
            equal(client.b.c.count_documents({}), DOCUMENTS + 1, "nothing is lost")
        server.stop()
        equal(leaks(server.dbpath), [])
    verified = frond("verify", "--dbpath", server.dbpath, "--encryptionKeyFile", key)
    print(f"  # {verified.splitlines()[-1]}")
    said = frond("restore", "--from", backups, "--dbpath", os.path.join(path, "none"), check=False)
    assert "the copy is encrypted" in said, said
    restored = os.path.join(path, "restored", "db")
    said = frond("restore", "--from", backups, "--dbpath", restored, "--encryptionKeyFile", key, "--quiet")
    assert ", sound" in said, said
    equal(leaks(restored), [])
    with encrypted(os.path.dirname(restored), key) as again:
        again.start()
        with connect(again) as client:
            equal(client.b.c.count_documents({}), DOCUMENTS)
        again.stop()


@test
@in_folder
def a_wrong_key_is_a_clear_error(path, _):
    key = new_key(os.path.join(path, "key"))
    other = new_key(os.path.join(path, "other"))
    open_to_group = new_key(os.path.join(path, "group"), mode=0o640)
    short = os.path.join(path, "short")
    with open(short, "w") as file:
        file.write("AAEC")
    os.chmod(short, 0o600)
    with encrypted(path, key) as server:
        server.start()
        with connect(server) as client:
            fill(client, 10)
        server.stop()
    plain = os.path.join(path, "plain")
    with Server(BINARY, folder=plain) as server:
        server.start()
        server.stop()
    on = ["--enableEncryption"]
    for directory, options, expected in [
        (path, [], "is encrypted"),
        (path, on, "needs the master key"),
        (path, ["--encryptionKeyFile", key], "needs --enableEncryption"),
        (path, [*on, "--encryptionKeyFile", other], "the master key is not the one"),
        (path, [*on, "--encryptionKeyFile", open_to_group], "has the mode 0640"),
        (path, [*on, "--encryptionKeyFile", short], "has 3 bytes"),
        (path, [*on, "--encryptionKeyFile", os.path.join(path, "none")], "cannot be opened"),
        (path, [*on, "--encryptionKeyCommand", "false"], "has failed"),
        (path, [*on, "--encryptionKeyFile", key, "--encryptionKeyCommand", "true"], "cannot both be given"),
        (path, [*on, "--encryptionKeyFile", key, "--encryptionCipherMode", "AES256-CBC"], "does not notice changed data"),
        (path, ["--kmipServerName", "kmip"], "does not speak KMIP"),
        (plain, [*on, "--encryptionKeyFile", key], "not encrypted"),
    ]:
        with Server(BINARY, folder=directory, options=options) as server:
            try:
                server.start()
                raise AssertionError(f"started with {options}")
            except ServerError as error:
                assert expected in str(error), (options, str(error))
    # A command is as good as a file.
    with Server(BINARY, folder=path, options=[*on, "--encryptionKeyCommand", f"cat {key}"]) as server:
        server.start()
        with connect(server) as client:
            equal(client.b.c.count_documents({}), 10)
        server.stop()


@test
@in_folder
def the_master_key_is_replaced(path, _):
    key = new_key(os.path.join(path, "key"))
    old = shutil.copy2(key, os.path.join(path, "old"))
    with encrypted(path, key) as server:
        server.start()
        with connect(server) as client:
            fill(client, 500)
            equal(raises(OperationFailure, client.b.command, "rotateMasterKey").code, 13)
            before = os.stat(os.path.join(server.dbpath, "data.frond")).st_size
            new_key(key)
            client.admin.command("rotateMasterKey")
            client.admin.command({"rotateMasterKey": 1, "newStoreKey": True})
            client.b.c.insert_many([{"_id": 1000 + n} for n in range(100)])
            client.admin.command("fsync")
            assert os.stat(os.path.join(server.dbpath, "data.frond")).st_size <= before + (16 << 20)
        server.kill()
        server.start()
        with connect(server) as client:
            equal(client.b.c.count_documents({}), 600)
        server.stop()
    said = frond("verify", "--dbpath", server.dbpath, "--encryptionKeyFile", old, check=False)
    assert "the master key is not the one" in said, said
    newer = new_key(os.path.join(path, "newer"))
    frond("rotate-master-key", "--dbpath", server.dbpath, "--encryptionKeyFile", key, "--newEncryptionKeyFile", newer)
    frond("verify", "--dbpath", server.dbpath, "--encryptionKeyFile", key, check=False)
    frond("verify", "--dbpath", server.dbpath, "--encryptionKeyFile", newer)
    with Server(BINARY, folder=os.path.join(path, "plain")) as server:
        server.start()
        with connect(server) as client:
            raises(OperationFailure, client.admin.command, "rotateMasterKey")
        server.stop()


def ping_often(client, source):
    """Lets the server work for a random number of requests."""
    for _ in range(source.randrange(500)):
        client.admin.command("ping")


def keys_of(server):
    with connect(server) as client:
        return client.admin.command("serverStatus")["encryptionAtRest"]


@test
@in_folder
def all_data_gets_a_new_store_key_in_the_background(path, seed):
    source = random.Random(seed)
    key = new_key(os.path.join(path, "key"))
    with encrypted(path, key) as server:
        server.start()
        with connect(server) as client:
            fill(client)
            client.admin.command("fsync")
            wait_until("the only key has all data", lambda: keys_of(server)["allDataHasCurrentStoreKey"])
            client.admin.command({"rotateMasterKey": 1, "newStoreKey": True})
            client.b.c.update_many({"_id": {"$lt": 100}}, {"$set": {"k": 0}})
            ping_often(client, source)
        # The next start continues.
        server.kill()
        server.start()
        wait_until("the new key has all data", lambda: keys_of(server)["allDataHasCurrentStoreKey"])
        found = keys_of(server)
        equal((found["storeKeys"], found["currentStoreKey"]), (2, 2))
        with connect(server) as client:
            equal(client.b.c.count_documents({}), DOCUMENTS)
            equal(client.b.c.count_documents({"k": 0}), 100)
        server.stop()
    frond("verify", "--dbpath", server.dbpath, "--encryptionKeyFile", key)


@test
@in_folder
def a_directory_is_encrypted_while_it_is_used(path, seed):
    source = random.Random(seed)
    key = new_key(os.path.join(path, "key"))
    with Server(BINARY, folder=path) as server:
        server.start()
        with connect(server) as client:
            fill(client)
        server.kill()
    assert leaks(server.dbpath), "the secret is there"
    on = ["--encryptionKeyFile", key]
    doctor = ["doctor", "--skipSpeed", "--dbpath", server.dbpath, "--config", os.path.join(path, "frond.conf")]
    with open(doctor[-1], "w", encoding="utf-8") as file:
        file.write(f"security:\n  enableEncryption: true\n  encryptionKeyFile: {key}\n")
    assert "has a store that is not encrypted" in frond(*doctor, check=None)
    frond("encrypt", "--dbpath", server.dbpath, *on)
    assert "is being encrypted" in frond(*doctor, check=None)
    with encrypted(path, key) as server:
        server.start()
        with connect(server) as client:
            ping_often(client, source)
        # The next start continues.
        server.kill()
        server.start()
        with connect(server) as client:
            client.b.c.insert_one({"_id": "last", "t": SECRET.decode()})
            wait_until("all is encrypted", lambda: keys_of(server)["allDataIsEncrypted"])
            equal(client.b.c.count_documents({}), DOCUMENTS + 1)
            equal(leaks(server.dbpath), [])
        server.stop()
    equal(leaks(server.dbpath), [])
    frond("verify", "--dbpath", server.dbpath, *on)
    said = frond("encrypt", "--dbpath", server.dbpath, *on, check=False)
    assert "is encrypted already" in said, said
    with encrypted(path, key) as server:
        server.start()
        with connect(server) as client:
            equal(client.b.c.count_documents({}), DOCUMENTS + 1)
        server.stop()


@test
@in_folder
def a_replica_set_is_encrypted_member_by_member(path, _):
    key = new_key(os.path.join(path, "key"))
    on = ["--encryptionKeyFile", key]
    with ReplicaSet(BINARY) as replica_set:
        replica_set.start()
        with replica_set.connect(w="majority") as client:
            fill(client)
            for member in list(replica_set.members):
                member.stop()
                # The others go on without it.
                client.b.c.insert_one({"_id": f"{member.number} stopped", "t": SECRET.decode()})
                frond("encrypt", "--dbpath", member.dbpath, *on)
                member.options += ["--enableEncryption", *on]
                member.start()
                replica_set.wait_until_steady()
                client.b.c.insert_one({"_id": f"{member.number} started", "t": SECRET.decode()})
            for member in replica_set.members:
                shown = functools.partial(member.command, "serverStatus")
                wait_until("all is encrypted", lambda shown=shown: shown()["encryptionAtRest"]["allDataIsEncrypted"])
            # An empty member copies the files and the keys of another member.
            anew = replica_set.secondaries[0]
            anew.kill()
            anew.empty()
            anew.start()
            replica_set.wait_until_steady()
            replica_set.catch_up()
            equal(client.b.c.count_documents({}), DOCUMENTS + 6)
            assert_same(replica_set)
        for member in replica_set.members:
            member.stop()
            equal(leaks(member.dbpath), [])
            frond("verify", "--dbpath", member.dbpath, *on)


@test
@in_folder
def a_rotation_that_is_killed_leaves_one_of_two_keys(path, seed):
    source = random.Random(seed)
    key = new_key(os.path.join(path, "key"))
    keys = [open(key, "rb").read()]

    def put(content):
        with open(key + ".tmp", "wb") as file:
            file.write(content)
        os.chmod(key + ".tmp", 0o600)
        os.rename(key + ".tmp", key)

    with encrypted(path, key) as server:
        server.start()
        with connect(server) as client:
            fill(client, 100)
        for _ in range(4):

            def rotate():
                # It ends soon after the server is killed.
                with contextlib.suppress(PyMongoError), connect(server, patience=1) as client:
                    while True:
                        keys.append(base64.b64encode(os.urandom(32)))
                        put(keys[-1])
                        client.admin.command({"rotateMasterKey": 1, "newStoreKey": source.random() < 0.2})

            thread = threading.Thread(target=rotate)
            thread.start()
            time.sleep(source.uniform(0.05, 0.5))
            server.kill()
            thread.join(PATIENCE)
            # The last key may have been read or not.
            opened = 0
            for candidate in keys[-1:-4:-1]:
                put(candidate)
                with contextlib.suppress(ServerError):
                    server.start()
                    opened += 1
                    keys = [candidate]
                    break
            equal(opened, 1, f"one of the last keys opens it, seed {seed}")
            with connect(server) as client:
                equal(client.b.c.count_documents({}), 100)
        server.stop()


@test
@in_folder
def a_directory_is_encrypted_and_decrypted_offline(path, _):
    key = new_key(os.path.join(path, "key"))
    with Server(BINARY, folder=os.path.join(path, "plain")) as server:
        server.start()
        with connect(server) as client:
            fill(client)
        server.stop()
    assert leaks(server.dbpath), "the secret is there"
    out = os.path.join(path, "encrypted", "db")
    frond("salvage", "--dbpath", server.dbpath, "--out", out, "--outEncryptionKeyFile", key)
    equal(leaks(out), [])
    with encrypted(os.path.dirname(out), key) as server:
        server.start()
        with connect(server) as client:
            equal(client.b.c.count_documents({}), DOCUMENTS)
            equal(sorted(client.b.c.index_information()), ["_id_", "t_1"])
        server.stop()
    back = os.path.join(path, "back", "db")
    frond("salvage", "--dbpath", out, "--out", back, "--encryptionKeyFile", key)
    frond("verify", "--dbpath", back)


print(f"  # seed {SEED}")
run(SEED)
