"""Every command, stage and cursor operation for every built-in role, on own, other and system namespaces.

`tests/authorization/roles.txt` says what each role may do, `commands.txt` what each command needs; both are written by
hand from MongoDB's manual. The server must refuse with error 13 exactly what they refuse together.
"""

import json
import os
import re

import pymongo
from authorization_table import ROOT, Role, cases, role_table
from harness import raw
from harness.scram import SecuredServer, login
from harness.tap import equal, run, test

UNAUTHORIZED = 13
PASSWORD = "matrix"

# Each role on the database `own`, and more of them elsewhere.
ON_EVERY_DATABASE = ["read", "readWrite", "dbAdmin", "dbOwner", "userAdmin", "enableSharding"]
ELSEWHERE = [("read", "other"), ("dbOwner", "admin"), ("userAdmin", "admin"), ("readWrite", "local"), ("dbAdmin", "config")]
# How many messages are sent before their answers are read.
BATCH = 40


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
                if not is_refused(reply):
                    wrong.append(f"was not refused: {case}: {str(reply)[:200]}")
        for case in self.cases:
            if case.only_refused or not case.allowed(role):
                continue
            connection.send(case.message)
            reply = connection.receive()[2]
            counted += 1
            if is_refused(reply):
                wrong.append(f"was refused: {case}: {reply['errmsg'][:200]}")
            if '"renameCollection"' in case.command:
                self.restore()
        return wrong, counted


def is_refused(reply):
    """Whether a command was refused. getLastError reports the code of another one."""
    return reply["ok"] != 1 and reply.get("code") == UNAUTHORIZED


def check(name, found):
    wrong, counted = found
    for line in wrong[:15]:
        print(f"  # {name}: {line}")
    assert not wrong, f"{len(wrong)} of {counted} answers"


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
