"""Logs a raw connection in by SCRAM (RFC 5802, RFC 7677), and makes servers that demand it.

Only the standard library is used; the commands go through `raw`.
"""

import base64
import hashlib
import hmac
import os

from .server import Server, ServerError

DIGESTS = {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256"}


class LoginFailed(Exception):
    """The server refused the login. `code` is its error code."""

    def __init__(self, reply):
        super().__init__(f"{reply.get('codeName')}: {reply.get('errmsg')}")
        self.code = reply.get("code")
        self.reply = reply


def secret(mechanism, user, password):
    """What PBKDF2 gets: MongoDB's SCRAM-SHA-1 hashes the password before."""
    if mechanism == "SCRAM-SHA-1":
        return hashlib.md5(f"{user}:mongo:{password}".encode()).hexdigest().encode()
    return password.encode()


class Conversation:
    """The client's side of one login."""

    def __init__(self, mechanism, user, password):
        self.mechanism = mechanism
        self.digest = DIGESTS[mechanism]
        self.password = secret(mechanism, user, password)
        name = user.replace("=", "=3D").replace(",", "=2C")
        self.nonce = base64.b64encode(os.urandom(24)).decode()
        self.bare = f"n={name},r={self.nonce}"
        self.first = f"n,,{self.bare}".encode()
        self.proof = self.client_key = self.server_signature = None

    def _hmac(self, key, text):
        return hmac.new(key, text, self.digest).digest()

    def salted(self, salt, iterations):
        return hashlib.pbkdf2_hmac(self.digest, self.password, salt, iterations)

    def final(self, server_first):
        """The second message of the client."""
        fields = dict(part.split("=", 1) for part in server_first.split(","))
        if not fields["r"].startswith(self.nonce):
            raise AssertionError("the server changed the client's nonce")
        salted = self.salted(base64.b64decode(fields["s"]), int(fields["i"]))
        self.client_key = self._hmac(salted, b"Client Key")
        stored = hashlib.new(self.digest, self.client_key).digest()
        without_proof = f"c=biws,r={fields['r']}"
        text = f"{self.bare},{server_first},{without_proof}".encode()
        signature = self._hmac(stored, text)
        self.proof = bytes(a ^ b for a, b in zip(self.client_key, signature))
        self.server_signature = self._hmac(self._hmac(salted, b"Server Key"), text)
        return f"{without_proof},p={base64.b64encode(self.proof).decode()}".encode()

    def check(self, server_final):
        """The server must have proved that it knows the user as well."""
        fields = dict(part.split("=", 1) for part in server_final.split(","))
        if base64.b64decode(fields["v"]) != self.server_signature:
            raise AssertionError("the server's signature is wrong")


def login(connection, user, password, database="admin", mechanism="SCRAM-SHA-256"):
    """Logs a connection of `raw` in. Returns the conversation."""
    talk = Conversation(mechanism, user, password)

    def ask(command):
        reply = connection.command(command, database)
        if reply.get("ok") != 1:
            raise LoginFailed(reply)
        return reply

    start = ask(
        {
            "saslStart": 1,
            "mechanism": mechanism,
            "payload": talk.first,
            "options": {"skipEmptyExchange": True},
        }
    )
    final = talk.final(start["payload"].decode())
    end = ask(
        {"saslContinue": 1, "conversationId": start["conversationId"], "payload": final}
    )
    talk.check(end["payload"].decode())
    if not end["done"]:
        ask(
            {
                "saslContinue": 1,
                "conversationId": start["conversationId"],
                "payload": b"",
            }
        )
    return talk


class SecuredServer(Server):
    """A server with authorization, and a user who may do anything.

    The first user is made as an operator makes it: from this machine, before there is any.
    """

    ADMIN = ("operator", "correct horse")

    def __init__(self, binary, options=(), **more):
        super().__init__(binary, ["--auth", *options], **more)

    def start(self, timeout=60):
        took = super().start(timeout)
        user, password = self.ADMIN
        with self.connect() as connection:
            reply = connection.command(
                {
                    "createUser": user,
                    "pwd": password,
                    "roles": [
                        {"role": "root", "db": "admin"},
                        {"role": "__system", "db": "admin"},
                    ],
                }
            )
            # After a restart the user exists, and only those logged in may make more.
            if reply["ok"] != 1 and reply.get("code") != 13:
                raise ServerError(f"the first user was not made: {reply}")
        return took

    @property
    def admin_uri(self):
        user, password = self.ADMIN
        address = f"mongodb://{user}:{password.replace(' ', '%20')}@localhost:{self.port}/?authSource=admin"
        return f"{address}&replicaSet={self.replica_set}" if self.replica_set else address

    @property
    def tls_of_tests(self):
        """Options of PyMongo to reach it."""
        if not self.tls:
            return {}
        return {"tls": True, "tlsCAFile": self.tls.ca.certificate, "tlsCertificateKeyFile": self.tls.client}
