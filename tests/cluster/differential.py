"""Random cases on the servers, whose answers are compared with those of mingo and mongo-java-server: tests/differential."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ROUNDS = 100


def main():
    program = os.path.join(ROOT, "tests", "differential", "run.mjs")
    command = ["node", program, "--uri", os.environ["FROND_URI"], "--seed", "test", "--rounds", str(ROUNDS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    last = ""
    for line in process.stdout:
        # Its lines of failed cases are not those of tests.
        print(f"  # {line}", end="", flush=True)
        last = line.strip() or last
    status = process.wait()
    print("ok" if status == 0 else "not ok", f"1 - {ROUNDS} rounds of random cases: {last}")
    print("1..1")
    return status


if __name__ == "__main__":
    sys.exit(main())
