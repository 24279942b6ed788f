"""Clients of three members that are killed (SIGKILL), stopped (SIGSTOP), restarted, cut off from each other, and whose disks fill up.

The bank, histories of lists, a linearizable register, inserts in bulk, and change streams of every member run beside the
troubles. In the end no write that a majority acknowledged is lost, nothing was seen twice or too early, and all members are equal.

From the environment: FROND_SECONDS (20), FROND_SEED (1).
"""

import multiprocessing
import os
import pickle
import random
import threading
import time

from bank import accounts
from bank import clients as bank_clients
from bank.outcome import gather, wrong
from harness import crashing
from harness.partitions import Network
from harness.replica_set import ReplicaSet, assert_same
from harness.small_disk import SmallDisk
from harness.tap import equal, run, test
from harness.waiting import wait_until
from history import recorder
from history.checker import OK
from pymongo.errors import PyMongoError
from soaking import clients
from soaking.clients import DATABASE
from soaking.troubles import Troubles

BINARY = os.environ["FROND_BINARY"]
SEED = int(os.environ.get("FROND_SEED", 1))
SECONDS = float(os.environ.get("FROND_SECONDS", 20))
WRITERS, READERS, VISITORS = 4, 1, 1
HISTORIANS, INSERTERS = 4, 2
# Each kind of client does so much between two troubles.
PROGRESS = 5
# Enough for what the clients write in an hour.
DISK_MIB = 2048
KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", ".cache", "history")


class Bank:
    """The bank's clients, in a process of their own."""

    def __init__(self, replica_set, source):
        self.replica_set = replica_set
        with replica_set.connect() as client:
            accounts.open_bank(client[bank_clients.DATABASE])
        context = multiprocessing.get_context("spawn")
        self.stop, self.reports = context.Event(), context.Queue()
        arguments = (replica_set.uri, 0, WRITERS, READERS, VISITORS, source.random(), self.stop, self.reports)
        self.process = context.Process(target=bank_clients.work, args=arguments, daemon=True)
        self.process.start()

    def finish(self):
        """Problems that they had, and that are there."""
        self.stop.set()
        whole = gather(self.reports, 1)
        self.process.join(120)
        print(f"  # bank: {dict(whole.counts)}, {whole.visits} visits, {whole.visits_unknown} without an answer")
        with self.replica_set.connect() as client:
            database = client[bank_clients.DATABASE]
            problems = whole.problems + wrong(database, whole)
            for name in [*accounts.COLLECTIONS, "transfers"]:
                problems += crashing.validate(client, bank_clients.DATABASE, name)
        return problems


class Historians:
    """Clients whose transactions are recorded."""

    def __init__(self, replica_set, source):
        self.replica_set, self.stopping = replica_set, threading.Event()
        self.keys, self.history = recorder.Keys(), []
        recorder.prepare(replica_set)
        self.clients = [recorder.Client(replica_set, recorder.Lists, self.keys, self.history, source.random(), self.stopping)
                        for _ in range(HISTORIANS)]
        for client in self.clients:
            client.start()

    def _read_all(self):
        return recorder.read_all(self.replica_set, recorder.Lists, self.keys)

    def finish(self, seed):
        self.stopping.set()
        for client in self.clients:
            client.join(150)
        problems = [problem for client in self.clients for problem in client.problems]
        problems += ["a client did not stop" for client in self.clients if client.is_alive()]
        # An election may abort it.
        last = wait_until("a transaction that reads everything", self._read_all, passing=(PyMongoError,))
        history = [*self.history, last]
        verdict = recorder.Lists.check(history)
        committed = sum(1 for one in history if one.status == OK)
        print(f"  # history: {len(history)} transactions, {committed} committed, dependencies {verdict.edges}")
        if verdict.forbidden:
            os.makedirs(KEPT, exist_ok=True)
            with open(os.path.join(KEPT, f"set-{seed}.pickle"), "wb") as file:
                pickle.dump(history, file)
        return problems + [f"{name}: {texts[:2]}" for name, texts in verdict.forbidden.items()]


@test
def nothing_that_a_majority_acknowledged_is_lost(seed):
    source = random.Random(seed)
    network = Network(3)
    with ReplicaSet(BINARY, hosts=network.hosts) as replica_set:
        disks = {}
        try:
            disks = mount_disks(replica_set)
            for member in replica_set.members:
                member.start()
            network.connect(replica_set.members)
            replica_set.members[0].command("replSetInitiate", replica_set.config())
            replica_set.wait_until_steady()
            soak(replica_set, network, disks, source, seed)
            replica_set.stop()
        finally:
            network.close()
            for disk in disks.values():
                disk.unmount()


def mount_disks(replica_set):
    """A small disk below the data of each member, or none where that is not allowed."""
    disks = {}
    for member in replica_set.members:
        disk = SmallDisk.mount(member.dbpath, DISK_MIB)
        if disk is None:
            print("  # disks do not fill up: no tmpfs can be mounted here")
            break
        disks[member.number] = disk
    return disks


def soak(replica_set, network, disks, source, seed):
    with replica_set.connect() as client:
        for key in ("a", "b", "c"):
            client[DATABASE].inserted.create_index(key)
    stopping, following = threading.Event(), threading.Event()
    register = clients.Register()
    writer = clients.RegisterWriter(replica_set, register, stopping)
    inserters = [clients.Inserter(replica_set, number, stopping) for number in range(INSERTERS)]
    readers = [clients.RegisterReader(member, register, stopping) for member in replica_set.members]
    replica_set.catch_up()
    followers = [clients.Follower(member, following) for member in replica_set.members]
    bank, historians = Bank(replica_set, source), Historians(replica_set, source)
    threads = [writer, *inserters, *readers]
    for thread in threads + followers:
        thread.start()
    counts = {}

    def say(trouble):
        counts[trouble] = counts.get(trouble, 0) + 1
        print(f"  # {trouble}", flush=True)

    troubles = Troubles(replica_set, network, disks, source, say)
    try:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            goal = [writer.done + PROGRESS, min(one.done for one in inserters) + PROGRESS, len(historians.history) + PROGRESS]
            wait_until(
                "progress of all kinds of clients",
                lambda goal=goal: writer.problems
                or (writer.done >= goal[0] and min(one.done for one in inserters) >= goal[1] and len(historians.history) >= goal[2]),
            )
            troubles.next(stopping)
    finally:
        stopping.set()
    for thread in threads:
        thread.join(150)
    problems = [f"a client did not stop: {thread}" for thread in threads if thread.is_alive()]
    problems += bank.finish() + historians.finish(seed)
    replica_set.wait_until_steady()
    with replica_set.connect() as client:
        there = {one["_id"] for one in client[DATABASE].inserted.find({}, {"_id": 1})}
    try:
        wait_until("all events", lambda: all(len(one.events) >= len(there) or one.problems for one in followers))
    except AssertionError as error:
        problems.append(str(error))
    following.set()
    for follower in followers:
        follower.join(60)
    problems += clients.check_inserts(inserters, there)
    problems += clients.check_events(followers, there)
    problems += [problem for one in threads + followers for problem in one.problems]
    print(f"  # {len(there)} inserted, {sum(one.unanswered for one in inserters)} batches without an answer; the register was written "
          f"{writer.done} times, {writer.unanswered} without an answer, and read {[one.done for one in readers]} times; "
          f"streams were opened {[one.opened for one in followers]} times")
    for problem in problems[:20]:
        print(f"  # problem: {problem[:500]}")
    equal(problems[:5], [], f"{len(problems)} problems, seed {seed}, after {counts}")
    assert_same(replica_set)


if __name__ == "__main__":
    print(f"  # seed {SEED}")
    run(SEED)
