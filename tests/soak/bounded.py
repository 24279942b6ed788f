#!/usr/bin/env python3
"""Whether a server in a memory group survives what clients do, with default settings; scripts/bounded.sh runs it.

    bounded.py --server BINARY --out OUT --minutes 10

Each load of loads.py runs alone, and then all of them together, each time on a new server with the main job (W1) beside it.
For each the table has: whether the server was killed, its largest resident memory, and how long finds by `_id` took.
OUT gets bounded.md, and samples and the server's log of each run.
"""

import argparse
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
from measure import Group, Prober, Sampler, make_probed, percentile  # noqa: E402

RESIDENT_MIB_MAX = 480
P99_MS_MAX = 100
DISK_MIB_MIN = 4096
"""The run ends when the file system has less."""


def run(options, name, chosen):
    """One run on a new server. Returns the cells of its row, and whether all bounds were kept."""
    group = Group(options.cgroup)
    folder = os.path.join(options.out, name.replace(" ", "-"))
    shutil.rmtree(folder, ignore_errors=True)
    kills_before = group.kills()
    with Server(options.server, ["--quiet"], folder, wrap=group.wrap()) as server:
        server.start()
        make_probed(server)
        with loads.client_of(server.port) as client:
            for load in chosen:
                load.prepare(client, loads.scaled(options.small))
        sampler = Sampler(server, group, os.path.join(folder, "samples.csv"))
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
    shutil.rmtree(os.path.join(folder, "db"), ignore_errors=True)
    prober.write(os.path.join(folder, "finds.csv"))
    times = prober.took_ms()
    resident = max(sampler.column("peak_mib"), default=0)
    p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
    kept = not (killed or ended is not None or stopped or prober.errors or not times or p99 > P99_MS_MAX or resident > RESIDENT_MIB_MAX)
    cells = [
        name, f"{took_s:.0f}", "yes" if killed or ended is not None else "no", f"{resident:.0f}", f"{max(sampler.column('threads'), default=0)}",
        f"{max(sampler.column('handles'), default=0)}", f"{len(times)}", f"{p50:.1f}", f"{p99:.1f}", f"{max(times, default=0):.0f}",
        f"{len(prober.errors)}", "yes" if kept else "**no**"]
    details = [f"- {name}: {load}: " + ", ".join(f"{what} {n}" for what, n in sorted(counts.items())) for load, counts in counted.items()]
    if main_job:
        details.append(f"- {name}: W1: last line of its trace: {written}")
    details.extend(f"- {name}: {text}" for text in (note, stopped, *prober.errors[:3]) if text)
    return cells, details, kept


HEAD = ["load", "seconds", "killed", "largest resident MiB", "threads", "handles", "finds", "p50 ms", "p99 ms", "longest ms", "failed finds", "within bounds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="binary to test")
    parser.add_argument("--out", required=True, help="folder for the results")
    parser.add_argument("--minutes", type=float, default=10, help="how long each run takes")
    parser.add_argument("--cgroup", help="folder of a memory group for the server")
    parser.add_argument("--only", help="names of runs, with commas: those of loads.py, W1, all together")
    parser.add_argument("--no-w1", dest="w1", action="store_false", help="without the main job beside")
    parser.add_argument("--small", action="store_true", help="a twentieth of everything, for a try")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    runs = [("W1", [])] + [(load.name, [load]) for load in loads.ALL] + [("all together", list(loads.ALL))]
    if options.only:
        wanted = options.only.split(",")
        runs = [one for one in runs if one[0] in wanted]
        if len(runs) != len(wanted):
            parser.error(f"--only: the runs are W1, {', '.join(load.name for load in loads.ALL)}, all together")
    rows, details, kept_all = [], [], True
    for name, chosen in runs:
        print(f"== {name}", flush=True)
        cells, more, kept = run(options, name, chosen)
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
