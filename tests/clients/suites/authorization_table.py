"""The tables of authorization, evaluated: which case is allowed to whom. tests/authorization describes their format."""

import json
import os
import re
import struct

import bson
from bson import json_util
from harness import raw

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
TABLES = os.path.join(ROOT, "tests", "authorization")

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
    """Whether a privilege's resource covers a target: ("any",), ("cluster",), ("normal",), ("db", D) or ("ns", D, C)."""
    if kind == "any":
        return True
    if target[0] == "any":
        return False
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
    if resource in ("any", "cluster"):
        return (resource,)
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
