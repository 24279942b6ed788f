"""PyMongo's own tests: where they are, and processes that run them."""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(HERE))))
TESTS = os.path.join(ROOT, ".cache", "clients", "pymongo-tests")


class Worker:
    """A process that runs the tests of one class after another against one server."""

    def __init__(self, server, host="127.0.0.1", **more):
        environment = {**os.environ, "DB_IP": host, "DB_PORT": str(server.port), **more}
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "pymongo_worker.py"), TESTS],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def ask(self, **order):
        """Sends an order and yields the replies."""
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            reply = json.loads(line)
            yield reply
            if "done" in reply or "classes" in reply:
                return
        status = self.process.wait()
        self.log.seek(0)
        last = self.log.read()[-2000:]
        raise RuntimeError(f"the tests' process ended with {status} during {order}; its last lines:\n{last}")

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.log.close()
