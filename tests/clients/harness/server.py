"""Starts, stops and kills a built server, always by its process id."""

import os
import shutil
import signal
import subprocess
import tempfile
import time

from . import raw
from .ports import free_port
from .waiting import PATIENCE, wait_until


ALREADY_INITIALIZED = 23


class ServerError(Exception):
    """The server failed to start or to stop."""


class Server:
    """A server with its own folder, which is removed when the object is closed.

    With the name of a replica set it is started as its only member, and is the primary once `start` returns.
    """

    def __init__(self, binary, options=(), folder=None, port=None, wrap=(), replica_set=None, tls=None):
        # The certificates with which to reach a server that speaks nothing but TLS.
        self.tls = tls
        self.binary = os.path.abspath(binary)
        self.options = list(options)
        self.replica_set = replica_set
        if replica_set:
            self.options += ["--replSet", replica_set]
        # A command to start it with, such as one that limits its memory.
        self.wrap = list(wrap)
        self._own_folder = folder is None
        self.folder = folder or tempfile.mkdtemp(prefix="frond-test-")
        self.dbpath = os.path.join(self.folder, "db")
        self.log_path = os.path.join(self.folder, "server.log")
        self.port = port or free_port()
        self.process = None
        os.makedirs(self.dbpath, exist_ok=True)

    @property
    def uri(self):
        address = f"mongodb://127.0.0.1:{self.port}"
        return f"{address}/?replicaSet={self.replica_set}" if self.replica_set else address

    @property
    def socket_path(self):
        return os.path.join(self.folder, f"mongodb-{self.port}.sock")

    @property
    def pid(self):
        return self.process.pid

    def start(self, timeout=PATIENCE):
        """Starts it and waits until it replies. Returns the seconds that this took."""
        command = [
            *self.wrap,
            self.binary,
            "serve",
            "--dbpath",
            self.dbpath,
            "--port",
            str(self.port),
            "--unixSocketPrefix",
            self.folder,
            *self.options,
        ]
        began = time.monotonic()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        while not raw.ping(self.port, timeout=2, tls=self.tls):
            if self.process.poll() is not None:
                code = self.process.returncode
                raise ServerError(f"the server ended with {code}:\n{self.log_tail()}")
            if time.monotonic() - began > timeout:
                raise ServerError(f"no answer after {timeout} s:\n{self.log_tail()}")
            time.sleep(0.02)
        if self.replica_set:
            self._become_primary()
        return time.monotonic() - began

    def connect(self):
        """A raw connection."""
        return raw.Connection(self.port, tls=self.tls)

    def _become_primary(self):
        """Initiates the replica set, unless that was done at an earlier start, and waits until it has a primary."""
        config = {"_id": self.replica_set, "members": [{"_id": 0, "host": f"127.0.0.1:{self.port}"}]}
        with self.connect() as connection:
            reply = connection.command({"replSetInitiate": config})
            if reply["ok"] != 1 and reply.get("code") != ALREADY_INITIALIZED:
                raise ServerError(f"the replica set was not initiated: {reply}")

            def is_primary():
                hello = connection.command({"hello": 1})
                return hello.get("isWritablePrimary") and hello.get("setName") == self.replica_set

            wait_until("the primary", is_primary)

    def stop(self, timeout=PATIENCE):
        """Stops it. It must end in time and with code 0."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ServerError(f"still running {timeout} s after SIGTERM") from error
        if code != 0:
            raise ServerError(f"ended with {code}:\n{self.log_tail()}")

    def kill(self):
        """Kills it, as a crash would."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def resident_kib(self):
        """Resident memory of its process, or None when it is gone."""
        try:
            with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
                for line in status:
                    if line.startswith("VmRSS:"):
                        return int(line.split()[1])
        except OSError:
            pass
        return None

    def log_tail(self, lines=30):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-lines:])

    def close(self):
        self.kill()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class NoServer:
    """In place of a server, for a suite that starts its own."""

    port, uri, socket_path, folder = 0, "", "", ""

    def __init__(self, binary):
        self.binary = os.path.abspath(binary)

    def start(self):
        pass

    stop = start

    def log_tail(self, lines):
        return ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass
