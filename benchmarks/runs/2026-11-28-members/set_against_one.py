"""W4 and single inserts on a set of one and on a set of three members, in turns: set_against_one.py SERVER."""

import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "tests", "clients"))
from harness.replica_set import ReplicaSet  # noqa: E402
from pymongo import WriteConcern  # noqa: E402

ROUNDS, INSERTS = 10, 400
W4 = ["--documents", "50000", "--load-threads", "4", "--threads", "8", "--seconds", "60", "--quiet"]


def latency(sets):
    times = {count: [] for count in sets}
    for turn in range(ROUNDS):
        for count, members in sets.items():
            collection = members.primary.client().test.get_collection("single", write_concern=WriteConcern("majority"))
            for number in range(INSERTS):
                began = time.perf_counter()
                collection.insert_one({"_id": turn * INSERTS + number, "a": number})
                times[count].append(time.perf_counter() - began)
    medians = {count: statistics.median(found) * 1000 for count, found in times.items()}
    print("single insert, majority, median ms:", medians, "ratio", medians[3] / medians[1], flush=True)


def main():
    server = sys.argv[1]
    with ReplicaSet(server, count=1, options=["--quiet"]) as one, ReplicaSet(server, count=3, options=["--quiet"]) as three:
        sets = {1: one, 3: three}
        for members in sets.values():
            members.start()
        latency(sets)
        uris = [word for members in sets.values() for word in ("--uri", f"mongodb://127.0.0.1:{members.primary.port}/")]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([server, "bench", "sysbench", *uris, *W4, "--turns", "3", "--out", folder], check=True, stdout=subprocess.DEVNULL)
            with open(os.path.join(folder, "summary.md"), encoding="utf-8") as report:
                print(report.read())


main()
