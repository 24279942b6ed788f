#!/usr/bin/env python3
"""Runs every check and every suite, several at a time: `make test`.

    test.py              everything
    test.py rust clients only the parts whose name begins with one of these words, and what they need

Everything is compiled once. The compiler is clippy's driver, which lints and compiles in one pass, so a warning fails the
build. Setting up the clients runs beside it. Then each test program and each client suite is a part of its own.

Each part's output is in .cache/test/PART.log. The end repeats the failures and lists the slowest parts; the last line is
"N passed, M failed". tests/budget.tsv has the processor time of each part. A part that takes more than twice as much is reported,
and one that takes four times as much has failed: processor time, because a part waits longer on a busy machine but computes nearly
the same. How much slower the machine is shows in all parts together. FROND_WRITE_BUDGET=1 records it. Loads that run at full speed
for a fixed time have no budget.
FROND_TEST_JOBS is the number of parts at a time.
"""

import dataclasses
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOGS = os.path.join(ROOT, ".cache", "test")
SUMMARY = os.path.join(ROOT, ".cache", "test-summary")
BUDGET = os.path.join(ROOT, "tests", "budget.tsv")
PYTHON = ".cache/clients/venv/bin/python"
SERVER = "target/debug/frond"

# Parts that wait poll for longer beside others, and servers that wait exchange heartbeats.
BUDGET_REPORTED = 2.0
BUDGET_FAILED = 4.0
# Short parts differ by some seconds.
BUDGET_SLACK = 5.0
CALIBRATION = "(calibration)"
# Their processor time is what the other parts leave to them.
WITHOUT_BUDGET = {"clients bank", "clients history", "clients replica-set-soak", "clients streams", "soak"}

# Lines of a log that sum it up, and those that begin the report of a failure.
SUMS = re.compile(r"^(test result: |(\w+: )?\d+ passed, \d+ failed)")
FAILURE = re.compile(r"^not ok |^---- .* stdout ----$|^failed |^FAILED |panicked at |^error(\[|:)|^warning: ")


@dataclasses.dataclass
class Part:
    """Something that passes or fails; `count` reads its numbers from its output, otherwise it counts as one test."""

    name: str
    command: list[str]
    needs: tuple[str, ...] = ()
    count: Callable[[str], tuple[int, int]] | None = None
    cwd: str = ROOT
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    # Parts that become known with this one's output.
    then: Callable[[str], list["Part"]] | None = None
    passed: int = 0
    failed: int = 0
    wall: float = 0.0
    cpu: float = 0.0

    @property
    def log(self):
        return os.path.join(LOGS, self.name.replace("/", "-").replace(" ", "-") + ".log")


def count_cargo(text):
    results = re.findall(r"^test result: .*?(\d+) passed; (\d+) failed", text, re.M)
    return sum(int(passed) for passed, _ in results), sum(int(failed) for _, failed in results)


def count_named(name):
    def count(text):
        found = re.findall(rf"^{name}: (\d+) passed, (\d+) failed$", text, re.M)
        return (int(found[-1][0]), int(found[-1][1])) if found else (0, 0)

    return count


def lint_and_compile():
    """The environment in which the workspace's crates are compiled by clippy's driver, as `cargo clippy` sets it."""
    driver = shutil.which("clippy-driver")
    if driver is None:
        return {}
    separator = "__CLIPPY_HACKERY__"
    return {"RUSTC_WORKSPACE_WRAPPER": driver, "CLIPPY_ARGS": "".join(f"{word}{separator}" for word in ("-D", "warnings"))}


def test_programs(output):
    """A part for each test program that cargo has built."""
    parts = []
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message["executable"] or not message["profile"]["test"]:
            continue
        folder = os.path.dirname(message["manifest_path"])
        package = "frond" if folder == ROOT else os.path.basename(folder)
        target = message["target"]
        if target["kind"] == ["example"]:
            continue
        what = target["name"] if target["kind"] == ["test"] else target["kind"][0]
        parts.append(Part(f"rust {package} {what}", [message["executable"]], ("build",), count_cargo, cwd=folder))
    return parts


def parts_of(compiling):
    suites = subprocess.run(
        [sys.executable, "tests/clients/run.py", "--list"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()
    ready = ("build", "setup")
    return [
        Part("build", ["cargo", "test", "--workspace", "--all-targets", "--no-run", "--locked", "--quiet",
                       "--message-format=json-render-diagnostics"], environment=compiling, then=test_programs),
        Part("setup", ["scripts/setup.sh", "deny", "clients", "differential", "console", "cluster"]),
        Part("format", ["cargo", "fmt", "--all", "--", "--check"]),
        # These have code for builds without their features, which `make run` makes.
        Part("features", ["cargo", "check", "--locked", "--quiet", "-p", "frond-tikv", "-p", "frond-telemetry"], ("build",),
             environment=compiling),
        Part("dependencies", ["scripts/deny.sh"], ("setup",)),
        Part("documentation", ["cargo", "test", "--workspace", "--doc", "--locked"], ("build",), count_cargo, environment=compiling),
        *(Part(f"clients {suite}", [PYTHON, "tests/clients/run.py", "--server", SERVER, suite], ready, count_named("clients"))
          for suite in suites),
        # Most of it is in `make clients-set`.
        Part("clients three-members", [PYTHON, "tests/clients/run.py", "--server", SERVER, "--members", "3", "node", "specs-node"],
             ready, count_named("clients"), environment={"FROND_SHORT": "1"}),
        # Always the same rounds: what a change breaks, not what luck finds. `make differential` goes on.
        Part("differential", ["node", "tests/differential/run.mjs", "--server", SERVER, "--seed", "test", "--rounds", "250"],
             ready, count_named("differential")),
        # Most of it is in `make test-cluster`.
        Part("cluster", [PYTHON, "tests/cluster/run.py", "--server", SERVER, "--short"], ready, count_named("cluster")),
        Part("console", [".cache/console/bin/python", "tests/console/run.py", "--server", SERVER], ready, count_named("console")),
        # A debug build is larger than what packages allow.
        Part("packages", [PYTHON, "tests/packages/run.py", "--server", SERVER, "--bytes-max", "250000000"], ready,
             count_named("packages")),
        Part("soak", ["scripts/soak-share.sh", SERVER], ready, count_named("soak")),
    ]


def selected(parts, words):
    """The parts whose name begins with one of the words, with what they need."""
    rust = any(word.startswith("rust") for word in words)
    wanted = [part for part in parts if part.name.startswith(words) or (rust and part.then)]
    needed = {name for part in wanted for name in part.needs}
    for part in parts:
        if part.then:
            part.then = lambda text: [part for part in test_programs(text) if part.name.startswith(words)]
    return [part for part in parts if part in wanted or part.name in needed]


class Runner:
    """Runs parts, each when what it needs has passed, those that took longest last time first."""

    def __init__(self, parts, budget, jobs):
        self.waiting = list(parts)
        self.budget = budget
        self.jobs = jobs
        self.done = []
        self.running = 0
        self.changed = threading.Condition()

    def next(self):
        passed = {part.name for part in self.done if not part.failed}
        ready = [part for part in self.waiting if passed.issuperset(part.needs)]
        # What others need first.
        needed = {name for part in self.waiting for name in part.needs}
        return max(ready, key=lambda part: (part.name in needed, self.budget.get(part.name, 0.0)), default=None)

    def run_all(self):
        with self.changed:
            while True:
                part = self.next() if self.running < self.jobs else None
                if part is not None:
                    self.waiting.remove(part)
                    self.running += 1
                    threading.Thread(target=self.run, args=[part]).start()
                elif self.running:
                    self.changed.wait()
                else:
                    break
        for part in self.waiting:
            part.failed = 1
            print(f"== {part.name}: not run, because it needs {', '.join(part.needs)}", flush=True)
        self.done += self.waiting

    def run(self, part):
        began = time.monotonic()
        text = ""
        try:
            with open(part.log, "w+", errors="replace") as log:
                status, part.cpu = run_command(part, log)
                log.seek(0)
                text = log.read()
            part.passed, part.failed = part.count(text) if part.count else (int(status == 0), int(status != 0))
            # A suite that stopped before it could count its failure has failed all the same.
            if status and not part.failed:
                part.failed = 1
        except OSError as error:
            text = f"error: {error}\n"
            part.failed = 1
        part.wall = time.monotonic() - began
        with self.changed:
            self.report(part, text)
            self.done.append(part)
            if part.then and not part.failed:
                self.waiting += part.then(text)
            self.running -= 1
            self.changed.notify()

    def report(self, part, text):
        print(f"\n== {part.name}: {part.passed} passed, {part.failed} failed, {part.wall:.0f} s, {part.cpu:.0f} s of processor time")
        lines = [line[:300] for line in text.splitlines() if not line.startswith("{")]
        shown = lines[-60:] if part.failed else [line for line in lines if SUMS.match(line)]
        print("\n".join(shown), flush=True)


def run_command(part, log):
    """(exit status, seconds of processor time of the command and of everything that it started and waited for)"""
    process = subprocess.Popen(part.command, cwd=part.cwd, env={**os.environ, **part.environment}, stdin=subprocess.DEVNULL,
                               stdout=log, stderr=subprocess.STDOUT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def calibrate():
    """Processor time of a fixed piece of work, by which budgets are compared on machines of other speeds."""
    began = time.process_time()
    number = 1
    for step in range(3_000_000):
        number = (number * 1_103_515_245 + step) & 0x7FFF_FFFF
    return time.process_time() - began


def read_budget():
    try:
        with open(BUDGET) as file:
            rows = (line.rstrip("\n").split("\t") for line in file if not line.startswith("#"))
            return {name: float(seconds) for name, seconds in rows}
    except FileNotFoundError:
        return {}


def write_budget(parts, calibration):
    with open(BUDGET, "w") as file:
        file.write("# Seconds of processor time of each part of `make test` from nothing, written by FROND_WRITE_BUDGET=1 make test.\n")
        file.write(f"{CALIBRATION}\t{calibration:.3f}\n")
        for part in sorted(parts, key=lambda part: part.name):
            file.write(f"{part.name}\t{part.cpu:.1f}\n")


def slowness(parts, budget, calibration):
    """How many times as much processor time this machine takes, or took while the parts ran."""
    ratios = [part.cpu / budget[part.name] for part in parts if budget.get(part.name, 0.0) > BUDGET_SLACK]
    return max(1.0, calibration / budget.get(CALIBRATION, calibration), statistics.median(ratios or [1.0]))


def over_budget(parts, budget, slower, factor):
    """Parts that took longer than this many times their budget, each with its allowance."""
    allowed = {name: slower * (factor * seconds + BUDGET_SLACK) for name, seconds in budget.items() if name not in WITHOUT_BUDGET}
    return [(part, allowed[part.name]) for part in parts if part.cpu > allowed.get(part.name, float("inf"))]


def print_failures(parts):
    """Repeats what the logs say of failures, in at most 60 lines, and then only the names, in at most 10: where the output is cut,
    its end still says what failed."""
    failed = [part for part in parts if part.failed]
    shown = []
    names = []
    for part in failed:
        show = 0
        with open(part.log, errors="replace") if os.path.exists(part.log) else open(os.devnull) as log:
            for line in log:
                line = line.rstrip("\n")
                if re.match(r"^not ok |^test .* FAILED$|^FAILED |^failed ", line):
                    names.append(f"{part.name}: {line[:100]}")
                if FAILURE.search(line):
                    show = 8
                elif re.match(r"^ok |^test .* ok$", line):
                    show = 0
                if show > 0:
                    shown.append(f"{part.name}: {line[:300]}")
                    show -= 1
        if not any(name.startswith(f"{part.name}: ") for name in names):
            names.append(part.name)
    print("\n== failures")
    print("\n".join(shown[:60]))
    print("\n== failed")
    print("\n".join(names[:10]), flush=True)


def main():
    began = time.monotonic()
    shutil.rmtree(LOGS, ignore_errors=True)
    os.makedirs(LOGS)
    if os.path.exists(SUMMARY):
        os.remove(SUMMARY)
    calibration = calibrate()
    budget = read_budget()
    compiling = lint_and_compile()
    parts = parts_of(compiling)
    if not compiling:
        sys.exit("test: no clippy-driver found: rustup component add clippy")
    words = tuple(sys.argv[1:])
    if words:
        parts = selected(parts, words)
    jobs = int(os.environ.get("FROND_TEST_JOBS", 0)) or (os.cpu_count() or 2) + 2
    runner = Runner(parts, budget, jobs)
    runner.run_all()
    done = runner.done

    slower = slowness(done, budget, calibration)
    exceeded = over_budget(done, budget, slower, BUDGET_FAILED)
    passed = sum(part.passed for part in done)
    failed = sum(part.failed for part in done) + len(exceeded)
    if any(part.failed for part in done):
        print_failures(done)
    for part, allowed in over_budget(done, budget, slower, BUDGET_REPORTED):
        print(f"\n== {part.name} took {part.cpu:.0f} s of processor time, and should take {allowed:.0f} s (tests/budget.tsv)")
    for part, allowed in exceeded:
        print(f"\n== {part.name} may take at most {allowed:.0f} s of processor time")
    if os.environ.get("FROND_WRITE_BUDGET") and not failed and not words:
        write_budget(done, calibration)
    print(f"\n== {time.monotonic() - began:.0f} s in all, {sum(part.cpu for part in done):.0f} s of processor time; the slowest parts:")
    for part in sorted(done, key=lambda part: part.wall, reverse=True)[:10]:
        print(f"{part.wall:6.0f} s {part.cpu:6.0f} s of processor time  {part.name}")
    summary = f"{passed} passed, {failed} failed"
    with open(SUMMARY, "w") as file:
        file.write(summary + "\n")
    print(summary, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
