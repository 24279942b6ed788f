"""PyMongo's own tests of logins, TLS and connection strings, with the drivers' tests of `auth`, `connection-string` and
`uri-options`, on servers with authorization."""

import os

from harness.scram import SecuredServer
from harness.server import Server
from specs.workers import TESTS, Worker
from specs.report import Report
from specs.skips import Skips

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = os.environ.get("FROND_TEST", "")
LOGINS = ["test.test_auth", "test.test_auth_spec", "test.test_uri_spec", "test.test_uri_parser"]
TLS = ["test.test_ssl"]
# Of the tests of TLS these need authorization, and the others that there is none.
WITH_AUTHORIZATION = ["test_ssl.TestSSL.test_mongodb_x509_auth"]


class Certificates:
    """Those of PyMongo's tests, as `SecuredServer` wants them."""

    def __init__(self):
        folder = os.path.join(TESTS, "test", "certificates")
        self.server = os.path.join(folder, "server.pem")
        self.client = os.path.join(folder, "client.pem")
        self.ca = self
        self.certificate = os.path.join(folder, "ca.pem")


def private_copy(path, folder):
    """A copy that nobody else can read, as the server demands of files with keys."""
    copy = os.path.join(folder, os.path.basename(path))
    with open(path, "rb") as source, open(os.open(copy, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as target:
        target.write(source.read())
    return copy


def run_all(report, skips, server, modules, host, wanted=lambda test: True):
    """Runs the tests of modules on a server. Returns how many there are."""
    user, password = SecuredServer.ADMIN
    worker = Worker(server, host, DB_USER=user, DB_PASSWORD=password)
    found = {}
    for reply in worker.ask(list=modules):
        found.update(reply["classes"])
    chosen = 0
    for name, tests in found.items():
        leave = [test for test in tests if not wanted(test) or skips.is_left_out(test) or WORDS not in test]
        chosen += len(tests) - len(leave)
        for reply in worker.ask(run=name, without=leave):
            if "done" not in reply:
                report.add(reply["name"], reply["outcome"], reply["seconds"], reply["detail"])
    worker.close()
    return chosen


def main():
    binary = os.environ["FROND_BINARY"]
    skips = Skips(os.path.join(HERE, "specs", "auth-skipped.txt"))
    report = Report(skips)
    test_commands = ["--setParameter", "enableTestCommands=1"]
    with SecuredServer(binary, test_commands, replica_set="rs0") as server:
        server.start()
        planned = run_all(report, skips, server, LOGINS, "127.0.0.1")
        server.stop()
    files = Certificates()
    for kind, wanted in (
        (Server, lambda test: test not in WITH_AUTHORIZATION),
        (SecuredServer, lambda test: test in WITH_AUTHORIZATION),
    ):
        server = kind(binary, test_commands, tls=files)
        key = private_copy(files.server, server.folder)
        # fmt: off
        server.options += ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", key, "--tlsCAFile", files.certificate,
                           "--tlsAllowConnectionsWithoutCertificates"]
        # fmt: on
        with server:
            server.start()
            planned += run_all(report, skips, server, TLS, "localhost", wanted)
            server.stop()
    report.finish(planned)


main()
