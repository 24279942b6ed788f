"""Messages of every opcode from clients that did not log in, as they are and changed at random: none reaches the store.

FROND_MESSAGES is how many (20,000); `make before-login` sends a million. FROND_SEED repeats a run.
"""

import json
import os
import random
import struct
import threading
import time
import zlib

import bson
import pymongo
from authorization_table import cases
from harness import raw
from harness.raw import Closed
from harness.scram import Conversation, SecuredServer, login
from harness.tap import equal, run, test

MESSAGES = int(os.environ.get("FROND_MESSAGES", "20000"))
SEED = int(os.environ.get("FROND_SEED") or time.time())
CONNECTIONS = 8
# Messages of one connection: after a broken one the server closes it.
AT_A_TIME = 8
CANARY = "canary-" + os.urandom(12).hex()
# What only requests of somebody who is logged in may move.
COUNTERS = ["insert", "query", "update", "delete", "getmore"]
COMPRESSORS = {0: lambda data: data, 2: zlib.compress}


def frame(opcode, body, request_id=7):
    return struct.pack("<iiii", 16 + len(body), request_id, 0, opcode) + body


def cstring(text):
    return text.encode() + b"\0"


def seeds():
    """Sound messages: every command of the matrix, every legacy opcode, logins, and all of them compressed."""
    found = [case.message for case in cases()]
    bodies = [case.message[21:] for case in cases()]
    nothing = bson.encode({})
    canary = bson.encode({"_id": "intruder", "text": "x"})
    for namespace in ("canary.c", "own.c", "admin.system.users", "local.oplog.rs", "canary.$cmd"):
        name = cstring(namespace)
        change = bson.encode({"$set": {"a": 1}})
        found += [
            frame(raw.OP_QUERY, struct.pack("<I", 0) + name + struct.pack("<ii", 0, 10) + nothing),
            frame(raw.OP_QUERY, struct.pack("<I", 1 << 6) + name + struct.pack("<ii", 0, 10) + nothing),
            frame(raw.OP_INSERT, struct.pack("<I", 0) + name + canary),
            frame(raw.OP_UPDATE, struct.pack("<I", 0) + name + struct.pack("<I", 3) + nothing + change),
            frame(raw.OP_DELETE, struct.pack("<I", 0) + name + struct.pack("<I", 0) + nothing),
            frame(raw.OP_GET_MORE, struct.pack("<I", 0) + name + struct.pack("<iq", 10, 12345)),
        ]
    found.append(frame(raw.OP_KILL_CURSORS, struct.pack("<Iiq", 0, 1, 12345)))
    for body in bodies[::3]:
        database = bson.decode(body)["$db"]
        command = cstring(f"{database}.$cmd")
        found.append(frame(raw.OP_QUERY, struct.pack("<I", 0) + command + struct.pack("<ii", 0, -1) + body))
    for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256"):
        for user in (SecuredServer.ADMIN[0], "nobody", "__system"):
            first = Conversation(mechanism, user, "guess").first
            start = {"saslStart": 1, "mechanism": mechanism, "payload": first, "$db": "admin"}
            found.append(raw.op_msg(start))
            hello = {"hello": 1, "saslSupportedMechs": f"admin.{user}", "speculativeAuthenticate": start}
            found.append(raw.op_msg(hello))
            for payload in (b"", b"c=biws,r=x,p=AAAA", b"n,,n=admin,r=x", b"v=", bytes(range(256))):
                found.append(raw.op_msg({"saslContinue": 1, "conversationId": 1, "payload": payload}))
    for mechanism in ("PLAIN", "GSSAPI", "MONGODB-X509", "MONGODB-AWS", "MONGODB-OIDC", "", "SCRAM-SHA-512"):
        found.append(raw.op_msg({"saslStart": 1, "mechanism": mechanism, "payload": b"\0admin\0admin"}))
        found.append(raw.op_msg({"authenticate": 1, "mechanism": mechanism, "user": "admin", "nonce": "0", "key": "0"}))
    for which in range(0, len(found), 5):
        for compressor, pack in COMPRESSORS.items():
            (opcode,) = struct.unpack_from("<i", found[which], 12)
            inner = found[which][16:]
            found.append(frame(raw.OP_COMPRESSED, struct.pack("<iiB", opcode, len(inner), compressor) + pack(inner)))
    return found


class Mutator:
    """Changes messages. Most keep a true length, so that what follows them is read."""

    OPCODES = [0, 1, 1000, 2001, 2002, 2003, 2004, 2005, 2006, 2007, 2010, 2011, 2012, 2013, 2014, -1]
    NUMBERS = [0, 1, -1, 4, 5, 127, 128, 255, 256, 65535, 2**31 - 1, -(2**31), 48 * 1024, 48_000_000]

    def __init__(self, seed, found):
        self.random = random.Random(seed)
        self.seeds = found
        self.names = sorted({next(iter(json.loads(case.command))).encode() for case in cases()})

    def message(self):
        data = bytearray(self.random.choice(self.seeds))
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 3, 8))):
            data = self.random.choice(self.CHANGES)(self, data)
        if self.random.random() < 0.97 and len(data) >= 16:
            data[0:4] = struct.pack("<i", len(data))
        return bytes(data)

    def at(self, data, before=0):
        return self.random.randrange(16, max(17, len(data) - before)) if len(data) > 16 else 0

    def flip(self, data):
        if data:
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return data

    def byte(self, data):
        at = self.at(data)
        if at < len(data):
            data[at] = self.random.randrange(256)
        return data

    def number(self, data):
        at = self.at(data, 4)
        data[at : at + 4] = struct.pack("<i", self.random.choice(self.NUMBERS))
        return data

    def cut(self, data):
        return data[: self.at(data)]

    def insert(self, data):
        at = self.at(data)
        data[at:at] = self.random.randbytes(self.random.choice((1, 2, 4, 16, 200)))
        return data

    def repeat(self, data):
        a, b = sorted((self.at(data), self.at(data)))
        data[a:a] = data[a:b]
        return data[:40000]

    def splice(self, data):
        other = self.random.choice(self.seeds)
        return data[: self.at(data)] + bytearray(other[self.at(other) :])

    def follow(self, data):
        """Adds the sections of another message: a command that nobody looked at."""
        other = self.random.choice(self.seeds)
        return data + bytearray(other[self.random.choice((16, 20, 21)) :])

    def opcode(self, data):
        data[12:16] = struct.pack("<i", self.random.choice(self.OPCODES))
        return data

    def flags(self, data):
        data[16:20] = struct.pack("<I", self.random.choice((0, 1, 2, 3, 1 << 16, 1 << 17, 2**32 - 1)))
        return data

    def rename(self, data):
        """Puts the name of a command over that of another."""
        name = self.random.choice(self.names)
        at = 26
        end = data.find(b"\0", at)
        if end > 0:
            data[at:end] = name
            data[21:25] = struct.pack("<i", max(5, len(data) - 21))
        return data

    CHANGES = [flip, flip, byte, byte, number, cut, insert, repeat, splice, splice, follow, opcode, flags, rename, rename]


def replies(data):
    """The bodies of whole replies, decompressed."""
    at = 0
    while at + 16 <= len(data):
        length, _, _, opcode = struct.unpack_from("<iiii", data, at)
        if length < 16 or at + length > len(data):
            break
        body = data[at + 16 : at + length]
        if opcode == raw.OP_COMPRESSED and body[8] == 2:
            body = zlib.decompress(body[9:])
        yield body
        at += length


class Attack:
    """What the threads found out together."""

    def __init__(self, server):
        self.server = server
        self.sent = self.answered = self.connections = 0
        self.problems = []
        self.lock = threading.Lock()
        self.admin = pymongo.MongoClient(server.admin_uri, maxPoolSize=1)

    def send_all(self, messages):
        """Sends messages, and after one that ended the connection the others again, so that each is read."""
        while messages:
            answers = self.send(messages)
            messages = messages[answers + 1 :]

    def send(self, messages):
        """Sends messages on a connection of their own, and reads what comes. Returns the number of replies."""
        with raw.Connection(self.server.port, timeout=60) as connection:
            data = b""
            try:
                connection.send(b"".join(messages))
                connection.socket.shutdown(1)
            except (Closed, OSError):
                pass
            try:
                while piece := connection.socket.recv(1 << 16):
                    data += piece
            except ConnectionResetError:
                pass
            except TimeoutError:
                self.note("no answer and no end", messages)
        count = 0
        for body in replies(data):
            count += 1
            if CANARY.encode() in body:
                self.note("a document of the store came back", messages, body)
            if b"InternalError" in body or b"panicked" in body:
                self.note("an internal error", messages, body)
        with self.lock:
            self.connections += 1
            # Those before the last answer were read, and the one that ended the connection.
            self.sent += min(len(messages), count + 1)
            self.answered += count
        return count

    def note(self, what, messages, body=b""):
        with self.lock:
            self.problems.append(f"{what}: {body[:300]!r} after {[m.hex() for m in messages][:3]}"[:1500])

    def state(self):
        """All that the store has, and the counters of what was done in it."""
        status = self.admin.admin.command("serverStatus")
        hashes = {}
        for database in self.admin.list_database_names():
            if database != "local":
                hashes[database] = self.admin[database].command("dbHash")["collections"]
        oplog = self.admin.local["oplog.rs"].find({"op": {"$ne": "n"}}).sort("$natural", -1).limit(1).next()["ts"]
        return {
            "hashes": hashes,
            "oplog": oplog,
            "counters": {name: status["opcounters"][name] for name in COUNTERS},
            "cursors": status["metrics"]["cursor"]["open"]["total"],
            "transactions": status["transactions"]["totalStarted"],
        }


@test
def no_message_reaches_the_store(attack):
    print(f"# FROND_SEED={SEED}, {MESSAGES} messages")
    found = seeds()
    attack.admin.canary.c.insert_many({"_id": n, "text": CANARY * 3} for n in range(200))
    attack.admin.own.c.insert_one({"text": CANARY})
    attack.admin.canary.create_collection("v", viewOn="c", pipeline=[])
    # A second look is compared with a third, so that what looking itself counts is known.
    attack.state()
    first = attack.state()
    before = attack.state()
    resident = attack.server.resident_kib()

    def work(which):
        mutator = Mutator(SEED * CONNECTIONS + which, found)
        # Each sound message once, and then changed ones.
        sound = found[which::CONNECTIONS]
        wanted = MESSAGES // CONNECTIONS
        for at in range(0, min(len(sound), wanted), AT_A_TIME):
            attack.send_all(sound[at : at + AT_A_TIME])
        for _ in range(max(0, wanted - len(sound)) // AT_A_TIME + 1):
            attack.send_all([mutator.message() for _ in range(AT_A_TIME)])

    threads = [threading.Thread(target=work, args=[which]) for which in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"# {attack.sent} read by the server, {attack.answered} answered, on {attack.connections} connections")
    equal(attack.problems[:5], [])
    assert attack.sent >= MESSAGES * 0.99, f"{attack.sent} messages"
    assert attack.answered > attack.sent // 3, "most messages ended their connection"
    after = attack.state()
    for name in ("hashes", "oplog", "cursors", "transactions"):
        equal(after[name], before[name], name)
    for name in COUNTERS:
        # Looking at the state twice counted as much as looking once more.
        looked = before["counters"][name] - first["counters"][name]
        equal(after["counters"][name] - before["counters"][name], looked, f"opcounters.{name}")
    grown = attack.server.resident_kib() - resident
    assert grown < 300_000, f"{grown} KiB more memory"


@test
def the_server_still_lets_in_who_belongs(attack):
    with raw.Connection(attack.server.port) as connection:
        login(connection, *SecuredServer.ADMIN)
        equal(connection.command({"count": "c"}, "canary")["n"], 200)
    log = attack.server.log_tail(1_000_000)
    for word in ("panicked", CANARY):
        assert word not in log, f"{word} in the log"


@test
def a_message_above_48_kib_ends_the_connection(attack):
    for size in (49 * 1024, 1 << 20, 47_999_999):
        with raw.Connection(attack.server.port) as connection:
            hello = raw.op_msg({"hello": 1, "comment": "x" * (min(size, 1 << 20) - 100)})
            connection.send(struct.pack("<i", max(size, len(hello))) + hello[4:20])
            try:
                reply = connection.receive()
                raise AssertionError(f"{size} bytes were answered: {reply}")
            except Closed:
                pass
    with raw.Connection(attack.server.port) as connection:
        equal(connection.command({"hello": 1, "comment": "x" * 45_000})["ok"], 1.0)
        login(connection, *SecuredServer.ADMIN)
        equal(connection.command({"ping": 1, "comment": "x" * 1_000_000})["ok"], 1.0)


@test
def legacy_opcodes_are_refused_without_a_login(attack):
    find = struct.pack("<I", 0) + cstring("canary.c") + struct.pack("<ii", 0, 10) + bson.encode({})
    with raw.Connection(attack.server.port) as connection:
        connection.send(frame(raw.OP_QUERY, find))
        answer = connection.receive()[2]
        equal(answer.get("code"), 13, f"{answer}")
        assert "$err" in answer, answer
        connection.send(frame(raw.OP_INSERT, struct.pack("<I", 0) + cstring("canary.c") + bson.encode({"_id": -1})))
        connection.send(frame(raw.OP_DELETE, struct.pack("<I", 0) + cstring("canary.c") + bytes(4) + bson.encode({})))
        equal(connection.command({"ping": 1})["ok"], 1.0)
    equal(attack.admin.canary.c.count_documents({}), 200)


def main():
    # Many of the messages are logins that fail.
    quickly = ["--setParameter", "authFailedDelayMs=0"]
    with SecuredServer(os.environ["FROND_BINARY"], quickly, replica_set="rs0") as server:
        server.start()
        run(Attack(server))


if __name__ == "__main__":
    main()
