#!/usr/bin/env python3
"""Tests servers of Frond over a TiKV cluster on this machine.

    run.py --server target/debug/frond                 everything
    run.py --server target/debug/frond --short         what `make test` runs
    run.py --server target/debug/frond node bank       only these
    run.py --server target/debug/frond --servers 1 …   the client suites against one server

The suites of tests/clients run against two servers at once: their connection string has both addresses. The others are described
in README.md. The last line is "cluster: N passed, M failed". FROND_TEST_PD=HOST:PORT uses a cluster that runs, for the suites that
do not disturb it.
"""

import argparse
import functools
import os
import sys
import time

from cluster import ROOT, Cluster, Running, Servers

sys.path.insert(0, os.path.join(ROOT, "tests", "clients"))
import run as clients  # noqa: E402
from harness.server import NoServer  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))

# Suites of tests/clients.
CLIENTS = [
    "pymongo",
    "pymongo-3.6",
    "pymongo-2.4",
    "node",
    "mongoose",
    "mongosh",
    "java-2.14",
    "java",
    "go",
    "php",
    "mongoose-transactions",
    "spring-transactions",
    "change-streams-node",
    "change-streams-3.6",
]


def own(name):
    """A suite of this folder."""

    def command():
        environment = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join([HERE, clients.HERE, clients.SUITES])}
        return [sys.executable, os.path.join(HERE, f"{name}.py")], environment

    return command


# Name, time limit in seconds, how to start it.
OWN = {
    "keyspace": (1800, own("keyspace")),
    "sharing": (120, own("sharing")),
    "schema": (600, own("schema")),
    "differential": (900, own("differential")),
    "specs": (1800, own("driver_specs")),
    "garbage": (300, own("garbage")),
    "build": (300, own("build_kills")),
    "faults": (900, own("faults")),
    "bank": (1200 + 60 * float(os.environ.get("MINUTES") or 5), own("bank_kills")),
}
# A suite of tests/clients takes longer over a cluster.
LONGER = 4
# They kill what they run on, or look at all that PD has, so they start clusters of their own.
WITH_THEIR_OWN = {"garbage", "build", "faults", "bank"}
SHORT = ["sharing", "schema"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="the built frond binary")
    parser.add_argument("--servers", type=int, default=2, help="servers at once (2)")
    parser.add_argument("--short", action="store_true", help="only a short share")
    parser.add_argument("suites", nargs="*", metavar="suite", help=", ".join([*OWN, *CLIENTS]))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.suites if name not in OWN and name not in CLIENTS]
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)}")
    clients.ALL.update({name: (LONGER * clients.ALL[name][0], clients.ALL[name][1]) for name in CLIENTS})
    clients.ALL.update(OWN)
    names = arguments.suites or (SHORT if arguments.short else [*OWN, *CLIENTS])
    if arguments.short:
        os.environ["FROND_SHORT"] = "1"
    say = functools.partial(print, flush=True)
    lines, passed, failed = [], 0, 0

    def run(name, cluster):
        nonlocal passed, failed
        began = time.monotonic()
        if cluster and name not in ("keyspace", "specs"):
            make = functools.partial(Servers, pd=cluster.pd, count=arguments.servers)
        else:
            make = NoServer
        good, bad = clients.run_suite(name, arguments.server, say, make)
        passed, failed = passed + good, failed + bad
        lines.append(f"{name:<22} {good:4} passed {bad:3} failed {time.monotonic() - began:7.1f} s")

    running = os.environ.get("FROND_TEST_PD")
    shared = [name for name in names if name not in WITH_THEIR_OWN]
    if shared:
        with Running(running) if running else Cluster() as cluster:
            os.environ["FROND_TEST_PD"] = cluster.pd
            for name in shared:
                run(name, cluster)
    for name in names:
        if name in WITH_THEIR_OWN:
            run(name, None)
    print("\n" + "\n".join(lines))
    print(f"cluster: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
