#!/usr/bin/env python3
"""What TLS, logins and authorization cost; scripts/bench-security.sh runs it.

    security.py --server BINARY --older BINARY --rounds 5 --seconds 3 --connections 16 --logins 1000 --cache-gb 0.5

Finds without TLS and with it take turns on one server that accepts both. Logins go to servers with authorization: on some
connections, for the server's processor time of each login, and all at once beside a client that finds. Last, two servers without
authorization take turns: this binary, and the older one, if there is one.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from oplog import TICKS_PER_SECOND, ticks  # noqa: E402
from transactions import row  # noqa: E402  (it also finds the harness)

from harness.certificates import Certificates  # noqa: E402
from harness.server import Server, ServerError  # noqa: E402

DOCUMENTS = 20_000
USER, PASSWORD = "measured", "correct horse"


def bench(options, *arguments):
    """Runs a command of `frond bench`. Returns the lines that it prints, as figures by name."""
    command = [options.server, "bench", *arguments]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures = {}
    for line in printed.splitlines():
        found = re.fullmatch(r"(.+?)\s{2,}([\d.,]+)(?:/s| ms)?", line)
        if found:
            figures[found[1]] = float(found[2].replace(",", ""))
    return figures


def finds(options, uri, connections):
    arguments = ["--uri", uri, "--threads", str(connections), "--seconds", str(options.seconds), "--rounds", "1"]
    figures = bench(options, "roundtrip", *arguments, "--documents", str(DOCUMENTS))
    return figures["find by _id, median"]


def in_turns(options, sides, connections):
    """Finds a second of each side, `rounds` times, with the order of the sides in turns."""
    rates = [[] for _ in sides]
    for turn in range(options.rounds):
        order = range(len(sides)) if turn % 2 == 0 else reversed(range(len(sides)))
        for side in order:
            rates[side].append(finds(options, sides[side], connections))
    return rates


def compared(title, names, rates):
    ratios = [b / a for a, b in zip(*rates)]
    return [
        row(f"{title}, {names[0]}", rates[0], "/s", 0),
        row(f"{title}, {names[1]}", rates[1], "/s", 0),
        row(f"{title}, {names[1]} / {names[0]}", ratios, "", 3),
    ]


def on_connections(count):
    return "finds by `_id` on 1 connection" if count == 1 else f"finds by `_id` on {count} connections"


class Setup:
    """Servers with certificates, and connection strings to reach them."""

    def __init__(self, options, folder):
        self.options = options
        self.certificates = Certificates(os.path.join(folder, "certificates"))
        self.settings = ["--quiet", "--cacheSizeGB", str(options.cache_gb)]

    def server(self, *more):
        return Server(self.options.server, [*self.settings, *more])

    def with_tls(self, *more):
        # fmt: off
        return self.server("--tlsMode", "allowTLS", "--tlsCertificateKeyFile", self.certificates.server, "--tlsCAFile",
                           self.certificates.ca.certificate, "--tlsAllowConnectionsWithoutCertificates", *more)
        # fmt: on

    def uri(self, server, tls, user=None, mechanism=None, certificate=None):
        who = f"{user}:{PASSWORD.replace(' ', '%20')}@" if user else ""
        parts = []
        if tls:
            parts += ["tls=true", f"tlsCAFile={self.certificates.ca.certificate}"]
        if mechanism:
            parts.append(f"authMechanism={mechanism}")
        if certificate:
            parts.append(f"tlsCertificateKeyFile={certificate}")
        return f"mongodb://{who}127.0.0.1:{server.port}/?{'&'.join(parts)}".rstrip("?")


def tls(setup, options):
    rows = []
    with setup.with_tls() as server:
        server.start()
        sides = [setup.uri(server, False), setup.uri(server, True)]
        for connections in (1, options.connections):
            rates = in_turns(options, sides, connections)
            rows += compared(on_connections(connections), ("without TLS", "with TLS"), rates)
    return rows


def command(connection, document, database="admin"):
    reply = connection.command(document, database)
    if reply["ok"] != 1:
        raise ServerError(f"{reply}")


def logins(setup, options):
    """The server lets clients log in without authorization too; with it, it also checks each command of theirs."""
    rows = []
    certificates = setup.certificates
    with setup.with_tls() as server:
        server.start()
        with server.connect() as connection:
            roles = [{"role": "root", "db": "admin"}]
            command(connection, {"createUser": USER, "pwd": PASSWORD, "roles": roles})
            command(connection, {"createUser": certificates.user, "roles": roles}, "$external")
        server.stop()
        server.options.append("--auth")
        server.start()
        kinds = {
            "SCRAM-SHA-256": setup.uri(server, False, USER, "SCRAM-SHA-256"),
            "SCRAM-SHA-1": setup.uri(server, False, USER, "SCRAM-SHA-1"),
            "SCRAM-SHA-256 over TLS": setup.uri(server, True, USER, "SCRAM-SHA-256"),
            "MONGODB-X509": setup.uri(server, True, None, "MONGODB-X509", certificates.client),
        }
        for name, uri in kinds.items():
            speeds, times = [], []
            for _ in range(options.rounds):
                before = ticks(server)
                figures = bench(options, "logins", "--uri", uri, "--logins", str(options.logins), "--seconds", "0")
                speeds.append(figures["logins a second"])
                times.append((ticks(server) - before) / TICKS_PER_SECOND / options.logins * 1e3)
            rows.append(row(f"logins by {name} on 16 connections", speeds, "/s", 0))
            rows.append(row(f"logins by {name}: processor time of the server for each", times, "ms", 2))
        for name in ("SCRAM-SHA-256", "SCRAM-SHA-256 over TLS", "MONGODB-X509"):
            shown = {}
            for _ in range(options.rounds):
                count = str(options.logins)
                arguments = ["--uri", kinds[name], "--logins", count, "--threads", count, "--seconds", str(options.seconds)]
                for figure, value in bench(options, "logins", *arguments).items():
                    shown.setdefault(figure, []).append(value)
            title = f"{options.logins:,} logins at once by {name}"
            rows.append(row(f"{title}: until the last", shown["seconds"], "s", 2))
            rows.append(row(f"{title}: finds beside, 99th percentile", shown["find, beside, 99th percentile"], "ms", 2))
            rows.append(row(f"{title}: finds alone, 99th percentile", shown["find, alone, 99th percentile"], "ms", 2))
    return rows


def older(setup, options):
    rows = []
    with Server(options.older, setup.settings) as before, setup.server() as now:
        before.start()
        now.start()
        sides = [setup.uri(before, False), setup.uri(now, False)]
        for connections in (1, options.connections):
            rates = in_turns(options, sides, connections)
            title = f"{on_connections(connections)}, without authorization"
            rows += compared(title, ("the older binary", "this one"), rates)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--older", help="a binary of before, to compare servers without authorization")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of each kind of request in each round")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--logins", type=int, default=1000)
    parser.add_argument("--cache-gb", type=float, default=0.5)
    parser.add_argument("--only", help="tls, logins, older; with commas")
    options = parser.parse_args()
    parts = (options.only or "tls,logins,older").split(",")
    version = subprocess.run([options.server, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(options, folder)
        if "tls" in parts:
            rows += tls(setup, options)
        if "logins" in parts:
            rows += logins(setup, options)
        if "older" in parts and options.older:
            rows += older(setup, options)
    print(f"{version}, {os.cpu_count()} cores that the client shares, cache {options.cache_gb} GiB, stand-alone servers with their "
          f"journals; certificates with keys on P-256.\n")
    print("| measured | median | each round |\n| --- | --- | --- |")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
