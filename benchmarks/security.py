#!/usr/bin/env python3
"""What TLS, logins and authorization cost; scripts/bench-security.sh runs it.

    security.py --server BINARY --older BINARY --rounds 5 --seconds 3 --connections 16 --logins 1000 --cache-gb 0.5

Finds without TLS and with it take turns on one server that accepts both. Logins go to servers with authorization: on some
connections, for the server's processor time of each login, and all at once beside a client that finds. Last, two servers without
authorization take turns: this binary, and the older one, if there is one.
"""

import os
import tempfile

from common import Server, arguments, bench, compared, cpu_seconds, in_turns, report, row
from harness.certificates import Certificates
from harness.server import ServerError

DOCUMENTS = 20_000
USER, PASSWORD = "measured", "correct horse"


def in_both(options, sides, connections):
    """Finds a second of each side, `rounds` times."""
    rates = [[] for _ in sides]
    for side in in_turns(options.rounds, range(len(sides))):
        words = ["--uri", sides[side], "--threads", connections, "--seconds", options.seconds, "--rounds", 1, "--documents", DOCUMENTS]
        rates[side].append(bench(options.server, "roundtrip", *words)["find by _id, median"])
    return rates


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
            rates = in_both(options, sides, connections)
            rows += compared(f"{on_connections(connections)}, ", ("without TLS", "with TLS"), rates, "/s", ratio_digits=3)
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
                before = cpu_seconds(server.pid)
                figures = bench(options.server, "logins", "--uri", uri, "--logins", options.logins, "--seconds", 0)
                speeds.append(figures["logins a second"])
                times.append((cpu_seconds(server.pid) - before) / options.logins * 1e3)
            rows.append(row(f"logins by {name} on 16 connections", speeds, "/s", 0))
            rows.append(row(f"logins by {name}: processor time of the server for each", times, "ms", 2))
        for name in ("SCRAM-SHA-256", "SCRAM-SHA-256 over TLS", "MONGODB-X509"):
            shown = {}
            for _ in range(options.rounds):
                words = ["--uri", kinds[name], "--logins", options.logins, "--threads", options.logins, "--seconds", options.seconds]
                for figure, value in bench(options.server, "logins", *words).items():
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
            rates = in_both(options, sides, connections)
            title = f"{on_connections(connections)}, without authorization, "
            rows += compared(title, ("the older binary", "this one"), rates, "/s", ratio_digits=3)
    return rows


def main():
    parser = arguments(__doc__, rounds=5, seconds=(3, "of each kind of request in each round"), connections=16, logins=1000, cache_gb=0.5)
    parser.add_argument("--older", help="a binary of before, to compare servers without authorization")
    parser.add_argument("--only", help="tls, logins, older; with commas")
    options = parser.parse_args()
    parts = (options.only or "tls,logins,older").split(",")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(options, folder)
        if "tls" in parts:
            rows += tls(setup, options)
        if "logins" in parts:
            rows += logins(setup, options)
        if "older" in parts and options.older:
            rows += older(setup, options)
    report(options, "stand-alone servers with their journals; certificates with keys on P-256.", rows)


if __name__ == "__main__":
    main()
