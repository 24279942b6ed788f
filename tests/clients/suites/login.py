"""Real drivers log in by SCRAM-SHA-256, SCRAM-SHA-1 and X.509, with and without TLS, and are refused as they should.

The programs in login/ (and go/login.go) get a file of cases, [{"name", "uri"}, …], and print for each what came of it:
{"name", "users": [who is logged in]} or {"name", "error": "…"}.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, urlencode

import pymongo
from harness import raw
from harness.certificates import Certificates
from harness.scram import SecuredServer
from harness.tap import run, test
from harness.waiting import PATIENCE
from run import go, java, node, python

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENTS = os.path.dirname(HERE)
SHELL = os.path.join(CLIENTS, "node_modules", ".bin", "mongosh")

STRONG = "p@ss:w0rd/% of 2026"
USERS = {
    # name: (password, mechanisms)
    "both": (STRONG, ["SCRAM-SHA-1", "SCRAM-SHA-256"]),
    "sha1": ("old secret", ["SCRAM-SHA-1"]),
    "sha256": ("new secret", ["SCRAM-SHA-256"]),
    "a,b=c ü": ("comma,equals=", ["SCRAM-SHA-1", "SCRAM-SHA-256"]),
    "umlaut": ("wörd", ["SCRAM-SHA-1", "SCRAM-SHA-256"]),
    # SASLprep removes the soft hyphen and makes the Roman numeral two letters: the same as "IIX".
    "prepared": ("\u2161\u00adX", ["SCRAM-SHA-256"]),
}

# How an error of a driver tells what happened.
FAILED = re.compile(r"authentication ?failed|auth ?fail|unable to authenticate|exception authenticating|\b18\b", re.IGNORECASE)
UNAUTHORIZED = re.compile(r"requires authentication|not authorized|unauthorized", re.IGNORECASE)
OUTCOMES = {
    "failed": lambda error: FAILED.search(error),
    "unauthorized": lambda error: UNAUTHORIZED.search(error),
    # No connection came about at all: whatever the driver calls that, no login was tried.
    "no connection": lambda error: not FAILED.search(error) and not UNAUTHORIZED.search(error),
}


class Case:
    def __init__(self, name, server, expected, user=None, password=None, **options):
        self.name, self.expected = name, expected
        credentials = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
        if user and "authSource" not in options:
            options["authSource"] = "own"
        # Drivers search for a server that refused the handshake until this time has passed, and some also after a refused login. A
        # login may take long.
        selection_s = PATIENCE if isinstance(expected, list) else 1.5 if expected == "no connection" else 5
        options = {"serverSelectionTimeoutMS": str(int(selection_s * 1000)), **options}
        self.uri = f"mongodb://{credentials}localhost:{server.port}/?{urlencode(options, quote_via=quote)}"

    def judge(self, result):
        if isinstance(self.expected, list):
            assert result.get("users") == self.expected, result
        else:
            assert "error" in result, f"it could log in: {result}"
            assert OUTCOMES[self.expected](result["error"]), f"another error: {result['error'][:500]}"


def modern_cases(mixed, strict, certificates):
    """Cases of drivers of today. `mixed` speaks TLS with those who want it, `strict` only TLS, with certificates."""
    sha1, sha256 = {"authMechanism": "SCRAM-SHA-1"}, {"authMechanism": "SCRAM-SHA-256"}
    x509 = {"authMechanism": "MONGODB-X509", "authSource": "$external"}
    tls = {"tls": "true", "tlsCAFile": certificates.ca.certificate}

    def key(name):
        return {**tls, "tlsCertificateKeyFile": getattr(certificates, name)}

    both, prepared = ["both@own"], ["prepared@own"]
    cases = []

    def add(*arguments, **options):
        cases.append(Case(*arguments, **options))

    add("the mechanism that both prefer", mixed, both, "both", STRONG)
    add("SCRAM-SHA-256", mixed, both, "both", STRONG, **sha256)
    add("SCRAM-SHA-1", mixed, both, "both", STRONG, **sha1)
    add("a user who has only SCRAM-SHA-1", mixed, ["sha1@own"], "sha1", "old secret")
    add("a user who has only SCRAM-SHA-256", mixed, ["sha256@own"], "sha256", "new secret")
    add("SCRAM-SHA-256 of a user who lacks it", mixed, "failed", "sha1", "old secret", **sha256)
    add("SCRAM-SHA-1 of a user who lacks it", mixed, "failed", "sha256", "new secret", **sha1)
    add("a name with comma, equals sign and umlaut", mixed, ["a,b=c ü@own"], "a,b=c ü", "comma,equals=")
    add("a password with an umlaut", mixed, ["umlaut@own"], "umlaut", "wörd")
    add("a password as it was set", mixed, prepared, "prepared", "\u2161\u00adX", **sha256)
    add("the same password after SASLprep", mixed, prepared, "prepared", "IIX", **sha256)
    add("a wrong password", mixed, "failed", "both", "wrong")
    add("a wrong password by SCRAM-SHA-256", mixed, "failed", "both", STRONG + "x", **sha256)
    add("a wrong password by SCRAM-SHA-1", mixed, "failed", "both", STRONG + "x", **sha1)
    add("an unknown user", mixed, "failed", "nobody", STRONG)
    add("an unknown user by SCRAM-SHA-1", mixed, "failed", "nobody", STRONG, **sha1)
    add("the user of another database", mixed, "failed", "both", STRONG, authSource="other")
    add("no credentials", mixed, "unauthorized")
    add("no credentials over TLS", mixed, "unauthorized", **tls)
    add("SCRAM-SHA-256 over optional TLS", mixed, both, "both", STRONG, **tls, **sha256)
    add("SCRAM-SHA-1 over optional TLS", mixed, both, "both", STRONG, **tls, **sha1)
    add("X.509 over optional TLS", mixed, [f"{certificates.user}@$external"], **key("client"), **x509)
    add("X.509 without a certificate", mixed, "failed", **tls, **x509)

    add("X.509", strict, [f"{certificates.user}@$external"], **key("client"), **x509)
    add("SCRAM-SHA-256 with a certificate", strict, both, "both", STRONG, **key("client"), **sha256)
    add("SCRAM-SHA-1 with a certificate", strict, both, "both", STRONG, **key("client"), **sha1)
    add("a wrong password with a certificate", strict, "failed", "both", "wrong", **key("client"))
    add("X.509 of a certificate that is no user", strict, "failed", **key("unknown"), **x509)
    add("a certificate without a login", strict, "unauthorized", **key("client"))
    add("an expired certificate", strict, "no connection", **key("expired"), **x509)
    add("a foreign certificate", strict, "no connection", **key("foreign"), **x509)
    add("a revoked certificate", strict, "no connection", **key("revoked"), **x509)
    add("no certificate where one is required", strict, "no connection", "both", STRONG, **tls)
    add("no TLS where it is required", strict, "no connection", "both", STRONG)
    foreign = {**key("client"), "tlsCAFile": certificates.foreign_ca.certificate}
    add("a server that the client does not trust", strict, "no connection", "both", STRONG, **foreign)
    return cases


# Debian builds libmongoc without the library for SASLprep, and it refuses the last one by itself.
NOT_IN_PHP = {
    "a password with an umlaut",
    "a password as it was set",
    "X.509 without a certificate",
}


def legacy_cases(mixed, strict, certificates):
    """Cases of the Java driver 2.14."""
    tls = {"tls": "true", "tlsCAFile": certificates.ca.certificate, "tlsCertificateKeyFile": certificates.client}
    oldest, sha1 = {"authMechanism": "MONGODB-CR"}, {"authMechanism": "SCRAM-SHA-1"}
    x509 = {"authMechanism": "MONGODB-X509", "authSource": "$external"}
    user = certificates.user
    return [
        Case("MONGODB-CR", mixed, ["ancient@own"], "ancient", "of 2011", **oldest),
        Case("MONGODB-CR over TLS", strict, ["ancient@own"], "ancient", "of 2011", **oldest, **tls),
        Case("MONGODB-CR with a wrong password", mixed, "failed", "ancient", "wrong", **oldest),
        Case("MONGODB-CR of an unknown user", mixed, "failed", "nobody", "of 2011", **oldest),
        Case("SCRAM-SHA-1", mixed, ["sha1@own"], "sha1", "old secret", **sha1),
        Case("SCRAM-SHA-1 with a wrong password", mixed, "failed", "sha1", "wrong", **sha1),
        Case("SCRAM-SHA-1 over TLS", strict, ["sha1@own"], "sha1", "old secret", **sha1, **tls),
        Case("the mechanism that it chooses", mixed, ["both@own"], "both", STRONG),
        Case("X.509", strict, [f"{user}@$external"], user, "unused", **x509, **tls),
        Case("no credentials", mixed, "unauthorized"),
    ]


class Pairs:
    """Cases of PyMongo 2.4, which gets a name and a password and no connection string."""

    def __init__(self, server):
        self.cases = [
            self.case("MONGODB-CR", server, ["ancient@own"], "ancient", "of 2011"),
            self.case("MONGODB-CR with a wrong password", server, "failed", "ancient", "wrong"),
            self.case("MONGODB-CR of an unknown user", server, "failed", "nobody", "of 2011"),
            self.case("MONGODB-CR of a user who lacks it", server, "failed", "sha256", "new secret"),
            self.case("no credentials", server, "unauthorized", None, None),
        ]

    @staticmethod
    def case(name, server, expected, user, password):
        case = Case(name, server, expected)
        case.file = {"port": server.port, "database": "own", "user": user, "password": password}
        return case


def probe(command, environment, cases, folder):
    """Runs a program on cases. Returns its results by name."""
    descriptor, path = tempfile.mkstemp(suffix=".json", dir=folder)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump([{"name": case.name, "uri": case.uri, **getattr(case, "file", {})} for case in cases], file)
    done = subprocess.run(
        [*command, *([] if "CASES" in environment else [path])],
        env={**os.environ, **environment, **({"CASES": path} if "CASES" in environment else {})},
        cwd=os.path.dirname(os.path.dirname(CLIENTS)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
    results = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            result = json.loads(line)
            results[result["name"]] = result
    if len(results) < len(cases):
        print(f"# {command}: status {done.returncode}: {(done.stderr or done.stdout)[-1500:]}")
    return results


def programs(folder):
    """How to start the programs: their names, and a function that makes command and environment."""
    home = os.path.join(folder, "home")
    os.makedirs(os.path.join(home, ".mongodb", "mongosh"))
    with open(os.path.join(home, ".mongodb", "mongosh", "config"), "w", encoding="utf-8") as file:
        json.dump({"enableTelemetry": False, "updateURL": ""}, file)
    shell = [SHELL, "--nodb", "--quiet", "--norc", "--file", os.path.join(HERE, "login", "probe_mongosh.js")]
    quiet = {"HOME": home, "MONGOSH_FORCE_DISABLE_TELEMETRY_FOR_TESTING": "1", "CASES": ""}
    return {
        "PyMongo": python("login/probe_pymongo"),
        "Node.js": node("login/probe"),
        "Go": go("go", "login"),
        "Java": java("LoginProbe", "login/java", "java"),
        "PHP": lambda: (["php", os.path.join(HERE, "login", "probe.php")], {}),
        "mongosh": lambda: (shell, quiet),
        "PyMongo 2.4": python("login/probe_2013", "2.4.2"),
        "Java 2.14": java("LegacyProbe", "login/java_legacy", "java-2.14", "login/java/Keys.java"),
    }


def make_users(servers, certificates):
    for server in servers:
        with pymongo.MongoClient(server.admin_uri, **server.tls_of_tests) as admin:
            for name, (password, mechanisms) in USERS.items():
                admin.own.command("createUser", name, pwd=password, roles=["readWrite"], mechanisms=mechanisms)
            ancient = ["MONGODB-CR"]
            admin.own.command("createUser", "ancient", pwd="of 2011", roles=["readWrite"], mechanisms=ancient)
            outside = [{"role": "readWrite", "db": "own"}]
            admin["$external"].command("createUser", certificates.user, roles=outside)
            admin.own.c.insert_one({"_id": 1})


def secured(certificates, mode, *more):
    """Options of a server that knows every mechanism, with a certificate."""
    mechanisms = "MONGODB-CR,SCRAM-SHA-1,SCRAM-SHA-256,MONGODB-X509"
    # fmt: off
    options = ["--setParameter", f"authenticationMechanisms={mechanisms}", "--tlsMode", mode,
               "--tlsCertificateKeyFile", certificates.server, "--tlsCAFile", certificates.ca.certificate,
               "--tlsCRLFile", certificates.crl, *more]
    # fmt: on
    return options


def main():
    binary = os.environ["FROND_BINARY"]
    with tempfile.TemporaryDirectory(prefix="frond-login-") as folder:
        certificates = Certificates(os.path.join(folder, "certificates"))
        mixed = SecuredServer(
            binary, secured(certificates, "preferTLS", "--tlsAllowConnectionsWithoutCertificates")
        )
        strict = SecuredServer(binary, secured(certificates, "requireTLS"), tls=certificates)
        with mixed, strict:
            mixed.start()
            strict.start()
            make_users([mixed, strict], certificates)
            every = programs(folder)
            modern = modern_cases(mixed, strict, certificates)
            cases = {name: modern for name in every}
            cases["PHP"] = [case for case in modern if case.name not in NOT_IN_PHP]
            cases["PyMongo 2.4"] = Pairs(mixed).cases
            cases["Java 2.14"] = legacy_cases(mixed, strict, certificates)
            # Building them is quick, and they mostly wait; two at a time do not slow each other.
            with ThreadPoolExecutor(3) as pool:
                results = dict(
                    zip(every, pool.map(lambda name: probe(*every[name](), cases[name], folder), every))
                )
            for name in every:
                for case in cases[name]:

                    def judge(case=case, result=results[name].get(case.name)):
                        assert result, "no result: the program ended early"
                        case.judge(result)

                    judge.__name__ = f"{name}: {case.name}"
                    test(judge)
            run()


if __name__ == "__main__":
    main()
