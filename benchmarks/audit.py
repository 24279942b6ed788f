#!/usr/bin/env python3
"""The cost of the audit log; scripts/bench-audit.sh runs it.

    audit.py --server BINARY --rounds 3 --seconds 30 --threads 8 --documents 20000 --logins 5 --refusals 20 --cache-gb 0.5

W4 on three servers with authorization that take turns in each run: without an audit log, with one of logins and refusals, and with
one of all commands. Beside it clients log in and are refused on all three alike, as many times a second.
"""

import csv
import os
import subprocess
import tempfile
import threading
import time

from common import Server, arguments, compared, cpu_seconds, message, report, row
from harness.scram import login
from harness.server import ServerError

USER, PASSWORD = "measured", "correct horse"
SIDES = ("without an audit log", "logins and refusals", "all commands")


class Beside(threading.Thread):
    """Logs in and is refused so many times a second, until it is stopped."""

    def __init__(self, server, logins, refusals):
        super().__init__(daemon=True)
        self.server, self.logins, self.refusals = server, logins, refusals
        self.ended = threading.Event()
        self.done = [0, 0]

    def run(self):
        began = time.monotonic()
        while not self.ended.wait(1 / self.logins):
            with self.server.connect() as connection:
                login(connection, "nobody", PASSWORD)
                self.done[0] += 1
                while self.done[1] < (time.monotonic() - began) * self.refusals:
                    if connection.command({"find": "sbtest1"}, "bench").get("code") != 13:
                        raise ServerError("the command was not refused")
                    self.done[1] += 1


def start(options, folder, side):
    audit = ["--auditDestination", "file", "--auditPath", os.path.join(folder, f"audit-{side}.json")]
    more = [[], audit, [*audit, "--setParameter", "auditAuthorizationSuccess=true"]][side]
    server = Server(options.server, ["--quiet", "--cacheSizeGB", str(options.cache_gb), *more])
    server.start()
    with server.connect() as connection:
        for name, roles in ((USER, [{"role": "root", "db": "admin"}]), ("nobody", [])):
            command = {"createUser": name, "pwd": PASSWORD, "roles": roles, "mechanisms": ["SCRAM-SHA-256"]}
            if connection.command(command)["ok"] != 1:
                raise ServerError("the user was not made")
    server.stop()
    server.options.append("--auth")
    server.start()
    return server


def transactions(options, servers, out):
    """Transactions a second of each server, which take turns."""
    words = ["sysbench", "--drop", "--documents", options.documents, "--threads", options.threads, "--seconds", options.seconds, "--quiet"]
    for server in servers:
        words += ["--uri", f"mongodb://{USER}:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{server.port}/?authMechanism=SCRAM-SHA-256"]
    subprocess.run([options.server, "bench", *map(str, words), "--out", out], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(out, "results.csv"), encoding="utf-8") as file:
        found = [row for row in csv.DictReader(file) if row["figure"] == f"{options.threads} threads" and row["unit"] == "transactions/s"]
    # One for each server, in their order.
    assert len(found) == len(servers), found
    return [float(row["value"]) for row in found]


def main():
    parser = arguments(__doc__, rounds=3, seconds=30, threads=8, documents=20_000, logins=5, refusals=20, cache_gb=0.5)
    parser.add_argument("--out", help="folder for the reports of each round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = options.out or folder
        servers = [start(options, folder, side) for side in range(len(SIDES))]
        try:
            beside = [Beside(server, options.logins, options.refusals) for server in servers]
            for thread in beside:
                thread.start()
            rates, times = [[] for _ in SIDES], [[] for _ in SIDES]
            for turn in range(options.rounds):
                before = [cpu_seconds(server.pid) for server in servers]
                found = transactions(options, servers, os.path.join(out, f"round-{turn + 1}"))
                for side, rate in enumerate(found):
                    rates[side].append(rate)
                    times[side].append((cpu_seconds(servers[side].pid) - before[side]) / (rate * options.seconds) * 1e3)
            for thread in beside:
                thread.ended.set()
                thread.join()
            rows = [row(f"transactions/s, {SIDES[0]}", rates[0], "/s")]
            for side in (1, 2):
                rows += compared("transactions/s, ", (SIDES[0], SIDES[side]), (rates[0], rates[side]), "/s", 1, 3)[1:]
            rows += [row(f"server's processor time for each, {name}", values, "ms", 3) for name, values in zip(SIDES, times)]
            done = [sum(thread.done[kind] for thread in beside) for kind in (0, 1)]
            sizes = [os.path.getsize(os.path.join(folder, f"audit-{side}.json")) for side in (1, 2)]
        finally:
            for server in servers:
                server.close()
    about = f"{done[0]} logins and {done[1]} refusals beside, audit logs of {sizes[0] >> 10} KiB and {sizes[1] >> 20} MiB."
    report(options, about, rows)


if __name__ == "__main__":
    main()
