#!/usr/bin/env python3
"""A replica set on this machine: `make replica-set`. Everything listens on 127.0.0.1.

    replica_set.py start [--members N] [--port P] [--program FILE] [-- OPTION...]   start the members, initiate the set, wait until it works
    replica_set.py stop [--remove]    stop the members; --remove deletes their data, too
    replica_set.py status             what runs, and the part of each member

Each takes --data FOLDER (data/replica-set), where member N has its files in member-N and its log in member-N.log. Member N listens on
port P + N - 1 (27017 and up). A set that is started in a folder with data goes on with it; the number of members and the
ports are those of its first start. OPTIONs are passed to each member.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "clients"))
from harness import raw  # noqa: E402

NAME = "rs0"
ALREADY_INITIALIZED = 23
PAUSE = 0.1
# Longer than a start takes on a busy machine.
PATIENCE = int(os.environ.get("FROND_REPLICA_SET_WAIT", "120"))


class Failure(Exception):
    """The set cannot be started or stopped."""


class Member:
    """A member, with a process of its own session, which outlives this program."""

    def __init__(self, data, number, port):
        self.name = f"member-{number}"
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.folder = data / self.name
        self.log = data / f"{self.name}.log"
        self.pid_file = data / f"{self.name}.pid"
        # The process, if this program has started it.
        self.process = None

    def pid(self):
        """Its process, if that runs. A number that another process has got is not taken for it."""
        try:
            pid = int(self.pid_file.read_text())
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if os.fsencode(self.folder) in words else None

    def start(self, program, options):
        if self.pid() is not None:
            return
        if raw.ping(self.port, timeout=1):
            raise Failure(f"another server answers at {self.host}: choose other ports with PORT, or stop it")
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [program, "serve", "--dbpath", self.folder, "--port", str(self.port), "--replSet", NAME, *options]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.pid_file.write_text(f"{self.process.pid}\n")

    def runs(self):
        # The words of a process that has just begun may not be there yet.
        return self.process.poll() is None if self.process else self.pid() is not None

    def stop(self):
        pid = self.pid()
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
        return pid

    def await_end(self, pid):
        until = time.monotonic() + PATIENCE
        while pid is not None and self.pid() == pid:
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
            time.sleep(PAUSE)
        self.pid_file.unlink(missing_ok=True)

    def command(self, command):
        """The reply, or nothing if the member does not answer."""
        try:
            with raw.Connection(self.port, timeout=PATIENCE) as connection:
                return connection.command(command)
        except (OSError, raw.Closed):
            return {}

    def part(self):
        hello = self.command({"hello": 1})
        if not hello:
            return "does not answer"
        if not hello.get("setName"):
            return "not initiated"
        parts = [("primary", "isWritablePrimary"), ("secondary", "secondary")]
        return next((part for part, field in parts if hello.get(field)), "starting")


def wait(members, what, holds):
    """Waits until the condition holds. All members must run meanwhile."""
    until = time.monotonic() + PATIENCE
    while not holds():
        for member in members:
            if not member.runs():
                lines = member.log.read_text(errors="replace").splitlines()[-5:]
                raise Failure("\n".join([f"{member.name} has ended; the end of {member.log}:", *lines]))
        if time.monotonic() > until:
            raise Failure(f"{what} took longer than {PATIENCE} s: see {members[0].log.parent}/*.log")
        time.sleep(PAUSE)


def parts(members):
    return sorted(member.part() for member in members)


def start(members, program, options):
    program = pathlib.Path(program).resolve()
    if not os.access(program, os.X_OK):
        raise Failure(f"no {program}: build it, or name another one with --program")
    for member in members:
        member.start(program, options)
    wait(members, "the start", lambda: "does not answer" not in parts(members))
    if all(part == "not initiated" for part in parts(members)):
        listed = [{"_id": number, "host": member.host} for number, member in enumerate(members)]
        reply = members[0].command({"replSetInitiate": {"_id": NAME, "members": listed}})
        if reply.get("ok") != 1 and reply.get("code") != ALREADY_INITIALIZED:
            raise Failure(f"the set was not initiated: {reply.get('errmsg', 'no answer')}")
    working = ["primary"] + ["secondary"] * (len(members) - 1)
    wait(members, "the election of a primary", lambda: parts(members) == working)
    print(f"replica set: {len(members)} members, data in {members[0].folder.parent}")
    print(f"mongosh 'mongodb://{','.join(member.host for member in members)}/?replicaSet={NAME}'")


def stop(members):
    # All at once: a majority that stays would elect another primary first.
    ending = [(member, member.stop()) for member in members]
    for member, pid in ending:
        member.await_end(pid)


def status(members):
    """Prints each member. Returns whether all of them work."""
    for member in members:
        print(f"{member.host}  process {member.pid() or 'none'}  {member.part()}")
    return parts(members) == ["primary"] + ["secondary"] * (len(members) - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["start", "stop", "status"])
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "data" / "replica-set")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--port", type=int, default=27017)
    parser.add_argument("--program", default=ROOT / "target" / "release" / "frond")
    parser.add_argument("--remove", action="store_true")
    arguments, options = sys.argv[1:], []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, options = arguments[:at], arguments[at + 1 :]
    given = parser.parse_args(arguments)
    data = given.data.resolve()
    settings = data / "settings.json"
    if settings.exists():
        known = json.loads(settings.read_text())
    elif given.action == "start":
        if not 1 <= given.members <= 7:
            parser.error("--members is from 1 to 7, the largest number of votes")
        known = {"members": given.members, "port": given.port}
        data.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps(known))
    else:
        print(f"no replica set in {data}")
        return 0 if given.action == "stop" else 1
    members = [Member(data, n + 1, known["port"] + n) for n in range(known["members"])]
    try:
        if given.action == "start":
            start(members, given.program, options)
        elif given.action == "stop":
            stop(members)
            if given.remove:
                shutil.rmtree(data)
        else:
            return 0 if status(members) else 1
    except Failure as failure:
        print(f"replica set: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
