"""Certificates for the tests, made with the openssl command when a suite starts: nothing secret is in the repository.

Each is one PEM file of a certificate and its key, as `net.tls.certificateKeyFile` and the drivers take it.
"""

import os
import subprocess

NAME = "/C=DE/O=Frond Tests/OU={unit}/CN={name}"
CA_CONFIG = """
[ca]
default_ca = tests
[tests]
database = {folder}/index.txt
serial = {folder}/serial
crlnumber = {folder}/crlnumber
new_certs_dir = {folder}
certificate = {folder}/{ca}.crt
private_key = {folder}/{ca}.key
default_md = sha256
default_days = 30
default_crl_days = 30
policy = any
unique_subject = no
copy_extensions = none
[any]
C = optional
O = optional
OU = optional
CN = supplied
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost,IP:127.0.0.1
[member]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = DNS:localhost,IP:127.0.0.1
[client]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = clientAuth
"""


def openssl(*arguments):
    result = subprocess.run(
        ["openssl", *arguments], capture_output=True, text=True, errors="replace", check=False
    )
    if result.returncode:
        raise RuntimeError(f"openssl {arguments[0]}: {result.stderr.strip()[-500:]}")
    return result.stdout


class Authority:
    """A certificate authority in a folder of its own."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        os.makedirs(folder)
        self.config = self._write("openssl.cnf", CA_CONFIG.format(folder=folder, ca="ca"))
        self._write("index.txt", "")
        self._write("serial", "1000\n")
        self._write("crlnumber", "1000\n")
        self._key("ca")
        # fmt: off
        openssl("req", "-x509", "-new", "-key", self.path("ca.key"), "-out", self.path("ca.crt"), "-days", "30",
                "-config", self._request_config(), "-subj", NAME.format(unit="Authority", name=name))
        # fmt: on

    def path(self, name):
        return os.path.join(self.folder, name)

    def _write(self, name, text):
        with open(self.path(name), "w", encoding="ascii") as file:
            file.write(text)
        return self.path(name)

    def _request_config(self):
        text = "[req]\ndistinguished_name = name\nx509_extensions = authority\nprompt = no\n[name]\n"
        return self._write("request.cnf", text + CA_CONFIG[CA_CONFIG.index("[authority]") :])

    def _key(self, name, rsa=False):
        kind = ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"] if rsa else ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
        openssl("genpkey", "-algorithm", *kind, "-out", self.path(f"{name}.key"))

    @property
    def certificate(self):
        """The file for CAFile."""
        return self.path("ca.crt")

    def issue(self, name, kind, unit="Clients", start=None, end=None, rsa=False, common_name=None):
        """Makes `name`.pem, a certificate with its key. `start` and `end` are times like 20200101000000Z."""
        self._key(name, rsa)
        subject = NAME.format(unit=unit, name=common_name or name)
        # fmt: off
        openssl("req", "-new", "-key", self.path(f"{name}.key"), "-out", self.path(f"{name}.csr"),
                "-config", self._request_config(), "-subj", subject)
        dates = ["-startdate", start or "20200101000000Z", "-enddate", end] if end else ["-days", "30"]
        openssl("ca", "-batch", "-notext", "-config", self.config, "-extensions", kind, "-preserveDN", *dates,
                "-in", self.path(f"{name}.csr"), "-out", self.path(f"{name}.crt"))
        # fmt: on
        pem = self.path(f"{name}.pem")
        descriptor = os.open(pem, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            for part in (f"{name}.crt", f"{name}.key"):
                with open(self.path(part), encoding="ascii") as source:
                    file.write(source.read())
        return pem

    def encrypt(self, name, password):
        """Makes `name`-encrypted.pem, whose key needs the password."""
        pem = self.path(f"{name}-encrypted.pem")
        # fmt: off
        key = openssl("pkcs8", "-topk8", "-v2", "aes-256-cbc", "-v2prf", "hmacWithSHA256", "-in", self.path(f"{name}.key"),
                      "-passout", f"pass:{password}")
        # fmt: on
        with open(self.path(f"{name}.crt"), encoding="ascii") as source:
            certificate = source.read()
        descriptor = os.open(pem, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(certificate + key)
        return pem

    def revoke(self, *names):
        """Revokes certificates. Returns the file for CRLFile."""
        for name in names:
            openssl("ca", "-batch", "-config", self.config, "-revoke", self.path(f"{name}.crt"))
        openssl("ca", "-batch", "-config", self.config, "-gencrl", "-out", self.path("crl.pem"))
        return self.path("crl.pem")

    def subject(self, name):
        """The subject as the name of a user in $external (RFC 2253)."""
        line = openssl("x509", "-in", self.path(f"{name}.crt"), "-noout", "-subject", "-nameopt", "RFC2253")
        return line.strip().removeprefix("subject=")


class Certificates:
    """All that the tests of TLS need, in a folder."""

    PASSWORD = "key-file-password"

    def __init__(self, folder):
        self.ca = Authority(os.path.join(folder, "ca"), "Frond CA")
        self.foreign_ca = Authority(os.path.join(folder, "foreign"), "Foreign CA")
        self.server = self.ca.issue("server", "server", "Servers", common_name="localhost")
        # Members of a replica set connect with it, too.
        self.member = self.ca.issue("member", "member", "Servers", common_name="localhost")
        self.server_rsa = self.ca.issue("server-rsa", "server", "Servers", rsa=True, common_name="localhost")
        self.server_encrypted = self.ca.encrypt("server", self.PASSWORD)
        self.client = self.ca.issue("client", "client")
        self.unknown = self.ca.issue("unknown", "client")
        self.expired = self.ca.issue("expired", "client", end="20210101000000Z")
        self.revoked = self.ca.issue("revoked", "client")
        self.foreign = self.foreign_ca.issue("foreign", "client", common_name="client")
        self.crl = self.ca.revoke("revoked")
        self.user = self.ca.subject("client")
