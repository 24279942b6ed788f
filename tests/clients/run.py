#!/usr/bin/env python3
"""Drives a built server with real clients: one fresh server and one process for each suite.

    run.py --server target/debug/frond               every suite but those that must be named
    run.py --server target/debug/frond node go       only these
    run.py --server target/debug/frond --members 3   suites against a replica set of three members, one after the other

A suite prints TAP; its tests are counted, and one more for the server's clean end. The last line is
"clients: N passed, M failed". FROND_TEST=words runs only the tests whose name has the words. Suites that mostly wait run
beside the others; their output follows at their end.
"""

import argparse
import contextlib
import fcntl
import functools
import glob
import os
import re
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CACHE = os.path.join(ROOT, ".cache", "clients")
SUITES = os.path.join(HERE, "suites")

sys.path.insert(0, HERE)
from harness.server import NoServer, Server, ServerError  # noqa: E402


@contextlib.contextmanager
def building():
    """Held while programs of suites are compiled, because suites that run at the same time share them."""
    os.makedirs(CACHE, exist_ok=True)
    with open(os.path.join(CACHE, "building"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def python(name, driver=None):
    """A suite in Python, with the current driver of the environment or an older one before it."""

    def command():
        # Old drivers warn about much of what their users called.
        environment = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}
        paths = [HERE]
        if driver:
            paths.insert(0, os.path.join(CACHE, f"pymongo-{driver}"))
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        interpreter = os.path.join(CACHE, "venv", "bin", "python")
        return [interpreter, os.path.join(SUITES, f"{name}.py")], environment

    return command


def node(name):
    """A suite in JavaScript."""
    return lambda: (["node", os.path.join(SUITES, f"{name}.mjs")], {})


def java(main, folder, jars, *more):
    """A suite in Java, compiled when its sources are newer than its classes. `more` are sources from elsewhere."""

    def command():
        libraries = os.path.join(CACHE, jars)
        classes = os.path.join(libraries, "classes")
        path = os.pathsep.join([classes, os.path.join(libraries, "*")])
        sources = glob.glob(os.path.join(SUITES, folder, "*.java"))
        sources += [os.path.join(SUITES, source) for source in more]
        done = os.path.join(classes, f"{main}.class")
        with building():
            if not os.path.exists(done) or os.path.getmtime(done) < max(map(os.path.getmtime, sources)):
                options = ["-nowarn", "-XDsuppressNotes", "-parameters", "-encoding", "UTF-8", "-cp", path, "-d", classes]
                subprocess.run(["javac", *options, *sources], check=True)
        # For a short program the first-tier compiler and the serial collector start fastest.
        quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        return ["java", *quick, "-cp", path, main], {}

    return command


def go(folder, *arguments):
    """A suite in Go, built from what setup.sh fetched."""
    return lambda: go_command(folder, arguments)


def go_command(folder, arguments):
    binary = os.path.join(CACHE, "go", "suite" if folder == "go" else f"suite-{folder}")
    environment = {
        **os.environ,
        "GOMODCACHE": os.path.join(CACHE, "go", "modules"),
        "GOCACHE": os.path.join(CACHE, "go", "build"),
        "GOFLAGS": "-mod=readonly -modcacherw -gcflags=all=-dwarf=false",
        "GOPROXY": "off",
    }
    with building():
        subprocess.run(
            ["go", "build", "-o", binary, "."], cwd=os.path.join(SUITES, folder), env=environment, check=True
        )
    return [binary, *arguments], {}


def php():
    return ["php", os.path.join(SUITES, "php", "suite.php")], {}


# A busy machine gets so many times the time limit, which only guards against a suite that hangs.
BUSY = 4

# Name, time limit in seconds, how to start it. Those in REPLICA_SET get a server that was started as one.
ALL = {
    "pymongo": (300, python("pymongo_current")),
    "pymongo-3.6": (180, python("pymongo_2018", "3.6.1")),
    "pymongo-2.4": (180, python("pymongo_2013", "2.4.2")),
    "node": (300, node("node")),
    "mongoose": (300, node("mongoose")),
    "mongosh": (300, python("mongosh")),
    "monitoring": (180, python("monitoring")),
    "commands": (120, python("commands")),
    "java-2.14": (300, java("LegacyDriver", "java", "java-2.14")),
    "java": (300, java("Main", "java_current", "java", "java/Tap.java")),
    "go": (300, go("go")),
    "mgo": (300, go("mgo")),
    "php": (300, php),
    "large": (300, python("large")),
    "fast-updates": (180, python("fast_updates")),
    "javascript": (180, python("javascript")),
    "robustness": (300, python("robustness")),
    "crash": (420, python("crash")),
    "backup": (300, python("backup")),
    "encryption": (300, python("encryption")),
    "replica-set": (180, python("replica_set")),
    "replica-set-operations": (300, python("replica_set_operations")),
    "replica-set-members": (600, python("replica_set_members")),
    "replica-set-rollbacks": (300, python("replica_set_rollbacks")),
    "replica-set-secured": (180, python("replica_set_secured")),
    "authorization": (300, python("authorization")),
    "audit": (180, python("audit")),
    "migrate": (300, python("migrate")),
    "migrate-ferretdb": (300, python("migrate_ferretdb")),
    "transfer": (120, python("transfer")),
    "tool-files": (180, python("tool_files")),
    "http": (120, python("http_attacks")),
    "hostile": (300, python("hostile")),
    "login": (300, python("login")),
    "users-dumped": (120, python("users_dumped")),
    "secrets": (120, python("secrets_kept")),
    "login-timing": (1200, python("login_timing")),
    "before-login": (7200, python("before_login")),
    "tls-scan": (120, python("tls_scan")),
    "prometheus": (400, python("prometheus")),
    "history-checker": (60, python("history_checker")),
    "specs-pymongo": (300, python("specs_pymongo")),
    "specs-go": (300, python("specs_go")),
    "specs-auth": (180, python("specs_auth")),
    "specs-node": (300, python("specs_node")),
    "mongoose-transactions": (120, node("mongoose_transactions")),
    "spring-transactions": (180, java("TransactionsMain", "java_current", "java", "java/Tap.java")),
    "parse": (180, node("parse")),
    "change-streams": (300, python("change_streams")),
    "change-streams-node": (120, node("change_streams")),
    "change-streams-3.6": (120, python("change_streams_2018", "3.6.1")),
    "oplog-meteor": (120, node("tail_meteor")),
    "change-streams-mgo": (120, go("mgo", "replica-set")),
    "oplog-go": (180, go("go", "oplog")),
    "oplog-2.4": (120, python("tail_2013", "2.4.2")),
    "streams": (3600, python("streams_crashes")),
    "bank": (1800, python("bank_crashes")),
    "history": (1800, python("history_recorded")),
    "replica-set-soak": (3600, python("replica_set_soak")),
}
REPLICA_SET = [
    "mongoose-transactions",
    "spring-transactions",
    "parse",
    "change-streams-node",
    "change-streams-3.6",
    "change-streams-mgo",
    "oplog-meteor",
    "oplog-go",
    "oplog-2.4",
]
# These start their servers themselves: FROND_MEMBERS for each set.
WITH_THEIR_OWN = {"specs-pymongo", "specs-go", "specs-node"}
# Suites for which a set of several members is a server like any other. The others are about one server, start and kill their own, or
# are about sets themselves.
OF_SEVERAL = [
    "pymongo",
    "pymongo-3.6",
    "pymongo-2.4",
    "node",
    "mongoose",
    "mongosh",
    "java",
    "java-2.14",
    "go",
    "mgo",
    "php",
    "javascript",
    *REPLICA_SET,
    "specs-pymongo",
    "specs-go",
    "specs-node",
]
# Measurements, and a suite whose other server takes minutes to build: these run only when they are named.
NAMED_ONLY = {"login-timing", "migrate-ferretdb"}
# These mostly wait: for back-offs of the drivers, and for heartbeats.
BESIDE = {"prometheus", "specs-pymongo", "specs-auth", "specs-go", "specs-node"}


def count(line, totals):
    """Adds a line of TAP to the totals."""
    if match := re.match(r"(not )?ok\b", line):
        totals["failed" if match[1] else "passed"] += 1
    elif match := re.match(r"1\.\.(\d+)$", line):
        totals["planned"] = int(match[1])


def one_server(name, binary):
    """The server of a suite."""
    return Server(binary, replica_set="rs0" if name in REPLICA_SET else None)


def set_of(members, name, binary):
    """A replica set in the place of the server of a suite."""
    if name in WITH_THEIR_OWN:
        return NoServer(binary)
    # Its client of MongoDB is not there when only the names of suites are listed.
    from harness.replica_set import SetAsServer

    return SetAsServer(binary, members)


def run_suite(name, binary, say, make_server=None):
    """Runs one suite, and says its lines; (passed, failed). `make_server` makes others than one server with files."""
    seconds, make_command = ALL[name]
    limit = BUSY * seconds
    totals = {"passed": 0, "failed": 0, "planned": None}
    say(f"\n# {name}")
    try:
        command, environment = make_command()
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"not ok - {name} could not be built: {error}")
        return 0, 1

    def fail(text):
        totals["failed"] += 1
        say(f"not ok - {name}: {text}")

    with make_server(binary) if make_server else one_server(name, binary) as server:
        try:
            server.start()
        except ServerError as error:
            fail(error)
            return 0, 1
        environment = {
            **os.environ,
            **environment,
            "FROND_BINARY": server.binary,
            "FROND_PORT": str(server.port),
            "FROND_URI": server.uri,
            "FROND_SOCKET": server.socket_path,
            "FROND_FOLDER": server.folder,
        }
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        timer = threading.Timer(limit, process.kill)
        timer.start()
        for line in process.stdout:
            say(line.rstrip("\n"))
            count(line.rstrip(), totals)
        status = process.wait()
        late = not timer.is_alive()
        timer.cancel()
        if late:
            fail(f"still running after {limit} s")
        elif totals["planned"] != totals["passed"] + totals["failed"]:
            fail(f"ended with status {status} before its last test")
        elif status != 0 and not totals["failed"]:
            fail(f"ended with status {status}")
        try:
            server.stop()
            totals["passed"] += 1
            say(f"ok - {name}: the server ended cleanly")
        except ServerError as error:
            fail(f"the server did not end cleanly: {error}")
        if totals["failed"]:
            say("# the server's last lines:")
            for line in server.log_tail(15).splitlines():
                say(f"#   {line[:300]}")
    return totals["passed"], totals["failed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", help="the built frond binary")
    parser.add_argument("--list", action="store_true", help="only print the names of the suites that run if none is named")
    parser.add_argument("--members", type=int, metavar="N", help="run suites against a replica set of N members")
    parser.add_argument("suites", nargs="*", metavar="suite", help=", ".join(ALL))
    arguments = parser.parse_args()
    standard = [name for name in ALL if name not in NAMED_ONLY]
    if arguments.list:
        print("\n".join(standard))
        return 0
    if not arguments.server:
        parser.error("--server is missing")
    unknown = [name for name in arguments.suites if name not in ALL]
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(ALL)}")
    if arguments.members:
        wrong = [name for name in arguments.suites if name not in OF_SEVERAL]
        if wrong:
            parser.error(f"not with --members: {', '.join(wrong)}; there are {', '.join(OF_SEVERAL)}")
        os.environ["FROND_MEMBERS"] = str(arguments.members)
        standard = OF_SEVERAL
    results = {}

    def run(name, say):
        began = time.monotonic()
        make_server = functools.partial(set_of, arguments.members, name) if arguments.members else None
        good, bad = run_suite(name, arguments.server, say, make_server)
        results[name] = good, bad, time.monotonic() - began

    def run_beside(names):
        for name in names:
            output = []
            run(name, output.append)
            print("\n".join(output), flush=True)

    names = arguments.suites or standard
    # A set for each of their workers is enough work by itself.
    beside = [] if arguments.members else [name for name in names if name in BESIDE]
    thread = threading.Thread(target=run_beside, args=[beside])
    thread.start()
    for name in names:
        if name not in beside:
            run(name, functools.partial(print, flush=True))
    thread.join()
    lines = []
    for name in names:
        # A suite that the runner itself could not run has failed.
        good, bad, seconds = results.get(name, (0, 1, 0))
        lines.append(f"{name:<22} {good:4} passed {bad:3} failed {seconds:7.1f} s")
        results[name] = good, bad, seconds
    passed, failed = (sum(result[at] for result in results.values()) for at in (0, 1))
    print("\n" + "\n".join(lines))
    print(f"clients: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
