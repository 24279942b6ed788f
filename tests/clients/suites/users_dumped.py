"""Users and roles dumped and restored with the commands that mongodump and mongorestore send (their sources: DumpUsersAndRoles,
DumpUsersAndRolesForDB, RestoreUsersOrRoles), by users who have the roles `backup` and `restore` and nothing more."""

import os

import bson
import pymongo
from bson.raw_bson import RawBSONDocument
from harness.scram import SecuredServer
from harness.tap import equal, raises, run, test
from pymongo.errors import OperationFailure

RAW = bson.CodecOptions(document_class=RawBSONDocument)
TEMPORARY = {"users": "tempusers", "roles": "temproles"}


def connect(server, user, password, source):
    return pymongo.MongoClient("localhost", server.port, username=user, password=password, authSource=source)


def admin_of(server):
    return connect(server, *SecuredServer.ADMIN, "admin")


class Setting:
    """Two servers, and what the tests dump from the first."""

    def __init__(self, source, target):
        self.source, self.target = source, target
        with admin_of(source) as admin:
            # fmt: off
            admin.own.command("createRole", "reader", privileges=[
                {"resource": {"db": "own", "collection": "c"}, "actions": ["find"]}], roles=[])
            admin.own.command("createRole", "writer", privileges=[
                {"resource": {"db": "own", "collection": "c"}, "actions": ["insert", "update"]}], roles=["reader"])
            admin.other.command("createRole", "guest", privileges=[
                {"resource": {"db": "other", "collection": "c"}, "actions": ["find"]}], roles=[])
            admin.own.command("createUser", "anna", pwd="for anna", roles=["writer"], customData={"desk": 4},
                              authenticationRestrictions=[{"clientSource": ["127.0.0.1"]}])
            admin.own.command("createUser", "bert", pwd="for bert", roles=["reader"], mechanisms=["SCRAM-SHA-1"])
            admin.other.command("createUser", "carl", pwd="for carl", roles=["guest"])
            admin["$external"].command("createUser", "CN=dora,O=Frond Tests", roles=[{"role": "reader", "db": "own"}])
            # fmt: on
            admin.own.c.insert_one({"_id": 1})
        with admin_of(target) as admin:
            admin.own.c.insert_one({"_id": 1})
        for server, role in ((source, "backup"), (target, "restore")):
            with admin_of(server) as admin:
                admin.admin.command("createUser", role, pwd=role, roles=[role])

    def dumper(self):
        return connect(self.source, "backup", "backup", "admin")

    def restorer(self):
        return connect(self.target, "restore", "restore", "admin")

    def forget(self):
        """Leaves the target only its first user and the one who restores."""
        with admin_of(self.target) as admin:
            for database in ("own", "other", "$external"):
                admin[database].command("dropAllUsersFromDatabase")
                admin[database].command("dropAllRolesFromDatabase")


def dump(client, database=None):
    """The files of users, roles and version: of all databases, or with --dumpDbUsersAndRoles of one."""
    equal(client.admin.command({"getParameter": 1, "authSchemaVersion": 1})["authSchemaVersion"], 5)
    equal(client.admin["system.version"].count_documents({"_id": "authSchema"}), 1)
    files = {}
    for name in ("users", "roles", "version"):
        query = {"db": database} if database and name != "version" else {}
        cursor = client.admin[f"system.{name}"].with_options(RAW).find(query, batch_size=2)
        files[name] = b"".join(document.raw for document in cursor)
    return files


def restore(client, files, database="", drop=False):
    """What mongorestore does with these files."""
    admin = client.admin
    equal(admin.command({"getParameter": 1, "authSchemaVersion": 1})["authSchemaVersion"], 5)
    versions = {document["_id"]: document for document in bson.decode_all(files["version"])}
    equal(versions["authSchema"]["currentVersion"], 5)
    existing = [collection["name"] for collection in admin.list_collections()]
    merge = {"_mergeAuthzCollections": 1}
    for name, temporary in TEMPORARY.items():
        if temporary in existing:
            admin[temporary].drop()
        documents = bson.decode_all(files[name], RAW)
        if documents:
            admin[temporary].with_options(RAW).insert_many(documents, ordered=False)
        merge[f"temp{name.capitalize()}Collection"] = f"admin.{temporary}"
    try:
        admin.command({**merge, "drop": drop, "db": database, "writeConcern": {"w": "majority"}})
    finally:
        for temporary in TEMPORARY.values():
            admin[temporary].drop()


def users_of(server, query):
    with admin_of(server) as admin:
        return list(admin.admin["system.users"].with_options(RAW).find(query, sort=[("_id", 1)]))


def may(server, user, password, source):
    """What somebody may do with the collection c of the own database: find, insert."""
    allowed = []
    with connect(server, user, password, source) as client:
        for name, attempt in (
            ("find", lambda: client[source].c.find_one()),
            ("insert", lambda: client[source].c.insert_one({})),
        ):
            try:
                attempt()
                allowed.append(name)
            except OperationFailure as error:
                equal(error.code, 13)
    return allowed


@test
def the_documents_are_those_that_the_tools_expect(setting):
    with setting.dumper() as client:
        files = dump(client)
    users = {document["_id"]: document for document in bson.decode_all(files["users"])}
    anna = users["own.anna"]
    equal((anna["user"], anna["db"], anna["customData"]), ("anna", "own", {"desk": 4}))
    equal(anna["roles"], [{"role": "writer", "db": "own"}])
    assert isinstance(anna["userId"], bson.Binary) and anna["userId"].subtype == 4, anna["userId"]
    equal(set(anna["credentials"]), {"SCRAM-SHA-1", "SCRAM-SHA-256"})
    for credential in anna["credentials"].values():
        equal(set(credential), {"iterationCount", "salt", "storedKey", "serverKey"})
    equal(list(users["own.bert"]["credentials"]), ["SCRAM-SHA-1"])
    equal(users["$external.CN=dora,O=Frond Tests"]["credentials"], {"external": True})
    roles = {document["_id"]: document for document in bson.decode_all(files["roles"])}
    equal(set(roles), {"own.reader", "own.writer", "other.guest"})
    equal((roles["own.writer"]["role"], roles["own.writer"]["db"]), ("writer", "own"))
    equal(roles["own.writer"]["roles"], [{"role": "reader", "db": "own"}])
    with setting.dumper() as client:
        names = {collection["name"] for collection in client.admin.list_collections()}
        assert {"system.users", "system.roles", "system.version"} <= names, names
        keys = [index["key"] for index in client.admin["system.users"].list_indexes()]
        assert {"user": 1, "db": 1} in keys, keys


@test
def the_users_of_one_database_come_back_and_may_what_they_might(setting):
    setting.forget()
    with setting.dumper() as client:
        files = dump(client, "own")
    with setting.restorer() as client:
        restore(client, files, "own")
    equal(may(setting.target, "anna", "for anna", "own"), ["find", "insert"])
    equal(may(setting.target, "bert", "for bert", "own"), ["find"])
    with connect(setting.target, "carl", "for carl", "other") as client:
        equal(raises(OperationFailure, client.other.command, "ping").code, 18)
    equal(users_of(setting.target, {"db": "own"}), users_of(setting.source, {"db": "own"}))


@test
def all_users_come_back_byte_for_byte(setting):
    setting.forget()
    with setting.dumper() as client:
        files = dump(client)
    with setting.restorer() as client:
        restore(client, files)
    mine = {"db": {"$ne": "admin"}}
    equal(users_of(setting.target, mine), users_of(setting.source, mine))
    equal(may(setting.target, "carl", "for carl", "other"), ["find"])


@test
def without_drop_users_of_the_target_stay_and_with_it_they_go(setting):
    setting.forget()
    with admin_of(setting.target) as admin:
        for database in ("own", "other"):
            admin[database].command("createUser", "emil", pwd="for emil", roles=["read"])
        admin.own.command("createUser", "anna", pwd="changed since", roles=["read"])
    with setting.dumper() as client:
        files = dump(client, "own")
    with setting.restorer() as client:
        restore(client, files, "own")
    names = [document["_id"] for document in users_of(setting.target, {"db": {"$in": ["own", "other"]}})]
    equal(names, ["other.emil", "own.anna", "own.bert", "own.emil"])
    equal(may(setting.target, "anna", "changed since", "own"), ["find"])
    with setting.restorer() as client:
        restore(client, files, "own", drop=True)
    names = [document["_id"] for document in users_of(setting.target, {"db": {"$in": ["own", "other"]}})]
    equal(names, ["other.emil", "own.anna", "own.bert"])
    equal(may(setting.target, "anna", "for anna", "own"), ["find", "insert"])


@test
def the_open_connection_of_a_replaced_user_is_logged_in_no_more(setting):
    setting.forget()
    with admin_of(setting.target) as admin:
        admin.own.command("createUser", "anna", pwd="for anna", roles=["read"])
    with setting.dumper() as client:
        files = dump(client, "own")
    with connect(setting.target, "anna", "for anna", "own") as open_since:
        equal(raises(OperationFailure, open_since.own.c.insert_one, {}).code, 13)
        with setting.restorer() as client:
            restore(client, files, "own", drop=True)
        # The user of now is another one of the same name: the login has ended.
        equal(raises(OperationFailure, open_since.own.c.find_one).code, 13)
    equal(may(setting.target, "anna", "for anna", "own"), ["find", "insert"])


@test
def others_can_neither_dump_nor_restore(setting):
    with setting.dumper() as client:
        files = dump(client)
    with admin_of(setting.target) as admin:
        admin.own.command("createUser", "frank", pwd="for frank", roles=["dbOwner"])
    with connect(setting.target, "frank", "for frank", "own") as client:
        equal(raises(OperationFailure, lambda: list(client.admin["system.users"].find())).code, 13)
        equal(raises(OperationFailure, restore, client, files).code, 13)
        merge = {"_mergeAuthzCollections": 1, "tempUsersCollection": "own.c", "db": "own", "drop": True}
        equal(raises(OperationFailure, client.admin.command, merge).code, 13)
    with setting.dumper() as client:
        for command in ({"delete": "system.users", "deletes": [{"q": {}, "limit": 0}]}, {"drop": "system.users"}):
            equal(raises(OperationFailure, client.admin.command, command).code, 13)


def main():
    binary = os.environ["FROND_BINARY"]
    with SecuredServer(binary, replica_set="rs0") as source, SecuredServer(binary) as target:
        source.start()
        target.start()
        run(Setting(source, target))


if __name__ == "__main__":
    main()
