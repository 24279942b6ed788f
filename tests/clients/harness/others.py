"""Servers of others that speak the same protocol: FerretDB 1.24 on SQLite, and mongo-java-server."""

import os
import shutil
import subprocess
import tempfile

from .ports import free_port
from .server import ServerError
from .waiting import wait_until

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
_CACHE = os.path.join(_ROOT, ".cache", "clients")


class Other:
    """A server on a free port, with a folder of its own. A `with` starts and ends it."""

    def __init__(self):
        self.port = free_port()
        self.folder = tempfile.mkdtemp(prefix="frond-other-")
        self.process = None

    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}"

    def command(self):
        raise NotImplementedError

    def __enter__(self):
        import pymongo

        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        name = type(self).__name__
        try:
            with pymongo.MongoClient(self.uri, serverSelectionTimeoutMS=300) as client:

                def answers():
                    if self.process.poll() is not None:
                        raise ServerError(f"{name} has ended with {self.process.returncode}")
                    return client.admin.command("ping")

                wait_until(f"an answer of {name}", answers, passing=(pymongo.errors.PyMongoError,))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class FerretDB(Other):
    def command(self):
        binary = os.environ.get("FROND_FERRETDB") or os.path.join(_CACHE, "ferretdb", "ferretdb")
        return [
            binary,
            "--handler=sqlite",
            f"--sqlite-url=file:{self.folder}/",
            f"--listen-addr=127.0.0.1:{self.port}",
            "--telemetry=disable",
            f"--state-dir={self.folder}",
            "--debug-addr=-",
            "--log-level=error",
        ]


class JavaServer(Other):
    """Its documents are in memory."""

    def command(self):
        jars = os.path.join(_CACHE, "java-server")
        quick = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        return ["java", *quick, "-cp", f"{jars}:{jars}/*", "Launcher", str(self.port)]
