"""Scripts in mongosh."""

import os
import subprocess

from harness.tap import equal

CLIENTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHELL = os.path.join(CLIENTS, "node_modules", ".bin", "mongosh")


def run_script(port, script):
    """Runs a script at the server of a port, and returns what it prints."""
    address = f"mongodb://127.0.0.1:{port}/test?directConnection=true"
    done = subprocess.run(
        [SHELL, "--quiet", "--norc", address, "--eval", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    equal(done.returncode, 0, done.stdout + done.stderr)
    return done.stdout.strip()
