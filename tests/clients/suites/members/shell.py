"""Scripts in mongosh."""

import os
import subprocess

from harness.tap import equal

HERE = os.path.dirname(os.path.abspath(__file__))
SHELL = os.path.join(os.path.dirname(os.path.dirname(HERE)), "node_modules", ".bin", "mongosh")


def shell(member, script):
    """What a script prints that runs at a member."""
    address = f"mongodb://127.0.0.1:{member.port}/test?directConnection=true"
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
