#!/usr/bin/env python3
"""Mixed work on a server that is killed every few minutes; `make soak` runs it in a memory group, for hours.

    soak.py --server target/debug/frond --out OUT --seconds 3600

Writers with a model insert, update, replace and delete; large documents are updated by path; indexes are built and
dropped, documents expire, cursors stay open, clients die in the middle of messages. The server is killed with SIGKILL
every --kill-every seconds in the first two thirds of the time; the last third shows whether memory and handles stay flat.
OUT gets samples.csv, finds.csv, server.log and soak.md. The last line is "soak: N passed, M failed".
"""

import argparse
import os
import random
import resource
import shutil
import sys
import threading
import time

from pymongo import MongoClient

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "clients"))
from harness import crashing  # noqa: E402
from harness.server import Server  # noqa: E402
from harness.waiting import PATIENCE  # noqa: E402
from measure import Group, Prober, Sampler, make_probed, percentile  # noqa: E402
from model import LargeWriter, Writer  # noqa: E402
from troubles import ALL, Expiry  # noqa: E402

WRITERS = 3
CALM_SHARE = 1 / 3
START_SECONDS_MAX = 120
# The cache has grown to its limit by then.
FLAT_FROM_S = 600


class Verdict:
    """Checks with their results."""

    def __init__(self):
        self.lines, self.failed = [], 0

    def check(self, what, problems):
        """A check that holds if there are no problems."""
        self.failed += bool(problems)
        self.lines.append(f"{'FAILED' if problems else 'passed'}  {what}")
        self.lines.extend(f"          {problem}" for problem in problems[:20])
        print("\n".join(self.lines[-1 - min(len(problems), 20) :]), flush=True)


def set_up(server):
    """The collections and the indexes that stay."""
    with crashing.connect(server) as client:
        client.soak.items.create_index([("k", 1)])
        client.soak.items.create_index([("tags", 1), ("k", 1)])
        client.soak.large.create_index([("n", 1)])
        client.soak.expiring.create_index("at", expireAfterSeconds=Expiry.LIFE_S)
    make_probed(server)


def flat(samples, share, slack):
    """What grew: the median of the last third of the samples is above that of the first third by more than allowed."""
    third = len(samples) // 3
    if third < 10:
        return []
    first, last = percentile(samples[:third], 0.5), percentile(samples[-third:], 0.5)
    return [f"from {first:.0f} to {last:.0f}"] if last > first * (1 + share) + slack else []


def run(options, server, group, verdict):
    """Runs the load, and checks what is left of it."""
    moments = random.Random(options.seed)
    print(f"soak: seed {options.seed}, {options.seconds:.0f} s", flush=True)
    server.start(START_SECONDS_MAX)
    set_up(server)
    writers = [Writer(server, f"w{n}", options.seed, options.documents) for n in range(WRITERS)]
    writers.append(LargeWriter(server, "large", options.seed, max(10, options.documents // 500)))
    troubles = [trouble(server, options.seed) for trouble in ALL]
    sampler = Sampler(server, group, os.path.join(options.out, "samples.csv"))
    prober = Prober(server.port)
    began = time.monotonic()
    for thread in (sampler, *writers, *troubles):
        thread.start()

    starts, ended = [], []
    elapsed = lambda: time.monotonic() - began  # noqa: E731
    calm_from = options.seconds * (1 - CALM_SHARE)
    next_kill = options.kill_every * moments.uniform(0.5, 1.5)
    operations = lambda: sum(writer.operations for writer in writers)  # noqa: E731
    is_work_done = lambda: operations() > options.seconds and all(trouble.done for trouble in troubles)  # noqa: E731
    # A slow machine gets more time for some work of each kind.
    while elapsed() < options.seconds or (not is_work_done() and elapsed() < options.seconds + PATIENCE):
        time.sleep(0.1)
        if server.process.poll() is not None:
            ended.append(f"the server ended by itself with {server.process.returncode} after {elapsed():.0f} s")
            starts.append(server.start(START_SECONDS_MAX))
        elif elapsed() > next_kill and elapsed() < calm_from:
            server.kill()
            starts.append(server.start(START_SECONDS_MAX))
            next_kill = elapsed() + options.kill_every * moments.uniform(0.5, 1.5)
    for thread in (*writers, *troubles):
        thread.stopping.set()
    stuck = [thread.name for thread in (*writers, *troubles) if thread.join(PATIENCE) or thread.is_alive()]
    prober.stop()
    sampler.stop()

    prober.write(os.path.join(options.out, "finds.csv"))
    took = prober.took_ms()
    calm = calm_from + 5
    peak = max(sampler.column("resident_mib"), default=0)
    verdict.check("the server ran until it was killed", ended)
    verdict.check("every client thread came to its end", stuck)
    if not stuck:
        # Nothing else runs now, but the last commands of the load may.
        with MongoClient(server.uri, retryReads=False, serverSelectionTimeoutMS=60_000) as client:
            counts = [writer.check(client) for writer in writers]
            for trouble in troubles:
                trouble.check(client)
            for name in ("items", "large", "expiring"):
                verdict.check(f"{name} is valid with all indexes", crashing.validate(client, "soak", name))
        problems = [problem for writer in writers for problem in writer.problems]
        verdict.check(f"{sum(counts)} documents are as the model has them", problems)
        verdict.check("nothing unexpected was answered", [p for trouble in troubles for p in trouble.problems])
    verdict.check("work was done", [] if is_work_done() else [
        f"{operations()} operations, " + ", ".join(f"{type(t).__name__} {t.done}" for t in troubles)])
    verdict.check("every find by _id was answered", prober.errors[:5] if took else ["none was"])
    if group.folder:
        kills = group.kills()
        verdict.check("the kernel killed nothing for its memory", [f"{kills} times"] if kills else [])
        over = peak > options.resident_mib
        verdict.check(f"resident memory is at most {options.resident_mib} MiB", [f"{peak:.0f} MiB"] if over else [])
    if options.seconds >= FLAT_FROM_S:
        for name, share, slack in (("resident_mib", 0.2, 32), ("handles", 0.2, 40), ("threads", 0.2, 16)):
            verdict.check(f"{name} stays flat", flat(sampler.column(name, calm), share, slack))
    server.stop()
    figures = {
        "operations of writers": operations(),
        "kills": len(starts) - len(ended),
        "longest start, s": round(max(starts, default=0), 2),
        "resident memory at most, MiB": round(peak),
        "handles at most": max(sampler.column("handles"), default=0),
        "threads at most": max(sampler.column("threads"), default=0),
        "disk at the end, MiB": round(sampler.column("disk_mib")[-1]) if sampler.rows else 0,
        "finds by _id": len(took),
        "their 50th percentile, ms": round(percentile(took, 0.5), 2),
        "their 99th percentile, ms": round(percentile(took, 0.99), 2),
        "the same without kills, ms": round(percentile(prober.took_ms(calm), 0.99), 2),
    }
    figures.update({f"{type(t).__name__}, done and refused": f"{t.done}, {t.refused}" for t in troubles})
    with open(os.path.join(options.out, "soak.md"), "w", encoding="utf-8") as page:
        page.write(f"# Soak of {options.seconds:.0f} s, seed {options.seed}\n\n```\n" + "\n".join(verdict.lines) + "\n```\n\n| | |\n| --- | --- |\n")
        page.writelines(f"| {name} | {value} |\n" for name, value in figures.items())
    for name, value in figures.items():
        print(f"{name}: {value}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="binary to test")
    parser.add_argument("--out", required=True, help="folder for the results")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--kill-every", type=float, default=180, help="seconds between two kills, on average")
    parser.add_argument("--documents", type=int, default=20_000, help="most documents of each writer")
    parser.add_argument("--resident-mib", type=int, default=480, help="most resident memory in a group")
    parser.add_argument("--cgroup", help="folder of a memory group for the server")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    group, verdict = Group(options.cgroup), Verdict()
    folder = os.path.join(options.out, "server")
    shutil.rmtree(folder, ignore_errors=True)
    parameters = ["--quiet", "--setParameter", "ttlMonitorSleepSecs=2"]
    # It stays in the group for its child, so that a kill for its memory is that of the server.
    threading.excepthook = lambda failure: verdict.check("a client thread", [repr(failure.exc_value)])
    with Server(options.server, parameters, folder, wrap=group.wrap()) as server:
        try:
            run(options, server, group, verdict)
        except Exception as error:  # pylint: disable=broad-except
            verdict.check("the soak came to its end", [f"{type(error).__name__}: {error}"])
        server.kill()
    log = os.path.join(folder, "server.log")
    if os.path.exists(log):
        with open(log, encoding="utf-8", errors="replace") as lines:
            panics = [line[:500] for line in lines if "panicked" in line]
        verdict.check("the server's log has no panic", panics)
        shutil.move(log, os.path.join(options.out, "server.log"))
    if not verdict.failed:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"soak: {sum(line.startswith('passed') for line in verdict.lines)} passed, {verdict.failed} failed")
    sys.exit(1 if verdict.failed else 0)


if __name__ == "__main__":
    main()
