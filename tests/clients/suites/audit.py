"""The audit log: its events, its filter, its rotation, and what happens when it cannot be written.

The suite starts its own servers. The first part is a table of events: what a client does, and which events that makes.
"""

import os
import signal
import subprocess

import bson
import pymongo
from authorization_table import Role, cases, role_table
from bson import json_util
from harness import raw
from harness.scram import Conversation, LoginFailed, SecuredServer, login
from harness.server import Server, ServerError
from harness.small_disk import SmallDisk
from harness.tap import equal, raises, run, test
from harness.waiting import wait_until

BINARY = os.environ.get("FROND_BINARY", "")
UNAUTHORIZED = 13
NOT_WRITTEN = 96
PASSWORD = "a long pencil"
# Fields of every event, in the order of MongoDB's.
FIELDS = ["atype", "ts", "uuid", "local", "remote", "users", "roles", "param", "result"]


class Trail:
    """The events in a file, of which each call returns those that are new."""

    def __init__(self, path):
        self.path = path
        self.at = 0

    def new(self):
        with open(self.path, encoding="utf-8") as file:
            file.seek(self.at)
            text = file.read()
            self.at = file.tell()
        assert not text or text.endswith("\n"), text[-200:]
        return [json_util.loads(line) for line in text.splitlines()]

    def short(self, *kinds):
        """The new events of some types, or of all: type, result, and parameters."""
        return [(e["atype"], e["result"], e["param"]) for e in self.new() if not kinds or e["atype"] in kinds]


def audited(secured=False, options=(), **more):
    """A server with an audit log in its folder, and the log."""
    kind = SecuredServer if secured else Server
    server = kind(BINARY, **more)
    path = os.path.join(server.folder, "audit.json")
    server.options += ["--auditDestination", "file", "--auditPath", path, *options]
    return server, Trail(path)


class Plain:
    """A server with authorization and its trail, which most tests share."""

    def __init__(self):
        self.server, self.trail = audited(secured=True)
        self.server.start()
        self.admin = pymongo.MongoClient(self.server.admin_uri)
        self.admin.admin.command("ping")
        self.trail.new()


@test
def every_start_is_the_first_event_and_every_stop_the_last(plain):
    server, trail = audited(options=["--auditFilter", "{ atype: { $in: [ 'startup', 'shutdown' ] } }"])
    with server:
        for _ in range(2):
            server.start()
            server.stop()
        events = trail.new()
    equal([e["atype"] for e in events], ["startup", "shutdown"] * 2)
    equal(list(events[0]), FIELDS)
    options = events[0]["param"]["startupOptions"]
    equal(options["auditLog"]["destination"], "file")
    equal(options["storage"]["dbPath"], server.dbpath)
    equal([p["_id"] for p in events[0]["param"]["initialClusterServerParameters"]], ["changeStreamOptions"])
    equal(events[0]["remote"], {"isSystemUser": True})


@test
def an_event_names_the_connection_the_user_and_its_roles(plain):
    client = pymongo.MongoClient(plain.server.admin_uri, appname="the suite")
    plain.trail.new()
    client.fields.create_collection("c")
    events = plain.trail.new()
    event = next(e for e in events if e["atype"] == "createCollection")
    equal(list(event), FIELDS)
    equal(event["users"], [{"user": "operator", "db": "admin"}])
    assert {"role": "root", "db": "admin"} in event["roles"], event["roles"]
    equal(event["local"], {"ip": "127.0.0.1", "port": plain.server.port})
    equal(event["remote"]["ip"], "127.0.0.1")
    assert 0 < event["remote"]["port"] < 65536
    same = [e for e in events if e["remote"] == event["remote"]]
    equal(len({bytes(e["uuid"]) for e in same}), 1, "the UUID is that of the connection")
    metadata = next(e for e in events if e["atype"] == "clientMetadata")
    equal(metadata["param"]["clientMetadata"]["application"], {"name": "the suite"})
    equal(metadata["param"]["localEndpoint"], {"ip": "127.0.0.1", "port": plain.server.port})
    with open(plain.trail.path, encoding="utf-8") as file:
        text = file.read()
    # The forms of MongoDB's own log.
    assert '"uuid" : { "$binary" : "' in text and '", "$type" : "04" }' in text
    assert '"ts" : { "$date" : "20' in text and '+00:00" }' in text
    equal(os.stat(plain.trail.path).st_mode & 0o777, 0o600)
    client.close()


@test
def a_client_of_the_unix_socket_is_named_by_it(plain):
    path = plain.server.socket_path.replace("/", "%2F")
    client = pymongo.MongoClient(f"mongodb://{path}")
    client.admin.command("ping")
    events = [e for e in plain.trail.new() if e["atype"] == "clientMetadata"]
    equal(events[0]["remote"], {"unix": "anonymous"})
    equal(events[0]["local"], {"unix": plain.server.socket_path})
    client.close()


ROLE = {"role": "read", "db": "t"}
PRIVILEGE = {"resource": {"db": "t", "collection": "c"}, "actions": ["find"]}


def index(name, key, state):
    spec = {"v": 2, "key": key, "name": name}
    return ("createIndex", 0, {"ns": "t.c", "indexName": name, "indexSpec": spec, "indexBuildState": state})


# What a client does on the database `t`, and the events of it.
EVENTS = [
    (
        {"create": "c"},
        [
            ("createDatabase", 0, {"ns": "t"}),
            ("createCollection", 0, {"ns": "t.c"}),
            index("_id_", {"_id": 1}, "IndexBuildSucceeded"),
        ],
    ),
    ({"insert": "c", "documents": [{"_id": 1, "x": 1}]}, []),
    (
        {"createIndexes": "c", "indexes": [{"key": {"x": 1}, "name": "x_1"}]},
        [index("x_1", {"x": 1}, "IndexBuildStarted"), index("x_1", {"x": 1}, "IndexBuildSucceeded")],
    ),
    ({"dropIndexes": "c", "index": "x_1"}, [("dropIndex", 0, {"ns": "t.c", "indexName": "x_1"})]),
    (
        {"collMod": "c", "validationLevel": "moderate"},
        [("collMod", 0, {"db": "t", "args": {"collMod": "c", "validationLevel": "moderate"}})],
    ),
    (
        {"createUser": "ann", "pwd": PASSWORD, "roles": ["read"], "customData": {"n": 1}},
        [("createUser", 0, {"user": "ann", "db": "t", "customData": {"n": 1}, "roles": [ROLE]})],
    ),
    ({"updateUser": "ann", "pwd": PASSWORD}, [("updateUser", 0, {"user": "ann", "db": "t", "passwordChanged": True})]),
    (
        {"createRole": "r", "roles": [], "privileges": [PRIVILEGE]},
        [("createRole", 0, {"role": "r", "db": "t", "roles": [], "privileges": [PRIVILEGE]})],
    ),
    ({"updateRole": "r", "roles": ["read"]}, [("updateRole", 0, {"role": "r", "db": "t", "roles": [ROLE]})]),
    (
        {"grantRolesToUser": "ann", "roles": ["r"]},
        [("grantRolesToUser", 0, {"user": "ann", "db": "t", "roles": [{"role": "r", "db": "t"}]})],
    ),
    (
        {"revokeRolesFromUser": "ann", "roles": ["r"]},
        [("revokeRolesFromUser", 0, {"user": "ann", "db": "t", "roles": [{"role": "r", "db": "t"}]})],
    ),
    ({"revokeRolesFromRole": "r", "roles": ["read"]}, [("revokeRolesFromRole", 0, {"role": "r", "db": "t", "roles": [ROLE]})]),
    ({"grantRolesToRole": "r", "roles": ["read"]}, [("grantRolesToRole", 0, {"role": "r", "db": "t", "roles": [ROLE]})]),
    (
        {"revokePrivilegesFromRole": "r", "privileges": [PRIVILEGE]},
        [("revokePrivilegesFromRole", 0, {"role": "r", "db": "t", "privileges": [PRIVILEGE]})],
    ),
    (
        {"grantPrivilegesToRole": "r", "privileges": [PRIVILEGE]},
        [("grantPrivilegesToRole", 0, {"role": "r", "db": "t", "privileges": [PRIVILEGE]})],
    ),
    ({"dropUser": "ann"}, [("dropUser", 0, {"user": "ann", "db": "t"})]),
    ({"dropRole": "r"}, [("dropRole", 0, {"role": "r", "db": "t"})]),
    ({"dropAllUsersFromDatabase": 1}, [("dropAllUsersFromDatabase", 0, {"db": "t"})]),
    ({"dropAllRolesFromDatabase": 1}, [("dropAllRolesFromDatabase", 0, {"db": "t"})]),
    ({"drop": "none"}, [("dropCollection", 26, {"ns": "t.none"})]),
    ({"dropDatabase": 1}, [("dropCollection", 0, {"ns": "t.c"}), ("dropDatabase", 0, {"ns": "t"})]),
]

# The same on `admin`. `...` stands for any parameters.
ADMIN_EVENTS = [
    ({"logApplicationMessage": "deployed"}, [("applicationMessage", 0, {"msg": "deployed"})]),
    (
        {"setParameter": 1, "notablescan": False},
        [("setParameter", 0, {"db": "admin", "args": {"setParameter": 1, "notablescan": False}})],
    ),
    ({"getClusterParameter": "*"}, [("getClusterParameter", 0, {"requestedClusterServerParameters": "*"})]),
    (
        {"setClusterParameter": {"changeStreamOptions": {"preAndPostImages": {"expireAfterSeconds": 5}}}},
        [("setClusterParameter", 0, ...)],
    ),
    ({"logRotate": "audit"}, [("rotateLog", 0, ...)]),
]


def events_of(plain, database, table):
    with plain.server.connect() as connection:
        login(connection, *plain.server.ADMIN)
        for command, expected in table:
            plain.trail.new()
            reply = connection.command(command, database)
            equal(reply["ok"], 1, f"{command}: {reply}")
            if "logRotate" in command:
                plain.trail.at = 0
            # What the command needs for itself, such as the first collection in `config`.
            ours = [e for e in plain.trail.short() if e[2].get("ns", "") not in INTERNAL]
            got = [e if want[2:] != (...,) else (*e[:2], ...) for e, want in zip(ours, expected, strict=False)]
            equal(got + ours[len(expected) :], expected, str(command))


INTERNAL = {"config", "config.clusterParameters", "admin", "admin.system.users", "admin.system.roles", "admin.system.version"}


@test
def the_table_of_events(plain):
    events_of(plain, "t", EVENTS)
    events_of(plain, "admin", ADMIN_EVENTS)


@test
def logins_and_their_ends(plain):
    plain.admin.t.command("createUser", "ann", pwd=PASSWORD, roles=["read"], mechanisms=["SCRAM-SHA-256"])
    plain.trail.new()
    kinds = ("authenticate", "logout")
    param = {"user": "ann", "db": "t", "mechanism": "SCRAM-SHA-256"}
    user = {"user": "ann", "db": "t"}
    with plain.server.connect() as connection:
        failed = raises(LoginFailed, login, connection, "ann", "wrong", "t")
        equal(failed.code, 18)
        equal(plain.trail.short(*kinds), [("authenticate", 18, param)])
        raises(LoginFailed, login, connection, "nobody", "wrong", "t")
        equal(plain.trail.short(*kinds), [("authenticate", 18, {**param, "user": "nobody"})])
        unknown = connection.command({"saslStart": 1, "mechanism": "PLAIN", "payload": b"x"}, "t")
        equal(unknown["code"], 334)
        equal(plain.trail.short(*kinds), [("authenticate", 334, {"user": "", "db": "t", "mechanism": "PLAIN"})])
        login(connection, "ann", PASSWORD, "t")
        equal(plain.trail.short(*kinds), [("authenticate", 0, param)])
        connection.command({"logout": 1}, "t")
        out = {"reason": "Explicit logout from db 't'", "initialUsers": [user], "updatedUsers": []}
        equal(plain.trail.short(*kinds), [("logout", 0, out)])
        login(connection, "ann", PASSWORD, "t")
        plain.trail.new()
    implicit = {**out, "reason": "Implicit logout due to client connection closure"}
    found = []

    def has_logged_out():
        found.extend(plain.trail.short(*kinds))
        return found

    wait_until("the logout", has_logged_out)
    equal(found, [("logout", 0, implicit)])


@test
def a_login_that_is_not_continued(plain):
    with plain.server.connect() as connection:
        first = Conversation("SCRAM-SHA-256", "ann", PASSWORD).first
        start = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": first}
        equal(connection.command(start, "t")["ok"], 1)
        plain.trail.new()
    found = []

    def is_abandoned():
        found.extend(plain.trail.short("authenticate"))
        return found

    wait_until("the event", is_abandoned)
    equal(found, [("authenticate", 337, {"user": "ann", "db": "t", "mechanism": "SCRAM-SHA-256"})])


@test
def refusals_and_with_the_parameter_permissions(plain):
    plain.admin.own.c.insert_one({"_id": 1})
    with plain.server.connect() as connection:
        login(connection, "ann", PASSWORD, "t")
        plain.trail.new()
        equal(connection.command({"find": "c"}, "own")["code"], UNAUTHORIZED)
        args = {"find": "c", "$db": "own"}
        equal(plain.trail.short("authCheck"), [("authCheck", 13, {"command": "find", "ns": "own.c", "args": args})])
        connection.command({"find": "c"}, "t")
        equal(plain.trail.short("authCheck"), [])
        secret = {"createUser": "u", "pwd": "hidden", "roles": []}
        equal(connection.command(secret, "t")["code"], UNAUTHORIZED)
        (event,) = plain.trail.short("authCheck")
        equal(event[2]["args"]["pwd"], "xxx")
        plain.admin.admin.command("setParameter", 1, auditAuthorizationSuccess=True)
        plain.trail.new()
        connection.command({"find": "c"}, "t")
        equal(
            plain.trail.short("authCheck"),
            [("authCheck", 0, {"command": "find", "ns": "t.c", "args": {"find": "c", "$db": "t"}})],
        )
        # A driver sends documents beside the command.
        plain.admin.own.c.insert_one({"_id": 2, "x": "beside"})
        (event,) = [e for e in plain.trail.short("authCheck") if e[2]["command"] == "insert"]
        equal(event[2]["args"]["documents"], [{"_id": 2, "x": "beside"}])
        plain.admin.admin.command("setParameter", 1, auditAuthorizationSuccess=False)
        plain.trail.new()
        connection.command({"find": "c"}, "t")
        equal(plain.trail.short("authCheck"), [])


@test
def the_matrix_of_authorization_leaves_its_trail(plain):
    """Every case that a role may not do has one refusal, in order, with its command; none that it may has one."""
    roles = role_table()
    plain.admin.own.command("createUser", "reader", pwd=PASSWORD, roles=["read"], mechanisms=["SCRAM-SHA-256"])
    role = Role(roles, "read", "own")
    refused = [case for case in cases() if not case.allowed(role)]
    # Those that change nothing and end by themselves.
    allowed = [case for case in cases() if case.allowed(role) and not case.only_refused and '"find"' in case.command]
    assert len(refused) > 200 and len(allowed) > 4, (len(refused), len(allowed))
    with raw.Connection(plain.server.port, timeout=60) as connection:
        login(connection, "reader", PASSWORD, "own")
        plain.trail.new()
        sent = []
        for case in [*refused, *allowed]:
            connection.send(case.message)
            reply = connection.receive()[2]
            if reply.get("code") == UNAUTHORIZED and reply["ok"] != 1:
                sent.append(case)
        events = [e for e in plain.trail.new() if e["atype"] == "authCheck"]
    equal(len(events), len(sent), "as many events as refusals")
    for event, case in zip(events, sent, strict=True):
        equal(event["result"], UNAUTHORIZED)
        equal(event["users"], [{"user": "reader", "db": "own"}])
        assert f'"{event["param"]["command"]}"' in case.command, (event["param"]["command"], case.command)
    assert len(sent) >= 0.95 * len(refused), (len(sent), len(refused))


@test
def direct_writes_of_users(plain):
    plain.trail.new()
    plain.admin.admin["system.users"].update_one({"_id": "t.ann"}, {"$set": {"customData": {"n": 2}}})
    ((_, result, param),) = plain.trail.short("directAuthMutation")
    equal((result, param["ns"], param["operation"]), (0, "admin.system.users", "update"))
    equal(param["document"]["q"], {"_id": "t.ann"})


@test
def a_backup(plain):
    plain.trail.new()
    target = os.path.join(plain.server.folder, "copy")
    plain.admin.admin.command("createBackup", 1, backupDir=target)
    (event,) = plain.trail.short("backup")
    equal(event[2]["args"]["backupDir"], target)
    plain.admin.admin.command("aggregate", 1, pipeline=[{"$backupStream": {}}], cursor={"batchSize": 0})
    (event,) = plain.trail.short("backup")
    equal(event[2]["args"]["pipeline"], [{"$backupStream": {}}])


@test
def secrets_are_in_no_event(plain):
    with open(plain.trail.path, encoding="utf-8") as file:
        text = file.read()
    for secret in (PASSWORD, plain.server.ADMIN[1], "hidden"):
        assert secret not in text, secret


@test
def a_rotation_by_command_and_by_signal(plain):
    before = set(os.listdir(plain.server.folder))
    plain.admin.admin.command("logRotate", 1)
    new = set(os.listdir(plain.server.folder)) - before
    equal(len([name for name in new if name.startswith("audit.json.")]), 1, str(new))
    plain.trail.at = 0
    (event,) = plain.trail.short("rotateLog")
    equal(event[2]["pid"], plain.server.pid)
    equal(event[2]["logRotationStatus"]["status"], "OK")
    assert os.path.basename(event[2]["logRotationStatus"]["rotatedLogPath"]) in new
    wrong = raises(pymongo.errors.OperationFailure, plain.admin.admin.command, "logRotate", "nonsense")
    equal(wrong.code, 4)
    os.kill(plain.server.pid, signal.SIGUSR1)

    def is_rotated():
        found = set(os.listdir(plain.server.folder)) - before - new
        return [name for name in found if name.startswith("audit.json.")]

    wait_until("the rotation", is_rotated)


@test
def a_killed_server_loses_no_event_that_was_answered(plain):
    server, trail = audited(options=["--setParameter", "auditAuthorizationSuccess=true"])
    with server:
        server.start()
        client = pymongo.MongoClient(server.uri)
        for n in range(200):
            client.t.c.insert_one({"_id": n})
        client.t.create_collection("last")
        server.kill()
        events = trail.new()
        inserted = [e["param"]["args"]["documents"][0]["_id"] for e in events if e["param"].get("command") == "insert"]
        equal(inserted, list(range(200)))
        assert any(e["param"].get("ns") == "t.last" and e["atype"] == "createCollection" for e in events)
        server.start()
        equal([e["atype"] for e in trail.new()][0], "startup")
        client.close()


@test
def a_filter_is_a_query_and_a_wrong_one_an_error(plain):
    options = ["--auditFilter", "{ atype: 'createCollection', 'param.ns': /^t\\./ }"]
    server, trail = audited(options=options)
    with server:
        server.start()
        client = pymongo.MongoClient(server.uri)
        for name in ("t.a", "u.a"):
            database, collection = name.split(".")
            client[database].create_collection(collection)
        equal(trail.short(), [("createCollection", 0, {"ns": "t.a"})])
        client.close()
    for wrong in ("{ atype: { $nonsense: 1 } }", "{ atype: ", "[]"):
        server, _ = audited(options=["--auditFilter", wrong])
        with server:
            error = raises(ServerError, server.start)
            assert "auditFilter" in str(error), error


@test
def settings_that_do_not_fit_are_errors(plain):
    for options, word in [
        (["--auditDestination", "file"], "auditLog.path"),
        (["--auditDestination", "console", "--auditFormat", "BSON"], "BSON"),
        (["--auditFilter", "{}"], "auditLog.destination"),
        (["--setParameter", "auditAuthorizationSuccess=true"], "auditLog.destination"),
        (["--auditDestination", "file", "--auditPath", "/nonexistent/x/audit.json"], "audit log"),
    ]:
        with Server(BINARY, options) as server:
            error = raises(ServerError, server.start)
            assert word in str(error), (options, error)


@test
def the_configuration_file_has_the_settings(plain):
    server, trail = audited()
    with server:
        config = os.path.join(server.folder, "frond.conf")
        with open(config, "w", encoding="utf-8") as file:
            file.write(
                "auditLog:\n  destination: file\n  format: JSON\n"
                f"  path: {trail.path}\n  filter: '{{ atype: \"createCollection\" }}'\n"
                "setParameter: { auditAuthorizationSuccess: false }\n"
            )
        server.options = ["--config", config]
        server.start()
        client = pymongo.MongoClient(server.uri)
        client.t.create_collection("c")
        equal(trail.short(), [("createCollection", 0, {"ns": "t.c"})])
        client.close()


@test
def a_file_of_bson(plain):
    server, trail = audited(options=["--auditFormat", "BSON"])
    with server:
        server.start()
        client = pymongo.MongoClient(server.uri)
        client.t.create_collection("c")
        with open(trail.path, "rb") as file:
            events = list(bson.decode_file_iter(file))
        assert [e["param"] for e in events if e["atype"] == "createCollection"] == [{"ns": "t.c"}], events
        client.close()


@test
def the_console(plain):
    with Server(BINARY, ["--auditDestination", "console"]) as server:
        server.start()
        client = pymongo.MongoClient(server.uri)
        client.t.create_collection("c")
        with open(server.log_path, encoding="utf-8") as file:
            lines = [line for line in file if line.startswith('{ "atype"')]
        assert any('"createCollection"' in line and '"ns" : "t.c"' in line for line in lines), lines
        client.close()


@test
def the_configuration_that_changes_at_run_time(plain):
    server, trail = audited(options=["--config", os.devnull])
    with server:
        config = os.path.join(server.folder, "frond.conf")
        with open(config, "w", encoding="utf-8") as file:
            file.write("auditLog:\n  runtimeConfiguration: true\n")
        server.options[-1] = config
        server.start()
        client = pymongo.MongoClient(server.uri)
        client.admin.command("setAuditConfig", 1, filter={"atype": "createCollection"}, auditAuthorizationSuccess=False)
        trail.new()
        client.t.create_collection("a")
        client.t.drop_collection("a")
        equal(trail.short(), [("createCollection", 0, {"ns": "t.a"})])
        server.stop()
        server.start()
        client = pymongo.MongoClient(server.uri)
        found = client.admin.command("getAuditConfig", 1)
        equal((found["filter"], found["auditAuthorizationSuccess"]), ({"atype": "createCollection"}, False))
        assert isinstance(found["generation"], bson.ObjectId)
        trail.new()
        client.t.create_collection("b")
        client.t.drop_collection("b")
        equal(trail.short(), [("createCollection", 0, {"ns": "t.b"})])
        client.close()
        with open(config, "a", encoding="utf-8") as file:
            file.write("  filter: '{}'\n")
        server.stop()
        assert "setAuditConfig" in str(raises(ServerError, server.start))


def fill_up(server, disk, connection):
    """Fills the disk, and uses up what is reserved behind the end of the file."""
    disk.fill()
    for n in range(4000):
        reply = connection.command({"logApplicationMessage": f"{n} " + "x" * 1000})
        if reply["ok"] != 1:
            return reply
    raise AssertionError("the disk is not full")


@test
def a_full_disk_refuses_what_is_audited(plain):
    server, _ = audited(secured=True)
    with server:
        folder = os.path.join(server.folder, "trail")
        os.mkdir(folder)
        disk = SmallDisk.mount(folder, 4)
        if disk is None:
            print("# no right to mount a file system")
            return
        try:
            trail = Trail(os.path.join(folder, "audit.json"))
            server.options[server.options.index("--auditPath") + 1] = trail.path
            server.start()
            connection = server.connect()
            login(connection, *server.ADMIN)
            equal(connection.command({"create": "c"}, "t")["ok"], 1)
            refused = fill_up(server, disk, connection)
            equal(refused["code"], NOT_WRITTEN)
            assert "audit log" in refused["errmsg"] and "refused" in refused["errmsg"], refused
            # Nothing of what is refused has an effect: changes, logins. The rest goes on.
            refused = connection.command({"create": "full"}, "t")
            equal(refused["code"], NOT_WRITTEN)
            refused = connection.command({"createUser": "full", "pwd": PASSWORD, "roles": []}, "t")
            equal(refused["code"], NOT_WRITTEN)
            equal(connection.command({"count": "full"}, "t")["n"], 0)
            equal(connection.command({"usersInfo": "full"}, "t")["users"], [])
            equal(connection.command({"insert": "c", "documents": [{}]}, "t")["ok"], 1)
            with server.connect() as other:
                # Refusals use up the rest of the reserved space; then they are kept in memory.
                for _ in range(40):
                    equal(other.command({"find": "c", "filter": {"x": "y" * 8000}}, "t")["code"], UNAUTHORIZED)
                equal(raises(LoginFailed, login, other, *server.ADMIN).code, NOT_WRITTEN)
                equal(other.command({"find": "c"}, "t")["code"], UNAUTHORIZED)
            status = connection.command({"serverStatus": 1})["auditLog"]
            assert status["failed"] > 0 and status["isFailing"] and status["keptBytes"] > 0, status
            disk.make_room()
            equal(connection.command({"create": "again"}, "t")["ok"], 1)
            with server.connect() as other:
                login(other, *server.ADMIN)
            status = connection.command({"serverStatus": 1})["auditLog"]
            equal((status["isFailing"], status["keptBytes"], status["lost"]), (False, 0, 0))
            events = trail.new()
            names = [e["param"].get("ns") or e["param"].get("user") for e in events]
            assert "t.again" in names and "t.full" not in names and "full" not in names
            # The refusal while the disk was full was kept.
            assert [e for e in events if e["atype"] == "authCheck" and e["param"]["ns"] == "t.c" and e["result"] == UNAUTHORIZED]
            with open(server.log_path, encoding="utf-8") as file:
                text = file.read()
            assert '"Cannot write the audit log"' in text and '"The audit log can be written again"' in text
            server.stop()
        finally:
            disk.unmount()


@test
def a_full_disk_with_on_failure_continue(plain):
    server, _ = audited(options=["--auditOnFailure", "continue"])
    with server:
        folder = os.path.join(server.folder, "trail")
        os.mkdir(folder)
        disk = SmallDisk.mount(folder, 4)
        if disk is None:
            print("# no right to mount a file system")
            return
        try:
            server.options[server.options.index("--auditPath") + 1] = os.path.join(folder, "audit.json")
            server.start()
            client = pymongo.MongoClient(server.uri)
            disk.fill()
            for n in range(600):
                client.admin.command({"logApplicationMessage": f"{n} " + "x" * 1000})
            client.t.create_collection("c")
            status = client.admin.command("serverStatus")["auditLog"]
            assert status["failed"] > 0, status
            client.close()
        finally:
            disk.unmount()


@test
def doctor_looks_at_the_audit_log(plain):
    server, trail = audited()
    with server:
        folder = os.path.join(server.folder, "open")
        os.mkdir(folder)
        os.chmod(folder, 0o755)
        config = os.path.join(server.folder, "frond.conf")
        for path, advice in [(os.path.join(folder, "audit.json"), True), (trail.path, False)]:
            with open(config, "w", encoding="utf-8") as file:
                file.write(f"storage: {{ dbPath: {server.dbpath} }}\nauditLog: {{ destination: file, path: {path} }}\n")
            checked = subprocess.run(
                [BINARY, "doctor", "--config", config, "--skipSpeed"], capture_output=True, text=True, check=False
            )
            equal("the folder of the audit log" in checked.stdout, advice, checked.stdout)


if __name__ == "__main__":
    shared = Plain()
    with shared.server:
        run(shared)
