"""A file system in memory that can be filled. Mounting it takes rights that not every machine gives."""

import errno
import os
import subprocess

CHUNK = bytes(1 << 20)


class SmallDisk:
    """A mounted tmpfs at an empty folder. `None` instead if it cannot be mounted, see `mount`."""

    def __init__(self, folder):
        self.folder = folder
        self._blocker = os.path.join(folder, "blocker")

    @classmethod
    def mount(cls, folder, mib):
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "frond-test", folder], stderr=subprocess.DEVNULL)
        return cls(folder) if mounted.returncode == 0 else None

    def fill(self):
        """Takes all the room that is left, as another program would."""
        with open(self._blocker, "ab", buffering=0) as blocker:
            for size in (len(CHUNK), 4096):
                try:
                    while True:
                        blocker.write(CHUNK[:size])
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def make_room(self):
        """Removes the file of `fill`, if there is one."""
        if os.path.exists(self._blocker):
            os.remove(self._blocker)

    def unmount(self):
        """Lazily, so that it works while a process still has files there."""
        subprocess.run(["umount", "-l", self.folder], check=True)
