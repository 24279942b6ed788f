"""A TiKV cluster on this machine (scripts/cluster.sh), and servers of Frond over it."""

import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SCRIPT = os.path.join(ROOT, "scripts", "cluster.sh")

sys.path.insert(0, os.path.join(ROOT, "tests", "clients"))
from harness.server import Server, ServerError  # noqa: E402

# PD takes two ports, three nodes take these and those 20 above.
PORTS = [0, 1, *range(10, 13), *range(30, 33)]


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports():
    """The first port of a range that is free."""
    source = random.Random()
    for _ in range(200):
        first = source.randrange(20_000, 28_000, 50)
        if all(is_free(first + port) for port in PORTS):
            return first
    raise ServerError("no free ports for a cluster")


class Cluster:
    """PD and its nodes, in a folder that is removed at the end."""

    def __init__(self, nodes=3, folder=None, region_keys=300_000, poison=None):
        self.nodes = nodes
        # A node ends when it reads a key with this text.
        self.poison = poison
        self.region_keys = region_keys
        self.folder = folder or tempfile.mkdtemp(prefix="frond-cluster-")
        self.choose_ports()

    def choose_ports(self):
        self.first = int(os.environ.get("FROND_CLUSTER_PORTS") or 0) or free_ports()
        self.pd = f"127.0.0.1:{self.first}"

    def script(self, *arguments):
        command = [SCRIPT, *map(str, arguments), "--data", os.path.join(self.folder, "tikv")]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise ServerError(f"cluster.sh {arguments[0]}: {done.stdout[-2000:]}")

    def start(self):
        self.script(
            "start", "--stores", self.nodes, "--pd-port", self.first, "--store-port", self.first + 10,
            "--region-keys", self.region_keys, *(["--poison", self.poison] if self.poison else []),
        )

    def restart_node(self, number):
        self.script("restart-store", number)

    def kill_node(self, number):
        self.script("kill-store", number)

    def start_node(self, number):
        self.script("start-store", number)

    def restart_nodes(self):
        """Kills all nodes at once, and starts them again."""
        self.script("restart-stores")

    def hang_node(self, number):
        self.script("hang-store", number)

    def resume_node(self, number):
        self.script("resume-store", number)

    def restart_pd(self):
        self.script("restart-pd")

    def kill_pd(self):
        self.script("kill-pd")

    def start_pd(self):
        self.script("start-pd")

    def hang_pd(self):
        self.script("hang-pd")

    def resume_pd(self):
        self.script("resume-pd")

    def process(self, name):
        """The process of `pd` or `store-N`, or None if it does not run."""
        try:
            with open(os.path.join(self.folder, "tikv", f"{name}.pid"), encoding="ascii") as file:
                pid = int(file.read())
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                return None if stat.read().rsplit(")", 1)[1].split()[0] == "Z" else pid
        except (FileNotFoundError, ProcessLookupError):
            return None

    def running_nodes(self):
        return [number for number in range(1, self.nodes + 1) if self.process(f"store-{number}")]

    def leading_node(self):
        """The number of the node that leads the most regions."""
        with urllib.request.urlopen(f"http://{self.pd}/pd/api/v1/stores", timeout=10) as answer:
            stores = json.load(answer)["stores"]
        leads = max(stores, key=lambda store: store["status"].get("leader_count", 0))
        return int(leads["store"]["address"].rsplit(":", 1)[1]) - (self.first + 10) + 1

    def __enter__(self):
        for is_last in (False, True):
            try:
                self.start()
                break
            except BaseException as error:
                self.close()
                if is_last or not isinstance(error, ServerError):
                    raise
                # Another program may have taken one of the ports since they were free.
                self.choose_ports()
                os.makedirs(self.folder, exist_ok=True)
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            self.script("stop")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


class Running:
    """A cluster that runs already, which nobody may disturb."""

    def __init__(self, pd):
        self.pd = pd

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


PREFIXES = itertools.count(1)


class Servers:
    """Servers of Frond over one cluster, with keys of their own. The first one is what single-server suites see."""

    def __init__(self, binary, pd, count=2, options=(), ports=None):
        prefix = f"f{os.getpid()}-{next(PREFIXES)}/"
        options = ["--storageEngine", "tikv", "--pd", pd, "--tikvKeyPrefix", prefix, *options]
        self.all = [Server(binary, options=options, port=port) for port in ports or [None] * count]

    @property
    def uri(self):
        return "mongodb://" + ",".join(f"127.0.0.1:{server.port}" for server in self.all)

    @property
    def binary(self):
        return self.all[0].binary

    @property
    def port(self):
        return self.all[0].port

    @property
    def folder(self):
        return self.all[0].folder

    @property
    def socket_path(self):
        return self.all[0].socket_path

    def start(self):
        for server in self.all:
            server.start()

    def stop(self):
        problems = []
        for server in self.all:
            try:
                server.stop()
            except ServerError as error:
                problems.append(str(error))
        if problems:
            raise ServerError("; ".join(problems))

    def log_tail(self, lines=30):
        return "".join(server.log_tail(lines) for server in self.all)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.all:
            server.close()
