"""Replica sets of several servers on this machine: started, initiated, stopped, compared."""

import os
import shutil
import signal

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, ReadPreference
from pymongo.errors import PyMongoError

from .server import Server, ServerError
from .waiting import PATIENCE, wait_until

NAME = "rs0"
PRIMARY, SECONDARY = 1, 2
_RAW = CodecOptions(document_class=RawBSONDocument)


class Member(Server):
    """A server that can be a member of the set. `host` is the address in the configuration, which may be that of a proxy."""

    def __init__(self, binary, number, options=(), host=None, connect_options=None, **more):
        super().__init__(binary, ["--replSet", NAME, *options], **more)
        self.number = number
        self.connect_options = {} if connect_options is None else connect_options
        self.host = host or f"127.0.0.1:{self.port}"
        self.is_paused = False
        self._clients = {}

    @property
    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def client(self, **options):
        """A client of this member alone, which is kept."""
        key = tuple(sorted(options.items(), key=lambda option: option[0]))
        if key not in self._clients:
            self._clients[key] = MongoClient(
                "127.0.0.1",
                self.port,
                directConnection=True,
                **{"serverSelectionTimeoutMS": PATIENCE * 1000, **self.connect_options, **options},
            )
        return self._clients[key]

    def forget_clients(self):
        self._clients.clear()

    def command(self, name, value=1, **more):
        return self.client().admin.command(name, value, **more)

    def hello(self):
        return self.command("hello")

    def status(self):
        return self.command("replSetGetStatus")

    def pause(self):
        """Stops the process without its knowledge (SIGSTOP), and waits until none of its threads runs any more."""
        self.process.send_signal(signal.SIGSTOP)
        self.is_paused = True
        wait_until("stopped threads", self._has_stopped, passing=(FileNotFoundError, ProcessLookupError))

    def _has_stopped(self):
        tasks = f"/proc/{self.process.pid}/task"
        for task in os.listdir(tasks):
            with open(os.path.join(tasks, task, "stat"), encoding="ascii", errors="replace") as stat:
                # The state follows the name, which is in parentheses.
                if stat.read().rpartition(")")[2].split()[0] not in "TtZX":
                    return False
        return True

    def resume(self):
        self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def kill(self):
        super().kill()
        self.is_paused = False

    def empty(self):
        """Removes all that it has stored, while it does not run."""
        shutil.rmtree(self.dbpath)
        os.makedirs(self.dbpath)


class ReplicaSet:
    """Members with the numbers from 0 on. `connect_options` are those of every client of the set."""

    def __init__(self, binary, count=3, options=(), hosts=None, tls=None, connect_options=None):
        self.binary, self.options, self.tls = binary, list(options), tls
        self.connect_options = connect_options or {}
        self.members = []
        for number in range(count):
            self.add_member(host=hosts[number] if hosts else None)

    def add_member(self, options=(), host=None, **more):
        """A server that is not started yet, and is no member until the configuration says so."""
        numbers = [member.number for member in self.members]
        number = max(numbers, default=-1) + 1
        options = [*self.options, *options]
        member = Member(self.binary, number, options, host, self.connect_options, tls=self.tls, **more)
        self.members.append(member)
        return member

    def drop_member(self, member):
        """Forgets a server that is no member any more."""
        self.members.remove(member)
        member.close()

    def log_in(self, username, password):
        """From here on all clients log in."""
        self.connect_options.update(username=username, password=password)
        for member in self.members:
            member.forget_clients()

    @property
    def uri(self):
        return f"mongodb://{','.join(member.host for member in self.members)}/?replicaSet={NAME}"

    def connect(self, **options):
        options.setdefault("serverSelectionTimeoutMS", PATIENCE * 1000)
        return MongoClient(self.uri, **{**self.connect_options, **options})

    def config(self, settings=None, members=None):
        """A configuration; `members` has more fields for some of the numbers."""
        config = {
            "_id": NAME,
            "members": [
                {"_id": member.number, "host": member.host, **(members or {}).get(member.number, {})}
                for member in self.members
            ],
        }
        if settings:
            config["settings"] = settings
        return config

    def start(self, settings=None, members=None):
        """Starts all members, initiates the set by the first, and waits until each is a primary or a secondary."""
        for member in self.members:
            member.start()
        self.members[0].command("replSetInitiate", self.config(settings, members))
        self.prepare()
        self.wait_until_steady()
        return self

    def prepare(self):
        """Makes what has to be there before clients can look at the new set."""

    def is_steady(self):
        """Whether the members that run agree on a primary, and all others follow it."""
        primaries = set()
        for member in self.members:
            if not member.is_running or member.is_paused:
                continue
            hello = member.hello()
            if not (hello.get("isWritablePrimary") or hello.get("secondary")):
                return False
            primaries.add(hello.get("primary"))
        if len(primaries) != 1 or None in primaries:
            return False
        primary = self.member_at(primaries.pop())
        if primary is None or not primary.is_running or primary.is_paused or not primary.hello()["isWritablePrimary"]:
            return False
        running = {member.host for member in self.members if member.is_running and not member.is_paused}
        states = {one["name"]: one["state"] for one in primary.status()["members"]}
        return all(states.get(host) in (PRIMARY, SECONDARY) for host in running)

    def wait_until_steady(self):
        wait_until("a primary that all others follow", self.is_steady, passing=(PyMongoError,))

    def settle(self):
        """Starts and resumes all members, and waits until they are a set again."""
        for member in self.members:
            if member.is_paused:
                member.resume()
            if not member.is_running:
                member.start()
        self.wait_until_steady()

    def member_at(self, host):
        return next((member for member in self.members if member.host == host), None)

    def find_primary(self, among=None):
        """The member that says it is the primary, or None."""
        for member in among or self.members:
            if member.is_running and not member.is_paused and member.hello().get("isWritablePrimary"):
                return member
        return None

    def wait_for_primary(self, among=None):
        return wait_until("a primary", lambda: self.find_primary(among), passing=(PyMongoError,))

    @property
    def primary(self):
        return self.wait_for_primary()

    def step_up(self, member):
        """Makes a member the primary. An election may be lost on a busy machine, so it is repeated, as an operator would do."""

        def leads():
            member.command("replSetStepUp")
            return member.hello()["isWritablePrimary"]

        wait_until(f"member {member.number} leads", leads, passing=(PyMongoError,))

    @property
    def secondaries(self):
        primary = self.primary
        return [member for member in self.members if member is not primary]

    def others(self, *members):
        return [member for member in self.members if member not in members]

    def reconfigure(self, change, force=False):
        """Changes the configuration: `change` gets it and modifies it."""
        primary = self.primary
        config = primary.command("replSetGetConfig")["config"]
        change(config)
        config["version"] += 1
        return primary.command("replSetReconfig", config, **({"force": True} if force else {}))

    def catch_up(self, among=None):
        """Waits until members have applied what the primary has now."""
        last = last_write(self.primary)
        for member in among or self.members:
            wait_until(f"member {member.number} has {last}", lambda member=member: last_write(member) >= last)

    def close(self):
        for member in self.members:
            member.close()

    def stop(self):
        """Stops all members; each must end cleanly."""
        for member in self.members:
            if member.is_paused:
                member.resume()
        problems = []
        for member in self.members:
            try:
                member.stop()
            except ServerError as error:
                problems.append(f"member {member.number}: {error}")
        if problems:
            raise ServerError("\n".join(problems))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class SetAsServer(ReplicaSet):
    """A set in the place of one server, for suites of tests that know one: that is the member which is the primary at the start.

    An election timeout as MongoDB's keeps it the primary on a busy machine, until a test has it step down. Members take it over when
    they start again; the primary comes last, and hands over to one that has it.
    """

    def start(self):
        super().start({"electionTimeoutMillis": 10_000})
        primary = self.primary
        for member in [*self.others(primary), primary]:
            member.stop()
            member.start()
            self.wait_until_steady()
        self.first = self.primary
        return self

    def stop(self):
        """Stops all members, the primary last: once it knows that the others are gone, it looks for no successor."""
        primary = self.primary
        others = self.others(primary)
        for member in others:
            member.stop()
        hosts = {member.host for member in others}

        def is_alone():
            states = {one["name"]: one["state"] for one in primary.status()["members"]}
            return not any(states.get(host) in (PRIMARY, SECONDARY) for host in hosts)

        wait_until("a primary that is alone", is_alone, passing=(PyMongoError,))
        super().stop()

    @property
    def port(self):
        return self.first.port

    @property
    def socket_path(self):
        return self.first.socket_path

    @property
    def folder(self):
        return self.first.folder

    def log_tail(self, lines=30):
        return "".join(f"member {member.number}:\n{member.log_tail(lines)}" for member in self.members)


def last_write(member):
    """The time of the last entry that a member has applied; the first time, if it has none."""
    written = member.hello().get("lastWrite")
    return written["opTime"]["ts"] if written else bson.Timestamp(0, 0)


def described(client, name):
    """The collections of a database with their options, identities and indexes."""
    database = client.get_database(name, read_preference=ReadPreference.NEAREST)
    found = {}
    for info in database.list_collections():
        if info["name"] == "system.profile":
            continue
        indexes = []
        if info["type"] == "collection":
            indexes = sorted(map(str, database[info["name"]].list_indexes()))
        found[info["name"]] = (info["type"], str(info["options"]), str(info["info"].get("uuid")), indexes)
    return found


def databases(client):
    return sorted(name for name in client.list_database_names() if name != "local")


def _documents(client, database, name, options):
    """The documents as bytes, in an order that both members have."""
    in_order = "capped" in options or "timeseries" in options
    sort = [("$natural", 1)] if in_order else [("_id", 1)]
    database = client.get_database(database, codec_options=_RAW, read_preference=ReadPreference.NEAREST)
    return [document.raw for document in database[name].find(sort=sort)]


def differences(left, right):
    """Differences of two members by everything that can be read: collections, options, indexes, documents, hashes."""
    left, right = left.client(), right.client()
    names = databases(left)
    if databases(right) != names:
        return [f"databases {names} and {databases(right)}"]
    found = []
    for database in names:
        theirs, ours = described(left, database), described(right, database)
        if theirs != ours:
            found += [f"{database}.{name}: {theirs.get(name)} and {ours.get(name)}" for name in theirs | ours
                      if theirs.get(name) != ours.get(name)]
            continue
        for name, (kind, options, _, _) in theirs.items():
            if kind != "collection" or name == "system.views":
                continue
            there = _documents(left, database, name, options)
            here = _documents(right, database, name, options)
            if there != here:
                missing = [bson.decode(one) for one in sorted(set(there) - set(here))[:3]]
                more = [bson.decode(one) for one in sorted(set(here) - set(there))[:3]]
                found.append(f"{database}.{name}: {len(there)} and {len(here)} documents; missing {missing}, more {more}")
            for client in (left, right):
                checked = client[database].command("validate", name)
                if not checked["valid"]:
                    found.append(f"{database}.{name} of port {client.address[1]}: {checked['errors'][:3]}")
        hashes = [client[database].command("dbHash")["collections"] for client in (left, right)]
        if hashes[0] != hashes[1]:
            found.append(f"dbHash of {database}: {hashes[0]} and {hashes[1]}")
    return found


def assert_same(replica_set):
    """Waits until all members have caught up, and compares them."""
    replica_set.catch_up()
    primary = replica_set.primary
    for member in replica_set.others(primary):
        found = differences(primary, member)
        if found:
            raise AssertionError(f"member {member.number} differs from the primary {primary.number}: {found[:5]}")
