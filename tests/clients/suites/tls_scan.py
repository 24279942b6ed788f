"""What a scanner of TLS servers looks for: old protocols, weak suites, compression, renegotiation. ClientHellos are made by
hand, as the TLS library of this machine would refuse to offer most of them."""

import os
import socket
import ssl
import struct
import subprocess
import tempfile
import threading

from harness import raw
from harness.certificates import Certificates
from harness.scram import SecuredServer
from harness.tap import equal, raises, run, test
from harness.waiting import PATIENCE, wait_until

VERSIONS = {"SSL 3.0": 0x0300, "TLS 1.0": 0x0301, "TLS 1.1": 0x0302}
STRONG_12 = {
    0xC02B: "ECDHE-ECDSA-AES128-GCM-SHA256",
    0xC02C: "ECDHE-ECDSA-AES256-GCM-SHA384",
    0xCCA9: "ECDHE-ECDSA-CHACHA20-POLY1305",
    0xC02F: "ECDHE-RSA-AES128-GCM-SHA256",
    0xC030: "ECDHE-RSA-AES256-GCM-SHA384",
    0xCCA8: "ECDHE-RSA-CHACHA20-POLY1305",
}
WEAK = {
    "no encryption": [0x0000, 0x0001, 0x0002, 0x003B, 0xC001, 0xC006, 0xC00B, 0xC010],
    "export": [0x0003, 0x0006, 0x0008, 0x000B, 0x000E, 0x0011, 0x0014, 0x0017, 0x0019, 0x0062, 0x0064],
    "anonymous": [0x0018, 0x001A, 0x001B, 0x0034, 0x003A, 0x006C, 0x006D, 0x00A6, 0x00A7, 0xC015, 0xC016, 0xC018, 0xC019],
    "RC4": [0x0004, 0x0005, 0xC002, 0xC007, 0xC00C, 0xC011],
    "DES and 3DES": [0x0009, 0x000A, 0x000C, 0x000D, 0x0010, 0x0013, 0x0016, 0xC003, 0xC008, 0xC00D, 0xC012],
    "IDEA, SEED and RC2": [0x0007, 0x0096, 0x0099, 0x009A],
    "RSA key exchange": [0x002F, 0x0035, 0x003C, 0x003D, 0x009C, 0x009D, 0x0041, 0x0084, 0xC09C, 0xC09D],
    "finite-field DHE": [0x0033, 0x0039, 0x0067, 0x006B, 0x009E, 0x009F, 0xCCAA],
    "CBC": [0xC009, 0xC00A, 0xC013, 0xC014, 0xC023, 0xC024, 0xC027, 0xC028, 0x0045, 0x0088],
    "static ECDH": [0xC004, 0xC005, 0xC00E, 0xC00F, 0xC02D, 0xC02E, 0xC031, 0xC032],
    "pre-shared keys": [0x008C, 0x008D, 0x00A8, 0x00A9, 0x00AE, 0x00AF, 0xCCAB, 0xD001, 0xD002],
}
ALL_WEAK = sorted({suite for suites in WEAK.values() for suite in suites})
ALERT, HANDSHAKE = 21, 22


def extension(kind, body):
    return struct.pack(">HH", kind, len(body)) + body


def listed(numbers):
    body = b"".join(struct.pack(">H", number) for number in numbers)
    return struct.pack(">H", len(body)) + body


def client_hello(version=0x0303, suites=tuple(STRONG_12), groups=(0x001D, 0x0017, 0x0018),
                 signatures=(0x0403, 0x0503, 0x0804, 0x0805, 0x0401), compression=b"\0", more=b""):  # fmt: skip
    """The record of a ClientHello of at most TLS 1.2, and nothing that only 1.3 has."""
    extensions = extension(0, struct.pack(">HBH", 12, 0, 9) + b"localhost")
    extensions += extension(10, listed(groups)) + extension(11, b"\1\0") + extension(0xFF01, b"\0")
    if version >= 0x0303:
        extensions += extension(13, listed(signatures))
    extensions += more
    body = struct.pack(">H", version) + os.urandom(32) + b"\0" + listed(suites)
    body += bytes([len(compression)]) + compression + struct.pack(">H", len(extensions)) + extensions
    handshake = b"\1" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\x03\x01" + struct.pack(">H", len(handshake)) + handshake


class Answer:
    """The first record that comes back: a ServerHello, an alert, or nothing."""

    def __init__(self, port, data):
        self.alert = self.suite = self.version = None
        self.closed = False
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(data)
            received = b""
            try:
                while len(received) < 5 or len(received) < 5 + struct.unpack(">H", received[3:5])[0]:
                    piece = connection.recv(1 << 16)
                    if not piece:
                        self.closed = True
                        break
                    received += piece
            except ConnectionResetError:
                self.closed = True
        self.data = received
        if received[:1] == bytes([ALERT]) and len(received) >= 7:
            self.alert = received[6]
        elif received[:1] == bytes([HANDSHAKE]) and received[5] == 2:
            (self.version,) = struct.unpack(">H", received[9:11])
            self.random = received[11:43]
            session = received[43]
            self.suite, self.compression = struct.unpack(">HB", received[44 + session : 47 + session])
            at = 49 + session
            end = at + struct.unpack(">H", received[47 + session : 49 + session])[0]
            self.extensions = {}
            while at < end:
                kind, size = struct.unpack(">HH", received[at : at + 4])
                self.extensions[kind] = received[at + 4 : at + 4 + size]
                at += 4 + size

    @property
    def refused(self):
        return self.suite is None and (self.alert is not None or self.closed)

    def __repr__(self):
        return f"alert {self.alert}, suite {self.suite}, version {self.version}, {self.data[:60]!r}"


@test
def old_protocols_are_refused(scan):
    for name, version in VERSIONS.items():
        for suites in (list(STRONG_12), ALL_WEAK, ALL_WEAK + list(STRONG_12)):
            answer = Answer(scan.port, client_hello(version, suites))
            assert answer.refused, f"{name}: {answer}"


@test
def the_hello_of_ssl_2_is_refused(scan):
    suites = bytes.fromhex("0100800700c0030080060040020080040080")
    body = b"\1" + struct.pack(">HHHH", 2, len(suites), 0, 16) + suites + os.urandom(16)
    for version in (b"\0\2", b"\3\0", b"\3\3"):
        data = struct.pack(">H", 0x8000 | len(body)) + body[:1] + version + body[3:]
        answer = Answer(scan.port, data)
        assert answer.refused, f"{version}: {answer}"


@test
def strong_suites_are_accepted(scan):
    accepted = [name for suite, name in STRONG_12.items() if Answer(scan.port, client_hello(suites=[suite])).suite == suite]
    equal(accepted, [name for name in STRONG_12.values() if "ECDSA" in name])
    accepted = [name for suite, name in STRONG_12.items() if Answer(scan.rsa_port, client_hello(suites=[suite])).suite == suite]
    equal(accepted, [name for name in STRONG_12.values() if "RSA" in name.split("-")])


@test
def weak_suites_are_refused(scan):
    for port in (scan.port, scan.rsa_port):
        for name, suites in WEAK.items():
            answer = Answer(port, client_hello(suites=suites))
            assert answer.refused, f"{name}: {answer}"
        for suite in ALL_WEAK:
            answer = Answer(port, client_hello(suites=[suite]))
            assert answer.refused, f"{suite:#06x}: {answer}"


@test
def a_strong_suite_is_chosen_although_weak_ones_come_first(scan):
    answer = Answer(scan.port, client_hello(suites=ALL_WEAK + [0xC02B]))
    equal(answer.suite, 0xC02B)


@test
def weak_groups_and_signatures_are_refused(scan):
    answer = Answer(scan.port, client_hello(groups=[1, 6, 15, 16, 19, 21]))
    assert answer.refused, f"weak groups: {answer}"
    answer = Answer(scan.rsa_port, client_hello(signatures=[0x0101, 0x0201, 0x0202, 0x0203]))
    assert answer.refused, f"MD5 and SHA-1: {answer}"


@test
def there_is_no_compression(scan):
    equal(Answer(scan.port, client_hello(compression=b"\1\0")).compression, 0)
    answer = Answer(scan.port, client_hello(compression=b"\1"))
    assert answer.refused, answer


@test
def tls_12_is_secured_against_renegotiation_downgrade_and_heartbeats(scan):
    heartbeat = extension(15, b"\1")
    master_secret = extension(23, b"")
    answer = Answer(scan.port, client_hello(more=heartbeat + master_secret))
    equal(answer.version, 0x0303)
    assert 0xFF01 in answer.extensions, "no secure renegotiation"
    assert 15 not in answer.extensions, "heartbeats"
    assert 23 in answer.extensions, "no extended master secret"
    # A server of TLS 1.3 marks what it negotiated down.
    equal(answer.random[-8:], b"DOWNGRD\x01")


@test
def a_client_cannot_renegotiate(scan):
    # fmt: off
    client = subprocess.Popen(
        ["openssl", "s_client", "-connect", f"localhost:{scan.port}", "-tls1_2", "-CAfile", scan.certificates.ca.certificate,
         "-cert", scan.certificates.client, "-msg"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # fmt: on
    pieces = []
    reader = threading.Thread(target=lambda: pieces.extend(iter(lambda: client.stdout.read1(), b"")))
    reader.start()
    try:
        client.stdin.write(b"R\n")
        client.stdin.flush()
        wait_until("a new hello of the client", lambda: b"ClientHello" in b"".join(pieces).partition(b"RENEGOTIATING")[2])
        # The server may answer with an alert, or with nothing.
        client.wait(2)
    except subprocess.TimeoutExpired:
        pass
    finally:
        client.kill()
        reader.join()
    first, _, second = b"".join(pieces).decode(errors="replace").partition("RENEGOTIATING")
    assert "ServerHello" in first, first[-800:]
    assert ">>> TLS 1.2, Handshake" in second and "ClientHello" in second, second[-800:]
    assert "ServerHello" not in second, second[-800:]


@test
def tls_13_has_no_early_data(scan):
    # fmt: off
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"localhost:{scan.port}", "-tls1_3", "-CAfile", scan.certificates.ca.certificate,
         "-cert", scan.certificates.client], input="", capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False)
    # fmt: on
    assert "TLSv1.3" in done.stdout, (done.stdout + done.stderr)[-800:]
    assert "Verify return code: 0 (ok)" in done.stdout, done.stdout[-800:]
    for line in done.stdout.splitlines():
        if "Max Early Data" in line:
            equal(line.strip(), "Max Early Data: 0")


@test
def both_protocols_and_their_suites_as_python_sees_them(scan):
    for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
        context = scan.context()
        context.minimum_version = context.maximum_version = version
        with socket.create_connection(("127.0.0.1", scan.port), 10) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as secured:
                equal(secured.version(), name)
                assert secured.cipher()[2] >= 128, secured.cipher()
                assert secured.compression() is None


@test
def a_disabled_protocol_is_refused(scan):
    for disabled, version in (("TLS1_2", ssl.TLSVersion.TLSv1_2), ("TLS1_3", ssl.TLSVersion.TLSv1_3)):
        with scan.server("--tlsDisabledProtocols", disabled) as server:
            server.start()
            context = scan.context()
            context.minimum_version = context.maximum_version = version
            with socket.create_connection(("127.0.0.1", server.port), 10) as plain:
                raises((ssl.SSLError, ConnectionResetError), scan.talk, context, plain)
            server.stop()


@test
def nothing_is_answered_without_tls(scan):
    for data in (raw.op_msg({"hello": 1}), raw.op_query({"isMaster": 1}), b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"\x16\x03\x01"):
        with socket.create_connection(("127.0.0.1", scan.port), 20) as plain:
            answer = b""
            try:
                plain.sendall(data)
                plain.shutdown(socket.SHUT_WR)
                while piece := plain.recv(4096):
                    answer += piece
            except OSError:
                pass
        assert answer == b"" or answer[0] == ALERT, f"{data[:20]!r} got {answer[:60]!r}"


@test
def broken_records_end_the_connection_and_nothing_else(scan):
    hello = client_hello()
    broken = {
        "a record of 64 KiB": b"\x16\x03\x03\xff\xff" + bytes(65535),
        "a record of length 0": b"\x16\x03\x03\0\0" * 50,
        "an alert first": b"\x15\x03\x03\0\2\2\x28",
        "data before the handshake": b"\x17\x03\x03\0\x10" + bytes(16),
        "an unknown record": b"\x63\x03\x03\0\1\0",
        "a hello of a wrong length": hello[:6] + b"\xff\xff\xff" + hello[9:],
        "a hello cut short": hello[:60],
        "two hellos": hello + hello,
        "no suites": client_hello(suites=[]),
        "unknown extensions of 8 KiB": client_hello(more=extension(0xABCD, bytes(8000))),
    }
    for name, data in broken.items():
        with socket.create_connection(("127.0.0.1", scan.port), 15) as plain:
            try:
                plain.sendall(data)
                plain.shutdown(socket.SHUT_WR)
                while plain.recv(1 << 16):
                    pass
            except TimeoutError as error:
                raise AssertionError(f"{name}: neither an answer nor an end") from error
            except OSError:
                pass
    equal(raw.ping(scan.port, tls=scan.certificates), True)


class Scan:
    def __init__(self, folder):
        self.certificates = Certificates(os.path.join(folder, "certificates"))

    def server(self, *more, key=None):
        # fmt: off
        return SecuredServer(
            os.environ["FROND_BINARY"],
            ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", key or self.certificates.server,
             "--tlsCAFile", self.certificates.ca.certificate, *more],
            tls=self.certificates)
        # fmt: on

    def context(self):
        context = ssl.create_default_context(cafile=self.certificates.ca.certificate)
        context.load_cert_chain(self.certificates.client)
        return context

    @staticmethod
    def talk(context, plain):
        with context.wrap_socket(plain, server_hostname="localhost") as secured:
            secured.sendall(raw.op_msg({"hello": 1}))
            if not secured.recv(16):
                raise ConnectionResetError


def main():
    with tempfile.TemporaryDirectory(prefix="frond-tls-") as folder:
        scan = Scan(folder)
        with scan.server() as server, scan.server(key=scan.certificates.server_rsa) as rsa:
            server.start()
            rsa.start()
            scan.port, scan.rsa_port = server.port, rsa.port
            run(scan)


if __name__ == "__main__":
    main()
