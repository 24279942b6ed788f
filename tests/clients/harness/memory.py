"""Memory groups for servers; they need root, and a kernel that has them."""

import os
import subprocess

FUNCTIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "scripts", "lib", "memory-cgroup.sh")


class MemoryGroup:
    """A group with a limit, or none where it cannot be made; `wrap` is for `Server`."""

    def __init__(self, mib):
        name = f"frond-clients-{os.getpid()}"
        done = self._call('cgroup_make "$1" "$2"', name, str(mib))
        self.folder = done.stdout.strip() if done.returncode == 0 else None

    def _call(self, script, *arguments):
        command = ["bash", "-c", f'. "$0"; {script}', FUNCTIONS, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @property
    def wrap(self):
        """A command that starts another in the group, with the same process id."""
        if not self.folder:
            return []
        return ["bash", "-c", f'. "{FUNCTIONS}"; cgroup_exec "$@"', "bash", self.folder]

    def kills(self):
        """How often the kernel killed a process of the group for its memory."""
        return int(self._call('cgroup_oom_kills "$1"', self.folder).stdout or 0) if self.folder else 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.folder:
            self._call('cgroup_remove "$1"', self.folder)
