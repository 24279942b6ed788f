"""A root directory of its own, which vanishes with this process: the machine's, with changes in memory only."""
import fcntl
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys

MARK = "FROND_PACKAGES_INSIDE"


def enter():
    """Starts this program again with mounts, a network and processes of its own. False where that is not allowed."""
    if os.environ.get(MARK):
        interface_up("lo")
        return True
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*command, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        return False
    os.execvpe(command[0], [*command, sys.executable, *sys.argv], {**os.environ, MARK: "1"})


def interface_up(name):
    get, put, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = struct.pack("16sh14x", name.encode(), 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(handle, get, request))[1]
        fcntl.ioctl(handle, put, struct.pack("16sh14x", name.encode(), flags | up))


def mount(kind, source, target, options=""):
    pathlib.Path(target).mkdir(parents=True, exist_ok=True)
    arguments = ["mount", "-t", kind, source, str(target)]
    if kind == "bind":
        arguments = ["mount", "--rbind", source, str(target)]
    if options:
        arguments[1:1] = ["-o", options]
    subprocess.run(arguments, check=True)


class Root:
    """The machine's files, as a container sees its image: changes go to a file system in memory."""

    def __init__(self, name):
        # Under a mount of this process, so that the machine never sees it.
        self.base = pathlib.Path("/mnt/frond-packages") / name
        if not self.base.parent.exists() or not os.path.ismount("/mnt"):
            mount("tmpfs", "tmpfs", "/mnt", "size=3g,mode=0755")
        self.path = self.base / "root"
        upper, work = self.base / "upper", self.base / "work"
        for folder in (self.path, upper, work):
            folder.mkdir(parents=True)
        self.upper = upper
        lower = "/"
        mount("overlay", "overlay", self.path, f"lowerdir={lower},upperdir={upper},workdir={work}")
        for folder in ("proc", "dev", "sys"):
            mount("bind", f"/{folder}", self.path / folder)
        # Without systemd, whatever the machine has.
        mount("tmpfs", "tmpfs", self.path / "run", "mode=0755")
        mount("tmpfs", "tmpfs", self.path / "tmp", "mode=1777")

    def command(self, *arguments, user=None, environment=None):
        """A command line that runs inside, and its environment."""
        line = ["chroot", str(self.path), *arguments]
        if user:
            line = ["chroot", f"--userspec={user}", str(self.path), *arguments]
        inside = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8",
                  "DEBIAN_FRONTEND": "noninteractive", **(environment or {})}
        return {"args": line, "env": inside}

    def run(self, *arguments, check=True, **more):
        """Runs a command inside. Returns its status and its output."""
        done = subprocess.run(**self.command(*arguments, **more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, text=True)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(arguments)}: status {done.returncode}\n{done.stdout}")
        return done.returncode, done.stdout

    def inside(self, path):
        return self.path / str(path).lstrip("/")

    def changes(self):
        """The files and folders that differ from the machine's."""
        return {"/" + str(path.relative_to(self.upper)) for path in self.upper.rglob("*")}
