"""Runs parts of a driver's tests side by side, each against a replica set of its own, of FROND_MEMBERS members (1).

A fail point applies to the whole server, so that two tests cannot share one.
"""

import os
import queue
import re
import shutil
import subprocess
import tempfile
import threading

from harness.replica_set import SetAsServer
from harness.server import Server
from harness.waiting import wait_until
from pymongo import MongoClient

SECONDS_PROGRAM_MAX = 900
OPTIONS = ["--setParameter", "enableTestCommands=1"]
MEMBERS = int(os.environ.get("FROND_MEMBERS", "1"))
# Most of the time the tests wait for the driver's timers. Several members have more work with the same tests.
WORKERS = 6 if MEMBERS == 1 else 3


class SetWithUsers(SetAsServer):
    """A set whose members have a key file, and a user who may do anything, whom its connection string names."""

    USER, PASSWORD = "operator", "correct"

    def __init__(self, binary, count, options):
        self.keys = tempfile.mkdtemp(prefix="frond-keys-")
        path = os.path.join(self.keys, "key")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write("c2VjcmV0IG9mIHRoZSBtZW1iZXJz")
        super().__init__(binary, count, [*options, "--keyFile", path])

    def prepare(self):
        first = self.members[0]
        wait_until("a primary", lambda: first.hello()["isWritablePrimary"])
        # From this machine, before there is any other user.
        first.client().admin.command("createUser", self.USER, pwd=self.PASSWORD, roles=["root"])
        self.log_in(self.USER, self.PASSWORD)

    @property
    def uri(self):
        return super().uri.replace("//", f"//{self.USER}:{self.PASSWORD}@", 1) + "&authSource=admin"

    def close(self):
        super().close()
        shutil.rmtree(self.keys, ignore_errors=True)


def needs_users(name):
    """Whether a file of tests needs a set with users, and there is one: a set of one member has none."""
    return MEMBERS > 1 and bool(re.match(r"auth-|.*[Hh]andshake", name))


def make_set_with_users():
    return SetWithUsers(os.environ["FROND_BINARY"], MEMBERS, OPTIONS)


def make_set():
    binary = os.environ["FROND_BINARY"]
    return Server(binary, OPTIONS, replica_set="rs0") if MEMBERS == 1 else SetAsServer(binary, MEMBERS, OPTIONS)


def run_in_parallel(parts, run, workers, make=make_set):
    """Calls run(server, part) for all parts, with one set for each of the workers. Errors are raised at the end.

    Parts begin in the order given; put the long ones first.
    """
    waiting = queue.SimpleQueue()
    for part in parts:
        waiting.put(part)
    errors = []

    def work():
        try:
            with make() as server:
                server.start()
                while True:
                    try:
                        part = waiting.get_nowait()
                    except queue.Empty:
                        break
                    run(server, part)
                server.stop()
        except Exception as error:  # raised by the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def drop_databases(server):
    """The runners expect nothing of an earlier run."""
    with MongoClient(server.uri) as client:
        for name in client.list_database_names():
            if name not in ("admin", "config", "local"):
                client.drop_database(name)


def run_program(command, folder, environment):
    """Runs a driver's test program; the finished process, with all that it wrote. One that takes too long is killed."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        output, _ = process.communicate(timeout=SECONDS_PROGRAM_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        output += f"\nkilled after {SECONDS_PROGRAM_MAX} s"
    return subprocess.CompletedProcess(command, process.returncode, output)
