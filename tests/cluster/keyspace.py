"""The conformance suite of the seam on the cluster, and the tests of what only a cluster does (crates/tikv/tests/all/keyspace.rs)."""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COMMAND = ["cargo", "test", "--locked", "--quiet", "--workspace", "--test", "all", "--", "keyspace::", "--format", "pretty", "--nocapture"]


def main():
    if not os.environ.get("FROND_TEST_PD"):
        sys.exit("FROND_TEST_PD does not tell where the cluster is")
    process = subprocess.Popen(COMMAND, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    number, failed = 0, 0
    for line in process.stdout:
        found = re.fullmatch(r"test keyspace::(\S+) \.\.\. (ok|FAILED)", line.rstrip())
        if not found:
            print(f"  # {line}", end="")
            continue
        number += 1
        failed += found[2] != "ok"
        print("ok" if found[2] == "ok" else "not ok", number, "-", found[1].replace("_", " "), flush=True)
    status = process.wait()
    if status and not failed:
        sys.exit(status)
    print(f"1..{number}")


if __name__ == "__main__":
    main()
