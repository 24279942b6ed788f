"""What somebody with a debugger sees: after logins and commands on users no password and no key is in the log, in currentOp,
in replies, in the files of the server, or in its memory."""

import base64
import hashlib
import os
import tempfile
import threading

import bson
import pymongo
from harness import raw
from harness.certificates import Certificates
from harness.scram import Conversation, LoginFailed, SecuredServer, login
from harness.tap import equal, raises, run, test
from harness.waiting import wait_until

# Random, so that nothing else can have them.
PASSWORDS = {name: f"pw-{name}-{os.urandom(9).hex()}" for name in (
    "created", "updated", "wrong", "refused", "sha1", "cr", "odd", "bulk", "bench", "logged", "dropped", "transaction")}  # fmt: skip


def forms(text):
    """A secret as it may be written: plain, base64, hexadecimal, UTF-16."""
    data = text if isinstance(text, bytes) else text.encode()
    whole = len(data) // 3 * 3
    return {
        "plain": data,
        "base64": base64.b64encode(data[:whole]),
        "hex": data.hex().encode(),
        "HEX": data.hex().upper().encode(),
        "UTF-16": data.decode("latin-1").encode("utf-16-le"),
    }


class Setting:
    def __init__(self, folder):
        self.folder = folder
        self.certificates = Certificates(os.path.join(folder, "certificates"))
        self.password = Certificates.PASSWORD + os.urandom(6).hex()
        pem = self.certificates.ca.encrypt("server", self.password)
        # A password on a command line is anybody's who may see processes: that is what files of settings are for.
        config = os.path.join(folder, "frond.conf")
        with open(os.open(config, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(
                "systemLog: {verbosity: 5}\n"
                "security: {authorization: enabled}\n"
                "operationProfiling: {slowOpThresholdMs: 0}\n"
                "net:\n  tls:\n    mode: preferTLS\n"
                f"    certificateKeyFile: {pem}\n    certificateKeyFilePassword: {self.password}\n"
                f"    CAFile: {self.certificates.ca.certificate}\n    allowConnectionsWithoutCertificates: true\n"
                "setParameter:\n  authenticationMechanisms: SCRAM-SHA-1,SCRAM-SHA-256,MONGODB-CR,MONGODB-X509\n"
            )
        self.server = SecuredServer(os.environ["FROND_BINARY"], ["--config", config], replica_set="rs0")
        # Keys that a login makes, and replies of the server.
        self.keys = {}
        self.replies = []

    def secrets(self):
        return {**PASSWORDS, "admin": SecuredServer.ADMIN[1], "key file": self.password, **self.keys}

    def find_in(self, data, where, without=()):
        found = []
        for name, text in self.secrets().items():
            if name not in without:
                found += [f"{name} ({form})" for form, value in forms(text).items() if value in data]
        equal(found, [], where)

    def ask(self, connection, command, database="own"):
        reply = connection.command(command, database)
        self.replies.append(repr(reply).encode())
        return reply

    def admin(self):
        connection = raw.Connection(self.server.port)
        self.learn(login(connection, *SecuredServer.ADMIN), "admin")
        return connection

    def learn(self, talk, name):
        """Remembers what the conversation of a login computed."""
        self.keys[f"client key of {name} {len(self.keys)}"] = talk.client_key
        self.keys[f"proof of {name} {len(self.keys)}"] = talk.proof


def watch_operations(setting, stop, seen):
    """Collects what currentOp shows while the others work."""
    with setting.admin() as connection:
        everything = {"aggregate": 1, "pipeline": [{"$currentOp": {"allUsers": True, "idleConnections": True}}], "cursor": {}}
        while not stop.is_set():
            seen.append(repr(connection.command({"currentOp": 1, "$all": True})).encode())
            seen.append(repr(connection.command(everything)).encode())


@test
def users_are_made_changed_and_log_in(setting):
    stop, seen = threading.Event(), []
    watcher = threading.Thread(target=watch_operations, args=[setting, stop, seen])
    watcher.start()
    try:
        with setting.admin() as admin:
            work(setting, admin)
    finally:
        stop.set()
        watcher.join()
    text = b"".join(seen)
    assert b"createUser" in text or b"updateUser" in text, f"currentOp showed no command on users in {len(seen)} looks"
    setting.find_in(text, "currentOp")


def work(setting, admin):
    ask = setting.ask
    for n in range(10):
        user = {"createUser": f"u{n}", "pwd": PASSWORDS["created"], "roles": ["readWrite"], "comment": "a comment"}
        equal(ask(admin, user)["ok"], 1.0)
        equal(ask(admin, {"updateUser": f"u{n}", "pwd": PASSWORDS["updated"]})["ok"], 1.0)
    equal(ask(admin, {"createUser": "s", "pwd": PASSWORDS["sha1"], "roles": [], "mechanisms": ["SCRAM-SHA-1"]})["ok"], 1.0)
    equal(ask(admin, {"createUser": "cr", "pwd": PASSWORDS["cr"], "roles": [], "mechanisms": ["MONGODB-CR"]})["ok"], 1.0)
    # Refused in all the ways there are: the errors must not repeat the password.
    refused = PASSWORDS["refused"]
    for command in (
        {"createUser": "u1", "pwd": refused, "roles": []},
        {"createUser": "x", "pwd": refused, "roles": [{"role": "none", "db": "own"}]},
        {"createUser": "x", "pwd": refused, "roles": "read"},
        {"createUser": "x", "pwd": refused, "roles": [], "unknown": 1},
        {"createUser": "x", "pwd": {"text": refused}, "roles": []},
        {"createUser": "x", "pwd": [refused], "roles": []},
        {"createUser": "x", "pwd": refused, "roles": [], "mechanisms": ["none"]},
        # Many times, since the memory of one is soon used again: a credential made before the refusal would hold the digest.
        *[{"createUser": "x", "pwd": refused, "roles": [], "digestPassword": False}] * 50,
        {"createUser": "", "pwd": refused, "roles": []},
        {"updateUser": "nobody", "pwd": refused},
        {"updateUser": "u1", "pwd": refused, "customData": 7, "x": 1},
        {"createuser": "x", "pwd": refused, "roles": []},
        {"authenticate": 1, "mechanism": "MONGODB-CR", "user": "cr", "nonce": "none", "key": refused},
        {"saslStart": 1, "mechanism": "PLAIN", "payload": b"\0u1\0" + refused.encode()},
        {"saslStart": 1, "mechanism": "none", "payload": refused.encode()},
        {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": refused.encode()},
        {"saslContinue": 1, "conversationId": 1, "payload": refused.encode()},
        {"copydbsaslstart": 1, "payload": refused.encode()},
        {"logout": 1},
    ):
        ask(admin, command)
        if "logout" in command or "saslStart" in command or "authenticate" in command:
            admin.socket.close()
            admin.__init__(setting.server.port)
            login(admin, *SecuredServer.ADMIN)
    with raw.Connection(setting.server.port) as stranger:
        ask(stranger, {"createUser": "x", "pwd": refused, "roles": []})
        ask(stranger, {"updateUser": "u1", "pwd": refused})
    # In OP_QUERY, as old drivers send it.
    admin.send(raw.op_query({"createUser": "old", "pwd": PASSWORDS["odd"], "roles": []}, "own.$cmd"))
    admin.receive()
    for mechanism, name, password in (
        ("SCRAM-SHA-256", "u1", PASSWORDS["updated"]),
        ("SCRAM-SHA-1", "u1", PASSWORDS["updated"]),
        ("SCRAM-SHA-1", "s", PASSWORDS["sha1"]),
    ):
        with raw.Connection(setting.server.port) as connection:
            setting.learn(login(connection, name, password, "own", mechanism), name)
        with raw.Connection(setting.server.port) as connection:
            error = raises(LoginFailed, login, connection, name, PASSWORDS["wrong"], "own", mechanism)
            equal(error.code, 18)
            setting.replies.append(repr(error.reply).encode())
        # A login in the hello, of a driver that speculates.
        with raw.Connection(setting.server.port) as connection:
            talk = Conversation(mechanism, name, password)
            start = {"saslStart": 1, "mechanism": mechanism, "payload": talk.first, "db": "own"}
            hello = ask(connection, {"hello": 1, "speculativeAuthenticate": start}, "admin")
            first = hello["speculativeAuthenticate"]
            final = talk.final(first["payload"].decode())
            proof = {"saslContinue": 1, "conversationId": first["conversationId"], "payload": final}
            equal(ask(connection, proof)["ok"], 1.0)
            setting.learn(talk, name)
    with raw.Connection(setting.server.port) as connection:
        nonce = ask(connection, {"getnonce": 1})["nonce"]
        digest = hashlib.md5(f"cr:mongo:{PASSWORDS['cr']}".encode()).hexdigest()
        key = hashlib.md5(f"{nonce}cr{digest}".encode()).hexdigest()
        equal(ask(connection, {"authenticate": 1, "user": "cr", "nonce": nonce, "key": key})["ok"], 1.0)
        setting.keys["key of MONGODB-CR"] = key.encode()
        setting.keys["digest of MONGODB-CR"] = digest.encode()
    for n in range(10):
        equal(ask(admin, {"updateUser": f"u{n}", "pwd": PASSWORDS["dropped"]})["ok"], 1.0)
    equal(ask(admin, {"dropUser": "u9"})["ok"], 1.0)
    ask(admin, {"usersInfo": 1, "showCredentials": True})
    ask(admin, {"usersInfo": {"forAllDBs": True}, "showPrivileges": True}, "admin")
    ask(admin, {"connectionStatus": 1, "showPrivileges": True})
    ask(admin, {"rolesInfo": 1, "showPrivileges": True})


@test
def no_reply_repeats_a_secret(setting):
    # showCredentials shows what is stored, to who may see it; of MONGODB-CR that is the digest.
    setting.find_in(b"".join(setting.replies), "replies", without=["digest of MONGODB-CR"])


@test
def diagnostic_commands_show_none(setting):
    with setting.admin() as connection:
        for command in (
            {"getCmdLineOpts": 1},
            {"getParameter": "*"},
            {"getParameter": {"showDetails": True, "allParameters": True}},
            {"getLog": "global"},
            {"getLog": "startupWarnings"},
            {"serverStatus": 1},
            {"getDiagnosticData": 1},
            {"top": 1},
            {"hostInfo": 1},
            {"connPoolStats": 1},
        ):
            reply = repr(connection.command(command)).encode()
            setting.find_in(reply, next(iter(command)))
            if "getCmdLineOpts" in command:
                assert b"certificateKeyFilePassword" in reply, "the setting itself is shown, its value is not"


@test
def the_log_has_none_at_the_highest_verbosity(setting):
    with open(setting.server.log_path, "rb") as log:
        text = log.read()
    for command in (b"createUser", b"updateUser", b"saslStart"):
        assert command in text, f"the log does not tell of {command}: it is not verbose enough for this test"
    setting.find_in(text, "the log")


@test
def the_oplog_has_none(setting):
    with pymongo.MongoClient(setting.server.admin_uri) as client:
        entries = b"".join(bson.encode(entry) for entry in client.local["oplog.rs"].find())
    assert b"storedKey" in entries
    # What MONGODB-CR stores is this digest: the reason why it is off unless somebody asks for it.
    setting.find_in(entries, "the oplog", without=["digest of MONGODB-CR"])


@test
def the_memory_of_the_process_has_no_password(setting):
    """Passwords and keys were wiped after use. What other parts of this test hold is in this process, not in the server's."""
    # Buffers of connections are freed some time after their last message.
    wait_until("memory without passwords", lambda: not passwords_in_memory(setting.server.pid))


def passwords_in_memory(pid):
    """The names of the passwords in the memory of a process."""
    found = set()
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
        ranges = [line.split() for line in maps]
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for parts in ranges:
            if "rw" not in parts[1] or (len(parts) > 5 and parts[5].startswith("[v")):
                continue
            begin, end = (int(part, 16) for part in parts[0].split("-"))
            try:
                memory.seek(begin)
                data = memory.read(end - begin)
            except (OSError, OverflowError):
                continue
            found |= {name for name, password in PASSWORDS.items() if password.encode() in data}
    if found:
        print(f"  # in memory: {sorted(found)}", flush=True)
    return found


@test
def the_files_of_the_server_have_none(setting):
    with raw.Connection(setting.server.port) as connection:
        login(connection, *SecuredServer.ADMIN)
        equal(connection.command({"fsync": 1})["ok"], 1.0)
    setting.server.stop()
    searched = 0
    for folder, _, names in os.walk(setting.server.folder):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    data = file.read()
                searched += len(data)
                setting.find_in(data, path, without=["digest of MONGODB-CR"])
    assert searched > 10_000, searched


@test
def the_files_of_the_server_are_its_owners_only(setting):
    for folder, folders, names in os.walk(setting.server.dbpath):
        for name in folders + names:
            path = os.path.join(folder, name)
            mode = os.stat(path).st_mode & 0o777
            equal(mode & 0o077, 0, f"{path} has mode {mode:o}")


def main():
    with tempfile.TemporaryDirectory(prefix="frond-secrets-") as folder:
        setting = Setting(folder)
        with setting.server as server:
            server.start()
            run(setting)


if __name__ == "__main__":
    main()
