#!/usr/bin/env python3
"""Whether a server in a memory group survives what clients do, with default settings; scripts/bounded.sh runs it.

    bounded.py --server BINARY --out OUT --minutes 10

Each load of loads.py runs alone, and then all of them together, each time on a new server with the main job (W1) beside it.
For each the table has: whether the server was killed, the sum of its memory budget, its largest resident memory, the most that its
group used apart from the page cache, the part of this that buffers of sockets are, and how long finds by `_id` took.
OUT gets bounded.md, and samples, the uses of the budget and the server's log of each run.

With `--headroom` the group gets three times its limit when the server has read the limit: what it takes too much is measured, where
else it would be killed.
"""

import argparse
import itertools
import os
import resource
import shutil
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "clients"))
from harness.server import Server, ServerError  # noqa: E402
import loads  # noqa: E402
from measure import Group, Prober, Sampler, budget_of, make_probed, percentile  # noqa: E402

RESIDENT_SHARE_MAX = 15 / 16
"""Of the limit of the group."""
P99_MS_MAX = 50
"""Of finds by `_id`, except beside sorts."""
DISK_MIB_MIN = 4096
"""The run ends when the file system has less."""


def run(options, group, name, chosen):
    """One run on a new server. Returns the cells of its row, and whether all bounds were kept."""
    folder = os.path.join(options.out, f"{group.limit_mib()}", name.replace(" ", "-"))
    shutil.rmtree(folder, ignore_errors=True)
    kills_before = group.kills()
    limit_mib = group.limit_mib()
    with Server(options.server, ["--quiet"], folder, wrap=group.wrap()) as server:
        server.start()
        if options.headroom:
            # The server has read the limit.
            group.set_limit_mib(3 * limit_mib)
        make_probed(server)
        with loads.client_of(server.port) as client:
            for load in chosen:
                load.prepare(client, loads.scaled(options.small))
        sampler = Sampler(server, group, os.path.join(folder, "samples.csv"), budget=True)
        budget = budget_of(server.port)["memory"]["limit"] / 1048576
        sampler.start()
        prober = Prober(server.port)
        main_job = loads.MainJob(server.port, options.server, folder) if options.w1 else None
        running = [loads.Running(load, server.port, options.small) for load in chosen]
        began, note = time.monotonic(), ""
        while time.monotonic() - began < options.minutes * 60:
            time.sleep(0.5)
            room = os.statvfs(folder)
            if server.process.poll() is not None:
                note = f"the server ended with {server.process.returncode}"
                break
            if room.f_bavail * room.f_frsize < DISK_MIB_MIN << 20:
                note = "stopped: the file system is nearly full"
                break
        took_s = time.monotonic() - began
        counted = {each.load.name: each.stop() for each in running}
        written = main_job.stop() if main_job else ""
        prober.stop()
        sampler.stop()
        killed = group.kills() - kills_before
        ended = server.process.poll()
        stopped = ""
        if ended is None:
            try:
                server.stop(120)
            except ServerError as error:
                stopped = str(error).splitlines()[0]
        server.kill()
    if options.headroom:
        group.set_limit_mib(limit_mib)
    shutil.rmtree(os.path.join(folder, "db"), ignore_errors=True)
    prober.write(os.path.join(folder, "finds.csv"))
    times = prober.took_ms()
    resident = max(sampler.column("peak_mib"), default=0)
    parts = zip(*(sampler.column(part) for part in ("anonymous_mib", "kernel_mib", "sockets_mib")))
    unreclaimable = max((sum(part) for part in parts), default=0)
    p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
    has_sorts = loads.Sorts in chosen
    kept = not (
        killed or ended is not None or stopped or prober.errors or not times or (p99 > P99_MS_MAX and not has_sorts)
        or limit_mib and (resident > limit_mib * RESIDENT_SHARE_MAX or unreclaimable > limit_mib))
    cells = [
        name, f"{limit_mib}", f"{took_s:.0f}", "yes" if killed or ended is not None else "no", f"{budget:.0f}", f"{resident:.0f}",
        f"{unreclaimable:.0f}", f"{max(sampler.column('sockets_mib'), default=0):.0f}", f"{max(sampler.column('threads'), default=0)}",
        f"{max(sampler.column('handles'), default=0)}", f"{len(times)}", f"{p50:.1f}", f"{p99:.1f}", f"{max(times, default=0):.0f}",
        f"{len(prober.errors)}", "yes" if kept else "**no**"]
    name = f"{name}, {limit_mib} MiB"
    details = [f"- {name}: {load}: " + ", ".join(f"{what} {n}" for what, n in sorted(counts.items())) for load, counts in counted.items()]
    if main_job:
        details.append(f"- {name}: W1: last line of its trace: {written}")
    details.extend(f"- {name}: {text}" for text in (note, stopped, *prober.errors[:3]) if text)
    return cells, details, kept


HEAD = ["load", "memory MiB", "seconds", "killed", "budget MiB", "largest resident MiB", "group MiB", "sockets MiB", "threads",
        "handles", "finds", "p50 ms", "p99 ms", "longest ms", "failed finds", "within bounds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="binary to test")
    parser.add_argument("--out", required=True, help="folder for the results")
    parser.add_argument("--minutes", type=float, default=10, help="how long each run takes")
    parser.add_argument("--cgroup", action="append", help="folder of a memory group for the server; all runs in each that is given")
    parser.add_argument("--only", help="names of runs, with commas: those of loads.py, W1, all together")
    parser.add_argument("--no-w1", dest="w1", action="store_false", help="without the main job beside")
    parser.add_argument("--headroom", action="store_true", help="three times the limit once the server runs")
    parser.add_argument("--small", action="store_true", help="a twentieth of everything, for a try")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    runs = [("W1", [])] + [(load.name, [load]) for load in loads.ALL] + [("all together", list(loads.ALL))]
    runs += [(load.name, [load]) for load in loads.ALONE]
    if options.only:
        wanted = options.only.split(",")
        runs = [one for one in runs if one[0] in wanted]
        if len(runs) != len(wanted):
            parser.error(f"--only: the runs are W1, all together, {', '.join(load.name for load in loads.ALL + loads.ALONE)}")
    rows, details, kept_all = [], [], True
    for group, (name, chosen) in itertools.product(map(Group, options.cgroup or [None]), runs):
        print(f"== {name}, {group.limit_mib()} MiB", flush=True)
        cells, more, kept = run(options, group, name, chosen)
        rows.append(cells)
        details.extend(more)
        kept_all &= kept
        print("\n".join([" | ".join(f"{head} {cell}" for head, cell in zip(HEAD, cells)), *more]), flush=True)
        with open(os.path.join(options.out, "bounded.md"), "w", encoding="utf-8") as page:
            page.write("| " + " | ".join(HEAD) + " |\n|" + " --- |" * len(HEAD) + "\n")
            page.writelines("| " + " | ".join(cells) + " |\n" for cells in rows)
            page.write("\n" + "\n".join(details) + "\n")
    sys.exit(0 if kept_all else 1)


if __name__ == "__main__":
    main()
