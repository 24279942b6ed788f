#!/usr/bin/env python3
"""The load of scripts/crash-w1.sh: indexed insertion, killed at random moments, checked each time."""

import argparse
import csv
import os
import random
import shutil
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from harness import crashing  # noqa: E402
from harness.server import Server, ServerError  # noqa: E402

RESTART_SECONDS_MAX = 20
INDEXES = 4


class Memory(threading.Thread):
    """Samples the server's resident memory and its group's usage each second."""

    def __init__(self, server, cgroup, path):
        super().__init__(daemon=True)
        self.server, self.cgroup, self.path = server, cgroup, path
        self.resident_max_mib = 0.0
        self.ending = threading.Event()

    def _usage_mib(self):
        for name in ("memory.current", "memory.usage_in_bytes"):
            try:
                with open(os.path.join(self.cgroup, name), encoding="ascii") as usage:
                    return int(usage.read()) / 1048576
            except OSError:
                continue
        return 0.0

    def run(self):
        began = time.monotonic()
        with open(self.path, "w", newline="", encoding="ascii") as file:
            table = csv.writer(file)
            table.writerow(["elapsed_s", "pid", "resident_mib", "cgroup_mib"])
            while not self.ending.wait(1):
                kib = self.server.resident_kib()
                if kib is None:
                    continue
                mib = kib / 1024
                self.resident_max_mib = max(self.resident_max_mib, mib)
                usage = self._usage_mib() if self.cgroup else 0
                table.writerow([f"{time.monotonic() - began:.1f}", self.server.pid, f"{mib:.1f}", f"{usage:.1f}"])
                file.flush()


class Load:
    """A run of `frond bench insert`."""

    def __init__(self, server, documents, seed, folder):
        self.trace = os.path.join(folder, "trace.csv")
        os.makedirs(folder, exist_ok=True)
        self.log = open(os.path.join(folder, "bench.log"), "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [
                server.binary, "bench", "insert", "--uri", server.uri, "--keep", "--quiet",
                "--documents", str(documents), "--indexes", str(INDEXES), "--seed", str(seed),
                "--out", folder,
            ],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def documents(self):
        """The number of inserted documents, from the last line of the trace."""
        try:
            with open(self.trace, encoding="utf-8", newline="") as trace:
                *_, last = csv.DictReader(trace)
                return int(last["count"])
        except (OSError, TypeError, ValueError):
            return 0

    def finish(self, timeout=None):
        code = self.process.wait(timeout)
        self.log.close()
        return code


class Run:
    """The whole test; failures are in `problems`."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.random = random.Random(arguments.seed)
        self.problems = []
        self.rows = []
        self.writers = []
        self.total = None
        self.memory = None
        wrap = []
        if arguments.cgroup:
            # The shell joins the group and becomes the server by exec, so the pid stays the same.
            wrap = ["bash", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', arguments.cgroup]
        self.folder = arguments.out + ".data"
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.server = Server(arguments.server, folder=self.folder, wrap=wrap)
        self.server.log_path = os.path.join(arguments.out, "server.log")
        self.record = open(os.path.join(arguments.out, "acknowledged.txt"), "w", encoding="ascii")

    def say(self, text):
        print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)

    def problem(self, text):
        self.problems.append(text)
        self.say(f"PROBLEM: {text}")

    def start_writers(self, number):
        """One with j: true and one without: a kill loses nothing of either."""
        writers = [
            crashing.Writer(self.server, "crash", f"{name}{number}", self.random.random(), self.record, concern)
            for name, concern in (("r", crashing.JOURNALED), ("u", crashing.BUFFERED))
        ]
        for writer in writers:
            writer.start()
        self.writers.extend(writers)
        return writers

    def why_dead(self):
        code = self.server.process.returncode
        for name in ("memory.events", "memory.oom_control"):
            try:
                with open(os.path.join(self.arguments.cgroup or "", name), encoding="ascii") as events:
                    if any(line.split()[0] == "oom_kill" and int(line.split()[1]) for line in events):
                        return f"code {code}, killed by the kernel for its memory"
            except OSError:
                continue
        return f"code {code}, see server.log"

    def count(self):
        with crashing.connect(self.server) as client:
            return client.frond_bench.w1.estimated_document_count()

    def crash(self, number, goal):
        """Loads until about `goal` documents are inserted, kills, restarts, checks."""
        before = self.count()
        folder = os.path.join(self.arguments.out, f"load-{number}")
        load = Load(self.server, self.arguments.documents - before, number, folder)
        writers = self.start_writers(number)
        while before + load.documents() < goal:
            if self.server.process.poll() is not None:
                raise ServerError(f"the server died before crash {number}: {self.why_dead()}")
            if load.process.poll() is not None:
                raise ServerError(f"the load ended before crash {number}, see {load.log.name}")
            time.sleep(0.05)
        time.sleep(self.random.uniform(0, 1.5))
        self.server.kill()
        load.finish(60)
        for writer in writers:
            writer.join(60)
        acknowledged = before + load.documents()
        took = self.server.start(timeout=300)
        if took > RESTART_SECONDS_MAX:
            self.problem(f"crash {number}: up again after {took:.1f} s, more than {RESTART_SECONDS_MAX}")
        with crashing.connect(self.server) as client:
            for text in crashing.problems_of(client, "crash", self.writers):
                self.problem(f"crash {number}: {text}")
        after = self.count()
        if after < acknowledged:
            self.problem(f"crash {number}: {after} documents there, {acknowledged} were acknowledged to the load")
        checked = sum(len(w.present) for w in self.writers)
        self.rows.append((number, acknowledged, after, f"{took:.2f}", checked))
        self.say(
            f"crash {number} at {acknowledged:,} documents: up after {took:.2f} s, {after:,} there; "
            f"{checked:,} acknowledged to the writers, checked"
        )

    def finish(self):
        """Loads the rest, then compares all documents and indexes."""
        before = self.count()
        left = self.arguments.documents - before
        if left > 0:
            load = Load(self.server, left, 1000, os.path.join(self.arguments.out, "load-last"))
            writers = self.start_writers(1000)
            code = load.finish()
            for writer in writers:
                writer.stopping.set()
            for writer in writers:
                writer.join(60)
            if code != 0:
                self.problem(f"the last load ended with {code}")
        total = self.total = self.count()
        if total != self.arguments.documents:
            self.problem(f"{total} documents at the end instead of {self.arguments.documents}")
        with crashing.connect(self.server) as client:
            for text in crashing.problems_of(client, "crash", self.writers):
                self.problem(f"end: {text}")
            for database, name in (("frond_bench", "w1"), ("crash", "acked"), ("crash", "counters")):
                began = time.monotonic()
                for text in crashing.validate(client, database, name):
                    self.problem(f"validate {database}.{name}: {text}")
                self.say(f"validated {database}.{name} in {time.monotonic() - began:.1f} s")
            keys = client.frond_bench.command("validate", "w1")["keysPerIndex"]
            if len(keys) != INDEXES + 1 or set(keys.values()) != {total}:
                self.problem(f"keys per index: {keys}, {total} documents")
        self.server.stop(timeout=120)

    def run(self):
        arguments = self.arguments
        self.say(f"seed {arguments.seed}")
        self.server.start()
        with crashing.connect(self.server) as client:
            client.crash.acked.create_index("k")
            client.crash.acked.create_index("s", unique=True)
            client.crash.acked.create_index("tags")
        self.memory = Memory(self.server, arguments.cgroup, os.path.join(arguments.out, "memory.csv"))
        self.memory.start()
        goals = sorted(self.random.uniform(0.03, 0.95) for _ in range(arguments.crashes))
        for number, goal in enumerate(goals, 1):
            self.crash(number, goal * arguments.documents)
        self.finish()

    def report(self):
        resident = self.memory.resident_max_mib if self.memory else 0
        verdict = "everything held" if not self.problems else f"{len(self.problems)} problems"
        lines = [
            f"# {self.arguments.crashes} crashes in the middle of {self.arguments.documents:,} documents: {verdict}",
            "",
            "| crash | documents acknowledged to the load | there after the restart | up after, s | writes with and without j: true, checked |",
            "| --- | --- | --- | --- | --- |",
            *("| " + " | ".join(f"{v:,}" if isinstance(v, int) else v for v in row) + " |" for row in self.rows),
            "",
            "- documents at the end: "
            + ("not reached" if self.total is None else f"{self.total:,}"),
            f"- acknowledged writes with and without j: true, checked at the end: {sum(len(w.present) for w in self.writers):,}",
            f"- resident memory, highest sample: {resident:.0f} MiB",
            f"- seed: {self.arguments.seed}",
            *(f"- PROBLEM: {text}" for text in self.problems),
            "",
        ]
        text = "\n".join(lines)
        with open(os.path.join(self.arguments.out, "crash.md"), "w", encoding="utf-8") as file:
            file.write(text)
        print("\n" + text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--crashes", type=int, default=5)
    parser.add_argument("--cgroup")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    arguments = parser.parse_args()
    run = Run(arguments)
    try:
        run.run()
    except (ServerError, crashing.PyMongoError, subprocess.TimeoutExpired) as error:
        run.problem(f"cut short: {error}")
    finally:
        run.server.kill()
        run.record.close()
    run.report()
    if run.problems:
        print(f"the data is kept in {run.folder}")
        return 1
    shutil.rmtree(run.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
