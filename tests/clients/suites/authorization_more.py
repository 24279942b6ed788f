"""Authorization that is no table of roles and commands: what belongs to one user, what changes, what is only shown in part.

`authorization.py` runs these tests after its own, on the same server.
"""

import struct
import threading

import bson
from harness import raw
from harness.raw import Closed
from harness.scram import LoginFailed, login
from harness.tap import equal, raises, test
from harness.waiting import PATIENCE, wait_for_operations

PASSWORD = "matrix"


def ask(connection, command, database="own"):
    """Sends a command, with any type of BSON."""
    body = bson.encode({**command, "$db": database})
    connection.send(raw.message(raw.OP_MSG, struct.pack("<IB", 0, 0) + body))
    head = connection._read(16)
    length, _, _, opcode = struct.unpack("<iiii", head)
    equal(opcode, raw.OP_MSG)
    return bson.decode(connection._read(length - 16)[5:])


def code(connection, command, database="own"):
    """The code of its error; 0 if it worked."""
    reply = ask(connection, command, database)
    return 0 if reply["ok"] == 1 else reply["code"]


def user(matrix, name, roles, **more):
    """Makes a user of `own`, or gives it these roles."""
    own = matrix.admin["own"]
    if own.command({"usersInfo": name})["users"]:
        own.command({"updateUser": name, "roles": roles, **more})
    else:
        own.command({"createUser": name, "pwd": PASSWORD, "roles": roles, "mechanisms": ["SCRAM-SHA-256"], **more})
    return name


def open_cursor(connection, collection="many"):
    reply = ask(connection, {"find": collection, "batchSize": 2})
    equal(reply["ok"], 1.0)
    return reply["cursor"]["id"]


def get_more(cursor, collection="many"):
    return {"getMore": cursor, "collection": collection, "batchSize": 1}


@test
def a_cursor_belongs_to_its_user(matrix):
    matrix.admin["own"].many.insert_many({"n": n} for n in range(50))
    with matrix.connect("read-own") as owner, matrix.connect("readWrite-own") as other:
        cursor = open_cursor(owner)
        equal(code(other, get_more(cursor)), 13)
        reply = ask(other, {"killCursors": "many", "cursors": [bson.Int64(cursor)]})
        assert reply.get("code") == 13 or cursor not in reply["cursorsKilled"], reply
        with matrix.connect() as nobody:
            equal(code(nobody, get_more(cursor)), 13)
            equal(code(nobody, {"killCursors": "many", "cursors": [bson.Int64(cursor)]}), 13)
        equal(code(owner, get_more(cursor)), 0)
        # Another connection of the same user is the same user.
        with matrix.connect("read-own") as again:
            equal(code(again, get_more(cursor)), 0)
            equal(ask(again, {"killCursors": "many", "cursors": [bson.Int64(cursor)]})["cursorsKilled"], [cursor])
        equal(code(owner, get_more(cursor)), 43)


@test
def cursors_of_lists_and_pipelines_belong_to_their_user_too(matrix):
    with matrix.connect("dbOwner-own") as owner, matrix.connect("readWrite-own") as other:
        for command, collection in (
            ({"listCollections": 1, "cursor": {"batchSize": 0}}, "$cmd.listCollections"),
            ({"listIndexes": "many", "cursor": {"batchSize": 0}}, "many"),
            ({"aggregate": "many", "pipeline": [], "cursor": {"batchSize": 0}}, "many"),
            ({"aggregate": "many", "pipeline": [{"$changeStream": {}}], "cursor": {"batchSize": 0}}, "many"),
        ):
            reply = ask(owner, command)
            equal(reply["ok"], 1.0, f"{reply}")
            cursor = reply["cursor"]["id"]
            equal(code(other, get_more(bson.Int64(cursor), collection)), 13)
            equal(code(owner, {"killCursors": collection, "cursors": [bson.Int64(cursor)]}), 0)


@test
def who_may_kill_any_cursor_can(matrix):
    with matrix.connect("read-own") as owner, matrix.connect("hostManager-admin") as other:
        cursor = open_cursor(owner)
        equal(code(other, get_more(cursor)), 13)
        equal(ask(other, {"killCursors": "many", "cursors": [bson.Int64(cursor)]})["cursorsKilled"], [cursor])


@test
def a_cursor_is_not_that_of_the_next_user_of_the_connection(matrix):
    with matrix.connect("read-own") as connection:
        cursor = open_cursor(connection)
        equal(code(connection, {"logout": 1}), 0)
        equal(code(connection, get_more(cursor)), 13)
        login(connection, "readWrite-own", PASSWORD, "own")
        equal(code(connection, get_more(cursor)), 13)


@test
def after_a_logout_nothing_is_allowed(matrix):
    with matrix.connect("dbOwner-own") as connection:
        equal(code(connection, {"find": "c"}), 0)
        equal(code(connection, {"logout": 1}), 0)
        for command in ({"find": "c"}, {"insert": "c", "documents": [{}]}, {"startSession": 1}, {"endSessions": []}):
            equal(code(connection, command), 13)
        equal(code(connection, {"ping": 1}), 0)


def long_operation(matrix, name):
    """An operation that waits; its connection and its thread."""
    connection = matrix.connect(name)
    stream = {"aggregate": "many", "pipeline": [{"$changeStream": {}}], "cursor": {"batchSize": 0}, "comment": name}
    cursor = ask(connection, stream)["cursor"]["id"]
    more = {"getMore": bson.Int64(cursor), "collection": "many", "maxTimeMS": 600_000, "comment": f"wait of {name}"}
    results = []
    thread = threading.Thread(target=lambda: results.append(ask(connection, more)))
    thread.start()
    (found,) = wait_for_operations(matrix.admin, 1, {"command.comment": f"wait of {name}"})
    return connection, thread, results, found["opid"]


@test
def an_operation_is_killed_by_its_user_or_by_who_may_kill_any(matrix):
    for killer, expected in (("readWrite-own", 13), ("read-own", 0), ("hostManager-admin", 0)):
        connection, thread, results, opid = long_operation(matrix, "read-own")
        with matrix.connect(killer) as other:
            equal(code(other, {"killOp": 1, "op": opid}, "admin"), expected, killer)
        if expected:
            (found,) = wait_for_operations(matrix.admin, 1, {"opid": opid})
            assert not found.get("killPending"), f"{killer} killed it although it was refused"
            matrix.admin.admin.command({"killOp": 1, "op": opid})
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"{killer} did not kill it"
        connection.socket.close()


@test
def current_op_shows_what_one_may_see(matrix):
    connection, thread, _, opid = long_operation(matrix, "read-own")

    def seen(name, command):
        with matrix.connect(name) as other:
            reply = ask(other, command, "admin")
        if reply["ok"] != 1:
            return reply["code"]
        found = reply["inprog"] if "inprog" in reply else reply["cursor"]["firstBatch"]
        return opid in [operation.get("opid") for operation in found]

    stage = {"aggregate": 1, "pipeline": [{"$currentOp": {}}], "cursor": {"batchSize": 1000}}
    all_users = {"aggregate": 1, "pipeline": [{"$currentOp": {"allUsers": True}}], "cursor": {"batchSize": 1000}}
    equal(seen("readWrite-own", {"currentOp": 1}), 13)
    equal(seen("readWrite-own", {"currentOp": 1, "$ownOps": True}), False)
    equal(seen("readWrite-own", stage), False)
    equal(seen("readWrite-own", all_users), 13)
    equal(seen("read-own", {"currentOp": 1, "$ownOps": True}), True)
    equal(seen("read-own", stage), True)
    equal(seen("clusterMonitor-admin", {"currentOp": 1}), True)
    equal(seen("clusterMonitor-admin", {"currentOp": 1, "$ownOps": True}), False)
    equal(seen("clusterMonitor-admin", all_users), True)
    matrix.admin.admin.command({"killOp": 1, "op": opid})
    thread.join(PATIENCE)
    connection.socket.close()


@test
def list_databases_shows_those_one_may_read(matrix):
    def databases(name, **more):
        with matrix.connect(name) as connection:
            reply = ask(connection, {"listDatabases": 1, "nameOnly": True, **more}, "admin")
        return {database["name"] for database in reply["databases"]} if reply["ok"] == 1 else reply["code"]

    equal(databases("nothing"), set())
    equal(databases("read-own"), {"own"})
    equal(databases("read-other"), {"other"})
    equal(databases("read-own", authorizedDatabases=True), {"own"})
    equal(databases("read-own", authorizedDatabases=False), 13)
    everything = databases("clusterMonitor-admin")
    assert {"own", "other", "third", "admin", "config", "local"} <= everything, everything
    authorized = databases("readAnyDatabase-admin", authorizedDatabases=True)
    assert {"own", "other", "third"} <= authorized, authorized
    user(matrix, "one-collection", [])
    only = [{"resource": {"db": "other", "collection": "c"}, "actions": ["find"]}]
    matrix.admin["admin"].command({"createRole": "c-of-other", "privileges": only, "roles": []})
    user(matrix, "one-collection", [{"role": "c-of-other", "db": "admin"}])
    equal(databases("one-collection"), {"other"})


@test
def list_collections_shows_those_one_may_use(matrix):
    matrix.admin["other"].hidden.insert_one({})
    with matrix.connect("one-collection") as connection:
        equal(code(connection, {"listCollections": 1}, "other"), 13)
        equal(code(connection, {"listCollections": 1, "nameOnly": True}, "other"), 13)
        equal(code(connection, {"listCollections": 1, "authorizedCollections": True}, "other"), 13)
        both = {"listCollections": 1, "nameOnly": True, "authorizedCollections": True}
        names = [found["name"] for found in ask(connection, both, "other")["cursor"]["firstBatch"]]
        equal(names, ["c"])
        equal(code(connection, {"find": "c"}, "other"), 0)
        equal(code(connection, {"find": "hidden"}, "other"), 13)
        lookup = [{"$lookup": {"from": "hidden", "localField": "a", "foreignField": "a", "as": "x"}}]
        equal(code(connection, {"aggregate": "c", "pipeline": lookup, "cursor": {}}, "other"), 13)
        nested = [{"$facet": {"a": [{"$unionWith": {"coll": "c", "pipeline": lookup}}]}}]
        equal(code(connection, {"aggregate": "c", "pipeline": nested, "cursor": {}}, "other"), 13)


@test
def a_view_needs_the_right_to_read_the_view_only(matrix):
    own = matrix.admin["own"]
    own.source.insert_one({"_id": 1, "secret": 7})
    joined = {"$lookup": {"from": "many", "localField": "a", "foreignField": "a", "as": "x"}}
    own.create_collection("shown", viewOn="source", pipeline=[{"$project": {"_id": 1}}])
    own.create_collection("joined", viewOn="source", pipeline=[joined])
    views = [{"resource": {"db": "own", "collection": name}, "actions": ["find"]} for name in ("shown", "joined")]
    own.command({"createRole": "viewer", "privileges": views, "roles": []})
    user(matrix, "viewer", ["viewer"])
    with matrix.connect("viewer") as connection:
        equal(ask(connection, {"find": "shown"})["cursor"]["firstBatch"], [{"_id": 1}])
        equal(ask(connection, {"aggregate": "shown", "pipeline": [], "cursor": {}})["cursor"]["firstBatch"], [{"_id": 1}])
        equal(ask(connection, {"count": "shown"})["n"], 1)
        equal(code(connection, {"find": "joined"}), 0)
        equal(code(connection, {"find": "source"}), 13)
        equal(code(connection, {"aggregate": "shown", "pipeline": [joined], "cursor": {}}), 13)
        union = [{"$unionWith": "source"}]
        equal(code(connection, {"aggregate": "shown", "pipeline": union, "cursor": {}}), 13)


@test
def a_session_and_its_transaction_belong_to_their_user(matrix):
    lsid = {"id": bson.Binary(b"\x01" * 16, 4)}
    transaction = {"lsid": lsid, "txnNumber": bson.Int64(1), "autocommit": False}
    insert = {"insert": "c", "documents": [{"_id": "in a transaction"}], **transaction, "startTransaction": True}
    with matrix.connect("readWrite-own") as owner, matrix.connect("dbOwner-own") as other:
        equal(code(owner, insert), 0)
        # The same id from another user is another session.
        equal(code(other, {"commitTransaction": 1, **transaction}, "admin"), 251)
        equal(code(other, {"find": "c", **transaction}), 251)
        equal(code(other, {"killSessions": [lsid]}), 0)
        equal(code(other, {"endSessions": [lsid]}), 0)
        equal(code(other, {"killAllSessions": []}), 13)
        equal(code(owner, {"find": "c", **transaction}), 0)
        equal(code(owner, {"abortTransaction": 1, **transaction}, "admin"), 0)
    equal(matrix.admin["own"].c.count_documents({"_id": "in a transaction"}), 0)


@test
def a_transaction_stops_when_its_user_loses_the_right(matrix):
    user(matrix, "loser", ["readWrite"])
    transaction = {"lsid": {"id": bson.Binary(b"\x02" * 16, 4)}, "txnNumber": bson.Int64(1), "autocommit": False}
    with matrix.connect("loser") as connection:
        insert = {"insert": "c", "documents": [{"_id": "lost"}], **transaction}
        equal(code(connection, {**insert, "startTransaction": True}), 0)
        user(matrix, "loser", ["read"])
        equal(code(connection, {"insert": "c", "documents": [{"_id": "more"}], **transaction}), 13)
    equal(matrix.admin["own"].c.count_documents({"_id": {"$in": ["lost", "more"]}}), 0)


@test
def a_changed_user_takes_effect_on_open_connections(matrix):
    own = matrix.admin["own"]
    user(matrix, "changing", [])
    insert = {"insert": "changing", "documents": [{}]}
    with matrix.connect("changing") as connection:
        equal(code(connection, {"find": "c"}), 13)
        own.command({"grantRolesToUser": "changing", "roles": ["read"]})
        equal((code(connection, {"find": "c"}), code(connection, insert)), (0, 13))
        own.command({"updateUser": "changing", "roles": ["readWrite"]})
        equal((code(connection, {"find": "c"}), code(connection, insert)), (0, 0))
        own.command({"revokeRolesFromUser": "changing", "roles": ["readWrite"]})
        equal((code(connection, {"find": "c"}), code(connection, insert)), (13, 13))
        # Through roles of its own that inherit from each other.
        reading = [{"resource": {"db": "own", "collection": "c"}, "actions": ["find"]}]
        own.command({"createRole": "inner", "privileges": [], "roles": []})
        own.command({"createRole": "outer", "privileges": [], "roles": ["inner"]})
        own.command({"grantRolesToUser": "changing", "roles": ["outer"]})
        equal(code(connection, {"find": "c"}), 13)
        own.command({"grantPrivilegesToRole": "inner", "privileges": reading})
        equal((code(connection, {"find": "c"}), code(connection, {"find": "many"})), (0, 13))
        own.command({"revokeRolesFromRole": "outer", "roles": ["inner"]})
        equal(code(connection, {"find": "c"}), 13)
        own.command({"grantRolesToRole": "outer", "roles": ["inner"]})
        equal(code(connection, {"find": "c"}), 0)
        own.command({"updateRole": "inner", "privileges": []})
        equal(code(connection, {"find": "c"}), 13)
        own.command({"updateRole": "inner", "privileges": reading})
        equal(code(connection, {"find": "c"}), 0)
        own.command({"dropRole": "inner"})
        equal(code(connection, {"find": "c"}), 13)
        own.command({"grantRolesToUser": "changing", "roles": ["read"]})
        equal(code(connection, {"find": "c"}), 0)
        # A write into the collection itself counts as well.
        users = matrix.admin["admin"]["system.users"]
        users.update_one({"_id": "own.changing"}, {"$set": {"roles": []}})
        equal(code(connection, {"find": "c"}), 13)
        users.update_one({"_id": "own.changing"}, {"$set": {"roles": [{"role": "read", "db": "own"}]}})
        equal(code(connection, {"find": "c"}), 0)
        own.command({"dropUser": "changing"})
        equal((code(connection, {"find": "c"}), code(connection, {"startSession": 1})), (13, 13))
        # Another user of the same name is another user.
        user(matrix, "changing", ["read"])
        equal(code(connection, {"find": "c"}), 13)


@test
def a_changed_password_is_that_of_the_next_login(matrix):
    user(matrix, "password", ["read"])
    matrix.admin["own"].command({"updateUser": "password", "pwd": "another"})
    with raw.Connection(matrix.server.port) as connection:
        equal(raises(LoginFailed, login, connection, "password", PASSWORD, "own").code, 18)
    with raw.Connection(matrix.server.port) as connection:
        login(connection, "password", "another", "own")
        equal(code(connection, {"find": "c"}), 0)


@test
def addresses_restrict_a_user_and_a_role(matrix):
    own = matrix.admin["own"]
    far, near = [{"clientSource": ["10.0.0.0/8"]}], [{"clientSource": ["127.0.0.0/8"], "serverAddress": ["127.0.0.1"]}]
    user(matrix, "far", ["read"], authenticationRestrictions=far)
    user(matrix, "near", ["read"], authenticationRestrictions=near)
    user(matrix, "elsewhere", ["read"], authenticationRestrictions=[{"serverAddress": ["10.0.0.1"]}])
    own.command({"createRole": "far", "privileges": [], "roles": ["read"], "authenticationRestrictions": far})
    user(matrix, "by-role", ["far"])
    for name in ("far", "elsewhere", "by-role"):
        with raw.Connection(matrix.server.port) as connection:
            equal(raises(LoginFailed, login, connection, name, PASSWORD, "own").code, 18, name)
            equal(code(connection, {"find": "c"}), 13)
    with matrix.connect("near") as connection:
        equal(code(connection, {"find": "c"}), 0)
        own.command({"updateUser": "near", "authenticationRestrictions": far})
        equal(code(connection, {"find": "c"}), 13)


@test
def one_may_see_oneself_and_ones_roles(matrix):
    with matrix.connect("read-own") as connection:
        found = ask(connection, {"usersInfo": "read-own"})["users"]
        equal([each["_id"] for each in found], ["own.read-own"])
        assert "credentials" not in found[0], found
        equal(code(connection, {"usersInfo": "readWrite-own"}), 13)
        equal(code(connection, {"usersInfo": 1}), 13)
        equal(code(connection, {"rolesInfo": "read"}), 0)
        equal(code(connection, {"rolesInfo": "readWrite"}), 13)
        equal(code(connection, {"updateUser": "read-own", "pwd": "new"}), 13)
        status = ask(connection, {"connectionStatus": 1, "showPrivileges": True})["authInfo"]
        equal(status["authenticatedUsers"], [{"user": "read-own", "db": "own"}])
        equal(status["authenticatedUserRoles"], [{"role": "read", "db": "own"}])
        actions = [set(p["actions"]) for p in status["authenticatedUserPrivileges"]]
        assert all("find" in found and "insert" not in found for found in actions) and actions, status


@test
def one_may_change_ones_own_password_with_that_privilege(matrix):
    own = matrix.admin["own"]
    privileges = [{"resource": {"db": "own", "collection": ""}, "actions": ["changeOwnPassword", "changeOwnCustomData"]}]
    own.command({"createRole": "self", "privileges": privileges, "roles": []})
    user(matrix, "self", ["self"])
    user(matrix, "not-self", [])
    with matrix.connect("self") as connection:
        equal(code(connection, {"updateUser": "not-self", "pwd": "new"}), 13)
        equal(code(connection, {"updateUser": "self", "roles": ["dbOwner"]}), 13)
        equal(code(connection, {"updateUser": "self", "pwd": "new", "customData": {"a": 1}}), 0)
    with raw.Connection(matrix.server.port) as connection:
        login(connection, "self", "new", "own")


@test
def nobody_grants_more_than_allowed(matrix):
    with matrix.connect("userAdmin-own") as connection:
        root = {"role": "root", "db": "admin"}
        equal(code(connection, {"createUser": "x", "pwd": "p", "roles": [root]}), 13)
        equal(code(connection, {"grantRolesToUser": "userAdmin-own", "roles": [root]}), 13)
        equal(code(connection, {"grantRolesToUser": "read-own", "roles": [{"role": "read", "db": "other"}]}), 13)
        for resource in ({"cluster": True}, {"anyResource": True}, {"db": "", "collection": ""}, {"db": "other", "collection": "c"}):
            privilege = {"resource": resource, "actions": ["find"]}
            equal(code(connection, {"createRole": "x", "privileges": [privilege], "roles": []}), 13)
        for name in ("createUser", "updateUser"):
            equal(code(connection, {name: "x", "pwd": "p", "roles": []}, "other"), 13)
        equal(code(connection, {"createRole": "cycle", "privileges": [], "roles": []}), 0)
        equal(code(connection, {"createRole": "cycle2", "privileges": [], "roles": ["cycle"]}), 0)
        assert code(connection, {"grantRolesToRole": "cycle", "roles": ["cycle2"]}) not in (0, 13)


def op_query(namespace, query, flags=0, count=2):
    body = struct.pack("<I", flags) + namespace.encode() + b"\0" + struct.pack("<ii", 0, count) + bson.encode(query)
    return raw.message(raw.OP_QUERY, body)


def reply_to(connection, data):
    connection.send(data)
    head = connection._read(16)
    body = connection._read(struct.unpack_from("<i", head)[0] - 16)
    flags, cursor, _, count = struct.unpack_from("<iqii", body)
    return cursor, bson.decode_all(body[20:]) if count else []


@test
def legacy_opcodes_pass_the_same_gate(matrix):
    with matrix.connect("read-own") as connection, matrix.connect("readWrite-own") as other:
        cursor, found = reply_to(connection, op_query("own.many", {}))
        equal(len(found), 2)
        for namespace in ("other.c", "own.system.users", "admin.system.users", "local.oplog.rs", "config.c"):
            _, answer = reply_to(connection, op_query(namespace, {}))
            equal(answer[0].get("code"), 13, f"{namespace}: {answer}")
        _, answer = reply_to(connection, op_query("other.$cmd", {"find": "c"}, count=-1))
        equal(answer[0].get("code"), 13, f"{answer}")
        _, answer = reply_to(connection, op_query("own.$cmd", {"insert": "c", "documents": [{"_id": 5}]}, count=-1))
        equal(answer[0].get("code"), 13, f"{answer}")
        # The cursor is that of its user in these opcodes, too.
        more = b"\0\0\0\0own.many\0" + struct.pack("<iq", 1, cursor)
        _, answer = reply_to(other, raw.message(raw.OP_GET_MORE, more))
        assert not answer or "$err" in answer[0], answer
        other.send(raw.message(raw.OP_KILL_CURSORS, struct.pack("<Iiq", 0, 1, cursor)))
        equal(code(other, {"ping": 1}), 0)
        _, answer = reply_to(connection, raw.message(raw.OP_GET_MORE, more))
        equal(len(answer), 1)
        assert "$err" not in answer[0], answer
        # Writes without an answer have no effect.
        name, document = b"own.legacy\0", bson.encode({"_id": 1})
        connection.send(raw.message(raw.OP_INSERT, b"\0\0\0\0" + name + document))
        connection.send(raw.message(raw.OP_UPDATE, b"\0\0\0\0" + name + struct.pack("<I", 1) + document + document))
        connection.send(raw.message(raw.OP_DELETE, b"\0\0\0\0own.c\0" + bytes(4) + bson.encode({})))
        equal(code(connection, {"ping": 1}), 0)
    equal(matrix.admin["own"].legacy.count_documents({}), 0)
    assert matrix.admin["own"].c.count_documents({}) > 0


@test
def unacknowledged_writes_pass_the_gate(matrix):
    with matrix.connect("read-own") as connection:
        body = bson.encode({"insert": "legacy", "documents": [{"_id": 2}], "writeConcern": {"w": 0}, "$db": "own"})
        connection.send(raw.message(raw.OP_MSG, struct.pack("<IB", 2, 0) + body))
        equal(code(connection, {"ping": 1}), 0)
    equal(matrix.admin["own"].legacy.count_documents({}), 0)


@test
def a_refused_command_says_what_was_refused_and_keeps_its_secrets(matrix):
    with matrix.connect() as nobody:
        reply = ask(nobody, {"find": "c"})
        equal((reply["code"], reply["codeName"]), (13, "Unauthorized"))
        assert "requires authentication" in reply["errmsg"], reply
    with matrix.connect("read-own") as connection:
        reply = ask(connection, {"insert": "c", "documents": [{"a": "visible"}]})
        assert "not authorized on own to execute command" in reply["errmsg"], reply
        reply = ask(connection, {"createUser": "x", "pwd": "hunter2", "roles": []})
        assert "hunter2" not in str(reply), reply
        reply = ask(connection, {"updateUser": "x", "pwd": "hunter2"})
        assert "hunter2" not in str(reply), reply


@test
def an_unknown_command_is_unknown(matrix):
    with matrix.connect("read-own") as connection:
        equal(code(connection, {"noSuchCommand": 1}), 59)


@test
def who_may_shut_it_down_can(matrix):
    with matrix.connect("dbOwner-admin") as connection:
        equal(code(connection, {"shutdown": 1}, "admin"), 13)
    with matrix.connect("hostManager-admin") as connection:
        try:
            reply = ask(connection, {"shutdown": 1}, "admin")
            equal(reply["ok"], 1.0)
        except Closed:
            pass
    equal(matrix.server.process.wait(PATIENCE), 0, matrix.server.log_tail())
