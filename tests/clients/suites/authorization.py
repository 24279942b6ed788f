"""Every command, stage and cursor operation for every built-in role, on own, other and system namespaces.

`tests/authorization/roles.txt` says what each role may do, `commands.txt` what each command needs; both are written by
hand from MongoDB's manual. The server must refuse with error 13 exactly what they refuse together.
"""

import json
import os
import re
import struct

import bson
import pymongo
from bson import json_util
from harness import raw
from harness.scram import SecuredServer, login
from harness.tap import equal, run, test

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
TABLES = os.path.join(ROOT, "tests", "authorization")
UNAUTHORIZED = 13
PASSWORD = "matrix"

NAMESPACES = [
    "own.c",
    "other.c",
    "admin.c",
    "config.c",
    "local.c",
    "own.system.js",
    "other.system.js",
    "own.system.profile",
    "other.system.profile",
    "own.system.users",
    "other.system.users",
    "own.system.views",
    "own.system.buckets.t",
    "other.system.buckets.t",
    "admin.system.users",
    "admin.system.roles",
    "admin.system.version",
    "admin.system.js",
    "admin.tempusers",
    "config.settings",
    "config.transactions",
    "config.system.sessions",
    "config.system.preimages",
    "config.system.js",
    "local.oplog.rs",
    "local.startup_log",
    "local.system.replset",
    "local.system.js",
    "local.replset.election",
]
DATABASES = ["own", "other", "admin", "config", "local"]
# A document that is there, so that inserting it changes nothing.
DOCUMENTS = {
    "admin.system.users": "own.somebody",
    "admin.system.roles": "own.custom",
    "admin.system.version": "authSchema",
    "local.system.replset": "rs0",
}
# Each role on the database `own`, and more of them elsewhere.
ON_EVERY_DATABASE = ["read", "readWrite", "dbAdmin", "dbOwner", "userAdmin", "enableSharding"]
ELSEWHERE = [("read", "other"), ("dbOwner", "admin"), ("userAdmin", "admin"), ("readWrite", "local"), ("dbAdmin", "config")]
# How many messages are sent before their answers are read.
BATCH = 40


def lines(name):
    """The fields of each line of a table."""
    with open(os.path.join(TABLES, name), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip() and not line.startswith("#"):
                yield number, [field.strip() for field in line.rstrip("\n").split(" | ")]


# ---- roles


class Role:
    """The privileges of a role on a database, as (kind, database, collection, actions)."""

    def __init__(self, table, name, database):
        self.privileges = []
        self._add(table, name, database)

    def _add(self, table, name, database):
        for resource, actions in table[name]:
            if match := re.fullmatch(r"role (\w+)@(\w+)", resource):
                self._add(table, match[1], database if match[2] == "db" else match[2])
            elif resource in ("cluster", "any", "*"):
                self.privileges.append((resource, None, None, actions))
            elif resource == "*.system.buckets":
                self.privileges.append(("buckets", None, None, actions))
            elif resource == "db":
                self.privileges.append(("db", database, None, actions))
            elif match := re.fullmatch(r"db (\w+)", resource):
                self.privileges.append(("db", match[1], None, actions))
            else:
                where, collection = resource.split(".", 1)
                if where == "*":
                    self.privileges.append(("collection", None, collection, actions))
                else:
                    where = database if where == "db" else where
                    self.privileges.append(("exact", where, collection, actions))

    def allows(self, action, target):
        return any(
            (action in actions or "anyAction" in actions) and covers(kind, database, collection, target)
            for kind, database, collection, actions in self.privileges
        )

    def any_in(self, database):
        """Whether the role may do anything at all on anything in a database."""
        for kind, where, _, _ in self.privileges:
            if kind in ("any", "buckets", "collection"):
                return True
            if kind in ("db", "exact") and where == database:
                return True
            if kind == "*" and database not in ("config", "local"):
                return True
        return False


def is_normal(database, collection):
    """Whether a collection is no system collection."""
    if collection.startswith("system."):
        return False
    return not (database == "local" and collection.startswith("replset."))


def covers(kind, database, collection, target):
    """Whether a privilege's resource covers a target: ("cluster",), ("normal",), ("db", D) or ("ns", D, C)."""
    if kind == "any":
        return True
    if target[0] == "cluster":
        return kind == "cluster"
    if target[0] == "normal":
        return kind == "*"
    if target[0] == "db":
        if kind == "*":
            return target[1] not in ("config", "local")
        return kind == "db" and database == target[1]
    _, where, name = target
    if kind == "exact":
        return (database, collection) == (where, name)
    if kind == "collection":
        return collection == name
    if kind == "buckets":
        return name.startswith("system.buckets.")
    if not is_normal(where, name):
        return False
    if kind == "*":
        return where not in ("config", "local")
    return kind == "db" and database == where


def role_table():
    named, table = {}, {}
    for _, fields in lines("roles.txt"):
        if fields[0].startswith("let "):
            named[fields[0][4:]] = set(fields[1].split())
            continue
        name, resource, actions = fields[:3]
        found = set()
        for action in actions.strip("| ").split():
            found |= named[action[1:]] if action.startswith("=") else {action}
        table.setdefault(name, []).append((resource, found))
    return table


# ---- commands


def parse_needs(text):
    """Alternatives, each a list of (wanted, actions, resource)."""
    if text in ("anyone", "login"):
        return text
    alternatives = []
    for alternative in text.split(" or "):
        terms = []
        for term in alternative.split(" and "):
            wanted = not term.startswith("not ")
            term = term.removeprefix("not ").strip()
            if term.startswith("any:"):
                terms.append((wanted, None, term[4:]))
            else:
                actions, resource = term.split(" ")
                terms.append((wanted, actions.split("+"), resource))
        alternatives.append(terms)
    return alternatives


def target_of(resource):
    if resource == "cluster":
        return ("cluster",)
    if resource == "*":
        return ("normal",)
    if "." in resource:
        return ("ns", *resource.split(".", 1))
    return ("db", resource)


class Case:
    """One command on one namespace: its message, and who may send it."""

    def __init__(self, line, database, command, needs, flags):
        self.line = line
        self.database = database
        self.command = command
        self.needs = parse_needs(needs)
        self.only_refused = "refused" in flags
        body = bson.encode({**json_util.loads(command), "$db": database})
        self.message = struct.pack("<iiiiIB", 21 + len(body), 1, 0, raw.OP_MSG, 0, 0) + body

    def allowed(self, role):
        """Whether somebody with these roles may; `role` is None without a login."""
        if self.needs == "anyone":
            return True
        if role is None:
            return False
        if self.needs == "login":
            return True
        return any(all(self._holds(role, *term) for term in terms) for terms in self.needs)

    @staticmethod
    def _holds(role, wanted, actions, resource):
        if actions is None:
            return role.any_in(resource) == wanted
        return all(role.allows(action, target_of(resource)) for action in actions) == wanted

    def __str__(self):
        return f"line {self.line}: {self.database} {self.command[:150]}"


def cases():
    found = []
    for number, fields in lines("commands.txt"):
        scope, database, command, needs = fields[:4]
        flags = fields[4].split() if len(fields) > 4 else []
        json.loads(command)

        def add(replacements):
            texts = [database, command, needs]
            for name, value in replacements.items():
                texts = [text.replace(name, value) for text in texts]
            found.append(Case(number, *texts, flags))

        if scope == "ns":
            for namespace in NAMESPACES:
                where, collection = namespace.split(".", 1)
                document = DOCUMENTS.get(namespace, "matrix")
                add({"@db": where, "@coll": collection, "@ns": namespace, "@id": document})
        elif scope == "db":
            for where in DATABASES:
                add({"@db": where})
        else:
            add({})
    return found


# ---- the server


class Matrix:
    """The server under test, and connections to it."""

    def __init__(self, server):
        self.server = server
        self.roles = role_table()
        self.cases = cases()
        self.count = 0
        self.admin = pymongo.MongoClient(server.admin_uri)
        self.users = {}

    def prepare(self):
        """Collections, the users, and a role of one's own."""
        self.admin["own"].command("createUser", "somebody", pwd=PASSWORD, roles=[], mechanisms=["SCRAM-SHA-256"])
        self.admin["own"].command("createRole", "custom", privileges=[], roles=[])
        wanted = [(role, "own") for role in ON_EVERY_DATABASE] + ELSEWHERE
        wanted += [(role, "admin") for role in self.roles if role not in ON_EVERY_DATABASE]
        for role, database in wanted:
            name = f"{role}-{database}"
            self.make_user(name, [{"role": role, "db": database}])
            self.users[name] = Role(self.roles, role, database)
        self.make_user("nothing", [])
        self.users["nothing"] = Role({"": []}, "", "own")
        for database in ("own", "other"):
            self.admin[database].create_collection("t", timeseries={"timeField": "at"})
        self.restore()

    def make_user(self, name, roles, database="own"):
        self.admin[database].command("createUser", name, pwd=PASSWORD, roles=roles, mechanisms=["SCRAM-SHA-256"])

    def restore(self):
        """Makes what an allowed case may have changed."""
        for namespace in ["own.c", "own.d", "other.c", "other.d", "third.c", "admin.c", "config.c", "local.c"]:
            database, collection = namespace.split(".", 1)
            self.admin[database][collection].update_one({"_id": "matrix"}, {"$set": {"a": 1}}, upsert=True)

    def connect(self, user=None, database="own"):
        connection = raw.Connection(self.server.port, timeout=60)
        if user:
            login(connection, user, PASSWORD, database)
        return connection

    def run(self, connection, role):
        """Sends every case. Returns what was answered otherwise than the tables say."""
        wrong, counted = [], 0
        refused = [case for case in self.cases if not case.allowed(role)]
        # Nothing of what is refused has an effect, so many can be sent at once.
        for at in range(0, len(refused), BATCH):
            part = refused[at : at + BATCH]
            connection.send(b"".join(case.message for case in part))
            for case in part:
                reply = connection.receive()[2]
                counted += 1
                if reply.get("code") != UNAUTHORIZED:
                    wrong.append(f"was not refused: {case}: {str(reply)[:200]}")
        for case in self.cases:
            if case.only_refused or not case.allowed(role):
                continue
            connection.send(case.message)
            reply = connection.receive()[2]
            counted += 1
            if reply.get("code") == UNAUTHORIZED:
                wrong.append(f"was refused: {case}: {reply.get('errmsg')[:200]}")
            if '"renameCollection"' in case.command:
                self.restore()
        return wrong, counted


def check(name, found):
    wrong, counted = found
    for line in wrong[:15]:
        print(f"  # {name}: {line}")
    assert not wrong, f"{len(wrong)} of {counted} answers"


# ---- the tests


@test
def every_command_of_the_server_is_in_the_table(matrix):
    with raw.Connection(matrix.server.port) as connection:
        listed = connection.command({"listCommands": 1})["commands"]
    names = {name for name, entry in listed.items()} | {a for entry in listed.values() for a in entry["aliases"]}
    known = {next(iter(json.loads(case.command))) for case in matrix.cases}
    equal(sorted(names - known), [], "commands without a line in commands.txt")
    equal(sorted(known - names), [], "lines for commands that the server does not have")


@test
def every_stage_of_the_server_is_in_the_table(matrix):
    with open(os.path.join(ROOT, "docs", "compatibility.md"), encoding="utf-8") as page:
        part = page.read().split("## Aggregation stages\n")[1].split("\n## ")[0].split("\nNo:")[0]
    stages = set(re.findall(r"`(\$\w+)`", part))
    text = "\n".join(case.command for case in matrix.cases)
    equal(sorted(stage for stage in stages if f'"{stage}"' not in text), [])


@test
def without_a_login_only_what_anyone_may(matrix):
    with matrix.connect() as connection:
        found = matrix.run(connection, None)
    matrix.count += found[1]
    check("nobody", found)


def add_user_tests(matrix):
    """A test for each user."""
    for user, role in matrix.users.items():

        def of_user(matrix, user=user, role=role):
            with matrix.connect(user) as connection:
                found = matrix.run(connection, role)
            matrix.count += found[1]
            check(user, found)

        of_user.__name__ = f"all commands, stages and cursors for {user}"
        test(of_user)


def main():
    with SecuredServer(os.environ["FROND_BINARY"], replica_set="rs0") as server:
        server.start()
        matrix = Matrix(server)
        matrix.prepare()
        add_user_tests(matrix)

        @test
        def nothing_refused_had_an_effect(matrix):
            for namespace in ("own.c", "own.d", "other.c", "other.d", "third.c"):
                database, collection = namespace.split(".")
                equal(list(matrix.admin[database][collection].find()), [{"_id": "matrix", "a": 1}], namespace)
            print(f"# {matrix.count} cases")
            assert matrix.count > 50_000, matrix.count

        import authorization_more  # noqa: F401  The tests that are no table.

        run(matrix)


if __name__ == "__main__":
    main()
