"""W1 or W2 (`frond bench insert`, `multikey`) on the members of a replica set, all on this machine, each in a memory group.

    replica_set.py --server target/release/frond --documents 10000000
    replica_set.py --server target/release/frond --members 1 --journal

Prints documents per second; of each member the processor time and the reads of its files, by document; the lag of the
secondaries. --away stops a secondary for some seconds of the load and measures how it catches up. --add gives the set an empty
member when half of the documents are there, and compares the load before and after that.
"""

import bisect
import os
import subprocess
import sys
import tempfile
import threading
import time

from common import HERE, arguments, bench, cpu_seconds

sys.path.insert(0, os.path.join(HERE, "..", "tests", "soak"))
from harness.replica_set import ReplicaSet, assert_same  # noqa: E402
from measure import Group, percentile  # noqa: E402
from pymongo.errors import PyMongoError  # noqa: E402

SAMPLE_S = 0.02
CGROUPS = os.path.join(HERE, "..", "scripts", "lib", "memory-cgroup.sh")


def group_command(command, *words):
    """Runs a function of scripts/lib/memory-cgroup.sh."""
    line = f'. "$0" && {command} "$@"'
    return subprocess.run(["bash", "-c", line, CGROUPS, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


class Sampler(threading.Thread):
    """Notes again and again the time of the last write that a member has."""

    def __init__(self, member):
        super().__init__(daemon=True)
        self.member, self.samples, self.ends = member, [], threading.Event()

    def run(self):
        while not self.ends.wait(SAMPLE_S):
            try:
                last = self.member.hello()["lastWrite"]["opTime"]["ts"]
            except (PyMongoError, KeyError):
                continue
            self.samples.append((time.monotonic(), last))

    def stop(self):
        self.ends.set()
        self.join()


def lags(primary, secondary):
    """Of each sample of a secondary: for how long the primary had had something newer."""
    times, writes = [at for at, _ in primary], [last for _, last in primary]
    for at, last in secondary:
        newer = bisect.bisect_right(writes, last)
        yield max(0.0, at - times[newer]) if newer < len(times) else 0.0


def status(member):
    return member.command("serverStatus", metrics=0, repl=0)["frond"]


class Load(threading.Thread):
    """A workload on the primary, with its rate while it runs."""

    def __init__(self, given, primary, documents, collection):
        super().__init__()
        self.given, self.primary, self.documents, self.collection = given, primary, documents, collection
        self.figures, self.failure = {}, None

    def run(self):
        given = self.given
        words = [given.workload, "--uri", f"mongodb://127.0.0.1:{self.primary.port}/", "--documents", self.documents, "--quiet"]
        words += ["--collection", self.collection, "--threads", given.threads, "--batch", given.batch]
        words += ["--journal"] if given.journal else []
        words += ["--majority"] if given.majority else []
        try:
            with tempfile.TemporaryDirectory() as folder:
                self.figures = bench(given.server, *words, "--out", folder)
        except subprocess.CalledProcessError as error:
            self.failure = error

    def finish(self):
        """Waits for its end. Returns the speed on average and at the end."""
        self.join()
        if self.failure:
            raise self.failure
        return [next(value for name, value in self.figures.items() if figure in name) for figure in ("speed on average", "exit speed (")]

    def count(self):
        counted = self.primary.client().frond_bench.command("count", self.collection)
        return counted["n"]


def rate(load, seconds):
    """Documents per second in some seconds of a load that is running."""
    began, before = time.monotonic(), load.count()
    while load.is_alive() and time.monotonic() - began < seconds:
        time.sleep(0.05)
    return (load.count() - before) / (time.monotonic() - began)


def catch_up_seconds(member, primary):
    """Seconds until a member has what the primary has now."""
    goal = primary.hello()["lastWrite"]["opTime"]["ts"]
    began = time.monotonic()
    while True:
        try:
            if member.hello()["lastWrite"]["opTime"]["ts"] >= goal:
                return time.monotonic() - began
        except (PyMongoError, KeyError):
            pass
        time.sleep(SAMPLE_S)


def add_member(given, replica_set):
    """A server in the next of the groups and folders."""
    number = len(replica_set.members)
    wrap = Group(given.groups[number]).wrap() if given.groups else ()
    return replica_set.add_member(folder=given.folders[number] if given.folders else None, wrap=wrap)


def plain(given, replica_set):
    """The load alone."""
    primary = replica_set.primary
    members = replica_set.members
    samplers = [Sampler(member) for member in members]
    before = [(cpu_seconds(member.pid), status(member)["disk"]["reads"]) for member in members]
    load = Load(given, primary, given.documents, "w")
    for thread in (*samplers, load):
        thread.start()
    speed, exit_speed = load.finish()
    behind = [catch_up_seconds(member, primary) for member in members]
    for sampler in samplers:
        sampler.stop()
    print(f"documents per second: {speed:,.0f}, at the end {exit_speed:,.0f}")
    led = samplers[members.index(primary)].samples
    for member, sampler, (cpu, reads), late in zip(members, samplers, before, behind):
        cpu, reads = cpu_seconds(member.pid) - cpu, status(member)["disk"]["reads"] - reads
        line = f"member {member.number}: {cpu:.1f} processor seconds, {reads} reads of files, {reads / given.documents:.5f} for each document"
        if member is not primary:
            found = sorted(lags(led, sampler.samples))
            line += f"; lag {percentile(found, 0.5) * 1000:.0f} ms, 99% {percentile(found, 0.99) * 1000:.0f} ms, most {found[-1] * 1000:.0f} ms"
            line += f"; {late:.2f} s behind at the end"
        print(line, "(primary)" if member is primary else "")


def away(given, replica_set):
    """A secondary is stopped during the load."""
    primary, member = replica_set.primary, replica_set.secondaries[0]
    load = Load(given, primary, given.documents, "w")
    load.start()
    rate(load, 2)
    member.stop()
    before, began = load.count(), time.monotonic()
    without = rate(load, given.away)
    missed, missed_s = load.count() - before, time.monotonic() - began
    member.start()
    began = time.monotonic()
    with_it = load.is_alive()
    seconds = catch_up_seconds(member, primary)
    print(f"without the member: {without:,.0f} documents per second for {missed_s:.0f} s, {missed:,} missed")
    print(f"caught up in {seconds:.1f} s ({'beside the load' if with_it else 'after the load'}): at least "
          f"{missed / seconds:,.0f} documents per second, {missed / seconds / without:.2f} times as fast as they came")
    print(f"in all: {load.finish()[0]:,.0f} documents per second")


def add(given, replica_set):
    """An empty member joins during the load."""
    primary = replica_set.primary
    Load(given, primary, given.documents, "w").run()
    load = Load(given, primary, given.documents // 2, "more")
    load.start()
    rate(load, 2)
    before = rate(load, given.compare)
    member = add_member(given, replica_set)
    member.start()
    began, counted = time.monotonic(), load.count()
    replica_set.reconfigure(lambda config: config["members"].append({"_id": member.number, "host": member.host}))
    while True:
        try:
            if member.hello().get("secondary"):
                break
        except PyMongoError:
            pass
        time.sleep(0.1)
    seconds = time.monotonic() - began
    meanwhile = (load.count() - counted) / seconds
    print(f"{given.documents:,} documents: a secondary after {seconds:.1f} s, the load {'runs on' if load.is_alive() else 'has ended'}")
    print(f"load before: {before:,.0f} documents per second, meanwhile {meanwhile:,.0f}, {meanwhile / before:.2f} of before")
    load.finish()


def main():
    parser = arguments(__doc__, members=3, memory_mib=(512, "of each member; 0 for no limit"), documents=2_000_000,
                       workload="insert", threads=1, batch=1000, away=(0, "seconds"), compare=(10, "seconds of the load before a member is added"), data=("", "folder for the data"))
    parser.add_argument("--journal", action="store_true", help="j: true")
    parser.add_argument("--majority", action="store_true", help='w: "majority"')
    parser.add_argument("--add", action="store_true")
    given = parser.parse_args()
    count = given.members + bool(given.add)
    given.folders = [tempfile.mkdtemp(prefix="frond-bench-", dir=given.data) for _ in range(count)] if given.data else []
    given.groups = []
    try:
        if given.memory_mib:
            given.groups = [group_command("cgroup_make", f"frond-set-{os.getpid()}-{number}", given.memory_mib) for number in range(count)]
        with ReplicaSet(given.server, count=0, options=["--quiet"]) as replica_set:
            for _ in range(given.members):
                add_member(given, replica_set)
            replica_set.start()
            (add if given.add else away if given.away else plain)(given, replica_set)
            if given.members > 1:
                replica_set.catch_up()
                assert_same(replica_set)
                print("equal")
            for group in given.groups:
                kills = Group(group).kills()
                if kills:
                    print(f"{kills} processes killed for their memory in {group}")
    finally:
        for group in given.groups:
            group_command("cgroup_remove", group)


if __name__ == "__main__":
    main()
