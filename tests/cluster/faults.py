"""Faults of one kind at a time: a node that hangs, all nodes killed at once, PD away or hung. Servers go on afterwards.

Writers insert through both servers all the time. A fault has had its effect when each of them has written again since: all waits are
for such conditions. In the end everything that was acknowledged is there once, and indexes agree with documents.
"""

import os
import signal
import threading
import time

from cluster import Cluster, Servers
from harness import crashing
from harness.tap import equal, raises, run, test
from harness.waiting import wait_until
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

BINARY = os.environ["FROND_BINARY"]


class Writer:
    """Inserts one document after the other through one server, and notes those that were acknowledged."""

    def __init__(self, server, name):
        self.client = MongoClient(
            f"mongodb://127.0.0.1:{server.port}/?directConnection=true", connectTimeoutMS=20_000, serverSelectionTimeoutMS=60_000
        )
        self.name, self.stop, self.acknowledged, self.problems = name, threading.Event(), [], []
        # When the last insert that was acknowledged had begun.
        self.last_began = 0.0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        number = 0
        while not self.stop.is_set():
            number += 1
            began = time.monotonic()
            try:
                self.client.faults.c.insert_one({"_id": f"{self.name}-{number}", "n": number % 7})
                self.acknowledged.append(f"{self.name}-{number}")
                self.last_began = began
            except PyMongoError as error:
                # The outcome may be unknown, and the next insert has another key.
                self.problems.append(repr(error))
                self.stop.wait(0.05)

    def end(self):
        self.stop.set()
        self.thread.join()
        self.client.close()


def meet(cluster, fault, heal=lambda: None):
    """Writes through both servers while something fails: until all write again, and again after it is healed."""
    with Servers(BINARY, cluster.pd) as servers:
        servers.start()
        with MongoClient(servers.uri) as client:
            client.faults.create_collection("c")
            client.faults.c.create_index("n")
        writers = [Writer(server, f"w{number}") for number, server in enumerate(servers.all)]
        try:
            wait_until("inserts", lambda: all(writer.acknowledged for writer in writers))
            for action in (fault, heal):
                action()
                since = time.monotonic()
                wait_until(
                    "inserts that have begun since",
                    lambda since=since: all(writer.last_began > since for writer in writers),
                )
                print(f"  # all write again {time.monotonic() - since:.1f} s after it", flush=True)
        finally:
            for writer in writers:
                writer.end()
        with MongoClient(servers.uri) as client:
            found = [doc["_id"] for doc in client.faults.c.find({}, {"_id": 1})]
            equal(len(found), len(set(found)), "each document is there once")
            acknowledged = {key for writer in writers for key in writer.acknowledged}
            equal(acknowledged - set(found), set(), "what was acknowledged is there")
            by_index = {doc["_id"] for n in range(7) for doc in client.faults.c.find({"n": n}).hint("n_1")}
            equal(by_index, set(found), "the index has the documents")
            equal(crashing.validate(client, "faults", "c"), [])
        servers.stop()


@test
def servers_go_on_beside_a_node_that_hangs():
    with Cluster() as cluster:
        node = cluster.leading_node()
        meet(cluster, lambda: cluster.hang_node(node), lambda: cluster.resume_node(node))


@test
def servers_go_on_when_all_nodes_were_killed_at_once_and_started_again():
    # The store of the test cluster may lose locks, so unfinished commits may be torn: only what was committed before counts.
    with Cluster() as cluster, Servers(BINARY, cluster.pd) as servers:
        servers.start()
        clients = [MongoClient(f"mongodb://127.0.0.1:{server.port}/?directConnection=true") for server in servers.all]
        clients[0].faults.c.create_index("n")
        clients[0].faults.c.insert_many({"_id": n, "n": n % 7} for n in range(500))
        cluster.restart_nodes()

        def writes(client, number):
            client.faults.c.insert_one({"_id": f"after-{number}-{time.monotonic_ns()}", "n": 3})
            return True

        for number, client in enumerate(clients):
            wait_until("an insert", lambda client=client, number=number: writes(client, number), passing=PyMongoError)
        for client in clients:
            equal(client.faults.c.count_documents({"_id": {"$lt": 500}}), 500)
            assert client.faults.c.count_documents({"n": 3}, hint="n_1") >= 72, "the index"
            client.close()
        servers.stop()


@test
def a_server_starts_while_a_leading_node_is_gone():
    # The server learns from PD that a node leads which it cannot connect to, and must not keep that.
    with Cluster() as cluster, Servers(BINARY, cluster.pd) as servers:
        servers.start()
        one = servers.all[0]
        uri = f"mongodb://127.0.0.1:{one.port}/?directConnection=true"
        with MongoClient(uri, serverSelectionTimeoutMS=60_000) as client:
            client.faults.c.insert_one({"_id": 0})
            cluster.kill_node(cluster.leading_node())
            one.kill()
            one.start()
            wait_until("an insert", lambda: client.faults.c.insert_one({"n": 1}).acknowledged, passing=PyMongoError)
            equal(client.faults.c.count_documents({"_id": 0}), 1)
        servers.stop()


@test
def a_request_that_ends_nodes_is_not_sent_to_all_of_them():
    with Cluster(poison="poison") as cluster, Servers(BINARY, cluster.pd, count=1) as servers:
        servers.start()
        with MongoClient(servers.uri, socketTimeoutMS=120_000) as client:
            client.faults.c.insert_one({"_id": "healthy"})
            error = raises(OperationFailure, client.faults.c.find_one, {"_id": "the poison"})
            print(f"  # {error}", flush=True)
            assert "not sent to further nodes" in str(error) and "127.0.0.1:" in str(error), error
            equal(error.code, 1, "an error that drivers do not retry")
            equal(len(cluster.running_nodes()), 1, "nodes that run")
            for number in range(1, cluster.nodes + 1):
                cluster.start_node(number)
            wait_until("a read", lambda: client.faults.c.find_one({"_id": "healthy"}), passing=PyMongoError)
        servers.stop()


@test
def servers_go_on_with_a_pd_that_is_slow():
    with Cluster() as cluster, Servers(BINARY, cluster.pd) as servers:
        servers.start()
        pd, stop = cluster.process("pd"), threading.Event()

        def delay():
            # It runs for a sixth of the time.
            while not stop.is_set():
                os.kill(pd, signal.SIGSTOP)
                stop.wait(0.25)
                os.kill(pd, signal.SIGCONT)
                stop.wait(0.05)

        with MongoClient(servers.uri) as client:
            client.faults.c.create_index("n")
        delaying = threading.Thread(target=delay)
        delaying.start()
        writers = [Writer(server, f"w{number}") for number, server in enumerate(servers.all)]
        try:
            wait_until("inserts", lambda: all(len(writer.acknowledged) >= 10 for writer in writers))
        finally:
            for writer in writers:
                writer.end()
            stop.set()
            delaying.join()
        with MongoClient(servers.uri) as client:
            acknowledged = {key for writer in writers for key in writer.acknowledged}
            found = {doc["_id"] for doc in client.faults.c.find({}, {"_id": 1})}
            equal(acknowledged - found, set(), "what was acknowledged is there")
        servers.stop()


@test
def servers_go_on_when_pd_is_there_again():
    with Cluster() as cluster:
        meet(cluster, cluster.restart_pd)


@test
def servers_go_on_when_pd_has_hung():
    with Cluster() as cluster, Servers(BINARY, cluster.pd) as servers:
        servers.start()
        uri = f"mongodb://127.0.0.1:{servers.port}/?directConnection=true"
        with MongoClient(uri, retryWrites=False, socketTimeoutMS=120_000) as client:
            client.faults.c.insert_one({"_id": 0})
            before = _retries(client)
            cluster.hang_pd()
            answered = threading.Event()

            def insert():
                client.faults.c.insert_one({"_id": 1})
                answered.set()

            inserting = threading.Thread(target=insert)
            inserting.start()
            # It needs a timestamp, so nothing but PD can let it go on.
            wait_until("the server's attempts", lambda: _retries(client) > before)
            assert not answered.is_set(), "an insert without a timestamp"
            cluster.resume_pd()
            wait_until("the insert", answered.is_set)
            inserting.join()
            equal(client.faults.c.count_documents({}), 2)
        servers.stop()


def _retries(client):
    """The requests to the cluster that a server has sent again."""
    return client.admin.command("serverStatus", repl=0, metrics=0)["tikv"]["retries"]


if __name__ == "__main__":
    run()
