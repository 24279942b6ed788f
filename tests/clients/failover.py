#!/usr/bin/env python3
"""Measures failover: the primary of three members is killed (SIGKILL), then stepped down, under clients with retryable writes.

    failover.py --server target/release/frond --times 50

Prints, for each way, the median and the longest time between the last write that was acknowledged before and the first after,
and the errors that reached the clients. Checks that each acknowledged write is there once.
"""

import argparse
import itertools
import os
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness.replica_set import ReplicaSet, assert_same  # noqa: E402
from harness.waiting import wait_until  # noqa: E402
from pymongo.errors import PyMongoError  # noqa: E402


class Clients:
    """Threads that insert and count, each one write after the other. All share a client, as those of an application do."""

    def __init__(self, replica_set, count):
        self.client = replica_set.connect(maxPoolSize=count)
        self.collection = self.client.failover.written
        # Of each acknowledged write: the times at which it was sent and acknowledged.
        self.writes, self.ids, self.errors = [], set(), []
        self.increments = [0] * count
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self._write, args=(number,), daemon=True) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def _write(self, number):
        for serial in itertools.count():
            if self.ends.is_set():
                return
            name, began = f"{number}-{serial}", time.monotonic()
            try:
                if serial % 2:
                    self.collection.update_one({"_id": f"counter {number}"}, {"$inc": {"n": 1}}, upsert=True)
                    self.increments[number] += 1
                else:
                    self.collection.insert_one({"_id": name})
                    self.ids.add(name)
                self.writes.append((began, time.monotonic()))
            except PyMongoError as error:
                self.errors.append(f"{name}: {error!r}")

    def go_on(self, by=200):
        goal = len(self.writes) + by
        wait_until("more writes", lambda: len(self.writes) >= goal)

    def stop(self):
        self.ends.set()
        for thread in self.threads:
            thread.join()

    def problems(self):
        """Writes that are lost or done twice. One whose error reached a client may be there or not."""
        there = {one["_id"]: one.get("n") for one in self.collection.find()}
        failed = {error.split(":")[0] for error in self.errors}
        lost = [name for name in self.ids if name not in there]
        strange = [name for name in there if not name.startswith("counter") and name not in self.ids and name not in failed]
        counted = sum(there.get(f"counter {number}") or 0 for number in range(len(self.increments)))
        miscounted = counted - sum(self.increments)
        found = [f"{name} is lost" for name in lost] + [f"{name} was not acknowledged" for name in strange]
        if not 0 <= miscounted <= len(failed):
            found.append(f"{sum(self.increments)} increments were acknowledged, and {counted} are there")
        return found


def longest_gap(writes, since):
    """The longest time from one acknowledgement to the next, from shortly before `since` on."""
    ends = sorted(ended for _, ended in writes)
    before = [ended for ended in ends if ended <= since][-1:]
    after = [ended for ended in ends if ended > since]
    times = before + after
    return max(later - earlier for earlier, later in itertools.pairwise(times))


def kill(replica_set, primary):
    primary.kill()


def step_down(replica_set, primary):
    primary.command("replSetStepDown", 10)


def measure(replica_set, name, happens, times, count, say):
    clients = Clients(replica_set, count)
    gaps = []
    try:
        for turn in range(times):
            replica_set.settle()
            clients.go_on()
            # Writes that come after, of a client that did not wait, end the gap as those that waited do.
            primary, errors = replica_set.primary, len(clients.errors)
            at, from_write = time.monotonic(), max(0, len(clients.writes) - 1)
            happens(replica_set, primary)
            wait_until("another primary", lambda: replica_set.find_primary(replica_set.others(primary)), passing=(PyMongoError,))
            clients.go_on()
            gaps.append(longest_gap(clients.writes[from_write:], at))
            say(f"{name} {turn + 1}: {gaps[-1]:.2f} s, {len(clients.errors) - errors} errors")
    finally:
        clients.stop()
    replica_set.settle()
    problems = clients.problems()
    say(f"{name}: {times} times, median {statistics.median(gaps):.2f} s, longest {max(gaps):.2f} s, "
        f"{len(clients.errors)} errors reached clients, {len(clients.writes)} writes, {len(problems)} lost or done twice")
    for text in [*clients.errors[:3], *problems[:3]]:
        say(f"  {text[:300]}")
    clients.collection.drop()
    clients.client.close()
    return not problems and not clients.errors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="the built frond binary")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--way", choices=["kill", "step-down"], help="only this one")
    arguments = parser.parse_args()

    def say(text):
        print(text, flush=True)

    good = True
    with ReplicaSet(arguments.server) as replica_set:
        replica_set.start()
        for name, happens in (("kill", kill), ("step-down", step_down)):
            if arguments.way in (None, name):
                good &= measure(replica_set, name, happens, arguments.times, arguments.clients, say)
        assert_same(replica_set)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
